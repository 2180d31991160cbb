"""Env steps per second through Python: simstream against Gymnasium's vector envs and EnvPool.

    compare_gym.py [--tasks=A,B] [--envs=64,256] [--seconds=3] [--repeat=3] [--program=SIMSTREAM]

Needs gymnasium, mujoco, numpy and the simstream package in the Python that runs it; EnvPool is
measured where it is installed, and the result says so where it is not. Each measurement is a fresh
process on two CPUs; all systems are measured once before any is measured again, so that a ratio
compares neighbours in time. Actions are uniform, another one for each env and step, and drawn
before the clock starts (the C loop draws them while it runs). With one action for good an env ends
up in a corner of its own, where it lies on the ground more often than with the C loop's actions and
a step costs more. A step is an action that was executed: with next-step autoreset the call that
only resets an env does not count, but its time does.

Prints one JSON line for each task and number of envs, with min, median and max of the steps per
second and of the ratios to simstream's figure of the same round, by the wall and by processor time
of all processes (which stays of use on a machine that does other things as well), and a last one
with the memory of 256 Humanoids (proportional set size of all processes). `better_mode` takes
whichever was faster of simstream and simstream_async, and of the two modes of the other.

    simstream        step(): all envs, in env order
    simstream_async  recv() and send() of half of the envs at a time
    simstream_ipc    step() at a `simstream serve --threads=2` (with --program)
    simstream_c      a C client in the same process (with --program)
    c_loop           C threads that call mj_step on their share of the envs and never wait for each
                     other: `simstream bench env` (with --program)
    gym_sync         Gymnasium's SyncVectorEnv, one thread
    gym_async        Gymnasium's AsyncVectorEnv, a process for each env
    envpool          EnvPool, num_threads=2, batch_size = envs
    envpool_async    EnvPool, num_threads=2, batch_size = half of the envs
"""

import argparse
import contextlib
import importlib.util
import itertools
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np

TASKS = ["Ant-v5", "HalfCheetah-v5", "Hopper-v5", "Humanoid-v5", "Walker2d-v5"]
THREADS = 2
C_WAYS = {"c_loop": "bare", "simstream_c": "pool"}  # of `simstream bench env`


# --- one system, in a process of its own ----------------------------------------------------------


def processes():
    """This process and its descendants."""
    todo = [os.getpid()]
    while todo:
        pid = todo.pop()
        yield pid
        with contextlib.suppress(OSError):
            for task in os.listdir(f"/proc/{pid}/task"):
                children = pathlib.Path(f"/proc/{pid}/task/{task}/children").read_text()
                todo += [int(child) for child in children.split()]


def memory_mib():
    """Proportional set size of all processes."""
    total = 0
    for pid in processes():
        with contextlib.suppress(OSError):
            for line in pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    total += int(line.split()[1])
    return total / 1024


def cpu_seconds():
    """Processor time of all processes so far."""
    ticks = 0
    for pid in processes():
        with contextlib.suppress(OSError):
            fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
            ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def drive_all(env, n, seconds):
    """Gymnasium's loop; steps per second, and per second of processor time."""
    env.reset(seed=1) if hasattr(env, "single_action_space") else env.reset()
    actions = itertools.cycle(env_actions(env, n))
    for _ in range(3):
        env.step(next(actions))
    steps, ended, cpu, start = 0, 0, cpu_seconds(), time.perf_counter()
    while (took := time.perf_counter() - start) < seconds:
        for _ in range(4):
            steps += n - ended  # an env that ended only begins its next episode now
            _, _, term, trunc, _ = env.step(next(actions))
            ended = int((term | trunc).sum())
    return steps / took, steps / max(0.01, cpu_seconds() - cpu)


def drive_some(env, n, seconds):
    """EnvPool's loop: recv, then send to the same envs; as drive_all."""
    actions = itertools.cycle(env_actions(env, n))
    env.async_reset()
    steps, start = 0, None
    for count in range(1 << 62):
        _, _, term, trunc, info = env.recv()
        ids = info["env_id"]
        if count == 8:
            steps, cpu, start = 0, cpu_seconds(), time.perf_counter()
        steps += len(ids) - int((term | trunc).sum())
        if start is not None and (took := time.perf_counter() - start) >= seconds:
            return steps / took, steps / max(0.01, cpu_seconds() - cpu)
        env.send(next(actions)[ids], ids)


def env_actions(env, n):
    """(256, n, n_act): a table that is gone through again and again."""
    space = env.single_action_space if hasattr(env, "single_action_space") else env.action_space
    low, high = space.low.reshape(-1), space.high.reshape(-1)
    return np.random.default_rng(0).uniform(low, high, (256, n, len(low))).astype(space.dtype)


@contextlib.contextmanager
def served(program, task, n):
    with tempfile.TemporaryDirectory() as folder:
        address = f"ipc://{folder}/env.sock"
        process = subprocess.Popen([program, "serve", f"--task={task}", f"--num-envs={n}",
                                    f"--threads={THREADS}", f"--listen={address}"],
                                   stdout=subprocess.DEVNULL)
        try:
            yield address
        finally:
            process.terminate()
            process.wait()


def measure_c(program, task, n, seconds, way):
    """As `measure`, of `simstream bench env`: way "bare" is the free-running C loop, "pool" the C
    client. Their memory is not asked for."""
    text = subprocess.run([program, "bench", "env", f"--tasks={task}", f"--num-envs={n}",
                           f"--threads={THREADS}", f"--seconds={round(1000 * seconds)}ms",
                           "--reps=1", f"--ways={'' if way == 'bare' else way}"],
                          check=True, capture_output=True).stdout
    line = json.loads(text)
    return {"rate": line[way + "_steps_per_s"]["median"],
            "cpu_rate": line[way + "_steps_per_cpu_s"]["median"]}


def measure(system, task, n, seconds, program):
    """{"rate", "cpu_rate": steps per second, "mib": memory} of one system."""
    if system in C_WAYS:
        return measure_c(program, task, n, seconds, C_WAYS[system])
    with contextlib.ExitStack() as stack:
        if system.startswith("simstream"):
            import simstream

            where = {"task": task, "num_threads": THREADS}
            if system == "simstream_ipc":
                where = {"address": stack.enter_context(served(program, task, n))}
            if system == "simstream_async":
                where["batch_size"] = n // 2
            env = simstream.make_vec(num_envs=n, **where)
        elif system.startswith("envpool"):
            import envpool

            env = envpool.make_gymnasium(task, num_envs=n, num_threads=THREADS, seed=1,
                                         batch_size=n // 2 if system == "envpool_async" else n)
        else:
            import gymnasium

            env = gymnasium.make_vec(task, n, vectorization_mode=system.removeprefix("gym_"))
        drive = drive_some if system.endswith("_async") and system != "gym_async" else drive_all
        rate, cpu_rate = drive(env, n, seconds)
        result = {"rate": rate, "cpu_rate": cpu_rate, "mib": memory_mib()}
        env.close()
    return result


# --- all of them ----------------------------------------------------------------------------------


def spread(values):
    values = sorted(values)
    return [round(v, 3 if v < 100 else 0)
            for v in (values[0], statistics.median(values), values[-1])]


def run_one(system, task, n, args):
    """measure() in a fresh process."""
    command = [sys.executable, __file__, "--one", system, task, str(n), str(args.seconds),
               args.program]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{system} {task} {n}: {done.stderr.strip().splitlines()[-1]}")
    return json.loads(done.stdout.splitlines()[-1])


def better_mode(rates, system):
    """Of each round the better one of `system` and `system`_async; [] if neither was measured."""
    modes = [rates[s] for s in (system, system + "_async") if s in rates]
    return [max(both) for both in zip(*modes)]


def ratios(rates):
    """Spreads of one kind of rate, and of its ratios."""
    ours = rates["simstream"]
    line = {"steps": {s: spread(r) for s, r in rates.items()},
            "simstream_over": {s: spread([a / b for a, b in zip(ours, r)])
                               for s, r in rates.items() if s != "simstream"}}
    mine = better_mode(rates, "simstream")
    for other in ("envpool", "c_loop"):
        if theirs := better_mode(rates, other):
            line[f"better_mode_over_{other}"] = spread([a / b for a, b in zip(mine, theirs)])
    if "simstream_c" in rates and "c_loop" in rates:
        line["c_client_over_c_loop"] = spread(
            [a / b for a, b in zip(rates["simstream_c"], rates["c_loop"])])
    return line


def compare(systems, task, n, args):
    results = {system: [] for system in systems}
    for _ in range(args.repeat):
        for system in systems:
            results[system].append(run_one(system, task, n, args))
    line = {"bench": "gym", "task": task, "envs": n, "threads": THREADS}
    for name, key in (("per_second", "rate"), ("per_cpu_second", "cpu_rate")):
        line[name] = ratios({s: [one[key] for one in r] for s, r in results.items()})
    print(json.dumps(line), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--one", nargs=5, help=argparse.SUPPRESS)
    parser.add_argument("--tasks", default=",".join(TASKS))
    parser.add_argument("--envs", default="64,256")
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--program", default="", help="measure over ipc too, with this simstream")
    parser.add_argument("--skip", default="", help="systems to leave out, such as gym_async")
    args = parser.parse_args()
    if args.one:
        system, task, n, seconds, program = args.one
        print(json.dumps(measure(system, task, int(n), float(seconds), program)))
        return
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:THREADS])
    systems = ["simstream", "simstream_async", "gym_sync", "gym_async"]
    if args.program:
        systems += ["simstream_ipc", "simstream_c", "c_loop"]
    if importlib.util.find_spec("envpool"):
        systems += ["envpool", "envpool_async"]
    else:
        print(json.dumps({"bench": "gym", "envpool": "not installed, so not measured"}))
    systems = [s for s in systems if s not in args.skip.split(",")]
    for task in args.tasks.split(","):
        for n in args.envs.split(","):
            compare(systems, task, int(n), args)
    mib = {s: round(run_one(s, "Humanoid-v5", 256, args)["mib"])
           for s in systems if s not in C_WAYS}
    print(json.dumps({"bench": "gym_memory", "task": "Humanoid-v5", "envs": 256, "mib": mib}))


if __name__ == "__main__":
    main()
