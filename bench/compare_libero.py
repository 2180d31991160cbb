"""Steps a second, reset time and memory of one environment: Python LIBERO against simstream.

    compare_libero.py [--simstream PROGRAM] [--tasks SUITE/INDEX,...] [--reps N] [--steps N]
                      [--core N] [--robosuite VERSION] [--root DIR] [--pictures N]

State only: no renderer, no pictures; with --pictures both sides give the two camera pictures of N x N in
every observation, Python LIBERO by its own OpenGL renderer (EGL, on the CPU by Mesa where there is no
GPU), simstream by rays, as `bench pictures` measures it. Both sides run on the one core named by --core, one after the
other, --reps times in turn, so that a change of the machine's load meets both. A repetition of the
Python side is a reset (timed; it parses and compiles the scene again, as LIBERO does), the task's
first initial state, 5 settling steps, then --steps steps of small random actions (timed). simstream
measures its own by `bench libero --json --task=TASK`. Prints a JSON line a task; `ratio` is
simstream's median over Python's rate of the same repetition. Without --simstream only Python is
measured. Run it through scripts/libero_oracle.sh.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TASKS = "libero_spatial/0,libero_object/0,libero_goal/0,libero_10/3,libero_90/73"
SETTLE = 5


def spread(values):
    return {"min": round(min(values), 2), "median": round(statistics.median(values), 2),
            "max": round(max(values), 2)}


def resident_mb():
    with open("/proc/self/status", encoding="ascii") as file:
        kb = next(int(line.split()[1]) for line in file if line.startswith("VmRSS:"))
    return round(kb / 1024, 1)


# --- the Python side, a process of its own -------------------------------------------------------
def serve(options):
    """Answers each line of standard input with one measurement, as a JSON line."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what LIBERO prints is no answer
    sys.path.insert(0, os.path.join(HERE, "../tests/oracle"))
    import numpy as np

    import libero_python

    with tempfile.TemporaryDirectory() as config:
        parts = libero_python.load(options.root, options.robosuite, config, memoise=False,
                                   pictures=bool(options.pictures))
        suite, index = options.serve.split("/")
        task = libero_python.Task(options.root, parts[1], parts[0], None, suite, int(index),
                                  options.pictures)
        rng = np.random.default_rng(0)
        task.seed(0)
        for _ in range(2):  # compiles what numba has to compile
            measure(task, rng, 5)
        print("{}", file=out, flush=True)
        for _ in sys.stdin:
            print(json.dumps(measure(task, rng, options.steps)), file=out, flush=True)


def measure(task, rng, steps):
    start = time.perf_counter()
    task.env.reset()
    reset_s = time.perf_counter() - start
    task.env.set_init_state(task.inits[0])
    for _ in range(SETTLE):
        task.env.step([0.0] * 6 + [-1.0])
    actions = rng.uniform(-0.3, 0.3, (steps, 7))
    start, cpu = time.perf_counter(), time.process_time()
    for action in actions:
        task.env.step(action)
    return {"steps_per_s": steps / (time.perf_counter() - start),
            "steps_per_cpu_s": steps / (time.process_time() - cpu), "reset_ms": 1e3 * reset_s,
            "rss_mb": resident_mb()}


# --- both ----------------------------------------------------------------------------------------
def pinned(options, command):
    return ["taskset", "-c", str(options.core), *command]


class Python:
    def __init__(self, options, task):
        command = [sys.executable, os.path.abspath(__file__), "--serve", task,
                   "--root", options.root, "--robosuite", options.robosuite,
                   "--steps", str(options.steps), "--pictures", str(options.pictures)]
        # the oracle's restriction of BLAS to plain sums is none of the measured program's
        environment = {k: v for k, v in os.environ.items() if k != "OPENBLAS_CORETYPE"}
        if options.pictures:
            environment["MUJOCO_GL"] = "egl"
        self.process = subprocess.Popen(pinned(options, command), text=True, env=environment,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.answer()

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit("the Python side has ended")
        return json.loads(line)

    def measure(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return self.answer()

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def ours(options, task):
    """{"bare": figures, "simstream": figures}"""
    command = [options.simstream, "bench", "libero", "--json", f"--task={task}"]
    text = subprocess.run(pinned(options, command), check=True, stdout=subprocess.PIPE,
                          text=True).stdout
    rows = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    return {row["impl"]: row for row in rows if row["task"] == task}


def ours_with_pictures(options, task):
    size = f"{options.pictures}x{options.pictures}"
    command = [options.simstream, "bench", "pictures", "--json", "--egl=false", "--reps=1",
               f"--task={task}", f"--cameras=default:{size}"]
    text = subprocess.run(pinned(options, command), check=True, stdout=subprocess.PIPE,
                          text=True).stdout
    return json.loads(text.splitlines()[-1])


def compare_pictures(options, task):
    """The rates by the clock and by processor time, which other load on the machine changes less."""
    python, theirs, mine = Python(options, task), [], []
    for _ in range(options.reps):
        theirs.append(python.measure())
        mine.append(ours_with_pictures(options, task))
    python.close()
    row = {"bench": "libero_pictures", "task": task, "size": options.pictures,
           "reps": options.reps, "steps": options.steps}
    for unit in ("steps_per_s", "steps_per_cpu_s"):
        row[f"python_{unit}"] = spread([t[unit] for t in theirs])
        row[f"simstream_{unit}"] = spread([m["rays_" + unit]["median"] for m in mine])
        row[f"ratio_{unit}"] = spread([m["rays_" + unit]["median"] / t[unit]
                                       for m, t in zip(mine, theirs)])
    return row


def summary(rows):
    """Over the repetitions of one implementation."""
    def median(value):
        return value["median"] if isinstance(value, dict) else value
    return {"steps_per_s": spread([median(row["steps_per_s"]) for row in rows]),
            "reset_ms": spread([median(row["reset_ms"]) for row in rows]),
            "rss_mb": max(row["rss_mb"] for row in rows)}


def compare(options, task):
    python, theirs, mine = Python(options, task), [], []
    for _ in range(options.reps):
        theirs.append(python.measure())
        if options.simstream:
            mine.append(ours(options, task))
    python.close()
    # a step of processor time is the same on a busy machine: shows how busy this one was
    cpu = {"steps_per_cpu_s": spread([row["steps_per_cpu_s"] for row in theirs])}
    row = {"bench": "libero", "task": task, "reps": options.reps, "steps": options.steps,
           "python": {**summary(theirs), **cpu}}
    for impl in ("bare", "simstream"):
        if mine and all(impl in rows for rows in mine):
            row[impl] = summary([rows[impl] for rows in mine])
            row[f"ratio_{impl}"] = spread([rows[impl]["steps_per_s"]["median"] / py["steps_per_s"]
                                           for rows, py in zip(mine, theirs)])
    if mine and "simstream" not in row:
        raise SystemExit(f"'{options.simstream} bench libero' says nothing of {task}")
    return row


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--simstream")
    parser.add_argument("--tasks", default=TASKS)
    parser.add_argument("--reps", type=int, default=5)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--core", type=int, default=0)
    parser.add_argument("--robosuite", default="1.4.1", choices=("1.4.0", "1.4.1"))
    parser.add_argument("--root", default=os.path.join(HERE, "../build/deps/libero"))
    parser.add_argument("--pictures", type=int, default=0)
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.root = os.path.abspath(options.root)
    if options.pictures and not (options.simstream or options.serve):
        parser.error("--pictures needs --simstream")
    return options


def main():
    options = arguments()
    if options.serve:
        serve(options)
        return
    for task in options.tasks.split(","):
        work = compare_pictures if options.pictures else compare
        print(json.dumps(work(options, task)), flush=True)


if __name__ == "__main__":
    main()
