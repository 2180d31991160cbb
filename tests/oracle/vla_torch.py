"""The policy of nn/vla.h in PyTorch, written for itself: padded batches, boolean masks, autograd.

tests/oracle/vla_golden.py takes values and gradients from it, bench/compare_torch.py its speed.
"""

import torch
import torch.nn.functional as F


def layout(c):
    """(name, shape) of every parameter in the order of the flat vector."""
    out = []
    w, m, p = c["vision_width"], c["vision_mlp"], c["patch"]
    q, kv = c["heads"] * c["head_dim"], c["kv_heads"] * c["head_dim"]
    patches = (c["image"] // p) ** 2
    out += [("patch.w", (w, 3 * p * p)), ("patch.b", (w,)), ("position", (patches, w))]
    for i in range(c["vision_layers"]):
        v = f"vision.{i}."
        out += [(v + "ln1.w", (w,)), (v + "ln1.b", (w,)), (v + "qkv.w", (3 * w, w)), (v + "qkv.b", (3 * w,)),
                (v + "out.w", (w, w)), (v + "out.b", (w,)), (v + "ln2.w", (w,)), (v + "ln2.b", (w,)),
                (v + "fc1.w", (m, w)), (v + "fc1.b", (m,)), (v + "fc2.w", (w, m)), (v + "fc2.b", (w,))]
    t = c["width"]
    out += [("post.w", (w,)), ("post.b", (w,)), ("connector.w", (t, w)), ("connector.b", (t,)),
            ("camera", (c["cameras"], t)), ("text", (c["vocab"], t)), ("state.w", (t, c["state"])), ("state.b", (t,))]

    def blocks(net, width, mlp, last_full):
        for i in range(c["layers"]):
            b = f"{net}.{i}."
            if i == c["layers"] - 1 and not last_full:
                out.extend([(b + "norm1", (width,)), (b + "qkv", (2 * kv, width))])
                continue
            out.extend([(b + "norm1", (width,)), (b + "qkv", (q + 2 * kv, width)), (b + "o", (width, q)),
                        (b + "norm2", (width,)), (b + "up", (2 * mlp, width)), (b + "down", (width, mlp))])

    blocks("trunk", t, c["mlp"], False)
    e = c["expert_width"]
    out.append(("query", (c["chunk"] + 1, e)))
    if c.get("head") == "flow":
        out += [("action_in.w", (e, c["action"])), ("action_in.b", (e,)), ("time_in.w", (e, 2 * e)),
                ("time_in.b", (e,)), ("time_out.w", (e, e)), ("time_out.b", (e,))]
    blocks("expert", e, c["expert_mlp"], True)
    out += [("norm", (e,)), ("mean.w", (c["action"], e)), ("mean.b", (c["action"],)), ("value.w", (1, e)),
            ("value.b", (1,)), ("log_std", (c["action"],))]
    return out


def split(c, flat):
    """The flat vector as a dictionary of tensors that share its memory."""
    out, at = {}, 0
    for name, shape in layout(c):
        n = torch.Size(shape).numel()
        out[name] = flat[at:at + n].view(shape)
        at += n
    assert at == flat.numel(), (at, flat.numel())
    return out


def rms(x, w):
    return F.rms_norm(x, (x.shape[-1],), w, 1e-5)


def rope(x, position):  # (batch, heads, rows, dim), (batch, rows)
    half = x.shape[-1] // 2
    f = 10000.0 ** (-torch.arange(half, dtype=x.dtype) / half)
    angle = position.to(x.dtype)[:, None, :, None] * f
    cos, sin = angle.cos(), angle.sin()
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def patches_of(images, c):  # (n, side, side, 3) uint8 -> (n, patches, 3 * patch * patch)
    n, s, p = images.shape[0], c["image"], c["patch"]
    x = images.to(torch.get_default_dtype()) / 127.5 - 1
    return x.view(n, s // p, p, s // p, p, 3).permute(0, 1, 3, 5, 2, 4).reshape(n, (s // p) ** 2, 3 * p * p)


def vision(c, w, images):
    x = F.linear(patches_of(images, c), w["patch.w"], w["patch.b"]) + w["position"]
    n, rows, width = x.shape
    heads = c["vision_heads"]
    for i in range(c["vision_layers"]):
        g = lambda name: w[f"vision.{i}.{name}"]
        y = F.layer_norm(x, (width,), g("ln1.w"), g("ln1.b"), 1e-6)
        q, k, v = F.linear(y, g("qkv.w"), g("qkv.b")).view(n, rows, 3, heads, width // heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(n, rows, width)
        x = x + F.linear(y, g("out.w"), g("out.b"))
        y = F.layer_norm(x, (width,), g("ln2.w"), g("ln2.b"), 1e-6)
        x = x + F.linear(F.gelu(F.linear(y, g("fc1.w"), g("fc1.b")), approximate="tanh"), g("fc2.w"), g("fc2.b"))
    x = F.layer_norm(x, (width,), w["post.w"], w["post.b"], 1e-6)
    return F.linear(x, w["connector.w"], w["connector.b"])


def time_embedding(t, dim):  # (n) -> (n, dim)
    period = 4e-3 * 1000.0 ** (torch.arange(dim // 2, dtype=torch.float64) / (dim // 2 - 1))
    angle = 2 * torch.pi * t[:, None] / period
    return torch.cat([angle.sin(), angle.cos()], -1)


def forward(c, w, images, camera, image_real, text, text_real, state, noisy=None, time=None):
    """images (n, most, side, side, 3), camera and image_real (n, most), text and text_real (n, most),
    state (n, state) -> mean (n, chunk, action), value (n). Of a flow noisy (n, chunk, action), time
    (n), and the mean is the velocity."""
    n, most = camera.shape
    rows = (c["image"] // c["patch"]) ** 2
    chunk = c["chunk"]
    parts, real = [], []
    if most:
        x = vision(c, w, images.flatten(0, 1)).view(n, most, rows, -1) + w["camera"][camera][:, :, None]
        parts.append(x.flatten(1, 2))
        real.append(image_real.repeat_interleave(rows, 1))
    parts += [w["text"][text], F.linear(state, w["state.w"], w["state.b"])[:, None]]
    real += [text_real, torch.ones(n, 1, dtype=torch.bool)]
    x, real = torch.cat(parts, 1), torch.cat(real, 1)
    s = w["query"].expand(n, -1, -1)
    if noisy is not None:
        a = F.linear(noisy, w["action_in.w"], w["action_in.b"])
        t = time_embedding(time, a.shape[-1]).to(a.dtype)[:, None].expand_as(a)
        a = F.silu(F.linear(torch.cat([a, t], -1), w["time_in.w"], w["time_in.b"]))
        s = s + F.pad(F.linear(a, w["time_out.w"], w["time_out.b"]), (0, 0, 0, 1))
    n_prefix = x.shape[1]
    # cumulative blocks: prefix, actions, value; padding is never seen and does not count
    block = torch.cat([torch.zeros(n_prefix), torch.ones(chunk), torch.full((1,), 2.0)])
    seen = torch.cat([real, torch.ones(n, chunk + 1, dtype=torch.bool)], 1)
    position = seen.long().cumsum(1) - 1
    mask = (block[None, :] <= block[:, None])[None] & seen[:, None, :]
    mask = mask[:, None]  # (n, 1, queries, keys)
    h, kv, d = c["heads"], c["kv_heads"], c["head_dim"]

    def heads(y, count):
        return y.view(n, y.shape[1], count, d).transpose(1, 2)

    def after(y, o, name, mlp):
        y = y + F.linear(o, w[name + ".o"])
        gate, up = F.linear(rms(y, w[name + ".norm2"]), w[name + ".up"]).split(mlp, -1)
        return y + F.linear(F.silu(gate) * up, w[name + ".down"])

    for i in range(c["layers"]):
        last = i == c["layers"] - 1
        a = F.linear(rms(x, w[f"trunk.{i}.norm1"]), w[f"trunk.{i}.qkv"])
        b = F.linear(rms(s, w[f"expert.{i}.norm1"]), w[f"expert.{i}.qkv"])
        if last:
            ka, va = a.split([kv * d, kv * d], -1)
            qb, kb, vb = b.split([h * d, kv * d, kv * d], -1)
            q, at = heads(qb, h), position[:, n_prefix:]
        else:
            qa, ka, va = a.split([h * d, kv * d, kv * d], -1)
            qb, kb, vb = b.split([h * d, kv * d, kv * d], -1)
            q, at = heads(torch.cat([qa, qb], 1), h), position
        k, v = heads(torch.cat([ka, kb], 1), kv), heads(torch.cat([va, vb], 1), kv)
        q, k = rope(q, at), rope(k, position)
        o = F.scaled_dot_product_attention(q, k, v, attn_mask=mask[:, :, n_prefix:] if last else mask,
                                           enable_gqa=kv != h)
        o = o.transpose(1, 2).reshape(n, -1, h * d)
        if last:
            s = after(s, o, f"expert.{i}", c["expert_mlp"])
        else:
            x = after(x, o[:, :n_prefix], f"trunk.{i}", c["mlp"])
            s = after(s, o[:, n_prefix:], f"expert.{i}", c["expert_mlp"])
    s = rms(s, w["norm"])
    return F.linear(s[:, :chunk], w["mean.w"], w["mean.b"]), F.linear(s[:, chunk], w["value.w"], w["value.b"])[:, 0]
