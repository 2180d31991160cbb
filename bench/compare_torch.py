"""Training step of a vision-language-action policy: simstream against PyTorch on the same threads.

    compare_torch.py SIMSTREAM [--models vla-tiny,vla-small] [--seqs 32] [--texts 30,70] [--images 2,2]
                     [--rounds 5] [--steps 3] [--compile]

Needs torch in the Python that runs it. Forward, backward and AdamW of one batch of the same lengths:
simstream packed, PyTorch padded with masks, eager (and by torch.compile). Rounds take turns; the
ratio of each round is PyTorch's best step over simstream's. Prints one JSON line a model.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

import torch

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "oracle"))
import vla_torch  # noqa: E402

CONFIGS = {  # as nn/vla_config.c has them
    "vla-tiny": dict(cameras=2, image=64, vocab=260, state=8, action=7, chunk=8, patch=8, vision_width=128,
                     vision_layers=2, vision_heads=4, vision_mlp=256, width=128, layers=4, heads=4, kv_heads=2,
                     head_dim=32, mlp=256, expert_width=96, expert_mlp=192),
    "vla-small": dict(cameras=2, image=64, vocab=260, state=8, action=7, chunk=8, patch=8, vision_width=256,
                      vision_layers=4, vision_heads=8, vision_mlp=1024, width=256, layers=7, heads=8, kv_heads=4,
                      head_dim=32, mlp=768, expert_width=160, expert_mlp=384),
}


def ragged(ends, n):
    low, high = ends
    return [low + i * 7 % (high - low + 1) for i in range(n)]


def ours(args, model, config, threads):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.json")
        with open(path, "w") as f:
            json.dump(config, f)
        text = subprocess.run(
            [args.simstream, "bench", "vla", f"--model={path}", f"--seqs={args.seqs}", f"--threads={threads}",
             f"--texts={args.texts}", f"--images={args.images}", f"--reps={args.steps}"],
            check=True, capture_output=True, text=True).stdout
    return json.loads(text)


class Theirs:
    """The same batch, padded."""

    def __init__(self, args, c, compiled):
        n = args.seqs
        images, texts = (ragged([int(x) for x in ends.split(",")], n) for ends in (args.images, args.texts))
        self.params = [(torch.randn(shape) * 0.05).requires_grad_() for _, shape in vla_torch.layout(c)]
        self.names = [name for name, _ in vla_torch.layout(c)]
        self.optimizer = torch.optim.AdamW(self.params, lr=1e-6)
        most = max(images)
        self.data = (torch.randint(0, 256, (n, most, c["image"], c["image"], 3), dtype=torch.uint8),
                     torch.randint(0, c["cameras"], (n, most)),
                     torch.arange(most)[None] < torch.tensor(images)[:, None],
                     torch.randint(0, c["vocab"], (n, max(texts))),
                     torch.arange(max(texts))[None] < torch.tensor(texts)[:, None], torch.randn(n, c["state"]))

        def forward(*params):
            return vla_torch.forward(c, dict(zip(self.names, params)), *self.data)[0].sum()

        self.forward = torch.compile(forward) if compiled else forward

    def step(self):
        start = time.monotonic()
        self.optimizer.zero_grad()
        self.forward(*self.params).backward()
        self.optimizer.step()
        return time.monotonic() - start


def spread(x):
    return {"min": round(min(x), 4), "median": round(statistics.median(x), 4), "max": round(max(x), 4)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("simstream")
    parser.add_argument("--models", default="vla-tiny,vla-small")
    parser.add_argument("--seqs", type=int, default=32)
    parser.add_argument("--texts", default="30,70")
    parser.add_argument("--images", default="2,2")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--compile", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    for model in args.models.split(","):
        ways = {"eager": Theirs(args, CONFIGS[model], False)}
        if args.compile:
            ways["compile"] = Theirs(args, CONFIGS[model], True)
        for way in ways.values():
            way.step()
        mine, theirs = [], {name: [] for name in ways}
        for _ in range(args.rounds):
            result = ours(args, model, CONFIGS[model], args.threads)
            mine.append(result["train_s"]["min"])
            for name, way in ways.items():
                theirs[name].append(min(way.step() for _ in range(args.steps)))
        out = {"bench": "torch", "model": model, "parameters": result["parameters"], "torch": torch.__version__,
               "sequences": args.seqs, "texts": args.texts, "images": args.images, "simstream_s": spread(mine)}
        for name in ways:
            out[name + "_s"] = spread(theirs[name])
            out[name + "_over_simstream"] = spread([a / b for a, b in zip(theirs[name], mine)])
        print(json.dumps(out), flush=True)


main()
