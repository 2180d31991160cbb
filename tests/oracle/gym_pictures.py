"""Pictures in observations of Gymnasium's tasks: those of Gymnasium's own renderer, every pixel.

    gym_pictures.py DRIVER [TASK ...]

Gymnasium draws with MuJoCo's OpenGL renderer in 96 x 64, ours with renderer=egl on the same driver,
for a reset and a few steps: its own default camera and, where the model has it, the camera `track`. One
line a task. Exit code 77: no EGL here.
"""

import os
import sys
import tempfile

os.environ["MUJOCO_GL"] = "egl"
import gymnasium
import mujoco
import numpy as np

from gym_oracle import CASES, Driver

WIDTH, HEIGHT, STEPS = 96, 64, (1, 4)


def picture(driver):
    return np.frombuffer(driver.read(WIDTH * HEIGHT * 3), np.uint8).reshape(HEIGHT, WIDTH, 3)


def frames(program, task, view):
    """Pairs of pictures, ours and Gymnasium's."""
    camera = {"camera_name": "track"} if view == "track" else {}
    env = gymnasium.make(task, render_mode="rgb_array", width=WIDTH, height=HEIGHT,
                         **camera).unwrapped
    driver = Driver(program, task, {"cameras": f"{view}:{WIDTH}x{HEIGHT}", "renderer": "egl"})
    rng = np.random.default_rng(3)
    env.reset(seed=1)
    # Gymnasium looks at the median of the places that the geoms have at its first frame
    qpos, qvel = env.data.qpos.copy(), env.data.qvel.copy()
    env.set_state(env.model.qpos0, np.zeros(env.model.nv))
    env.render()
    env.set_state(qpos, qvel)
    driver.reset(qpos, qvel)
    yield picture(driver), env.render()
    for n in STEPS:
        for _ in range(n):
            # small, so that no episode ends
            action = (0.2 * rng.uniform(env.action_space.low, env.action_space.high)).astype("f4")
            env.step(action.astype("f8"))
            driver.step(action)
            mine = picture(driver)
        yield mine, env.render()
    has_track = mujoco.mj_name2id(env.model, mujoco.mjtObj.mjOBJ_CAMERA, "track") >= 0
    env.close()
    if driver.close() != 0:
        raise AssertionError("the driver failed")
    if view == "gymnasium" and has_track:
        yield from frames(program, task, "track")


def main():
    program, wanted = os.path.abspath(sys.argv[1]), sys.argv[2:]
    os.chdir(tempfile.mkdtemp())  # MuJoCo's Python package writes MUJOCO_LOG.TXT where it runs
    try:
        mujoco.GLContext(64, 64).free()
    except Exception as error:  # whatever the driver's loader says
        print(f"skipped: no EGL here: {error}")
        return 77
    failed = 0
    for task in wanted or dict(CASES):
        pairs = list(frames(program, task, "gymnasium"))
        gaps = [np.abs(ours.astype(int) - theirs) for ours, theirs in pairs]
        differ = sum(int(np.count_nonzero(gap)) for gap in gaps)
        moved = (pairs[0][1] != pairs[-1][1]).any()
        good = differ == 0 and moved and pairs[0][1].std() > 1
        failed += not good
        print(f"{'ok  ' if good else 'FAIL'} {task}: {differ} numbers of {len(gaps)} pictures differ, "
              f"by {max(gap.max() for gap in gaps)} at most", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
