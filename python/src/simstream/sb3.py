"""simstream environments for Stable-Baselines3, which has a vector interface of its own.

    from simstream.sb3 import SB3VecEnv
    model = PPO("MlpPolicy", SB3VecEnv("HalfCheetah-v5", 16))

This module needs stable_baselines3; the rest of the package does not. A single simstream
environment works with Stable-Baselines3 as any Gymnasium environment does.
"""

import numpy as np
from gymnasium.vector import AutoresetMode
from stable_baselines3.common.vec_env import VecEnv

from .vector import SimstreamVectorEnv


class SB3VecEnv(VecEnv):
    """A SimstreamVectorEnv as VecEnv: `step` resets the envs that ended (same-step autoreset).

    The arguments are those of SimstreamVectorEnv without autoreset_mode. An info has the task's
    terms, and at an end "terminal_observation", "TimeLimit.truncated" and "episode" (return "r" and
    length "l", as VecMonitor gives them).
    """

    def __init__(self, task=None, num_envs=None, **kwargs):
        self.envs = SimstreamVectorEnv(task, num_envs, autoreset_mode=AutoresetMode.SAME_STEP,
                                       **kwargs)
        super().__init__(self.envs.num_envs, self.envs.single_observation_space,
                         self.envs.single_action_space)

    def reset(self):
        """Observations float64 (num_envs, n_obs) of new episodes, of the seeds of `seed`."""
        seeds = self._seeds if any(seed is not None for seed in self._seeds) else None
        obs, infos = self.envs.reset(seed=seeds)
        self.reset_infos = [self._info(infos, i) for i in range(self.num_envs)]
        self._reset_seeds()
        self._reset_options()
        return obs

    def step_async(self, actions):
        """Begin a step: actions (num_envs, n_act)."""
        self.envs.send(actions)

    def step_wait(self):
        """(observations, rewards float32 (num_envs,), dones bool (num_envs,), list of infos)."""
        obs, rewards, terms, truncs, infos = self.envs.step_wait()
        each = [self._info(infos, i) for i in range(self.num_envs)]
        dones = terms | truncs
        for i in np.flatnonzero(dones):
            each[i] = self._info(infos["final_info"], i)
            each[i]["terminal_observation"] = infos["final_obs"][i]
            each[i]["TimeLimit.truncated"] = bool(truncs[i] and not terms[i])
            returned, length = (self.envs.get_attr(name)[i]
                                for name in ("episode_return", "elapsed_steps"))
            each[i]["episode"] = {"r": returned, "l": length}
        return obs, rewards.astype(np.float32), dones, each

    @staticmethod
    def _info(infos, i):
        return {key: value[i] for key, value in infos.items()
                if not key.startswith("_") and not isinstance(value, dict) and infos["_" + key][i]}

    def get_images(self):
        """The pictures of `render`, one an env."""
        return list(self.envs.render() or [None] * self.num_envs)

    def close(self):
        """Free the envs."""
        self.envs.close()

    def _pick(self, values, indices):
        return [values[i] for i in self._get_indices(indices)]

    def get_attr(self, attr_name, indices=None):
        """SimstreamVectorEnv.get_attr of some envs."""
        return self._pick(self.envs.get_attr(attr_name), indices)

    def has_attr(self, attr_name):
        """Is there such an attribute?"""
        try:
            self.envs.get_attr(attr_name)
        except AttributeError:
            return False
        return True

    def set_attr(self, attr_name, value, indices=None):
        """SimstreamVectorEnv.set_attr for some envs."""
        values = list(self.envs.get_attr(attr_name)) if self.has_attr(attr_name) else (
            [None] * self.num_envs)
        for i in self._get_indices(indices):
            values[i] = value
        self.envs.set_attr(attr_name, values)

    def env_method(self, method_name, *method_args, indices=None, **method_kwargs):
        """SimstreamVectorEnv.call for some envs."""
        return self._pick(self.envs.call(method_name, *method_args, **method_kwargs), indices)

    def env_is_wrapped(self, wrapper_class, indices=None):
        """No env is wrapped, but each counts its episodes as Monitor does."""
        from stable_baselines3.common.monitor import Monitor

        return [wrapper_class is Monitor] * len(list(self._get_indices(indices)))
