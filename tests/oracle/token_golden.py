"""Writes tests/golden/token_loss.h5: losses and gradients of PyTorch in float64 for
learner/token_loss.h.

Needs torch and h5py; run by hand when the losses change. The tests read the file only.
    python tests/oracle/token_golden.py [FILE]
"""

import sys

import h5py
import torch

CHUNK, ACT = 4, 3
LENGTHS = [9, 1, 16, 6, 4]  # executed sub-steps of each episode
LOW, HIGH, DUAL, CAP, ENTROPY, FIXED = 0.2, 0.28, 3.0, 2.0, 0.01, 20

torch.manual_seed(3)
torch.set_default_dtype(torch.float64)


def as_float32(x):
    """Numbers that are the same in float32, so that both precisions start alike."""
    return x.float().double()


n_sub, episode = [], []
for e, length in enumerate(LENGTHS):
    for first in range(0, length, CHUNK):
        n_sub.append(min(CHUNK, length - first))
        episode.append(e)
n = len(n_sub)
n_sub, episode = torch.tensor(n_sub), torch.tensor(episode)
mask = (torch.arange(CHUNK)[None, :] < n_sub[:, None]).double()
mean = as_float32(torch.randn(n, CHUNK, ACT)).requires_grad_()
log_std = as_float32(-0.5 + 0.3 * torch.randn(CHUNK, ACT)).requires_grad_()
with torch.no_grad():
    action = as_float32(mean + torch.exp(log_std) * torch.randn(n, CHUNK, ACT))


def logp_now():
    return torch.distributions.Normal(mean, torch.exp(log_std)).log_prob(action).sum(2)


with torch.no_grad():
    behaviour = as_float32(logp_now() + 0.7 * torch.randn(n, CHUNK))
    start = as_float32(logp_now() + 0.25 * torch.randn(n, CHUNK))
advantage = as_float32(torch.randn(len(LENGTHS)))[episode]


def loss(level, weighting, objective, with_start):
    """The mean loss, written as the formulas are: means of means, not sums and a divisor."""
    now, mu = logp_now(), behaviour
    p = start if with_start else now.detach()
    m = mask
    entropy = (log_std + 0.5 * torch.log(torch.tensor(2 * torch.pi * torch.e))).sum(1)
    entropy = entropy[None, :].expand(n, CHUNK)
    if level == "chunk":
        now, mu, p, entropy = ((x * mask).sum(1, keepdim=True) for x in (now, mu, p, entropy))
        m = torch.ones(n, 1)
    a = advantage[:, None]
    if objective == "behaviour":
        w, r = torch.ones_like(now), torch.exp(now - mu)
    else:
        w, r = torch.exp(p - mu).detach().clamp(max=CAP), torch.exp(now - p)
    term = torch.maximum(-a * r, -a * r.clamp(1 - LOW, 1 + HIGH))
    term = torch.where(a < 0, torch.minimum(term, -a * DUAL), term)
    policy = w * term
    total = policy - ENTROPY * entropy
    per_episode = [(total[episode == e] * m[episode == e]).sum() for e in range(len(LENGTHS))]
    plain = [(policy[episode == e] * m[episode == e]).sum() for e in range(len(LENGTHS))]
    entries = [m[episode == e].sum() for e in range(len(LENGTHS))]

    def mean_of(sums):
        if weighting == "sequence":
            return sum(s / k for s, k in zip(sums, entries)) / len(LENGTHS)
        if weighting == "entry":
            return sum(sums) / sum(entries)
        return sum(sums) / (len(LENGTHS) * FIXED)

    return mean_of(per_episode), mean_of(plain).item()


path = sys.argv[1] if len(sys.argv) > 1 else "tests/golden/token_loss.h5"
with h5py.File(path, "w") as out:
    out["mean"] = mean.detach().reshape(n, -1).numpy()
    out["log_std"] = log_std.detach().flatten().numpy()
    out["action"] = action.reshape(n, -1).numpy()
    out["logp_behaviour"] = behaviour.numpy()
    out["logp_start"] = start.numpy()
    out["advantage"] = advantage.numpy()
    out["n_sub"] = n_sub.double().numpy()
    out["episode"] = episode.double().numpy()
    for level in ("action", "chunk"):
        for weighting in ("sequence", "entry", "fixed"):
            for objective, with_start in (("behaviour", False), ("decoupled", False),
                                          ("decoupled", True)):
                total, policy = loss(level, weighting, objective, with_start)
                g_mean, g_std = torch.autograd.grad(total, [mean, log_std])
                name = f"{level}_{weighting}_{objective}{'_start' if with_start else ''}"
                out["loss_" + name] = [policy]
                out["mean_" + name] = g_mean.reshape(n, -1).numpy()
                out["std_" + name] = g_std.flatten().numpy()
                print(name, policy)
