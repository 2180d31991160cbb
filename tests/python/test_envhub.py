"""The EnvHub file, used as LeRobot's evaluation loop uses an environment."""

import importlib.util
import os
import pathlib
import unittest
from unittest import mock

import numpy as np

from helpers import needs_program, server

FILE = pathlib.Path(__file__).parents[2] / "python" / "envhub" / "env.py"


def make_env(variables, **kwargs):
    spec = importlib.util.spec_from_file_location("envhub_env", FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with mock.patch.dict(os.environ, variables):
        return module.make_env(**kwargs)


class EnvHub(unittest.TestCase):
    def evaluate(self, env):
        """The parts of an environment that lerobot-eval touches; gives the steps to all ends."""
        n = env.num_envs
        limit = env.call("_max_episode_steps")[0]
        self.assertEqual(len(env.call("task_description")), n)
        self.assertGreater(env.unwrapped.metadata["render_fps"], 0)
        obs, _ = env.reset(seed=list(range(n)))
        done = np.zeros(n, bool)
        steps = 0
        while not done.all() and steps < limit:
            self.assertTrue(env.observation_space.contains(obs))
            self.assertTrue(np.isfinite(obs["agent_pos"]).all())
            obs, _, term, trunc, info = env.step(env.action_space.sample())
            if "final_info" in info:
                success = info["final_info"]["is_success"].tolist()
                self.assertEqual(success, [False] * n)
                ended = np.flatnonzero(info["_final_obs"])
                np.testing.assert_array_equal(ended, np.flatnonzero(term | trunc))
                self.assertEqual(set(info["final_obs"][ended[0]]), {"agent_pos"})
            done |= term | trunc
            steps += 1
        self.assertTrue(done.all())
        env.close()
        return steps

    def test_one_task(self):
        env = make_env({"SIMSTREAM_TASK": "Reacher-v5"}, n_envs=3, use_async_envs=True)
        self.assertEqual(self.evaluate(env), 50)

    def test_several_tasks(self):
        envs = make_env({"SIMSTREAM_TASK": "Reacher-v5,Hopper-v5"}, n_envs=2)
        self.assertEqual({k: list(v) for k, v in envs.items()},
                         {"Reacher-v5": [0], "Hopper-v5": [0]})
        for suite in envs.values():
            self.evaluate(suite[0])

    @needs_program
    def test_a_server(self):
        with server("Reacher-v5", 2) as (address, _):
            self.assertEqual(self.evaluate(make_env({"SIMSTREAM_ADDRESS": address}, n_envs=2)), 50)


if __name__ == "__main__":
    unittest.main()
