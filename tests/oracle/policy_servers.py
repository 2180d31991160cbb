"""Evaluations by policy servers against the same evaluation in process.

    [KILLS=3] policy_servers.py SIMSTREAM [NAME...]    run all checks or those named (protocols,
                                           films, refusals, deaths); KILLS=20 for the whole campaign of kills
    policy_servers.py --serve KIND         be a server; prints its port (the checks start these)

The policy behind every server answers with the expert's action, which the observation contains, so
an evaluation over the wire has to give what --policy=expert gives, to the bit. openpi's and vla-eval's
servers are the real ones from their packages; of the others, whose packages bring models along, there
are servers here that speak the protocol. The servers pack what they received anew by the Python
packages: the bytes have to be those that came. Then servers that fail and die.
"""

import asyncio
import base64
import http.server
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

import msgpack
import numpy as np

# a loopback address of this run alone, so that a port that becomes free goes to nobody else
HOST = os.environ.setdefault(
    "POLICY_SERVERS_HOST",
    f"127.{1 + (os.getpid() >> 16)}.{os.getpid() >> 8 & 255}.{os.getpid() & 255}")
checks = 0


def check(ok, *what):
    global checks
    checks += 1
    if not ok:
        raise SystemExit("policy_servers: " + " ".join(str(w) for w in what))


def chunk(expert, n=4):
    """The expert's action and n - 1 that must not be executed."""
    return np.stack([np.asarray(expert, np.float64)] + [np.full(7, 99.0)] * (n - 1))


def must(ok, what):
    if not ok:
        print("server:", what, file=sys.stderr, flush=True)
        os._exit(3)


# --- servers -------------------------------------------------------------------------------------
def free_port():
    with socket.socket() as s:
        s.bind((HOST, 0))
        return s.getsockname()[1]


def check_pictures(obs, size):
    for key in ("observation/image", "observation/wrist_image"):
        if key in obs:
            image = obs[key]
            must(image.shape == (size, size, 3) and image.dtype == np.uint8 and image.std() > 1,
                 f"{key}: {image.shape} {image.dtype}")


def serve_openpi(kind, port):
    from openpi_client import msgpack_numpy
    from openpi_server import websocket_policy_server as server

    def unpackb(data):
        obs = unpack(data)
        must(msgpack_numpy.packb(obs) == data, "other bytes than openpi-client's")
        return obs

    unpack, msgpack_numpy.unpackb = msgpack_numpy.unpackb, unpackb

    class Policy:
        calls = 0

        def infer(self, obs):
            Policy.calls += 1
            check_pictures(obs, 224)
            if kind == "openpi-slow":
                time.sleep(0.005)
            if kind == "openpi-raise" and Policy.calls % 150 == 60:
                raise RuntimeError("CUDA out of memory")
            if kind == "openpi-nan" and Policy.calls % 150 == 60:
                return {"actions": np.full((4, 7), np.nan)}
            if kind == "openpi-short":
                return {"actions": chunk(obs["expert"], 2)}
            if kind == "openpi-wide":
                return {"actions": np.zeros((4, 32))}
            must(kind == "openpi-slow" or isinstance(obs["prompt"], str), "no prompt")
            return {"actions": chunk(obs["expert"]).astype(np.float64)}

    server.WebsocketPolicyServer(Policy(), HOST, port, {"who": kind}).serve_forever()


def serve_vla_eval(kind, port):
    import anyio
    from vla_eval import specs
    from vla_eval.model_servers import serve
    from vla_eval.model_servers.predict import PredictModelServer
    from vla_eval.protocol import messages, numpy_codec

    numpy_codec.set_image_format("raw")

    def unpack(data):
        m = messages.unpack_message(data)
        must(messages.pack_message(m) == data, "other bytes than vla-eval's")
        return m

    serve.unpack_message = unpack

    class Server(PredictModelServer):
        episodes = {}

        def predict_batch(self, obs_batch, ctx_batch):
            return [{"actions": np.asarray(o["states"], np.float32)} for o in obs_batch]

        async def on_episode_start(self, config, ctx):
            must(ctx.session_id not in Server.episodes, "an episode in an episode")
            Server.episodes[ctx.session_id] = config["task"]["name"]
            await super().on_episode_start(config, ctx)

        async def on_episode_end(self, result, ctx):
            Server.episodes.pop(ctx.session_id, None)
            await super().on_episode_end(result, ctx)

        def get_observation_params(self):
            return {"send_state": True}

        def get_action_spec(self):
            gripper = specs.GRIPPER_CLOSE_NEG if kind == "vla-eval-other" else specs.GRIPPER_CLOSE_POS
            rotation = specs.ROTATION_QUAT if kind == "vla-eval-other" else specs.ROTATION_AA
            return {"position": specs.POSITION_DELTA, "rotation": rotation, "gripper": gripper}

        def get_observation_spec(self):
            return {"state": specs.DimSpec("state", 7, "raw"), "language": specs.LANGUAGE}

    anyio.run(serve.serve_async, Server(max_batch_size=8, max_wait_time=0.002), HOST, port)


def serve_ws(kind, port):
    """StarVLA, RoboArena and vLLM-Omni over openpi's envelope."""
    from openpi_client import msgpack_numpy
    from websockets.asyncio.server import serve
    from websockets.exceptions import ConnectionClosed

    metadata = {"starvla": {"action_chunk_size": 4, "available_unnorm_keys": ["franka"]},
                "roboarena": {"n_external_cameras": 0, "needs_wrist_camera": False,
                              "needs_session_id": True, "action_space": "joint_position"},
                "vllm-omni": {}}[kind]
    largest = connections = 0

    async def handler(ws):
        nonlocal largest, connections
        connections += 1
        requests, session = 0, None
        await ws.send(msgpack_numpy.packb(metadata))
        while True:
            # vLLM-Omni closes what is idle for 30 s; here after a few steps of the environment, now
            # and then, as on a slow machine every step takes that long
            idle = kind == "vllm-omni" and requests % 10 == 9
            data = await (asyncio.wait_for(ws.recv(), 0.03) if idle else ws.recv())
            requests += 1
            m = msgpack_numpy.unpackb(data)
            must(msgpack_numpy.packb(m) == data, "other bytes than openpi-client's")
            if kind == "starvla":
                examples = m["payload"]["examples"]
                largest = max(largest, len(examples))
                await asyncio.sleep(0.005)
                # the first client has one env
                must(largest > 1 or connections == 1 or requests < 100,
                     "no request with several examples")
                reply = {"status": "ok", "ok": True, "type": "inference_result",
                         "request_id": m["request_id"], "data": {"actions": np.stack(
                             [chunk(e["expert"]).astype(np.float32) for e in examples])}}
            elif kind == "roboarena" and m["endpoint"] == "reset":
                session = m["session_id"]
                await ws.send("reset successful")
                continue
            else:
                must(kind != "roboarena" or m["session_id"] == session, "another session")
                reply = {"actions": chunk(m["expert"]).tolist()}
            await ws.send(msgpack_numpy.packb(reply))

    async def guarded(ws):
        try:
            await handler(ws)
        except (asyncio.TimeoutError, ConnectionClosed):
            pass

    async def run():
        async with serve(guarded, HOST, port, compression=None, max_size=None) as server:
            await server.serve_forever()

    asyncio.run(run())


def serve_gr00t(kind, port):
    import io

    import msgpack_numpy
    import zmq

    def decode(o):
        return np.load(io.BytesIO(o["as_npy"]), allow_pickle=False) if "__ndarray_class__" in o else o

    def encode(o):
        out = io.BytesIO()
        np.save(out, o, allow_pickle=False)
        return {"__ndarray_class__": True, "as_npy": out.getvalue()}

    numpy_layout = kind == "gr00t-nested"
    encode, decode = (msgpack_numpy.encode, msgpack_numpy.decode) if numpy_layout else (encode, decode)
    sock = zmq.Context().socket(zmq.REP)
    sock.bind(f"tcp://{HOST}:{port}")
    calls = 0
    while True:
        data = sock.recv()
        m = msgpack.unpackb(data, object_hook=decode)
        must(msgpack.packb(m, default=encode) == data, "other bytes than the Python codec's")
        must(m.get("api_token") == "secret", "no token")
        if m["endpoint"] == "ping":
            sock.send(msgpack.packb({"status": "ok", "message": "Server is running"}))
            continue
        if m["endpoint"] != "get_action":
            sock.send(msgpack.packb({"error": f"Unknown endpoint: {m['endpoint']}"}))
            continue
        calls += 1
        if kind == "gr00t-n15" and calls == 20:
            sock.send(b"ERROR")
            continue
        obs = m["data"] if kind == "gr00t-n15" else m["data"]["observation"]
        state = obs["state"]["expert"] if numpy_layout else obs["state.expert"]
        must(state.dtype == np.float32, "no float32")
        if kind == "gr00t-n15":
            must(state.shape == (1, 7), f"shape {state.shape}")
            actions = chunk(state[0]).astype(np.float32)
            reply = {"action.arm": actions[:, :6], "action.gripper": actions[:, 6]}
        else:
            must(state.ndim == 3 and state.shape[1:] == (1, 7), f"shape {state.shape}")
            text = obs["language"]["task"] if numpy_layout else obs["annotation.task"]
            must(len(text) == len(state) and isinstance(text[0], list if numpy_layout else str), text)
            actions = np.stack([chunk(s[0]) for s in state]).astype(np.float32)
            head = "" if numpy_layout else "action."
            reply = [{head + "arm": actions[:, :, :6], head + "gripper": actions[:, :, 6:]}, {}]
        sock.send(msgpack.packb(reply, default=encode))


def serve_act(kind, port):
    calls = 0

    def decode(o):
        if "__numpy__" in o:
            data = base64.b64decode(o["__numpy__"], validate=True)
            return np.frombuffer(data, o["dtype"]).reshape(o["shape"])
        return o

    def encode(a):
        return {"__numpy__": base64.b64encode(a.tobytes()).decode(), "dtype": a.dtype.str,
                "shape": list(a.shape)}

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_):
            pass

        def do_POST(self):
            nonlocal calls
            calls += 1
            must(self.path == "/act", self.path)
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if kind == "act-double":
                state = json.loads(body["state"], object_hook=decode)
                reply = {"action": [list(map(float, state))]}
                reply = {"encoded": json.dumps(reply)} if calls % 2 else reply
            else:
                body = json.loads(json.dumps(body), object_hook=decode)
                must(isinstance(body["instruction"], str) and body["unnorm_key"] == "libero", body)
                # OpenVLA-OFT: a list of arrays
                reply = [encode(a) for a in chunk(body["state"])]
                if calls == 15:
                    reply = "error"
            text = json.dumps(reply).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

    http.server.ThreadingHTTPServer((HOST, port), Handler).serve_forever()


SERVERS = {"openpi": serve_openpi, "vla-eval": serve_vla_eval, "gr00t": serve_gr00t,
           "act": serve_act, "starvla": serve_ws, "roboarena": serve_ws, "vllm-omni": serve_ws}


def serve(kind, port):
    name = kind if kind in SERVERS else kind.rsplit("-", 1)[0]
    SERVERS[name](kind, port)


# --- evaluations ---------------------------------------------------------------------------------
class Server:
    def __init__(self, kind, port=None):
        self.kind, self.port = kind, port or free_port()
        self.start()

    def start(self):
        self.process = subprocess.Popen([sys.executable, __file__, "--serve", self.kind,
                                         str(self.port)])
        while True:
            with socket.socket() as s:
                if s.connect_ex((HOST, self.port)) == 0:
                    return
            check(self.process.poll() is None, self.kind, "does not start")
            time.sleep(0.1)

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        alive = self.process.poll() is None
        self.kill()
        check(alive, self.kind, "ended: see above")


def arguments(out, policy, options, extra):
    return [program, "eval", "--suite=tabletop", "--tasks=0,4", "--episodes-per-task=2",
            f"--out={out}", f"--policy={policy}", '--kwargs={"expert": true}',
            "--policy-options=" + json.dumps(options), *extra]


def results(out):
    lines = [json.loads(line) for line in open(os.path.join(out, "results.jsonl"))]
    return [{k: v for k, v in line.items() if k != "policy"} for line in lines]


def evaluate(work, name, policy, options, *extra, code=0):
    out = os.path.join(work, name)
    env = dict(os.environ, SIMSTREAM_POLICY_KEY="secret")
    p = subprocess.run(arguments(out, policy, options, extra), capture_output=True, text=True,
                       env=env)
    check(p.returncode == code, name, "exit", p.returncode, p.stderr[-2000:])
    return p.stderr if code else results(out)


STATE = {"states": "expert=expert_action", "execute": 1, "horizon": 4}
GR00T = {"states": "state.expert=expert_action", "state_type": "float32", "execute": 1,
         "prompt": "annotation.task", "actions": "action.arm,action.gripper", "batch_wait": "2ms"}
CASES = [
    ("openpi", "ws", STATE),
    ("openpi", "openpi+ws", {**STATE, "images": "observation/image=agentview_image,observation/"
                             "wrist_image=robot0_eye_in_hand_image", "camera_size": "64x48",
                             "resize": "pad"}),
    ("vla-eval", "vla-eval+ws", {"states": "states=expert_action", "prompt": "task_description"}),
    ("starvla", "starvla+ws", {**STATE, "prompt": "lang", "extra": '{"do_sample": false}'}),
    ("roboarena", "roboarena+ws", STATE),
    ("vllm-omni", "vllm-omni+ws", STATE),
    ("gr00t", "gr00t+tcp", GR00T),
    ("gr00t-nested", "zmq", {**GR00T, "gr00t_codec": "msgpack-numpy", "gr00t_shape": "nested",
                             "prompt": "language.task"}),
    ("gr00t-n15", "zmq", {**GR00T, "gr00t_shape": "n1.5"}),
    ("act", "http", {"states": "state=expert_action", "prompt": "instruction", "actions": "",
                     "extra": '{"unnorm_key": "libero"}', "execute": 1}),
    ("act-double", "act+http", {"states": "state=expert_action", "actions": "action",
                                "act_encoding": "double"}),
    # faults of the server cost a try
    ("openpi-raise", "ws", STATE),
    ("openpi-nan", "ws", STATE),
]


def protocols(work, wanted):
    for i, (kind, scheme, options) in enumerate(CASES):
        with Server(kind) as s:
            for envs in (1, 4) if i in (0, 2, 3) else (4,):
                begin = time.time()
                got = evaluate(work, f"{i}-{envs}", f"{scheme}://{HOST}:{s.port}", options,
                               f"--max-envs={envs}", f"--max-models={(envs + 1) // 2}", "--retries=30")
                check(got == wanted, kind, envs, "envs: other results than in process")
                print(f"{kind}, {envs} envs: same, {time.time() - begin:.1f} s", flush=True)


def film_length(path):
    text = subprocess.run(["ffprobe", "-v", "error", "-count_frames", "-show_entries",
                           "stream=nb_read_frames", "-of", "csv=p=0", path], check=True,
                          stdout=subprocess.PIPE, text=True).stdout
    return int(text.strip().rstrip(","))


def films(work, wanted):
    """Films of episodes by a server, some of which were cut off by its errors and played again: each
    shows the last try alone, from its start to its end."""
    with Server("openpi-raise") as s:
        got = evaluate(work, "films", f"ws://{HOST}:{s.port}", STATE, "--max-envs=3",
                       "--retries=30", "--video=all", "--video-camera=agentview:32x32")
        check(got == wanted, "films change the results")
    with open(os.path.join(work, "films", "summary.json")) as file:
        summary = json.load(file)
    check(summary["retries"] > 0, "the server raised nothing")
    paths = summary["overall"]["video_paths"]
    check(len(paths) == len(wanted), "films:", paths)
    for path, row in zip(paths, wanted):
        n = film_length(os.path.join(work, "films", path))
        check(n == row["length"] + 1, path, "has", n, "pictures, the episode", row["length"], "steps")
    print(f"{len(paths)} films, {summary['retries']} episodes played again: same", flush=True)


def refusals(work):
    for kind, scheme, options, why in [
            ("openpi-short", "ws", {**STATE, "horizon": 0, "execute": 3}, "3 are to be executed"),
            ("openpi-wide", "ws", STATE, "or more, the task takes 7"),
            ("openpi", "ws", {**STATE, "states": "expert=nothing"}, "no numbers 'nothing'"),
            ("vla-eval-other", "vla-eval+ws", {"states": "states=expert_action"}, "in 3 points")]:
        with Server(kind) as s:
            text = evaluate(work, "no", f"{scheme}://{HOST}:{s.port}", options, code=2)
            check(why in text, kind, "said", text)
    check("binary_close_negative" in text and "quaternion_xyzw" in text and "instruction" not in text,
          "mismatches are not named:", text)
    text = evaluate(work, "no", f"ws://{HOST}:{free_port()}", {**STATE, "connect_wait": "1s"},
                    code=1)
    check("waiting for the policy server" in text and " of 1 s" in text and
          "no policy server after 1 s" in text, text)
    with socket.create_server((HOST, 0)) as s:  # a proxy that wants another key
        def refuse():
            peer = s.accept()[0]
            peer.recv(65536)
            peer.sendall(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n")
            peer.close()
        thread = threading.Thread(target=refuse)
        thread.start()
        text = evaluate(work, "no", f"ws://{HOST}:{s.getsockname()[1]}", STATE, code=1)
        thread.join()
    check("refuses the connection (HTTP 401 or 403)" in text, text)


def deaths(work):
    """kill -9 of the server at random times, in as many evaluations as it takes: each ends by itself,
    with every episode once, as in process."""
    episodes = "--episodes-per-task=6"
    wanted = evaluate(work, "expert-6", "expert", {}, episodes)
    killed = runs = retries = 0
    while killed < kills or retries == 0:
        out = os.path.join(work, f"killed-{runs}")
        runs += 1
        with Server("openpi-slow") as s:
            args = arguments(out, f"ws://{HOST}:{s.port}", STATE,
                             [episodes, "--max-envs=3", "--retries=100"])
            with open(out + ".txt", "w") as log:
                p = subprocess.Popen(args, stderr=log, stdout=log)
            before = killed
            while killed - before < kills and p.poll() is None:
                try:
                    p.wait(random.uniform(0, 4))
                except subprocess.TimeoutExpired:
                    s.kill()
                    killed += p.poll() is None
                    s.start()
            code = p.wait()
        text = open(out + ".txt").read()
        check(code == 0, "after kills: exit", code, text[-2000:])
        check(results(out) == wanted, "other results after kills")
        summary = json.load(open(os.path.join(out, "summary.json")))
        check(summary["complete"] and summary["episodes"]["errors"] == 0, "not complete:", summary)
        retries += summary["retries"]
    print(f"killed {killed} times in {runs} evaluations, {retries} episodes played again: same")


def main():
    global program, kills
    if sys.argv[1] == "--serve":
        serve(sys.argv[2], int(sys.argv[3]))
        return
    program = os.path.abspath(sys.argv[1])
    kills = int(os.environ.get("KILLS", 3))
    names = sys.argv[2:] or ["protocols", "films", "refusals", "deaths"]
    with tempfile.TemporaryDirectory() as work:
        wanted = evaluate(work, "expert", "expert", {})
        check(len(wanted) == 4 and all(r["outcome"] == "success" for r in wanted), wanted)
        if "protocols" in names:
            protocols(work, wanted)
        if "films" in names:
            films(work, wanted)
        if "refusals" in names:
            refusals(work)
        if "deaths" in names:
            deaths(work)
    print(f"policy_servers: {checks} checks")


if __name__ == "__main__":
    main()
