"""What several tests use."""

import contextlib
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import time

import numpy as np

import simstream

PROGRAM = os.environ.get("SIMSTREAM_PROGRAM", "")


@contextlib.contextmanager
def server(task, n_env, *options, address=None):
    """A `simstream serve` process; gives (address, process)."""
    with tempfile.TemporaryDirectory() as folder:
        address = address or f"ipc://{folder}/env.sock"
        process = subprocess.Popen(
            [PROGRAM, "serve", f"--task={task}", f"--num-envs={n_env}", "--threads=2",
             f"--listen={address}", *options], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        try:
            yield address, process
        finally:
            process.terminate()
            process.wait()
            process.stderr.close()


@contextlib.contextmanager
def held(env):
    """While the only worker process of `env` is stopped nothing that is asked of it is answered,
    however slow the machine is. Gives a function that lets it go on."""
    pid = env._client.worker_pid(0)
    os.kill(pid, signal.SIGSTOP)
    try:
        while pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "T":
            time.sleep(0.001)
        yield lambda: os.kill(pid, signal.SIGCONT)
    finally:
        os.kill(pid, signal.SIGCONT)


def make_when_free(**kwargs):
    """make_vec at a server that may not have noticed yet that the client before has left."""
    while True:
        try:
            return simstream.make_vec(**kwargs)
        except simstream.errors.InvalidError as error:
            if not re.search(r"\b0 of \d+ are free", str(error)):
                raise
        time.sleep(0.02)


def needs_program(test):
    import unittest

    return unittest.skipUnless(PROGRAM and pathlib.Path(PROGRAM).exists(),
                               "SIMSTREAM_PROGRAM names no program")(test)


def assert_same(a, b, where="value"):
    """Two results are equal: type, dtype, shape and every bit (NaN equals NaN), recursively."""
    if isinstance(a, dict):
        assert isinstance(b, dict) and set(a) == set(b), f"{where}: {sorted(a)} and {sorted(b)}"
        for key in a:
            assert_same(a[key], b[key], f"{where}[{key!r}]")
    elif isinstance(a, (tuple, list)):
        assert len(a) == len(b), f"{where}: lengths {len(a)} and {len(b)}"
        for i, (x, y) in enumerate(zip(a, b)):
            assert_same(x, y, f"{where}[{i}]")
    elif isinstance(a, np.ndarray):
        assert isinstance(b, np.ndarray), f"{where}: {type(b)}"
        assert a.dtype == b.dtype, f"{where}: {a.dtype} and {b.dtype}"
        assert a.shape == b.shape, f"{where}: {a.shape} and {b.shape}"
        if a.dtype == object:
            assert_same(list(a), list(b), where)
        else:
            np.testing.assert_array_equal(a, b, err_msg=where)
    else:
        assert type(a) is type(b) and (a == b or a != a), f"{where}: {a!r} and {b!r}"


def assert_same_form(a, b, where="value"):
    """Two results have the same keys, types, dtypes and shapes, whatever the numbers. Only: infos
    are float64 in `a` where Gymnasium has a constant int."""
    if isinstance(a, dict):
        assert isinstance(b, dict) and set(a) == set(b), f"{where}: {sorted(a)} and {sorted(b)}"
        for key in a:
            assert_same_form(a[key], b[key], f"{where}[{key!r}]")
    elif isinstance(a, tuple):
        assert len(a) == len(b), f"{where}: lengths {len(a)} and {len(b)}"
        for i, (x, y) in enumerate(zip(a, b)):
            assert_same_form(x, y, f"{where}[{i}]")
    else:
        assert type(a) is type(b), f"{where}: {type(a)} and {type(b)}"
        if not (where.endswith("['reward_survive']") and b.dtype == np.int64):
            assert a.dtype == b.dtype, f"{where}: {a.dtype} and {b.dtype}"
        assert a.shape == b.shape, f"{where}: {a.shape} and {b.shape}"
        if a.dtype == object:
            for x, y in zip(a, b):
                assert (x is None) == (y is None), f"{where}: {x} and {y}"
                if x is not None:
                    assert_same_form(x, y, where)


def singles(task, n, mode, **kwargs):
    """Gymnasium's SyncVectorEnv over n of our single envs: the oracle of vector semantics."""
    from gymnasium.vector import SyncVectorEnv

    return SyncVectorEnv([lambda: simstream.make(task, **kwargs)] * n, autoreset_mode=mode)
