"""The same actions in Python LIBERO: success and number of steps have to be those of simstream.

    libero_replay.py --simstream PROGRAM [--tasks SUITE/INDEX,... | SUITE,...] [--episodes N]
                     [--work DIR] [--expect-equal N] [--robosuite VERSION] [--root DIR]

SIMSTREAM plays the tasks (default: the four suites of ten) with its expert and records every episode,
failures too. Python LIBERO then starts the same episodes (seed 0, episode i after reset i + 1, initial
state i), settles for ten steps and executes the recorded actions: it has to succeed at the recorded
step, or not at all. Results go to DIR/python.jsonl as they come; what stands there is not
played again, so a run that was broken off goes on. Exit code 1 if fewer than N episodes are equal
(default: all of them). Contacts amplify differences of 1e-14 (docs/libero.md), so an episode that
parts now and then is no fault of either side; it is named.

Run it through scripts/libero_oracle.sh.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

import h5py
import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
SUITES = "libero_spatial,libero_object,libero_goal,libero_10"
SETTLE = 10
DUMMY = np.array([0.0] * 6 + [-1.0])


def chosen(text):
    """{suite: [indices]} of "libero_10/3,libero_goal"."""
    tasks = {}
    for word in text.split(","):
        suite, _, index = word.partition("/")
        tasks.setdefault(suite, [])
        tasks[suite] += [int(index)] if index else range(10)
    return tasks


def record(options, suite, indices):
    """The folder of the suite's recordings."""
    out = os.path.join(options.work, f"{suite}-{options.episodes}")
    command = [options.simstream, "eval", f"--suite={suite}",
               "--tasks=" + ",".join(map(str, indices)), "--policy=expert", "--seed=0",
               f"--episodes-per-task={options.episodes}", "--record=hdf5", "--record-failures",
               "--resume", f"--out={out}"]
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        raise SystemExit("libero_replay: " + " ".join(command) + "\n" + done.stderr)
    return out


def recorded(path):
    """Of each demo: episode, success, its actions."""
    with h5py.File(path, "r") as f:
        demos = sorted(f["data"].values(), key=lambda d: d.attrs["episode"])
        return [(int(d.attrs["episode"]), bool(d.attrs["success"]), d["actions"][()]) for d in demos]


class Replay:
    """Python LIBERO's episodes of one task, in order."""

    def __init__(self, task):
        self.task, self.resets = task, 0
        task.seed(0)

    def play(self, episode, actions):
        """Success, steps that were executed, seconds."""
        start = time.perf_counter()
        while self.resets <= episode:
            self.task.env.reset()
            self.resets += 1
        self.task.env.set_init_state(self.task.inits[episode % len(self.task.inits)])
        for _ in range(SETTLE):
            self.task.env.step(DUMMY)
        for steps, action in enumerate(actions, 1):
            if self.task.env.step(action)[2]:
                return True, steps, time.perf_counter() - start
        return False, len(actions), time.perf_counter() - start


def load_results(path):
    done = {}
    if os.path.exists(path):
        with open(path, encoding="utf8") as file:
            for line in file:
                if line.endswith("\n"):
                    row = json.loads(line)
                    done[row["item"]] = row
    return done


def mend(path):
    """Cut off a line that was not written to its end."""
    if os.path.exists(path):
        with open(path, "r+b") as file:
            file.truncate(file.read().rfind(b"\n") + 1)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--simstream", required=True)
    parser.add_argument("--tasks", default=SUITES)
    parser.add_argument("--episodes", type=int, default=1)
    parser.add_argument("--work")
    parser.add_argument("--expect-equal", type=int)
    parser.add_argument("--robosuite", default="1.4.1", choices=("1.4.0", "1.4.1"))
    parser.add_argument("--root", default=os.path.join(HERE, "../../build/deps/libero"))
    options = parser.parse_args()
    options.root = os.path.abspath(options.root)
    return options


def compare(options):
    """Plays what has no result; all results."""
    import libero_python

    results = os.path.join(options.work, "python.jsonl")
    mend(results)
    done, rows = load_results(results), []
    parts = libero_python.load(options.root, options.robosuite, os.path.join(options.work, "config"))
    for suite, indices in chosen(options.tasks).items():
        out = record(options, suite, indices)
        for index in indices:
            demos = recorded(os.path.join(out, f"{suite}_{index}", "demos.hdf5"))
            if len(demos) < options.episodes:
                raise SystemExit(f"libero_replay: {suite}/{index}: {len(demos)} demos were recorded")
            replay = None
            for episode, success, actions in demos[:options.episodes]:
                item = f"{suite}/{index}/{episode}"
                row = done.get(item)
                if row is None:
                    if replay is None:
                        replay = Replay(libero_python.Task(options.root, parts[1], parts[0], parts[2],
                                                           suite, index))
                    python = replay.play(episode, actions)
                    row = {"item": item, "success": success, "steps": len(actions),
                           "python_success": python[0], "python_steps": python[1],
                           "seconds": round(python[2], 1)}
                    with open(results, "a", encoding="utf8") as file:
                        file.write(json.dumps(row) + "\n")
                rows.append(row)
                if not equal(row):
                    print("different:", json.dumps(row), flush=True)
            if replay:
                replay.task.env.close()
                print(f"{suite}/{index}: {len(demos)} episodes", flush=True)
    return rows


def equal(row):
    return (row["success"], row["steps"]) == (row["python_success"], row["python_steps"])


def main():
    options = arguments()
    sys.path.insert(0, HERE)
    with tempfile.TemporaryDirectory() as scratch:
        options.work = os.path.abspath(options.work or scratch)
        os.makedirs(options.work, exist_ok=True)
        rows = compare(options)
    same = sum(map(equal, rows))
    verdicts = sum(r["success"] == r["python_success"] for r in rows)
    tasks = {r["item"].rsplit("/", 1)[0] for r in rows}
    print(f"libero_replay: {len(tasks)} tasks, {len(rows)} episodes, {same} with the same success "
          f"and steps, {verdicts} with the same success; {sum(r['success'] for r in rows)} are successes")
    wanted = len(rows) if options.expect_equal is None else options.expect_equal
    sys.exit(0 if rows and same >= wanted else 1)


if __name__ == "__main__":
    main()
