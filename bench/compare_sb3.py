"""Wall-clock to a mean return of 2,000 on HalfCheetah-v5: simstream against Stable-Baselines3 PPO.

    compare_sb3.py SIMSTREAM [CAP]

Needs stable-baselines3, torch, gymnasium and mujoco in the Python that runs it. One run each, one
after the other, on the same CPUs: simstream until the last 100 episodes reach the return, then PPO
with SB3's own defaults (VecNormalize, 8 envs) until the same, at most CAP (3.2) times as long. Prints one
JSON line.
"""

import json
import subprocess
import sys
import tempfile
import time

TARGET = 2000


def run_simstream(program):
    with tempfile.TemporaryDirectory() as out:
        start = time.monotonic()
        text = subprocess.run(
            [program, "train", "--task=HalfCheetah-v5", "--train-async", "--rollout-async",
             "--streaming", "--total-steps=2000000", f"--target-return={TARGET}", f"--out={out}",
             "--json"], check=True, capture_output=True, text=True).stdout
        return time.monotonic() - start, json.loads(text.splitlines()[-1])


def run_sb3(limit_s):
    import gymnasium
    from stable_baselines3 import PPO
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.monitor import Monitor
    from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

    class Stop(BaseCallback):
        def _on_step(self):
            if time.monotonic() - start > limit_s:
                return False
            returns = [e["r"] for e in self.model.ep_info_buffer]
            return not (len(returns) >= 100 and sum(returns) / len(returns) >= TARGET)

    env = VecNormalize(DummyVecEnv([lambda: Monitor(gymnasium.make("HalfCheetah-v5"))] * 8))
    model = PPO("MlpPolicy", env, device="cpu", seed=1)
    start = time.monotonic()
    model.learn(total_timesteps=10**9, callback=Stop())
    returns = [e["r"] for e in model.ep_info_buffer]
    return time.monotonic() - start, model.num_timesteps, sum(returns) / max(1, len(returns))


def main():
    program, cap = sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else 3.2
    ours_s, ours = run_simstream(program)
    theirs_s, theirs_steps, theirs_return = run_sb3(cap * ours_s)
    print(json.dumps({
        "bench": "sb3", "target_return": TARGET,
        "simstream_s": round(ours_s, 1), "simstream_steps": ours["env_steps"],
        "simstream_return": round(ours["mean_return"], 1), "sb3_s": round(theirs_s, 1),
        "sb3_steps": theirs_steps, "sb3_return": round(theirs_return, 1),
        "sb3_reached": theirs_return >= TARGET, "ratio_at_most": round(ours_s / theirs_s, 3)}))


if __name__ == "__main__":
    main()
