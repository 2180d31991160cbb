#!/usr/bin/env python3
"""Streaming against collect-then-update, for policies of action chunks that learn from groups of episodes.

    python3 bench/streaming.py build/simstream [--task tabletop/5 --init run/sft] [--reps 3]

One run collects a window, updates, and collects the next; that it spends shares c and u = 1 - c of its time
on the two is in its own metrics. With --train-async, --rollout-async and --streaming both go on at the same
time, so at best it takes max(c, u) of that time: the overlap bound. The learning rate is 0, and what an
episode is is a function of its number and the weights, so all runs play the same episodes.

Inference and update wait for a modelled accelerator (nn/accel.h), or both would want the same processors:
overlap is then no gain on any machine. Without --init a new perceptron plays, whose groups are never
uniform; --init is a policy of simstream sft that succeeds now and then in a task of a suite.
Prints one JSON line with min, median and max of the repetitions, which are interleaved.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import tempfile

ROWS = {"collect_then_update": [],
        "train_async": ["--train-async"],
        "streaming": ["--train-async", "--rollout-async", "--streaming"]}


def call(*command):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, command))}: exit {done.returncode}: {done.stderr[-1000:]}")


def run(options, folder, switches):
    """Env steps per second, and the share of the time that was spent on waiting for episodes."""
    if options.init:
        suite, index = options.task.rsplit("/", 1)
        what = [f"--suite={suite}", f"--tasks={index}", f"--init={options.init}"]
    else:
        what = [f"--task={options.task}", "--action-chunk=8", "--hidden=32"]
    call(options.program, "train", *what, "--algo=rloo", "--group-size=4", f"--num-envs={options.num_envs}",
         f"--window-episodes={2 * options.num_envs}", "--window-max=1", f"--updates={options.windows + 1}",
         "--total-steps=1000000000000", "--lr=0", "--lr-final=0", "--epochs=1", "--minibatches=1",
         "--explore=0.3", "--max-staleness=1", f"--accel-infer={options.accel_infer}",
         f"--accel-update-row={options.accel_episode}", f"--out={folder}",
         '--kwargs={"max_episode_steps": 64}', *switches)
    windows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    # the first window is for warming up; the metrics have the time at the end of each
    length = [b["time/seconds"] - a["time/seconds"] for a, b in zip(windows, windows[1:])]
    steps = windows[-1]["step"] - windows[0]["step"]
    waited = sum(w["perf/wait_share"] * s for w, s in zip(windows[1:], length))
    return steps / sum(length), waited / sum(length)


def spread(values):
    return {"min": min(values), "median": statistics.median(values), "max": max(values)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", type=pathlib.Path)
    parser.add_argument("--init", type=pathlib.Path, help="policy to begin with (default: a new perceptron)")
    parser.add_argument("--task", default="HalfCheetah-v5", help="(default: %(default)s)")
    parser.add_argument("--num-envs", type=int, default=16, help="(default: %(default)s)")
    parser.add_argument("--windows", type=int, default=10, help="counted ones of a run (default: %(default)s)")
    parser.add_argument("--reps", type=int, default=3, help="(default: %(default)s)")
    parser.add_argument("--accel-infer", default="40ms", help="time of an inference (default: %(default)s)")
    parser.add_argument("--accel-episode", default="20ms",
                        help="time of forward and backward per episode (default: %(default)s)")
    options = parser.parse_args()
    rate = {name: [] for name in ROWS}
    share = []
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        for rep in range(options.reps):
            for name, switches in ROWS.items():
                steps_per_s, waited = run(options, scratch / f"{name}{rep}", switches)
                rate[name].append(steps_per_s)
                if name == "collect_then_update":
                    share.append(waited)
    result = {"bench": "streaming", "task": options.task, "reps": options.reps, "collect_share": spread(share)}
    bound = [1 / max(c, 1 - c) for c in share]
    result["overlap_bound"] = spread(bound)
    for name in ROWS:
        result[name] = {"steps_per_s": spread(rate[name])}
    for name in list(ROWS)[1:]:
        gain = [a / b for a, b in zip(rate[name], rate["collect_then_update"])]
        result[name]["gain"] = spread(gain)
        result[name]["share_of_bound"] = spread([g / b for g, b in zip(gain, bound)])
    print(json.dumps(result))


if __name__ == "__main__":
    main()
