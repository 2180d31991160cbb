"""An installed package: import, make, step."""

import gymnasium as gym
import numpy as np

import simstream

envs = gym.make_vec("simstream/Ant-v5", num_envs=8)
obs, _ = envs.reset(seed=1)
total = 0.0
for _ in range(100):
    obs, rewards, *_ = envs.step(envs.action_space.sample())
    total += rewards.sum()
assert obs.shape == (8, 105) and np.isfinite(obs).all() and total != 0
assert len(list(simstream.tasks())) >= 11
envs.close()
print(f"simstream {simstream.__version__} from {simstream.__file__}: 800 steps")
