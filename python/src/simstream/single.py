"""One env behind Gymnasium's Env."""

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode

from . import client as rows
from . import errors
from .pictures import Pictures, ask_for_pictures, check_render_mode
from .vector import (REMOTE, WORKERS, action_space_of, check_seed, error_name, metadata,
                     open_client, random_seeds)


class SimstreamEnv(gymnasium.Env):
    """One env of a task, in process or at a server; the arguments are those of SimstreamVectorEnv.

    Observations are new float64 arrays (n_obs,), with pictures dicts of "state" and the pictures,
    actions float32 (n_act,), infos floats and float64
    arrays. An episode that the engine had to give up is truncated, its observation is zero and
    info["error"] says why. Stepping an episode that has ended is a ProtocolError.
    """

    def __init__(self, task=None, *, address=None, render_mode=None, **kwargs):
        check_render_mode(render_mode)
        workers = WORKERS | ({} if address else {"num_threads": 1})
        hidden = ask_for_pictures(task, address, render_mode, kwargs)
        workers, remote = ({name: kwargs.pop(name, default) for name, default in options.items()}
                           for options in (workers, REMOTE))
        self._client = open_client(task, 1, address, AutoresetMode.DISABLED, 1, None,
                                   workers, remote, kwargs)
        self.engine_spec = self._client.spec
        self._pictures = Pictures(self.engine_spec, render_mode, hidden)
        self.render_mode = render_mode
        self.metadata = metadata(self.engine_spec)
        self.observation_space = self._pictures.space(self.engine_spec)
        self.action_space = action_space_of(self.engine_spec)
        self.dt = self.engine_spec["dt_s"]
        self._rows = np.zeros(1, self._client.row)
        self._seeded = False

    def reset(self, *, seed=None, options=None):
        """Begin an episode: with a seed its first one, else the next one of the present seed."""
        super().reset(seed=seed)
        if options:
            raise errors.InvalidError(f"unknown reset options {sorted(options)}")
        if seed is not None:
            seeds = np.array([check_seed(seed)], np.int64)
        else:
            seeds = np.array([rows.GO_ON]) if self._seeded else random_seeds(1)
        self._client.gather(self._rows)
        self._client.reset(None, seeds)
        self._seeded = True
        self._client.gather(self._rows)
        row = self._rows[0]
        if row["flags"] & rows.ERROR:
            raise errors.EngineError(f"the episode did not begin: {error_name(row['error'])}")
        return self._pictures.of(row, copy=True), self._info(row)

    def step(self, action):
        """Execute an action: (n_act,), converted to float32."""
        action = np.ascontiguousarray(action, dtype=np.float32)
        if action.shape != self.action_space.shape:
            raise errors.InvalidError(f"the action has the shape {action.shape}, expected "
                                      f"{self.action_space.shape}")
        self._client.send(None, action.reshape(1, -1))
        self._client.gather(self._rows)
        row = self._rows[0]
        flags = int(row["flags"])
        return (self._pictures.of(row, copy=True), float(row["reward"]), bool(flags & rows.TERMINATED),
                bool(flags & (rows.TRUNCATED | rows.ERROR)), self._info(row))

    def render(self):
        """With render_mode "rgb_array": the last observation as a new array uint8 (height, width, 3)."""
        return None if self.render_mode is None else self._pictures.frames(self._rows[0])

    def close(self):
        """Free the env."""
        if hasattr(self, "_client"):
            self._client.close()

    def _info(self, row):
        flags = int(row["flags"])
        info = {}
        for part in self.engine_spec["info"]:
            if part["on_reset"] or not flags & rows.FIRST:
                info[part["name"]] = row["info." + part["name"]].copy()
        if self.engine_spec["has_success"] and not flags & rows.FIRST:
            info["success"] = info["is_success"] = bool(flags & rows.SUCCESS)
        if flags & rows.ERROR:
            info["error"] = error_name(row["error"])
        return info
