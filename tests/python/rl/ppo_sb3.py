"""Stable-Baselines3's PPO, unchanged, on simstream environments: as VecEnv and as single ones.

Each must bring the mean return of InvertedPendulum-v5 (a random policy: about 7, the most: 1000)
over TARGET, and a saved policy must do as well in Gymnasium's own environment.
"""

import sys
import time

import gymnasium as gym
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy

import simstream  # noqa: F401
from simstream.sb3 import SB3VecEnv

TASK, TARGET, STEPS = "InvertedPendulum-v5", 300, 60_000


def train(env):
    start = time.monotonic()
    model = PPO("MlpPolicy", env, n_steps=128, batch_size=256, learning_rate=1e-3, seed=1,
                device="cpu")
    model.learn(STEPS)
    episodes = [e["r"] for e in model.ep_info_buffer]
    returned = sum(episodes) / len(episodes)
    env.close()
    return model, returned, time.monotonic() - start


def main():
    torch.set_num_threads(1)
    failed = False
    for name, env in (("SB3VecEnv", SB3VecEnv(TASK, 8)),
                      ("make_vec_env", make_vec_env(f"simstream/{TASK}", n_envs=8)),
                      ("Gymnasium", make_vec_env(TASK, n_envs=8))):
        model, returned, took = train(env)
        transferred, _ = evaluate_policy(model, gym.make(TASK), n_eval_episodes=5, warn=False)
        print(f"sb3 ppo, {name}: mean return {returned:.0f} in training, {transferred:.0f} in "
              f"Gymnasium's {TASK}, {STEPS} steps in {took:.0f} s")
        failed |= not (returned > TARGET and transferred > TARGET)
    sys.exit(failed)


if __name__ == "__main__":
    main()
