"""Instructions per env step: the env server in process against a bare loop over mj_step.

    instructions.py SIMSTREAM [--tasks=A,B] [--envs=64] [--seconds=8]

Instructions of user space as valgrind's callgrind counts them, so the same on a loaded machine as
on a quiet one, where a rate is not: what the server adds to physics shows to a tenth of a percent.
Caches, waits and the kernel do not show. Episode ends are left out, since they fall differently in
the two, and physics counts the same in both, as the mean of both.

Prints one JSON line for each task: instructions of an env step's `physics` (mj_step), and beside it
of the loop (`loop`), of the worker that steps an env and delivers its row (`worker`), of the client
that takes it and sends the next action (`client`); and the ratio of the two sums. Needs valgrind.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

TASKS = "Ant-v5,HalfCheetah-v5,Hopper-v5,Humanoid-v5,Walker2d-v5"
_LINE = re.compile(r"\s*([\d,]+) \([ \d.]+%\)\s+([*>])\s+(\S.*?):(\w+)(?: \(([\d,]+)x\))?(?: \[.*)?$")


def profile(program, task, envs, seconds):
    """{function: (inclusive instructions, {callee: (instructions, calls)})} of a run of the bench."""
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "out")
        # string instructions would count once a byte
        plain = {"GLIBC_TUNABLES": "glibc.cpu.x86_rep_stosb_threshold=1073741824:"
                                   "glibc.cpu.x86_rep_movsb_threshold=1073741824"}
        subprocess.run(
            ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", program, "bench", "env",
             f"--tasks={task}", f"--num-envs={envs}", "--threads=1", f"--seconds={seconds}s",
             "--reps=1", "--ways=pool"], check=True, capture_output=True,
            env=os.environ | plain)
        text = subprocess.run(
            ["callgrind_annotate", "--inclusive=yes", "--tree=calling", "--threshold=100",
             "--auto=no", out], check=True, capture_output=True, text=True).stdout
    functions, callees = {}, {}
    for line in text.splitlines():
        match = _LINE.match(line)
        if not match:
            continue
        cost = int(match[1].replace(",", ""))
        if match[2] == "*":
            callees = {}
            functions[match[4]] = (cost, callees)
        else:
            callees[match[4]] = (cost, int(match[5].replace(",", "")))
    return functions


def per_step(functions):
    """(physics, loop, worker, client) instructions per env step; the last three beside physics."""
    loop, in_loop = functions["loop_run"]
    work, in_work = functions["pool_work"]
    client, _ = functions["drive"]
    none = (0, 0)
    loop_steps, steps = in_loop["mju_copy"][1], in_work["env_step"][1]
    loop_physics = in_loop["mj_step"][0]
    physics = functions["hooks_step"][1]["mj_step"][0]
    loop_ends = in_loop.get("sim_reset", none)[0]
    ends = in_work["env_reset"][0] + functions["env_step"][1].get("sim_reset", none)[0]
    return ((loop_physics + physics) / (loop_steps + steps),
            (loop - loop_physics - loop_ends) / loop_steps,
            (work - physics - ends) / steps,
            client / steps)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--tasks", default=TASKS)
    parser.add_argument("--envs", type=int, default=64)
    parser.add_argument("--seconds", type=int, default=8, help="of each of the two, under valgrind")
    args = parser.parse_args()
    if not shutil.which("valgrind"):
        sys.exit("valgrind is not installed, and nothing else counts instructions here")
    for task in args.tasks.split(","):
        physics, loop, worker, client = per_step(
            profile(args.program, task, args.envs, args.seconds))
        print(json.dumps({"bench": "instructions", "task": task, "envs": args.envs,
                          "physics": round(physics), "loop": round(loop), "worker": round(worker),
                          "client": round(client),
                          "ratio": round((physics + loop) / (physics + worker + client), 4)}),
              flush=True)


if __name__ == "__main__":
    main()
