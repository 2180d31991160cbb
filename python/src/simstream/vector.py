"""The vector environment: Gymnasium's VectorEnv, and send and recv as EnvPool's users know them."""

import numpy as np
from gymnasium.spaces import Box
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from . import client as rows
from . import errors
from ._library import lib
from .client import GO_ON, Client
from .pictures import Pictures, ask_for_pictures, check_render_mode

_LOOK_CLOSER = rows.HAS_FINAL | rows.ERROR  # a step's row has more than its columns
_ANY_BATCH = 65536  # more than the envs means all of them
_MODES = (AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP, AutoresetMode.DISABLED)
_SEED_MAX = 2**63 - 1
WORKERS = {"num_threads": 0, "isolate": "thread", "step_timeout": None, "affinity": None,
           "randomize": None}


REMOTE = {"connect_timeout": 10.0, "idle_timeout": 3600.0, "key_file": None, "tls_ca": None,
          "tls_name": None, "pictures": None}


def _only_defaults(given, defaults, why):
    for name, value in given.items():
        if value != defaults[name]:
            raise errors.InvalidError(f"{name} {why}")


def open_client(task, num_envs, address, autoreset, batch_size, batch_timeout, workers, remote,
                kwargs):
    """A Client of either kind; the arguments are those of SimstreamVectorEnv, `workers` and
    `remote` dicts of those that only an own pool or only a server has."""
    mode = _MODES.index(AutoresetMode(autoreset))
    b_max = _ANY_BATCH if batch_size is None else batch_size
    if num_envs is not None and num_envs < 1:
        raise errors.InvalidError(f"num_envs is {num_envs}, expected at least 1")
    if address is None:
        if task is None:
            raise errors.InvalidError("neither a task nor the address of a server is given")
        _only_defaults(remote, REMOTE, "needs the address of a server")
        return Client.open_pool(task, kwargs, 1 if num_envs is None else num_envs, workers, mode,
                                b_max, batch_timeout)
    _only_defaults(workers, WORKERS, "is the server's when an address is given")
    limit = kwargs.pop("max_episode_steps", None)
    if kwargs:
        raise errors.InvalidError(
            f"the task's arguments {sorted(kwargs)} are the server's when an address is given")
    client = Client.open_remote(address, num_envs or 0, mode, b_max, batch_timeout, remote)
    for what, want in (("task", task), ("max_episode_steps", limit)):
        if want is not None and client.spec[what] != want:
            have = client.spec[what]
            client.close()
            raise errors.InvalidError(f"env server {address}: its {what} is {have!r}, not {want!r}")
    return client


def action_space_of(spec):
    """The action space of one env: Box float32 (n_act,)."""
    low, high = (np.array(spec[key], dtype=np.float32) for key in ("act_low", "act_high"))
    return Box(low, high, dtype=np.float32)


def metadata(spec):
    """The metadata that a single and a vector environment share."""
    return {"render_modes": ["rgb_array"], "render_fps": round(1 / spec["dt_s"])}


def error_name(code):
    """The word for a row's error, such as "bad velocity"."""
    return lib.ss_row_error_name(int(code)).decode()


def random_seeds(n):
    """(n,) int64 from the operating system's entropy."""
    return np.random.default_rng().integers(0, _SEED_MAX, n)


def check_seed(seed):
    """`seed` as int, InvalidError if it is none or out of range."""
    if isinstance(seed, (bool, float)) or not 0 <= int(seed) <= _SEED_MAX:
        raise errors.InvalidError(f"seed {seed!r} is not an integer from 0 to 2**63 - 1")
    return int(seed)


class SimstreamVectorEnv(VectorEnv):
    """Envs of one task that step together, or apart.

    Args:
        task: name of the task, such as "Ant-v5" or "libero_spatial/3". With an address it may be
            None; else the server's task must be this one.
        num_envs: how many; None is 1 in process, and all that are free at a server.
        address: "ipc:///path" or "tcp://host:port" of a `simstream serve`, or several with commas
            or as "tcp://node[01-04]:7447"; None = in process.
        autoreset_mode: gymnasium.vector.AutoresetMode or its value.
        batch_size: rows of a `recv` at most; None = num_envs. `step` does not depend on it.
        batch_timeout: seconds after which a finished row is delivered in a smaller batch; None =
            a batch waits until it is full or nothing else is running.
        num_threads: workers that step the envs in process; 0 = the CPUs of this process.
        isolate: "thread", or "process": a worker that crashes, is killed or takes longer than
            step_timeout seconds for one step (None = no limit) is replaced, and only the episode
            that it was at ends, truncated, with info["error"].
        affinity: pins the workers to processors, as `simstream serve --help` explains it.
        randomize: models that differ per env: a list of dicts such as {"field": "geom_friction",
            "element": "floor", "op": "scale", "range": [0.5, 1.5]}, drawn at the start of every
            episode; a field without a range is one that `set_field` may set.
        connect_timeout: seconds to try to reach the server.
        idle_timeout: seconds that this client may spend between two calls (on a policy update, for
            example), and that the server may be silent, before the other side takes it for dead.
        key_file: file with the key that the server asks for; None = SIMSTREAM_KEY_FILE, if set.
        tls_ca, tls_name: for addresses "tls+tcp://": authorities to trust (PEM file), and the name
            in the server's certificate if it is not the address's.
        pictures: which of the server's pictures observations have: a list of names, each with a size
            behind it if it must be that ("agentview_image:128x128"); [] = none, None = all.
        copy: True: every observation array is new and the caller's. False: `reset` and `step`
            return a view of one block that the next `reset` or `step` overwrites.
        render_mode: None, or "rgb_array": `render` gives a picture of each env. Without `cameras`
            one picture is drawn for that, every step, and is no part of the observations.
        kwargs: keyword arguments of the task, as `simstream tasks NAME` lists them (and as
            Gymnasium's environment of that name has them). `cameras` puts pictures into the
            observations: "default", a list such as ["agentview:128x128", "robot0_eye_in_hand:rgb+depth"],
            or the same separated by commas.

    With pictures an observation is a dict: "state", the numbers below, and by its name each picture:
    uint8 (num_envs, height, width, 3) for colour, float32 (num_envs, height, width) metres for depth,
    int32 (num_envs, height, width, 2) object id and type for segmentation.

    Observations are float64 (num_envs, n_obs), actions float32 (num_envs, n_act), rewards float64
    (num_envs,), terminations and truncations bool (num_envs,). An episode that the engine had to
    give up is truncated, its observation is zero and info["error"] says why.

    Seeds: env i of `reset(seed=s)` gets s + i. The initial state is a function of the env's seed
    and of how many episodes it has begun since, whatever the number of envs or threads.

    Threads: `send` and `recv` may be called from different threads, `step` and `reset` from one.
    After a fork the environment works in the process that made it only (ForkError elsewhere).
    """

    def __init__(self, task=None, num_envs=None, *, address=None,
                 autoreset_mode=AutoresetMode.NEXT_STEP, batch_size=None, batch_timeout=None,
                 num_threads=0, isolate="thread", step_timeout=None, affinity=None, randomize=None,
                 connect_timeout=10.0, idle_timeout=3600.0, key_file=None, tls_ca=None,
                 tls_name=None, pictures=None, copy=True, render_mode=None, **kwargs):
        check_render_mode(render_mode)
        workers = {"num_threads": num_threads, "isolate": isolate, "step_timeout": step_timeout,
                   "affinity": affinity, "randomize": randomize}
        remote = {"connect_timeout": connect_timeout, "idle_timeout": idle_timeout,
                  "key_file": key_file, "tls_ca": tls_ca, "tls_name": tls_name,
                  "pictures": pictures}
        hidden = ask_for_pictures(task, address, render_mode, kwargs)
        self._client = open_client(task, num_envs, address, autoreset_mode, batch_size,
                                   batch_timeout, workers, remote, kwargs)
        self.engine_spec = self._client.spec
        self._pictures = Pictures(self.engine_spec, render_mode, hidden)
        self.num_envs = self._client.num_envs
        self.autoreset_mode = AutoresetMode(autoreset_mode)
        self.batch_size = min(self.engine_spec["b_max"], self.num_envs)
        self.copy = copy
        self.render_mode = render_mode
        self.metadata = metadata(self.engine_spec) | {"autoreset_mode": self.autoreset_mode}
        self.single_observation_space = self._pictures.space(self.engine_spec)
        self.single_action_space = action_space_of(self.engine_spec)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self._rows = np.zeros(self.num_envs, self._client.row)  # the last row of each env
        self._seeded = np.zeros(self.num_envs, bool)
        self._infos = [(i["name"], i["on_reset"]) for i in self.engine_spec["info"]]
        self._fix_views()
        self._attributes = {}

    # --- Gymnasium -----------------------------------------------------------------------------

    def reset(self, *, seed=None, options=None):
        """Begin new episodes and return (observations, infos).

        seed: int s (env i gets s + i), a sequence of num_envs ints or None, or None: the next
        episode of the present seed, from a random seed at first. options: None or
        {"reset_mask": bool array (num_envs,)}: only these envs are reset, the others keep their
        observation. Requests in flight are finished first, so that an interrupted `step` needs no
        more than a reset.
        """
        mask = self._reset_mask(options)
        self._client.gather(self._rows)
        which = np.flatnonzero(mask).astype(np.uint32)
        self._client.reset(which, self._seeds(seed)[which])
        self._seeded[which] = True
        self._client.gather(self._rows)
        failed = np.flatnonzero(mask & (self._rows["flags"] & rows.ERROR != 0))
        if len(failed):
            raise errors.EngineError(
                f"env {failed[0]}: the episode did not begin: "
                f"{error_name(self._rows['error'][failed[0]])}")
        return self._observations(), self._collect_infos(mask)

    def step(self, actions):
        """Execute one action in each env: actions (num_envs, n_act), converted to float32.

        Returns (observations, rewards, terminations, truncations, infos) as Gymnasium's
        SyncVectorEnv does in the same autoreset mode.
        """
        return self._step(self._actions(actions, self.num_envs), None)

    def step_wait(self, timeout=None):
        """Wait for all requests of `send` and return what `step` does, in env order. After a
        BatchTimeoutError nothing is lost: call again."""
        return self._step(None, timeout)

    def _step(self, actions, timeout):
        columns, obs, numbers, bools = self._client.step(
            self._rows, actions, self.copy and not self._pictures.names, timeout)
        if columns.flags & _LOOK_CLOSER or self.engine_spec["has_success"]:
            infos = self._collect_infos(self._every)
        else:
            infos = self._known_infos(numbers[1:], bools[2:], columns.stepped > 0)
        return (self._observations() if obs is None else obs, numbers[0], bools[0], bools[1], infos)

    def close_extras(self, **kwargs):
        """Finish what is in flight and free the envs; arrays from `recv` stay valid."""
        if hasattr(self, "_client"):
            self._client.close()

    @property
    def np_random_seed(self):
        """The present seed of each env; tuple of ints, -1 before the first reset."""
        return tuple(np.where(self._seeded, self._rows["seed"].astype(np.int64), -1).tolist())

    # --- EnvPool -------------------------------------------------------------------------------

    def async_reset(self, seed=None, env_id=None):
        """Begin new episodes without waiting; their first rows come from `recv`.

        env_id: ints (n,), None = all. seed as for `reset`.
        """
        which = np.arange(self.num_envs, dtype=np.uint32) if env_id is None else _ids(env_id)
        if which.size and which.max() >= self.num_envs:
            raise errors.InvalidError(f"env {which.max()} is outside 0..{self.num_envs - 1}")
        self._client.reset(which, self._seeds(seed)[which])
        self._seeded[which] = True

    def send(self, actions, env_id=None):
        """Execute one action in each of some envs without waiting.

        env_id: ints (n,), None = all. actions: (n, n_act), converted to float32; read before the
        call returns. An env takes one request at a time: ProtocolError, and nothing is executed,
        if one of them has not been received yet.
        """
        which = None if env_id is None else _ids(env_id)
        n = self.num_envs if which is None else len(which)
        self._client.send(which, self._actions(actions, n))

    def recv(self, timeout=None):
        """The next batch: (observations, rewards, terminations, truncations, infos) of the envs
        infos["env_id"], in the order in which they finished.

        1 to batch_size rows: a batch is complete when it is full, when batch_timeout has passed
        since its oldest row, or when nothing else is running. timeout: seconds to wait for it;
        None = for ever, 0 = take what is there (BatchTimeoutError if nothing is). ProtocolError
        if nothing is in flight, since nothing would ever come.

        Observations (n, n_obs) float64, rewards (n,) float64 and the infos "env_id", "seed",
        "episode_id", "elapsed_step", "episode_return" and the task's own terms are strided,
        writable views of the batch as the workers wrote it. They stay valid and unchanged as long
        as any of them is referred to, also after `close`, and nothing else writes to them. They
        can be handed on without a copy by DLPack (torch.from_dlpack(observations)).

        Task terms that a row does not have are NaN, and False in infos["_" + name]. With same-step
        autoreset, infos["final_obs"] (n, n_obs) and the dict infos["final_info"] hold the ended
        episodes where the mask infos["_final_obs"] is True.
        """
        batch = self._client.recv(timeout)
        flags = batch["flags"]
        if self.render_mode is not None:
            self._rows["picture." + self._pictures.shown][batch["env"]] = (
                batch["picture." + self._pictures.shown])
        return (
            self._pictures.of(batch),
            batch["reward"],
            flags & rows.TERMINATED != 0,
            flags & (rows.TRUNCATED | rows.ERROR) != 0,
            self._batch_infos(batch, flags),
        )

    def render(self):
        """With render_mode "rgb_array": a tuple of one new array uint8 (height, width, 3) for each env,
        its last observation. None without render_mode."""
        return None if self.render_mode is None else tuple(self._pictures.frames(self._rows))

    def in_flight(self):
        """How many envs have been sent a request that has not been received."""
        return self._client.in_flight()

    # --- states --------------------------------------------------------------------------------

    def snapshot(self, env_id=None):
        """The states of the envs `env_id` (ints (n,), None = all) as a list of bytes, for
        `restore` in any env of the same task and model, here or elsewhere: physics, episode,
        counters, the numbers of `randomize`. The envs have no request in flight; an env that has
        never been reset has no state."""
        return self._client.save(self._which(env_id))

    def restore(self, env_id, states):
        """Let the envs `env_id` (ints (n,), None = all) go on from `states` of `snapshot`, one
        each or one bytes for all: the next step is to the bit what the saved env's was. No
        observation is given: it is the one that the saved env had. All states are checked before
        one is loaded."""
        which = self._which(env_id)
        if isinstance(states, (bytes, bytearray, memoryview)):
            states = [states] * len(which)
        if len(states) != len(which) or len({len(state) for state in states}) > 1:
            raise errors.InvalidError(
                f"{len(states)} states for {len(which)} envs, expected as many, of equal length")
        joined = np.frombuffer(b"".join(states), np.uint8)
        self._client.load(which, joined.reshape(len(which), len(states[0]) if states else 0))
        self._seeded[which] = True

    def set_field(self, env_id, field, values, element=""):
        """Set a field of the models of some envs, such as "body_mass", between two steps: all k
        numbers of one element (by name or number, as str; "" = of every element). `randomize` must
        name the field; later episodes vary from here. The envs have no request in flight.

        env_id: int, ints (n,) or None for all. values: (n, k), or (k,) for each of them."""
        which = self._which([env_id] if np.ndim(env_id) == 0 and env_id is not None else env_id)
        values = np.atleast_1d(np.asarray(values, dtype=np.float64))
        values = np.broadcast_to(values, (len(which), values.shape[-1]))
        self._client.set_field(which, field, str(element), np.ascontiguousarray(values))

    def get_field(self, env_id, field, element=""):
        """The k numbers of a field that are in force: new float64 array (k,) for an int, (n, k)
        for ints (n,) or None = all."""
        single = np.ndim(env_id) == 0 and env_id is not None
        values = self._client.get_field(self._which([env_id] if single else env_id), field,
                                        str(element))
        return values[0] if single else values

    def _which(self, env_id):
        return np.arange(self.num_envs, dtype=np.uint32) if env_id is None else _ids(env_id)

    # --- attributes ----------------------------------------------------------------------------

    def get_attr(self, name):
        """A tuple of each env's attribute `name`: the task's properties (task, task_description,
        max_episode_steps, dt, engine), the running episode's (seed, episode_id, elapsed_steps,
        episode_return), the spaces, metadata, render_mode, or what set_attr has stored."""
        if name in self._attributes:
            return tuple(self._attributes[name])
        per_env = {"episode_id": "episode", "elapsed_steps": "elapsed",
                   "episode_return": "episode_return"}
        if name in per_env:
            return tuple(self._rows[per_env[name]].tolist())
        if name in ("seed", "np_random_seed"):
            return self.np_random_seed
        shared = self._shared_attributes()
        if name not in shared:
            raise AttributeError(f"the envs of {self} have no attribute {name!r}, they have "
                                 f"{sorted([*shared, *per_env, 'seed', *self._attributes])}")
        return (shared[name],) * self.num_envs

    def _shared_attributes(self):
        spec = self.engine_spec
        return {
            "task": spec["task"],
            "task_description": spec["instruction"],
            "max_episode_steps": spec["max_episode_steps"],
            "_max_episode_steps": spec["max_episode_steps"],
            "dt": spec["dt_s"],
            "engine": spec["engine"],
            "observation_space": self.single_observation_space,
            "action_space": self.single_action_space,
            "metadata": self.metadata,
            "render_mode": self.render_mode,
        }

    def call(self, name, *args, **kwargs):
        """`get_attr(name)`, for envs here have no methods of their own."""
        if args or kwargs:
            raise AttributeError(f"the envs of {self} have no method {name!r}")
        return self.get_attr(name)

    def set_attr(self, name, values):
        """Store a value for each env (a list or tuple of num_envs values, or one for all), for
        get_attr. What the task defines cannot be set."""
        if name in self._shared_attributes() or (
                name not in self._attributes and hasattr(self, name)):
            raise AttributeError(f"{name!r} is the task's and cannot be set")
        if not isinstance(values, (list, tuple)):
            values = [values] * self.num_envs
        if len(values) != self.num_envs:
            raise ValueError(f"{len(values)} values for {self.num_envs} envs")
        self._attributes[name] = list(values)

    # --- inside --------------------------------------------------------------------------------

    def _fix_views(self):
        """Views of the parts of self._rows that every step looks at: a field of a structured array
        costs as much to find as a whole row to copy."""
        self._flags = self._rows["flags"]
        self._seen = self._pictures.of(self._rows)
        self._every = np.ones(self.num_envs, bool)
        # the terms of the infos stand one after the other: (num_envs, numbers)
        fields, self._terms, at = self._rows.dtype.fields, [], 0
        for key, (name, on_reset) in enumerate(self._infos):
            shape = fields["info." + name][0].shape
            where = slice(at, at + shape[0]) if shape else at
            at += shape[0] if shape else 1
            self._terms.append((key, name, "_" + name, where, on_reset))
        first = fields["info." + self._infos[0][0]][1] if at else 0
        self._numbers = np.ndarray((self.num_envs, at), np.float64, self._rows.view(np.uint8), first,
                                   (self._rows.itemsize, 8))
        self._on_reset = np.array([on_reset for _, on_reset in self._infos], bool)
        self._on_reset_numbers = np.zeros(at, bool)
        for _, _, _, where, on_reset in self._terms:
            self._on_reset_numbers[where] = on_reset

    def _observations(self):
        if not self.copy:
            return self._seen
        if isinstance(self._seen, dict):
            return {name: array.copy() for name, array in self._seen.items()}
        return self._seen.copy()

    def _actions(self, actions, n):
        array = np.ascontiguousarray(actions, dtype=np.float32)
        if array.shape != (n, self.engine_spec["n_act"]):
            raise errors.InvalidError(f"actions have the shape {array.shape}, expected "
                                      f"{(n, self.engine_spec['n_act'])}")
        return array

    def _reset_mask(self, options):
        n = self.num_envs
        unknown = set(options or {}) - {"reset_mask"}
        if unknown:
            raise errors.InvalidError(f"unknown reset options {sorted(unknown)}, expected "
                                      "'reset_mask' alone")
        if not options or "reset_mask" not in options:
            return np.ones(n, bool)
        mask = options["reset_mask"]
        if not isinstance(mask, np.ndarray) or mask.dtype != np.bool_:
            raise TypeError(f"options['reset_mask'] must be a NumPy array of bool, got {mask!r}")
        if mask.shape != (n,):
            raise ValueError(f"options['reset_mask'] must have the shape {(n,)}, got {mask.shape}")
        if not mask.any():
            raise ValueError("options['reset_mask'] must have a True value")
        if not (mask | self._seeded).all():
            raise errors.ProtocolError(f"env {np.flatnonzero(~(mask | self._seeded))[0]} is not in "
                                       "options['reset_mask'] and was never reset")
        return mask

    def _seeds(self, seed):
        """(num_envs,) int64 for Client.reset."""
        seeds = np.full(self.num_envs, GO_ON, dtype=np.int64)
        if not self._seeded.all():
            seeds[~self._seeded] = random_seeds(self.num_envs)[~self._seeded]
        if seed is None:
            return seeds
        if isinstance(seed, (int, np.integer)):
            seed = range(check_seed(seed), check_seed(seed) + self.num_envs)
        if len(seed) != self.num_envs:
            raise errors.InvalidError(f"{len(seed)} seeds for {self.num_envs} envs")
        for i, one in enumerate(seed):
            if one is not None:
                seeds[i] = check_seed(one)
        return seeds

    def _collect_infos(self, mask):
        """Infos as SyncVectorEnv makes them: arrays (num_envs, ...) of zeros where the mask
        "_key" is False; a key that no env has is absent. mask: envs that answered."""
        infos, flags = {}, self._flags
        final = mask & (flags & rows.HAS_FINAL != 0)
        good = flags & rows.ERROR == 0  # the terms of an episode that was given up mean nothing
        stepped = mask & good & (flags & (rows.FIRST | rows.HAS_FINAL) == 0)
        known = mask & (good | final)
        if final.any():
            self._collect_final(infos, final, final & good)
        self._outcome(infos, self._rows, flags, stepped, mask & ~final)
        self._collect_terms(infos, stepped, known)
        return infos

    def _known_infos(self, block, masks, any_stepped):
        """The same of a step of all envs without an error or a final observation, from numbers
        (info numbers, num_envs) and masks (infos, num_envs), of which the infos are parts."""
        infos = {}
        for key, name, mask_name, where, on_reset in self._terms:
            if on_reset or any_stepped:
                infos[name] = block[where].T
                infos[mask_name] = masks[key]
        return infos

    def _collect_terms(self, infos, stepped, known):
        """The task's terms: of the envs that have executed an action, and those that a reset has
        too of the envs that are `known`. One copy of all; the arrays of the keys are parts of it."""
        block = self._numbers.T.copy()
        masks = np.empty((len(self._infos), self.num_envs), bool)
        masks[:] = stepped
        masks[self._on_reset] = known
        keep = np.empty(block.shape, bool)
        keep[:] = stepped
        keep[self._on_reset_numbers] = known
        block[~keep] = 0
        any_stepped, any_known = stepped.any(), known.any()
        for key, name, mask_name, where, on_reset in self._terms:
            if any_known if on_reset else any_stepped:
                infos[name] = block[where].T
                infos[mask_name] = masks[key]

    def _collect_final(self, infos, final, good):
        infos["final_obs"] = np.full(self.num_envs, None, dtype=object)
        for i in np.flatnonzero(final):
            infos["final_obs"][i] = self._pictures.of(self._rows[i], "final_", copy=True)
        infos["_final_obs"] = final.copy()
        infos["final_info"], infos["_final_info"] = {}, final.copy()
        for name, _ in self._infos:
            _put(infos["final_info"], name, self._rows["final_info." + name], good)
        self._outcome(infos["final_info"], self._rows, self._flags, good, final)

    def _outcome(self, infos, batch, flags, stepped, answered):
        """Success of the rows in `stepped` and errors of those in `answered`."""
        if self.engine_spec["has_success"]:
            success = flags & rows.SUCCESS != 0
            _put(infos, "success", success, stepped)
            _put(infos, "is_success", success, stepped)
        error = answered & (flags & rows.ERROR != 0)
        if error.any():
            infos["error"] = np.full(len(batch), None, dtype=object)
            for i in np.flatnonzero(error):
                infos["error"][i] = error_name(batch["error"][i])
            infos["_error"] = error

    def _batch_infos(self, batch, flags):
        infos = {"env_id": batch["env"], "seed": batch["seed"], "episode_id": batch["episode"],
                 "elapsed_step": batch["elapsed"], "episode_return": batch["episode_return"]}
        new = flags & rows.HAS_FINAL != 0  # the observation is the next episode's first
        good = flags & rows.ERROR == 0
        stepped = good & ~new & (flags & rows.FIRST == 0)
        known = good | new
        for name, on_reset in self._infos:
            infos[name] = batch["info." + name]
            infos["_" + name] = known if on_reset else stepped
        self._outcome(infos, batch, flags, good & (flags & rows.FIRST == 0), np.ones_like(good))
        if self.autoreset_mode == AutoresetMode.SAME_STEP:
            infos["final_obs"], infos["_final_obs"] = self._pictures.of(batch, "final_"), new
            infos["final_info"] = {n: batch["final_info." + n] for n, _ in self._infos}
            infos["_final_info"] = new & good
        return infos


def _ids(env_id):
    ids = np.asarray(env_id)
    if ids.ndim != 1 or not np.issubdtype(ids.dtype, np.integer):
        raise errors.InvalidError(f"env_id must be a list of ints, got {env_id!r}")
    if ids.size and ids.min() < 0:
        raise errors.InvalidError(f"env {ids.min()} is negative")
    return np.ascontiguousarray(ids, dtype=np.uint32)


def _put(infos, name, values, mask):
    """Add `values` where `mask`, zeros elsewhere; nothing if the mask is all False."""
    if mask.all():
        infos[name] = np.array(values)
    elif mask.any():
        infos[name] = np.zeros_like(values)
        infos[name][mask] = values[mask]
    else:
        return
    infos["_" + name] = mask.copy()
