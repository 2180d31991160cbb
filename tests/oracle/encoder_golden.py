"""Writes tests/golden/encoder_grad.h5: what PyTorch in float64 gets for nn/encoder.h and for
learner/pass.h with an encoder before both networks.

Needs torch and h5py; run by hand when they change. The tests read the file only.
    python3 tests/oracle/encoder_golden.py [FILE]
"""

import sys

import h5py
import numpy as np
import torch
from torch import nn

# width, height, stack, observations that are seen (0 = none), (channels, kernel, stride) ...
SHAPES = [
    (9, 7, 1, 0, [(4, 3, 2)]),
    (12, 15, 2, 3, [(5, 4, 2), (7, 2, 1)]),
    (20, 20, 3, 0, [(6, 6, 3), (18, 3, 1), (3, 2, 2)]),
    (31, 17, 1, 2, [(17, 4, 4), (2, 1, 1), (6, 3, 3), (20, 1, 1)]),
]
ROWS, HIDDEN, N_ACT = 5, 6, 2
VALUE_COEF = 0.7

torch.manual_seed(2)
torch.set_default_dtype(torch.float64)


def as_float32(x):
    """Numbers that are the same in float32, so that both precisions start alike."""
    return x.float().double()


def perceptron(n_in, n_out):
    return nn.Sequential(nn.Linear(n_in, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, n_out))


def flat(tensors):
    """One vector; convolutions as (out, kernel row, kernel column, in)."""
    return torch.cat([(t.permute(0, 2, 3, 1) if t.dim() == 4 else t).flatten() for t in tensors])


def make(width, height, stack, n_obs, convs):
    layers, channels = [], 3 * stack
    for out, kernel, stride in convs:
        layers += [nn.Conv2d(channels, out, kernel, stride), nn.Tanh()]
        channels = out
    encoder = nn.Sequential(*layers)
    for p in encoder.parameters():
        p.data = as_float32(p.data * 2)
    # (rows, stack, height, width, 3), the oldest picture first
    pictures = torch.randint(0, 256, (ROWS, stack, height, width, 3))
    seen = pictures.permute(0, 1, 4, 2, 3).reshape(ROWS, 3 * stack, height, width) / 255.0
    obs = as_float32(torch.randn(ROWS, max(n_obs, 1)))

    def see():
        features = encoder(seen).permute(0, 2, 3, 1).flatten(1)
        return torch.cat([features, obs], 1) if n_obs else features

    return encoder, pictures, obs, see


path = sys.argv[1] if len(sys.argv) > 1 else "tests/golden/encoder_grad.h5"
with h5py.File(path, "w") as out:
    for i, shape in enumerate(SHAPES):
        encoder, pictures, obs, see = make(*shape)
        x = see()
        factor = as_float32(torch.randn(x.shape))
        grads = torch.autograd.grad((x * factor).sum(), list(encoder.parameters()))
        policy, value = perceptron(x.shape[1], N_ACT), perceptron(x.shape[1], 1)
        log_std = nn.Parameter(torch.tensor([-0.25, 0.5]))
        params = [*encoder.parameters(), *policy.parameters(), log_std, *value.parameters()]
        for p in params:
            p.data = as_float32(p.data)
        x = see()
        action = as_float32(torch.randn(ROWS, N_ACT))
        advantage, target = as_float32(torch.randn(ROWS)), as_float32(torch.randn(ROWS))
        # the gradient of the first pass: r = 1, and w = 1 because the behaviour is the policy
        logp = torch.distributions.Normal(policy(x), torch.exp(log_std)).log_prob(action).sum(1)
        loss = -(torch.exp(logp - logp.detach()) * advantage).sum()
        loss = loss + VALUE_COEF * 0.5 * ((value(x).squeeze(1) - target) ** 2).sum()
        pass_grads = torch.autograd.grad(loss, params)
        n_encoder = len(list(encoder.parameters()))
        group = out.create_group(f"case{i}")
        # every dataset has two dimensions, (1, n) or (rows, n)
        for name, data in [("params", flat(params)), ("x", x), ("factor", factor), ("obs", obs),
                           ("grad", flat(grads)), ("grad_pass", flat(pass_grads)),
                           ("action", action), ("advantage", advantage), ("target", target),
                           ("logp", logp)]:
            group[name] = np.atleast_2d(data.detach().numpy())
        group["pictures"] = pictures.numpy().astype(np.uint8).reshape(-1, shape[0] * shape[1] * 3)
        print(i, shape, tuple(x.shape), loss.item())
