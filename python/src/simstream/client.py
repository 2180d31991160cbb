"""One vector of envs as the C library has it: requests out, rows in. No Gymnasium here.

A row is one env's answer to one request. Rows are NumPy structured arrays over C memory, one field
for each part of a row; the fields are views, so that nothing is copied.

Threads: any thread may call; senders wait for senders and receivers for receivers. The interpreter
lock is released while C works or waits.
"""

import ctypes
import json
import threading
import time

import numpy as np

from . import errors
from ._library import Access, Batch, Columns, States, Workers, check, check_may_open, forks, lib

FIRST, TERMINATED, TRUNCATED, ERROR, SUCCESS, HAS_FINAL = (1 << i for i in range(6))
GO_ON = -1  # instead of a seed: the next episode of the env's present seed
_SLICE_NS = 250_000_000  # how long C may wait before Python looks at signals and deadlines
_FOREVER_NS = 2**62


class _Block:
    """Owns the memory of one batch; NumPy arrays over it keep it alive, the last one frees it."""

    __slots__ = ("_block", "_generation", "__array_interface__")

    def __init__(self, batch):
        self._block = batch.block
        self._generation = forks.generation
        self.__array_interface__ = {
            "version": 3,
            "shape": (batch.n * batch.stride,),
            "typestr": "|u1",
            "data": (batch.rows, False),
        }

    def __del__(self):
        if self._generation == forks.generation:  # in a forked child the list may be locked
            lib.ss_block_free(self._block)


def _row_dtype(spec):
    parts = spec["row"]
    return np.dtype(
        {
            "names": [part["name"] for part in parts],
            "formats": [(part["dtype"], tuple(part["shape"])) for part in parts],
            "offsets": [part["offset"] for part in parts],
            "itemsize": spec["stride"],
        }
    )


def _pointer(array):
    return None if array is None else array.ctypes.data


class Client:
    """Envs of one task, in this process (`open_pool`) or at a server (`open_remote`).

    spec: dict of what capi/describe.h lists. row: NumPy dtype of a row. num_envs: how many.
    """

    def __init__(self, handle, networked):
        self._handle = handle
        self._generation = forks.generation
        self._sending, self._receiving = threading.Lock(), threading.Lock()
        forks.open_here += 1
        forks.networked = forks.networked or networked
        self.spec = json.loads(lib.ss_describe(handle))
        self.row = _row_dtype(self.spec)
        self.num_envs = self.spec["n_env"]
        self._n_obs = self.spec["n_obs"]
        self._n_info = sum(int(np.prod(part["shape"])) for part in self.spec["row"]
                           if part["name"].startswith("info."))

    @classmethod
    def open_pool(cls, task, kwargs, n_env, workers, autoreset, b_max, t_max_s):
        """New envs in this process. kwargs: dict of the task's keyword arguments; workers: dict of
        SimstreamVectorEnv's num_threads, isolate, step_timeout, affinity and randomize."""
        check_may_open()
        if workers["isolate"] not in ("thread", "process"):
            raise errors.InvalidError(
                f"isolate is {workers['isolate']!r}, expected 'thread' or 'process'")
        timeout, affinity = workers["step_timeout"], workers["affinity"]
        plan = workers["randomize"]
        if timeout is not None and not timeout > 0:
            raise errors.InvalidError(f"step_timeout is {timeout} s, expected more than 0 or None")
        how = Workers(workers["num_threads"], workers["isolate"] == "process",
                      0 if timeout is None else _nanoseconds(timeout),
                      None if affinity is None else affinity.encode(),
                      None if plan is None else json.dumps(plan).encode())
        handle = ctypes.c_void_p()
        check(lib.ss_open_pool(
            ctypes.byref(handle), task.encode(), json.dumps(kwargs).encode() if kwargs else b"",
            n_env, how, autoreset, b_max, _nanoseconds(t_max_s)))
        return cls(handle, False)

    @classmethod
    def open_remote(cls, url, n_env, autoreset, b_max, t_max_s, remote):
        """Lease n_env envs (0 = all that are free) of the server at `url`. remote: dict of
        SimstreamVectorEnv's connect_timeout, idle_timeout, key_file, tls_ca, tls_name and
        pictures."""
        check_may_open()
        wanted = remote["pictures"]
        if wanted is not None and not isinstance(wanted, str):
            wanted = ",".join(wanted)
        access = Access(*(None if value is None else str(value).encode()
                          for value in (remote["key_file"], remote["tls_ca"], remote["tls_name"],
                                        wanted)))
        forks.networked = True
        handle = ctypes.c_void_p()
        check(lib.ss_open_remote(
            ctypes.byref(handle), url.encode(), n_env, autoreset, b_max, _nanoseconds(t_max_s),
            _nanoseconds(remote["connect_timeout"]), _nanoseconds(remote["idle_timeout"]), access))
        return cls(handle, True)

    def _use(self):
        if self._generation != forks.generation:
            raise errors.ForkError(
                "this environment was made before a fork and works only in the process that made "
                "it. Make environments after the fork, or start the processes with "
                "multiprocessing's 'spawn' or 'forkserver'")
        if self._handle is None:
            raise errors.ClosedError("the environment is closed")
        return self._handle

    def reset(self, which, seeds):
        """Start episodes. which: (n,) uint32 env numbers or None for the first n; seeds: (n,)
        int64, GO_ON = the next episode of the env's present seed."""
        with self._sending:
            check(lib.ss_reset(self._use(), _pointer(which), _pointer(seeds), len(seeds)))

    def send(self, which, actions):
        """Execute one action each. which: (n,) uint32 or None; actions: (n, n_act) float32, C
        order. The arrays are read before the call returns."""
        with self._sending:
            check(lib.ss_send(self._use(), _pointer(which), _pointer(actions), len(actions)))

    def _wait(self, call, timeout):
        """Repeat call(nanoseconds) until it has its result; timeout in seconds or None."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            wait = _SLICE_NS
            if deadline is not None:
                wait = min(wait, max(0, int((deadline - time.monotonic()) * 1e9)))
            with self._receiving:
                status = call(self._use(), wait)
            if status not in (errors.AGAIN, errors.TIMEOUT):
                return check(status)
            if deadline is not None and time.monotonic() >= deadline:
                raise errors.BatchTimeoutError(
                    f"nothing came within {timeout} s; it is not lost, so receive again")

    def recv(self, timeout=None):
        """The next batch: (n,) array of `row`, in the order in which the envs finished.

        The array is a view of the memory that the workers (or the socket) wrote. It is writable
        and the caller's: nobody else touches it, it outlives `close`, and it is freed with the
        last array that refers to it.
        """
        batch = Batch()
        self._wait(lambda handle, wait: lib.ss_recv(handle, wait, batch), timeout)
        return np.asarray(_Block(batch)).view(self.row)

    def gather(self, rows, timeout=None):
        """Receive until nothing is in flight; row i of `rows` ((num_envs,) of `row`) becomes that
        of env i, rows of envs without a request stay."""
        address = rows.ctypes.data
        self._wait(lambda handle, wait: lib.ss_gather(handle, address, wait), timeout)

    def step(self, rows, actions, want_obs, timeout=None):
        """`send` to all envs (actions None: that was done) and `gather` in one, with the rows' parts
        as new arrays: (columns, obs, numbers, bools).

        columns: `flags` of all rows or-ed and `stepped`, the number of rows that are no start. obs:
        (num_envs, n_obs) or None. numbers: (1 + info numbers, num_envs), the rewards and the infos.
        bools: (2 + infos, num_envs): terminated, truncated, and which infos a row has; the numbers
        of those that it has not are 0.
        """
        n, columns = self.num_envs, Columns()
        obs = np.empty((n, self._n_obs)) if want_obs else None
        numbers = np.empty((1 + self._n_info, n))
        bools = np.empty((2 + len(self.spec["info"]), n), bool)
        columns.obs = _pointer(obs)
        columns.reward = _pointer(numbers)
        columns.info = columns.reward + 8 * n
        columns.terminated = _pointer(bools)
        columns.truncated = columns.terminated + n
        columns.mask = columns.truncated + n
        self._columns(rows, actions, columns, timeout)
        return columns, obs, numbers, bools

    def _columns(self, rows, actions, columns, timeout):
        address = rows.ctypes.data
        if actions is not None:
            # a sender and a receiver at once, for one slice of the time
            wait = _SLICE_NS if timeout is None else min(_SLICE_NS, int(timeout * 1e9))
            with self._sending, self._receiving:
                status = lib.ss_step(self._use(), _pointer(actions), address, columns, wait)
            if status not in (errors.AGAIN, errors.TIMEOUT):
                check(status)
                return
        self._wait(lambda handle, wait: lib.ss_step(handle, None, address, columns, wait), timeout)

    def in_flight(self):
        """Requests whose rows have not been received."""
        return lib.ss_in_flight(self._use())

    def worker_pid(self, worker):
        """Process of a worker of an own pool; 0 = a thread, none, or being replaced."""
        return lib.ss_worker_pid(self._use(), worker)

    def save(self, which):
        """The states of the envs `which`, (n,) uint32, as a list of bytes."""
        states = States()
        with self._sending:
            check(lib.ss_save(self._use(), _pointer(which), len(which), states))
        try:
            return [ctypes.string_at(states.states + i * states.stride, states.bytes)
                    for i in range(len(which))]
        finally:
            lib.ss_block_free(states.block)

    def load(self, which, states):
        """Let the envs `which`, (n,) uint32, go on from `states`, (n, bytes) uint8 in C order."""
        size = states.shape[1]
        what = States(None, _pointer(states), size, size)
        with self._sending:
            check(lib.ss_load(self._use(), _pointer(which), len(which), what))

    def set_field(self, which, field, element, values):
        """Set a field of the models of the envs `which`. values: (n, k) float64."""
        with self._sending:
            check(lib.ss_set_field(self._use(), _pointer(which), len(which), field.encode(),
                                   element.encode(), _pointer(values), values.shape[1]))

    def get_field(self, which, field, element):
        """The numbers in force: new float64 array (n, k)."""
        values, k = np.empty(65536 + 4096 * len(which)), ctypes.c_int()
        with self._sending:
            check(lib.ss_get_field(self._use(), _pointer(which), len(which), field.encode(),
                                   element.encode(), _pointer(values), len(values), k))
        return values[:len(which) * k.value].reshape(len(which), k.value).copy()

    def close(self):
        """Wait for the requests in flight and free everything but the batches handed out."""
        with self._sending, self._receiving:
            handle, self._handle = self._handle, None
            if handle is not None and self._generation == forks.generation:
                lib.ss_close(handle)
                forks.open_here -= 1

    def __del__(self):
        if getattr(self, "_handle", None) is not None and self._generation == forks.generation:
            self.close()


def _nanoseconds(seconds):
    return _FOREVER_NS if seconds is None else min(_FOREVER_NS, int(seconds * 1e9))
