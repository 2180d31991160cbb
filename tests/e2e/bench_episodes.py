"""`bench episodes`: packed and padded batches give the same gradient and loss, tokens and lengths are
those of the suite and the success rate, and what it cannot use is named."""
import json
import os
import subprocess
import tempfile

# 4 tokens of a picture, 1 of the state, 8 + 1 of the suffix
MODEL = {"model": "vla-tiny", "image": 8, "patch": 4, "vision_layers": 1, "layers": 2, "mlp": 64}
FIXED = 4 + 1 + 9


def bench(*options):
    return subprocess.run([os.environ["SIMSTREAM"], "bench", "episodes", *options], capture_output=True,
                          text=True)


def run(*options):
    with tempfile.NamedTemporaryFile("w", suffix=".json") as model:
        json.dump(MODEL, model)
        model.flush()
        done = bench(f"--model={model.name}", "--reps=1", "--images=1", "--micro-tokens=600", *options)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


for options in (["--suite=all", "--episodes=6"],
                ["--suite=libero_10", "--episodes=3", "--threads=3", "--checkpoint"]):
    d = run(*options)
    packed, padded = d["packed"], d["padded"]
    assert 0 <= d["gradient_difference"] <= 1e-5, d
    assert packed["loss"] > 0.1 and abs(packed["loss"] / padded["loss"] - 1) < 1e-5, d
    assert sum(d["histogram"]) == d["episodes"], d
    assert packed["decisions"] < padded["decisions"] and padded["decisions"] % d["episodes"] == 0, d
    assert packed["micro_batches"] > 1, d
    assert abs(d["tokens_padded_over_packed"] - padded["tokens"] / packed["tokens"]) < 1e-9, d
    for ratio in "train_packed_over_padded", "cpu_packed_over_padded":
        assert 0 < d[ratio]["min"] <= d[ratio]["median"] <= d[ratio]["max"], d

# all fail: 220 steps are 28 decisions each, so only instructions are padded
d = run("--suite=libero_spatial", "--success=0", "--episodes=2")
tokens = [FIXED + text for text in (82, 68)]
assert d["successes"] == 0 and d["histogram"][4] == 2, d
assert d["packed"]["decisions"] == d["padded"]["decisions"] == 56, d
assert d["packed"]["tokens"] == 28 * sum(tokens), d
assert d["padded"]["tokens"] == 56 * max(tokens), d

# all succeed: nobody is slower than the expert
d = run("--suite=libero_object", "--success=1", "--episodes=5")
assert d["successes"] == 5 and sum(d["histogram"][1:3]) == 5, d

for option, word in (("--suite=libero_x", "libero_spatial"), ("--micro-tokens=20", "20"),
                     ("--success=2", "success")):
    done = bench(option)
    assert done.returncode != 0 and word in done.stderr, (option, done.stderr)
