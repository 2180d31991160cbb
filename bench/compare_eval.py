"""Evaluations by a policy server: simstream against openpi's example loop over Python LIBERO, and
against the bound that the policy itself sets.

    compare_eval.py --simstream PROGRAM [--parts loop,bound] [--task SUITE/INDEX] [--reps N]
                    [--episodes N] [--envs N] [--limit STEPS] [--robosuite VERSION] [--root DIR]

loop: a policy that costs nothing behind openpi's own server class, two cameras of 128x128, padded to
224x224, 5 actions of 10 executed. Python LIBERO is driven as openpi's examples/libero/main.py does:
one env after the other, ten settling steps, rotate, resize_with_pad, infer when the plan is empty. A
repetition is one episode there and --episodes here, in turn, so that a change of the machine's load
meets both; nothing succeeds, so each has --limit steps. `ratio` is that of episodes a minute. Python
LIBERO draws by EGL: Mesa on the processor where there is no GPU.

bound: a policy that takes 100 ms for up to 8 observations, one request at a time (StarVLA's protocol),
one action executed an answer. It gives at most 80 actions a second; `share` is what of that the
evaluation reaches from the first request to the last answer, by the server's count.

Prints a JSON line a part. Run it through scripts/libero_oracle.sh.
"""

import argparse
import asyncio
import atexit
import collections
import contextlib
import functools
import json
import os
import socket
import subprocess
import sys
import tempfile
import time

import numpy as np

from compare_libero import spread

HERE = os.path.dirname(os.path.abspath(__file__))
SIZE, SENT, EXECUTE, HORIZON = 128, 224, 5, 10
SETTLE, DUMMY = 10, [0.0] * 6 + [-1.0]
CALL_S, BATCH = 0.1, 8
KINDS = {"openpi": "ws", "batch": "starvla+ws"}


# --- policy servers, processes of their own ------------------------------------------------------
def serve(kind, port):
    if kind == "openpi":
        from openpi_server import websocket_policy_server as server

        class Nothing:
            def infer(self, obs):
                return {"actions": np.zeros((HORIZON, 7))}

        # a client that simulates, on a machine that is busy, may answer a PING late
        server._server.serve = functools.partial(server._server.serve, ping_interval=None)
        server.WebsocketPolicyServer(Nothing(), "127.0.0.1", port, {}).serve_forever()
    asyncio.run(serve_batches(port))


async def serve_batches(port):
    """StarVLA's protocol; one request is worked on at a time. On SIGTERM it prints what it did."""
    import signal

    from openpi_client import msgpack_numpy
    from websockets.asyncio.server import serve as listen
    from websockets.exceptions import ConnectionClosed

    busy, end = asyncio.Lock(), asyncio.Event()
    did = {"calls": 0, "observations": 0, "first": None, "last": None}

    async def handler(ws):
        with contextlib.suppress(ConnectionClosed):
            await ws.send(msgpack_numpy.packb({"action_chunk_size": 1}))
            while True:
                m = msgpack_numpy.unpackb(await ws.recv())
                async with busy:
                    n = len(m["payload"]["examples"])
                    did["first"] = did["first"] or time.perf_counter()
                    await asyncio.sleep(CALL_S)
                    did["last"] = time.perf_counter()
                    did["calls"] += 1
                    did["observations"] += n
                await ws.send(msgpack_numpy.packb(
                    {"status": "ok", "ok": True, "type": "inference_result",
                     "request_id": m["request_id"],
                     "data": {"actions": np.zeros((n, 1, 7), np.float32)}}))

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, end.set)
    async with listen(handler, "127.0.0.1", port, compression=None, max_size=None,
                      ping_interval=None):
        await end.wait()
    print(json.dumps(did), flush=True)


class Server:
    def __init__(self, kind):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.port = s.getsockname()[1]
        self.address = f"{KINDS[kind]}://127.0.0.1:{self.port}"
        self.process = subprocess.Popen([sys.executable, os.path.abspath(__file__), "--serve", kind,
                                         "--port", str(self.port)], stdout=subprocess.PIPE, text=True)
        atexit.register(self.process.kill)  # whatever happens
        for _ in range(600):
            with socket.socket() as s:
                if s.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            if self.process.poll() is not None:
                break
            time.sleep(0.1)
        raise SystemExit("the policy server does not start")

    def end(self):
        self.process.terminate()
        return self.process.communicate()[0]


# --- openpi's example loop, a process of its own -------------------------------------------------
def loop(options):
    """Plays an episode for each line of standard input; answers with its seconds."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what LIBERO prints is no answer
    sys.path.insert(0, os.path.join(HERE, "../tests/oracle"))
    from openpi_client import image_tools, websocket_client_policy

    import libero_python

    with tempfile.TemporaryDirectory() as config:
        parts = libero_python.load(options.root, options.robosuite, config, memoise=False,
                                   pictures=True)
        suite, index = options.task.split("/")
        task = libero_python.Task(options.root, parts[1], parts[0], None, suite, int(index), SIZE)
    task.seed(7)

    def picture(obs, name):
        turned = np.ascontiguousarray(obs[name][::-1, ::-1])
        return image_tools.convert_to_uint8(image_tools.resize_with_pad(turned, SENT, SENT))

    def axis_angle(q):
        w = min(max(q[3], -1.0), 1.0)
        d = np.sqrt(1 - w * w)
        return np.zeros(3) if d == 0 else q[:3] * 2 * np.arccos(w) / d

    def episode(number, limit):
        # a connection an episode, so that none is idle while it is the other side's turn
        client = websocket_client_policy.WebsocketClientPolicy("127.0.0.1", options.port)
        task.env.reset()
        obs, plan = task.env.set_init_state(task.inits[number % len(task.inits)]), collections.deque()
        for _ in range(SETTLE):
            obs = task.env.step(DUMMY)[0]
        for _ in range(limit):
            image, wrist = picture(obs, "agentview_image"), picture(obs, "robot0_eye_in_hand_image")
            if not plan:
                state = np.concatenate((obs["robot0_eef_pos"], axis_angle(obs["robot0_eef_quat"]),
                                        obs["robot0_gripper_qpos"]))
                plan.extend(client.infer(
                    {"observation/image": image, "observation/wrist_image": wrist,
                     "observation/state": state, "prompt": "do it"})["actions"][:EXECUTE])
            obs, _, done, _ = task.env.step(plan.popleft().tolist())
            if done:
                break
        client._ws.close()

    episode(0, 5)  # compiles what numba has to compile
    print("{}", file=out, flush=True)
    for number, _ in enumerate(sys.stdin):
        start = time.perf_counter()
        episode(number, options.limit)
        print(json.dumps({"seconds": time.perf_counter() - start}), file=out, flush=True)


class Loop:
    def __init__(self, options, port):
        command = [sys.executable, os.path.abspath(__file__), "--loop", "--port", str(port),
                   "--task", options.task, "--limit", str(options.limit), "--root", options.root,
                   "--robosuite", options.robosuite]
        # the oracle's restriction of BLAS to plain sums is none of the measured program's
        environment = {k: v for k, v in os.environ.items() if k != "OPENBLAS_CORETYPE"}
        self.process = subprocess.Popen(command, text=True, env={**environment, "MUJOCO_GL": "egl"},
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        atexit.register(self.process.kill)
        self.answer()

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit("the Python loop has ended")
        return json.loads(line)

    def episode(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return self.answer()["seconds"]

    def close(self):
        self.process.stdin.close()
        self.process.wait()


# --- simstream -----------------------------------------------------------------------------------
def evaluate(options, address, episodes, envs, settings):
    """Its summary."""
    suite, index = options.task.split("/")
    with tempfile.TemporaryDirectory() as out:
        command = [options.simstream, "eval", f"--suite={suite}", f"--tasks={index}", "--preset=openpi",
                   f"--episodes-per-task={episodes}", f"--policy={address}", f"--max-envs={envs}",
                   "--max-models=1", f"--out={out}",
                   "--kwargs=" + json.dumps({"max_episode_steps": options.limit}),
                   "--policy-options=" + json.dumps({"camera_size": f"{SIZE}x{SIZE}", **settings})]
        done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        if done.returncode:
            raise SystemExit(" ".join(command) + "\n" + done.stderr)
        with open(f"{out}/summary.json", encoding="utf8") as file:
            summary = json.load(file)
    if summary["retries"] or summary["length_mean"] != options.limit:
        raise SystemExit("not all episodes took their whole time in one try")
    return summary


def compare_loop(options):
    server, theirs, mine = Server("openpi"), [], []
    python = Loop(options, server.port)
    for _ in range(options.reps):
        theirs.append(60 / python.episode())
        wall_s = evaluate(options, server.address, options.episodes, options.envs, {})["wall_s"]
        mine.append(60 * options.episodes / wall_s)
    python.close()
    server.end()
    return {"bench": "evaluation_loop", "python_episodes_per_min": spread(theirs),
            "simstream_episodes_per_min": spread(mine),
            "ratio": spread([m / t for m, t in zip(mine, theirs)])}


def compare_bound(options):
    shares, batches = [], []
    for _ in range(options.reps):
        server = Server("batch")
        evaluate(options, server.address, 2 * BATCH, 2 * BATCH,
                 {"execute": 1, "batch_max": BATCH, "batch_wait": "50ms", "prompt": "lang"})
        did = json.loads(server.end())
        seconds = did["last"] - did["first"]
        shares.append(did["observations"] / seconds / (BATCH / CALL_S))
        batches.append(did["observations"] / did["calls"])
    return {"bench": "evaluation_bound", "call_s": CALL_S, "batch": BATCH, "share": spread(shares),
            "observations_per_call": spread(batches)}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--simstream")
    parser.add_argument("--parts", default="loop,bound")
    parser.add_argument("--task", default="libero_spatial/0")
    parser.add_argument("--reps", type=int, default=3)
    parser.add_argument("--episodes", type=int, default=16)
    parser.add_argument("--envs", type=int, default=2 * len(os.sched_getaffinity(0)))
    parser.add_argument("--limit", type=int, default=220)
    parser.add_argument("--robosuite", default="1.4.1", choices=("1.4.0", "1.4.1"))
    parser.add_argument("--root", default=os.path.join(HERE, "../build/deps/libero"))
    parser.add_argument("--serve", choices=tuple(KINDS), help=argparse.SUPPRESS)
    parser.add_argument("--loop", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.root = os.path.abspath(options.root)
    if not (options.simstream or options.serve or options.loop):
        parser.error("--simstream is needed")
    return options


def main():
    options = arguments()
    if options.serve:
        serve(options.serve, options.port)
    elif options.loop:
        loop(options)
    else:
        parts = {"loop": compare_loop, "bound": compare_bound}
        for part in options.parts.split(","):
            row = {**parts[part](options), "task": options.task, "limit": options.limit,
                   "reps": options.reps, "cpus": len(os.sched_getaffinity(0))}
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
