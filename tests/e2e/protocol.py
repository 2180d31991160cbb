"""A client written from docs/protocol.md alone talks to a real server: nothing of this project's own
code decodes here. It proves a key, finds every number by the fields that WELCOME declares, and plays
an episode."""
import hashlib
import hmac
import json
import os
import secrets
import socket
import struct
import subprocess
import sys
import tempfile
import time

NAMES = {1: "HELLO", 2: "WELCOME", 3: "RESET", 4: "STEP", 5: "BATCH", 64: "ERROR", 65: "BYE",
         66: "PING", 67: "PONG", 68: "CHALLENGE", 69: "PROOF"}
TYPES = {name: number for number, name in NAMES.items()}
FORMATS = {1: "I", 2: "Q", 3: "f", 4: "d", 5: "B", 6: "i"}


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


class Body:
    """Reads a body from the front."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, form):
        values = struct.unpack_from("<" + form, self.data, self.at)
        self.at += struct.calcsize("<" + form)
        return values[0] if len(values) == 1 else values

    def string(self):
        n = self.take("I")
        self.at += n
        return self.data[self.at - n:self.at].decode()

    def end(self):
        assert self.at == len(self.data), f"{len(self.data) - self.at} bytes are left"


class Connection:
    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.pings = 0

    def send(self, name, body):
        head = b"SSTM" + struct.pack("<HHII", 1, TYPES[name], len(body), crc32c(body))
        self.socket.sendall(head + struct.pack("<I", crc32c(head)) + body)

    def bytes(self, n):
        data = b""
        while len(data) < n:
            more = self.socket.recv(n - len(data))
            if not more:
                raise ConnectionResetError("the server closed the connection")
            data += more
        return data

    def recv(self, pings=None):
        """The next message; None once so many PINGs were answered."""
        while pings is None or self.pings < pings:
            head = self.bytes(20)
            magic, version, kind, n, crc, head_crc = struct.unpack("<4sHHIII", head)
            assert magic == b"SSTM" and version == 1 and head_crc == crc32c(head[:16])
            body = self.bytes(n)
            assert crc == crc32c(body)
            if NAMES[kind] != "PING":
                return NAMES[kind], Body(body)
            self.pings += 1
            self.send("PONG", body)
        return None

    def expect(self, want):
        name, body = self.recv()
        assert name == want, f"{name} came, expected {want}: {body.data[16:]}"
        return body


def greet(c, key, n_env, k_max, idle_ns):
    hello = struct.pack("<IIIIIqIIq", 3, 1, n_env, k_max, 0, -1, 0, 1 | 2 | 4, idle_ns) \
        + struct.pack("<I", 6) + b"python" \
        + struct.pack("<II", 1, 11) + b"track_image" + struct.pack("<II", 8, 6)
    c.send("HELLO", hello)
    server = c.expect("CHALLENGE").data
    client = secrets.token_bytes(32)

    def proof(side):
        return hmac.new(key, side + b"\0" + server + client + hello, hashlib.sha256).digest()
    c.send("PROOF", client + proof(b"simstream client 1"))
    assert c.expect("PROOF").data[32:] == proof(b"simstream server 1"), "the server has another key"
    return read_welcome(c.expect("WELCOME"))


def read_welcome(b):
    w = {"task": b.string(), "engine": b.string(), "instruction": b.string()}
    w["n_obs"], w["n_act"] = b.take("II")
    w["low"] = [b.take("f") for _ in range(w["n_act"])]
    w["high"] = [b.take("f") for _ in range(w["n_act"])]
    w["n_info"], keys = b.take("II")
    w["info"] = [(b.string(), b.take("I"), b.take("I")) for _ in range(keys)]
    w["parts"] = [(b.string(), b.take("I")) for _ in range(b.take("I"))]
    w["pictures"] = [(b.string(), b.string(), *b.take("IIII")) for _ in range(b.take("I"))]
    w["limit"], w["dt"], w["has_success"], w["server_envs"] = b.take("QdII")
    w["autoreset"], w["k_max"], w["b_max"], w["b_min"] = b.take("IIII")
    w["t_max_ns"], w["idle_ns"], w["features"], w["session"] = b.take("qqIQ")
    w["fields"] = {}
    for _ in range(b.take("I")):
        name = b.string()
        w["fields"][name] = b.take("IIII")
    w["env"] = [b.take("I") for _ in range(b.take("I"))]
    b.end()
    return w


def field(w, row, name):
    kind, offset, rows, columns = w["fields"]["batch." + name]
    values = struct.unpack_from(f"<{rows * columns}{FORMATS[kind]}", row, offset)
    return values[0] if len(values) == 1 else values


def put(w, row, name, *values):
    kind, offset, _, _ = w["fields"][name]
    struct.pack_into(f"<{len(values)}{FORMATS[kind]}", row, offset, *values)


def batch(c, w, seq):
    b = c.expect("BATCH")
    number, n, why, in_flight, stride = b.take("QIIII")
    assert number == seq and why in (1, 2, 3, 4) and in_flight <= 2
    assert len(b.data) == b.at + n * stride
    return [b.data[b.at + i * stride:b.at + (i + 1) * stride] for i in range(n)]


def request(c, name, seq, rows):
    c.send(name, struct.pack("<QII", seq, len(rows), len(rows[0])) + b"".join(map(bytes, rows)))


def play(c, w):
    """Reset both envs, then push them over: every episode ends by falling."""
    rows, batches, ended = [], 0, 0
    for env in w["env"]:
        row = bytearray(32)
        put(w, row, "reset.env", env)
        put(w, row, "reset.seed", 5)
        put(w, row, "reset.stream", env)
        put(w, row, "reset.episode", 7)
        rows.append(row)
    request(c, "RESET", 1, rows)
    seq, total = 1, {env: 0.0 for env in w["env"]}
    waiting = len(rows)
    for _ in range(400):
        while waiting > 0:
            batches += 1
            got = batch(c, w, batches)
            waiting -= len(got)
            for row in got:
                ended += look_at(w, row, total)
        stride = 8 + 4 * w["k_max"] * w["n_act"]
        rows = []
        for env in w["env"]:
            row = bytearray(stride)
            put(w, row, "step.env", env)
            put(w, row, "step.n_sub", 2)
            put(w, row, "step.action", *([w["high"][0]] * 2))
            rows.append(row)
        seq += 1
        request(c, "STEP", seq, rows)
        waiting = len(rows)
    return ended, seq


def look_at(w, row, total):
    env, flags, n_sub = (field(w, row, k) for k in ("env", "flags", "n_sub"))
    reward, obs = field(w, row, "reward"), field(w, row, "obs")
    assert env in w["env"] and len(obs) == w["n_obs"] and len(reward) == w["k_max"]
    assert field(w, row, "seed") == 5 and field(w, row, "stream") == env
    assert field(w, row, "error") == 0
    pixels = field(w, row, "picture.track_image")
    assert len(pixels) == 8 * 6 * 3 and len(set(pixels)) > 2, "that is no picture"
    total[env] += sum(reward[:n_sub])
    assert abs(total[env] - field(w, row, "episode_return")) < 1e-9, "rewards and return disagree"
    if not flags & 2:
        return 0
    assert flags & 32, "no final observation in same-step mode"
    final = field(w, row, "final_obs")
    assert field(w, row, "final_picture.track_image") != pixels
    # InvertedPendulum-v5: it has fallen when the pole's angle is above 0.2
    assert abs(final[1]) > 0.2 >= abs(obs[1]) and abs(obs[0]) <= 0.01
    total[env] = 0.0
    return 1


def refused(c, w, seq):
    row = bytearray(32)
    put(w, row, "reset.env", 99)
    request(c, "RESET", seq, [row])
    while True:
        name, b = c.recv()
        if name != "BATCH":
            break
    code, env, number = b.take("IIQ")
    assert name == "ERROR" and (code, env, number) == (5, 99, seq) and "env 99" in b.string()


def quiet(port, key):
    """Quiet for longer than the idle time: PINGs come, and not too often. Where the machine is so slow
    that they are not answered in time, a longer idle time helps."""
    for idle in (1.5, 6, 24, 96):
        c = Connection(port)
        begin = time.monotonic()
        greet(c, key, 1, 1, int(idle * 1e9))
        try:
            assert c.recv(pings=4) is None, "a message that was not a PING"
            assert time.monotonic() - begin > idle, "PINGs come too often"
            return
        except ConnectionError:
            pass
    raise AssertionError("a client that answers PINGs is dropped")


def main():
    key = secrets.token_bytes(32).replace(b"\n", b"x").replace(b"\r", b"x")
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "key")
        with open(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600), "wb") as file:
            file.write(key)
        server = subprocess.Popen(
            [os.environ["SIMSTREAM"], "serve", "--task=InvertedPendulum-v5", "--num-envs=6",
             "--listen=tcp://127.0.0.1:0", "--json", "--key-file", path,
             '--kwargs={"cameras": "track:8x6:rgb+depth"}'],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        try:
            port = int(json.loads(server.stdout.readline())["url"].rsplit(":", 1)[1])
            c = Connection(port)
            w = greet(c, key, 2, 2, 3600 * 10**9)
            assert (w["task"], w["n_obs"], w["n_act"]) == ("InvertedPendulum-v5", 4, 1)
            # of the two that there are the one that was asked for
            assert w["pictures"] == [("track_image", "track", 0, 8, 6, 1)], w["pictures"]
            assert w["features"] == 7 and w["idle_ns"] == 3600 * 10**9 and w["env"] == [0, 1]
            ended, seq = play(c, w)
            assert ended > 20, f"only {ended} episodes ended"
            refused(c, w, seq + 1)
            quiet(port, key)
            server.terminate()
            bye = c.expect("BYE")
            # the refused request was not executed
            assert bye.take("Q") == seq and bye.string() == "the server is stopped"
            c.socket.close()
            assert server.wait() == 0
        finally:
            server.kill()
    print(f"protocol: {ended} episodes, {w['session']} session, all as documented")


if __name__ == "__main__":
    sys.exit(main())
