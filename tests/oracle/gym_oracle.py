"""Gymnasium's MuJoCo v5 tasks beside ours: same MuJoCo, same initial states, same actions.

    gym_oracle.py DRIVER [TASK ...]

1,000 steps a case with resets. Observation, reward and every info term may differ by 1e-9 at most;
terminated and truncated must be equal. One line a case, then "N passed, M failed".
"""

import json
import os
import struct
import subprocess
import sys
import tempfile

import gymnasium
import mujoco
import numpy as np

TOLERANCE = 1e-9
STEPS = 1000
TERMINATED, TRUNCATED, ERROR = 2, 4, 8

ASSETS = os.path.join(os.path.dirname(gymnasium.__file__), "envs/mujoco/assets")

CASES = [
    ("Ant-v5", {}),
    ("Ant-v5", {"include_cfrc_ext_in_observation": False,
                "exclude_current_positions_from_observation": False,
                "healthy_z_range": [0.5, 0.9]}),
    ("Ant-v5", {"terminate_when_unhealthy": False, "main_body": "front_left_leg",
                "contact_force_range": [-0.5, 0.25], "contact_cost_weight": 0.02,
                "max_episode_steps": 77}),
    ("Ant-v5", {"frame_skip": 2, "main_body": 4, "xml_file": ASSETS + "/ant.xml",
                "forward_reward_weight": 3, "ctrl_cost_weight": 0.1, "healthy_reward": 0.5,
                "reset_noise_scale": 0.2, "max_episode_steps": 40}),
    ("HalfCheetah-v5", {}),
    ("HalfCheetah-v5", {"frame_skip": 3, "forward_reward_weight": 2.5, "ctrl_cost_weight": 0.3,
                        "exclude_current_positions_from_observation": False,
                        "max_episode_steps": 130}),
    ("Hopper-v5", {}),
    ("Hopper-v5", {"healthy_state_range": [-3, 3], "healthy_angle_range": [-0.5, 0.5],
                   "healthy_z_range": [0.3, "inf"], "healthy_reward": 0.25, "reset_noise_scale": 0.1}),
    ("Hopper-v5", {"terminate_when_unhealthy": False, "max_episode_steps": 50}),
    ("Hopper-v5", {"exclude_current_positions_from_observation": False, "frame_skip": 7,
                   "forward_reward_weight": 0.5, "ctrl_cost_weight": 0.2, "max_episode_steps": 9}),
    ("Hopper-v5", {"healthy_z_range": [1.15, 1.3], "healthy_angle_range": [-9, 9]}),
    ("Hopper-v5", {"healthy_state_range": [-1.5, 1.5], "healthy_z_range": ["-inf", 5],
                   "healthy_angle_range": [-9, 9], "reset_noise_scale": 1.6, "frame_skip": 1}),
    ("Humanoid-v5", {}),
    ("Humanoid-v5", {"include_cinert_in_observation": False, "include_cfrc_ext_in_observation": False,
                     "contact_cost_range": [0.1, 0.2], "healthy_z_range": [0.9, 1.405],
                     "contact_cost_weight": 1e-3}),
    ("Humanoid-v5", {"terminate_when_unhealthy": False, "include_cvel_in_observation": False,
                     "include_qfrc_actuator_in_observation": False,
                     "exclude_current_positions_from_observation": False, "max_episode_steps": 300}),
    ("HumanoidStandup-v5", {}),
    ("HumanoidStandup-v5", {"uph_cost_weight": 3, "impact_cost_range": [0.001, 0.3],
                            "impact_cost_weight": 1e-3, "max_episode_steps": 250}),
    ("HumanoidStandup-v5", {"exclude_current_positions_from_observation": False,
                            "include_cinert_in_observation": False, "frame_skip": 3,
                            "include_qfrc_actuator_in_observation": False, "ctrl_cost_weight": 2,
                            "max_episode_steps": 90}),
    ("InvertedDoublePendulum-v5", {}),
    ("InvertedDoublePendulum-v5", {"healthy_reward": 3, "reset_noise_scale": 0.01}),
    ("InvertedDoublePendulum-v5", {"reset_noise_scale": 3}),  # velocities and forces above 10
    ("InvertedPendulum-v5", {}),
    ("InvertedPendulum-v5", {"reset_noise_scale": 0.1, "max_episode_steps": 5}),
    ("InvertedPendulum-v5", {"frame_skip": 1, "max_episode_steps": -1}),
    ("Pusher-v5", {}),
    ("Pusher-v5", {"reward_near_weight": 2, "reward_control_weight": 0.5, "reward_dist_weight": 3}),
    ("Reacher-v5", {}),
    ("Reacher-v5", {"reward_dist_weight": 2, "reward_control_weight": 0.1, "max_episode_steps": 17}),
    ("Swimmer-v5", {}),
    ("Swimmer-v5", {"exclude_current_positions_from_observation": False, "frame_skip": 2,
                    "max_episode_steps": 333}),
    ("Walker2d-v5", {}),
    ("Walker2d-v5", {"healthy_angle_range": [-0.3, 0.3], "healthy_z_range": [1.0, 1.26],
                     "healthy_reward": 2, "reset_noise_scale": 0.05}),
    ("Walker2d-v5", {"xml_file": "walker2d.xml", "terminate_when_unhealthy": False,
                     "exclude_current_positions_from_observation": False, "ctrl_cost_weight": 0.3,
                     "forward_reward_weight": 1.5, "max_episode_steps": 200}),
]


class Driver:
    def __init__(self, program, task, kwargs):
        self.process = subprocess.Popen([program, task, json.dumps(kwargs)],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        head = struct.unpack("7i", self.read(28))
        version, self.nq, self.nv, self.n_obs, self.n_act, self.n_info, n_key = head
        if version != mujoco.mj_version():
            raise AssertionError(f"MuJoCo {version} here, {mujoco.mj_version()} in Python")
        self.keys = []
        for _ in range(n_key):
            name, n, on_reset = self.process.stdout.readline().split()
            self.keys.append((name.decode(), int(n), on_reset == b"1"))

    def read(self, n):
        data = self.process.stdout.read(n)
        if len(data) != n:
            raise EOFError("the driver has ended")
        return data

    def answer(self):
        obs = np.frombuffer(self.read(8 * self.n_obs))
        reward, = struct.unpack("d", self.read(8))
        flags, = struct.unpack("I", self.read(4))
        values = np.frombuffer(self.read(8 * self.n_info))
        info, at = {}, 0
        for name, n, on_reset in self.keys:
            info[name] = (values[at:at + n], on_reset)
            at += n
        return obs, reward, flags, info

    def reset(self, qpos, qvel):
        self.send(b"R" + np.asarray(qpos, "f8").tobytes() + np.asarray(qvel, "f8").tobytes())
        return self.answer()

    def step(self, action):
        self.send(b"S" + action.astype("f4").tobytes())
        return self.answer()

    def send(self, data):
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def close(self):
        self.process.stdin.close()
        return self.process.wait()


def difference(a, b):
    a, b = np.asarray(a, "f8").ravel(), np.asarray(b, "f8").ravel()
    if a.shape != b.shape:
        raise AssertionError(f"shapes {a.shape} and {b.shape}")
    worst = float(np.max(np.abs(a - b))) if a.size else 0.0
    return worst if np.isfinite(worst) else np.inf  # max() overlooks NaN


def info_difference(ours, theirs, first):
    names = {n for n, (v, on_reset) in ours.items() if on_reset or not first}
    if names != set(theirs):
        raise AssertionError(f"info keys {sorted(names)} and {sorted(theirs)}")
    worst = max((difference(ours[n][0], theirs[n]) for n in names), default=0.0)
    for name, (value, on_reset) in ours.items():
        if first and not on_reset and not np.isnan(value).all():
            raise AssertionError(f"info '{name}' of a reset is a number")
    return worst


def python_kwargs(kwargs):
    return {k: [float(x) for x in v] if isinstance(v, list) else v for k, v in kwargs.items()}


def run(program, task, kwargs):
    env = gymnasium.make(task, disable_env_checker=True, **python_kwargs(kwargs))
    mujoco_env = env.unwrapped
    driver = Driver(program, task, kwargs)
    rng = np.random.default_rng(7)
    low, high = env.action_space.low, env.action_space.high
    worst = {"obs": 0.0, "reward": 0.0, "info": 0.0}
    ends = {"terminated": 0, "truncated": 0}
    over = True
    for t in range(STEPS):
        if over:
            obs, info = env.reset(seed=t)
            mine = driver.reset(mujoco_env.data.qpos, mujoco_env.data.qvel)
            worst["info"] = max(worst["info"], info_difference(mine[3], info, True))
            worst["obs"] = max(worst["obs"], difference(mine[0], obs))
        action = rng.uniform(low, high).astype("f4")
        obs, reward, terminated, truncated, info = env.step(action.astype("f8"))
        mine = driver.step(action)
        if mine[2] & ERROR or bool(mine[2] & TERMINATED) != terminated \
                or bool(mine[2] & TRUNCATED) != truncated:
            raise AssertionError(f"step {t}: flags {mine[2]}, terminated {terminated}, "
                                 f"truncated {truncated}")
        worst["obs"] = max(worst["obs"], difference(mine[0], obs))
        worst["reward"] = max(worst["reward"], difference(mine[1], reward))
        worst["info"] = max(worst["info"], info_difference(mine[3], info, False))
        ends["terminated"] += terminated
        ends["truncated"] += truncated
        over = terminated or truncated
    if driver.close() != 0:
        raise AssertionError("the driver failed")
    if not sum(ends.values()):
        raise AssertionError("no episode has ended")
    if not max(worst.values()) <= TOLERANCE:
        raise AssertionError(f"differences {worst}")
    return worst, ends


def main():
    program, wanted = os.path.abspath(sys.argv[1]), sys.argv[2:]
    os.chdir(tempfile.mkdtemp())  # MuJoCo's Python package writes MUJOCO_LOG.TXT where it runs
    passed = failed = 0
    for task, kwargs in CASES:
        if wanted and task not in wanted:
            continue
        try:
            worst, ends = run(program, task, kwargs)
            print(f"ok   {task} {json.dumps(kwargs)}: obs {worst['obs']:.1e} reward "
                  f"{worst['reward']:.1e} info {worst['info']:.1e}, {ends['terminated']} terminated, "
                  f"{ends['truncated']} truncated", flush=True)
            passed += 1
        except (AssertionError, EOFError) as error:
            print(f"FAIL {task} {json.dumps(kwargs)}: {error}", flush=True)
            failed += 1
    print(f"{passed} passed, {failed} failed")
    return 0 if passed and not failed else 1


if __name__ == "__main__":
    sys.exit(main())
