"""Writes tests/golden/ppo_grad.h5: losses and gradients of PyTorch in float64 for learner/pass.h.

Needs torch and h5py; run by hand when the losses change. The tests read the file only.
    python tests/oracle/ppo_golden.py [FILE]
"""

import sys

import h5py
import numpy as np
import torch
from torch import nn

N, N_OBS, N_ACT, HIDDEN = 64, 5, 3, 16
CLIP, VALUE_COEF, ENTROPY_COEF, WEIGHT_CAP = 0.2, 0.7, 0.01, 2.0

torch.manual_seed(1)
torch.set_default_dtype(torch.float64)


def network(n_out):
    return nn.Sequential(nn.Linear(N_OBS, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, HIDDEN), nn.Tanh(),
                         nn.Linear(HIDDEN, n_out))


def as_float32(x):
    """Numbers that are the same in float32, so that both precisions start alike."""
    return x.float().double()


policy, value = network(N_ACT), network(1)
log_std = nn.Parameter(torch.tensor([-0.5, 0.1, -1.0]))
parameters = [*policy.parameters(), log_std, *value.parameters()]
for p in parameters:
    p.data = as_float32(p.data)

x = as_float32(torch.randn(N, N_OBS))
with torch.no_grad():
    action = as_float32(policy(x) + torch.exp(log_std) * torch.randn(N, N_ACT))
advantage = as_float32(torch.randn(N))
target = as_float32(torch.randn(N))


def distribution():
    return torch.distributions.Normal(policy(x), torch.exp(log_std))


with torch.no_grad():
    now = distribution().log_prob(action).sum(1)
logp_behaviour = as_float32(now + 0.5 * torch.randn(N))
logp_ref = as_float32(now + 0.2 * torch.randn(N))
weight = as_float32(0.5 + torch.rand(N))


def losses(first):
    dist = distribution()
    logp = dist.log_prob(action).sum(1)
    if first:
        w = torch.exp(logp - logp_behaviour).detach().clamp(max=WEIGHT_CAP)
        log_r = logp - logp.detach()
        log_k = (logp - logp_behaviour).detach()
    else:
        w = weight
        log_r = logp - logp_ref
        log_k = log_r.detach()
    r = torch.exp(log_r)
    plain, clipped = r * advantage, r.clamp(1 - CLIP, 1 + CLIP) * advantage
    policy_loss = -(w * torch.minimum(plain, clipped)).sum()
    value_loss = 0.5 * ((value(x).squeeze(1) - target) ** 2).sum()
    entropy = N * dist.entropy()[0].sum()
    kl = (torch.exp(log_k) - 1 - log_k).sum()
    n_clipped = (clipped < plain).sum()
    total = policy_loss + VALUE_COEF * value_loss - ENTROPY_COEF * entropy
    return total, np.array([policy_loss.item(), value_loss.item(), kl.item(), n_clipped.item()])


path = sys.argv[1] if len(sys.argv) > 1 else "tests/golden/ppo_grad.h5"
with h5py.File(path, "w") as out:
    flat = torch.cat([p.detach().flatten() for p in parameters])
    for name, data in [("params", flat), ("x", x), ("action", action), ("advantage", advantage),
                       ("target", target), ("logp_behaviour", logp_behaviour),
                       ("logp_ref", logp_ref), ("weight", weight)]:
        out[name] = data.detach().numpy()
    for name, first in [("first", True), ("replay", False)]:
        total, values = losses(first)
        grads = torch.autograd.grad(total, parameters)
        out["grad_" + name] = torch.cat([g.flatten() for g in grads]).numpy()
        out["loss_" + name] = values
        print(name, values)
