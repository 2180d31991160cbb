"""LeRobot's EnvHub entry: make_env(n_envs, use_async_envs) gives simstream environments.

SIMSTREAM_TASK names the task, or several separated by commas (default: Ant-v5);
SIMSTREAM_ADDRESS the env server, for one task (default: in process); SIMSTREAM_CAMERAS the cameras
in process, as the keyword `cameras` names them (default: none).

LeRobot wants a dict observation and a success in final_info; so an observation is {"agent_pos": float64
(n_envs, n_obs)} and, with cameras, "pixels": {camera: uint8 (n_envs, height, width, 3)}; a task that
knows no success reports False.
"""

import os

import numpy as np
from gymnasium.spaces import Dict
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import batch_space

import simstream


class LeRobotVectorEnv(simstream.SimstreamVectorEnv):
    """SimstreamVectorEnv in same-step mode with LeRobot's names."""

    def __init__(self, task, num_envs, **kwargs):
        super().__init__(task, num_envs, autoreset_mode=AutoresetMode.SAME_STEP, **kwargs)
        self._pixels = {p["name"]: p["camera"] for p in self.engine_spec["pictures"]
                        if p["plane"] == "rgb" and p["name"] in self._pictures.names}
        self.single_observation_space = self._lerobot(self.single_observation_space, Dict)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)

    def _lerobot(self, obs, kind=dict):
        """An observation, or its space, under LeRobot's names."""
        if not self._pictures.names:
            return kind({"agent_pos": obs})
        out = {"agent_pos": obs["state"]}
        if self._pixels:
            out["pixels"] = kind({camera: obs[name] for name, camera in self._pixels.items()})
        return kind(out)

    def reset(self, *, seed=None, options=None):
        """As SimstreamVectorEnv.reset, the observation under LeRobot's names."""
        obs, infos = super().reset(seed=seed, options=options)
        return self._lerobot(obs), infos

    def step(self, actions):
        """As SimstreamVectorEnv.step, observations under LeRobot's names."""
        obs, *rest, infos = super().step(actions)
        if "final_info" in infos:
            nothing = np.zeros(self.num_envs, bool)
            infos["final_info"].setdefault("is_success", nothing)
            infos["final_info"].setdefault("_is_success", infos["_final_info"].copy())
            for i in np.flatnonzero(infos["_final_obs"]):
                infos["final_obs"][i] = self._lerobot(infos["final_obs"][i])
        return self._lerobot(obs), *rest, infos


def make_env(n_envs=1, use_async_envs=False):
    """A LeRobotVectorEnv of n_envs envs, or {task: {0: env}} if SIMSTREAM_TASK names several.

    use_async_envs makes no difference: the envs always step in threads of their own.
    """
    address = os.environ.get("SIMSTREAM_ADDRESS")
    cameras = os.environ.get("SIMSTREAM_CAMERAS")
    kwargs = {"cameras": cameras} if cameras else {}
    tasks = os.environ.get("SIMSTREAM_TASK", "" if address else "Ant-v5").split(",")
    if len(tasks) == 1:
        return LeRobotVectorEnv(tasks[0] or None, n_envs, address=address, **kwargs)
    if address:
        raise ValueError("SIMSTREAM_ADDRESS serves one task, SIMSTREAM_TASK names several")
    suites = {}
    for task in tasks:
        suite, _, member = task.partition("/")
        suites.setdefault(suite, {})[int(member or 0)] = LeRobotVectorEnv(task, n_envs, **kwargs)
    return suites
