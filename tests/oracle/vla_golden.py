"""Writes tests/golden/vla.h5: what PyTorch in float64 gets for the operators of nn/ops.h, the heads
of nn/heads.h and the whole policy of nn/vla.h.

Needs torch and h5py; run by hand when they change. The tests read the file only.
    python3 tests/oracle/vla_golden.py [FILE]
"""

import sys

import h5py
import numpy as np
import torch
import torch.nn.functional as F

import vla_torch

torch.manual_seed(1)
torch.set_default_dtype(torch.float64)

# as VLA_TEST_JSON of tests/vla_testing.h
CONFIG = dict(cameras=3, image=8, vocab=11, state=3, action=2, chunk=3, patch=4, vision_width=12, vision_layers=2,
              vision_heads=2, vision_mlp=18, width=20, layers=3, heads=4, kv_heads=2, head_dim=6, mlp=10,
              expert_width=14, expert_mlp=9)
N_IMAGE, N_TEXT = [2, 0, 3, 1], [4, 6, 0, 1]  # of each sequence


def numbers(*shape, scale=1.0):
    """Numbers that are the same in float32, so that both precisions start alike."""
    return (torch.randn(*shape) * scale).float().double().requires_grad_()


def put(group, name, data):
    data = data.detach().numpy() if torch.is_tensor(data) else np.asarray(data)
    # every dataset has two dimensions, (1, n)
    group.create_dataset(name, data=data.reshape(1, -1), **(dict(compression=9, shuffle=True) if data.size > 500 else {}))


def case(out, name, inputs, y):
    """Inputs, output, and the gradient of sum(y * factor) by each input."""
    group = out.create_group(name)
    factor = numbers(*y.shape)
    grads = torch.autograd.grad((y * factor.detach()).sum(), list(inputs.values()))
    for key, grad in zip(inputs, grads):
        put(group, key, inputs[key])
        put(group, "d_" + key, grad)
    put(group, "y", y)
    put(group, "factor", factor)


def attention(out, name, heads, kv, dim, n_q, n_k, limit):
    q, k, v = numbers(sum(n_q), heads * dim), numbers(sum(n_k), kv * dim), numbers(sum(n_k), kv * dim)
    ys, at_q, at_k = [], 0, 0
    for a, b in zip(n_q, n_k):
        split = lambda x, at, n, h: x[at:at + n].view(n, h, dim).transpose(0, 1)[None]
        see = torch.tensor(limit[at_q:at_q + a])[:, None] > torch.arange(b)
        if a:
            y = F.scaled_dot_product_attention(split(q, at_q, a, heads), split(k, at_k, b, kv), split(v, at_k, b, kv),
                                               attn_mask=see[None, None], enable_gqa=True)
            ys.append(y[0].transpose(0, 1).reshape(a, heads * dim))
        at_q, at_k = at_q + a, at_k + b
    case(out, name, dict(q=q, k=k, v=v), torch.cat(ys))


def policy(out, name="policy", head="gaussian"):
    c = dict(CONFIG, head=head)
    n = len(N_IMAGE)
    total = sum(torch.Size(shape).numel() for _, shape in vla_torch.layout(c))
    flat = numbers(total, scale=0.3)
    most_image, most_text = max(N_IMAGE), max(N_TEXT)
    images = torch.randint(0, 256, (n, most_image, c["image"], c["image"], 3), dtype=torch.uint8)
    camera = torch.randint(0, c["cameras"], (n, most_image))
    text = torch.randint(0, c["vocab"], (n, most_text))
    image_real = torch.arange(most_image)[None] < torch.tensor(N_IMAGE)[:, None]
    text_real = torch.arange(most_text)[None] < torch.tensor(N_TEXT)[:, None]
    state = numbers(n, c["state"]).detach()
    flow = [numbers(n, c["chunk"], c["action"]).detach(), torch.rand(n).float().double()] if head == "flow" else []
    mean, value = vla_torch.forward(c, vla_torch.split(c, flat), images, camera, image_real, text, text_real, state,
                                    *flow)
    d_mean, d_value = numbers(*mean.shape).detach(), numbers(n).detach()
    grad, = torch.autograd.grad((mean * d_mean).sum() + (value * d_value).sum(), [flat])
    group = out.create_group(name)
    for key, data in zip(["noisy", "time"], flow):
        put(group, key, data)
    for name, data in [("params", flat), ("state", state), ("mean", mean), ("value", value), ("d_mean", d_mean),
                       ("d_value", d_value), ("grad", grad)]:
        put(group, name, data)
    put(group, "images", images[image_real].numpy())
    put(group, "camera", camera[image_real].numpy().astype(np.int64))
    put(group, "text", text[text_real].numpy().astype(np.int64))


path = sys.argv[1] if len(sys.argv) > 1 else "tests/golden/vla.h5"
with h5py.File(path, "w") as out:
    x, w, b = numbers(7, 19), numbers(19), numbers(19)
    case(out, "rms", dict(x=x, w=w), F.rms_norm(x, (19,), w, 1e-5))
    case(out, "rms_plus_one", dict(x=x, w=w), F.rms_norm(x, (19,), 1 + w, 1e-5))
    case(out, "layer_norm", dict(x=x, w=w, b=b), F.layer_norm(x, (19,), w, b, 1e-5))
    x = numbers(5, 37, scale=2.0)
    case(out, "gelu", dict(x=x), F.gelu(x, approximate="tanh"))
    case(out, "silu", dict(x=x), F.silu(x))
    x = numbers(5, 42, scale=2.0)
    gate, up = x.chunk(2, -1)
    case(out, "swiglu", dict(x=x), F.silu(gate) * up)
    case(out, "geglu", dict(x=x), F.gelu(gate, approximate="tanh") * up)
    x, w, b = numbers(5, 262), numbers(9, 262, scale=0.1), numbers(9)
    case(out, "linear", dict(x=x, w=w, b=b), F.linear(x, w, b))
    # full; and every kind of limit, with queries that are fewer than keys
    attention(out, "attention_full", 4, 2, 5, [3, 0, 67, 1], [3, 0, 67, 1], [3] * 3 + [67] * 67 + [1])
    attention(out, "attention_limit", 3, 1, 10, [5, 9, 33], [70, 9, 33],
              [70, 1, 64, 65, 9] + list(range(1, 10)) + [20] * 20 + [33] * 13)
    x = numbers(6, 9)
    target = torch.tensor([0, 3, -1, 8, 2, 2])
    case(out, "cross_entropy", dict(x=x), F.cross_entropy(x, target, reduction="none", ignore_index=-1))
    mean, log_std = numbers(8, 3), numbers(3, scale=0.3)
    action = numbers(8, 3).detach()
    case(out, "gaussian", dict(mean=mean, log_std=log_std),
         torch.distributions.Normal(mean, log_std.exp()).log_prob(action))
    put(out["gaussian"], "action", action)
    policy(out)
    policy(out, "policy_flow", "flow")
