"""Pictures in observations: Python LIBERO's and ours, on the same OpenGL driver, are equal.

    libero_pictures.py --driver PROGRAM [--tasks SUITE/INDEX,...] [--renderer egl|rays] [--size N]
                       [--root DIR] [--robosuite VERSION]

Both reset, take an initial state and execute the same actions; after each the two camera pictures of
LIBERO's observation are compared with those of the driver (see libero_oracle.py), every pixel. In the
last frames a stove, where there is one, is turned on: its disc shows one step late. Run it through
scripts/libero_oracle.sh. Exit code 77: no EGL here.
"""

import argparse
import os
import sys
import tempfile

os.environ["MUJOCO_GL"] = "egl"
import numpy as np

import libero_oracle
import libero_python

TASKS = "libero_spatial/0,libero_object/6,libero_goal/7,libero_10/5,libero_10/9"
CAMERAS = "agentview", "robot0_eye_in_hand"
FRAMES = 7


def knob_turned(task):
    """The present state with every stove's knob at `on`, as set_init_state takes it; None = no stove."""
    knobs = [j for j in range(task.model.njnt) if "_stove" in task.model.joint(j).name
             and "button" in task.model.joint(j).name]
    if not knobs:
        return None
    state = [0.0, *task.data.qpos.tolist(), *task.data.qvel.tolist()]
    for j in knobs:
        state[1 + task.model.jnt_qposadr[j]] = 1.5
    return state


def frames(task, driver):
    """Does the same on both sides; yields what was done after each."""
    driver.do("seed 0")
    task.seed(0)
    driver.do("reset")
    task.reset()
    yield "reset"
    driver.do("init 3")
    task.set_state(task.inits[3])
    yield "init"
    rng = np.random.default_rng(5)
    for i in range(FRAMES - 2):
        for _ in range(3):
            action = [*rng.uniform(-0.7, 0.7, 6).tolist(), 1.0 if i % 2 else -1.0]
            driver.do(" ".join(["step", *(repr(x) for x in action)]))
            task.step(action)
        yield f"step {3 * i + 3}"
    state = knob_turned(task)
    if state is None:
        return
    # without set_init_state, so that the disc is not there yet
    task.data.qpos[:] = state[1:1 + task.model.nq]
    driver.do(" ".join(["qpos", *(repr(float(x)) for x in state[1:1 + task.model.nq])]))
    for name in ("knob", "disc"):
        driver.do("step 0 0 0 0 0 0 -1")
        task.step([0.0] * 6 + [-1.0])
        yield name


def compare(options, name):
    """Prints a line a task; the number of frames that differ, or a threshold is passed in."""
    suite, index = name.split("/")
    task = libero_python.Task(options.root, options.names, options.env, options.kept, suite,
                              int(index), options.size)
    cameras = ",".join(f"{c}:{options.size}x{options.size}" for c in CAMERAS)
    driver = libero_oracle.Driver(options, name, f"{cameras} {options.renderer}")
    count, differ, worst = 0, 0, 0.0
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "frame")
        for what in frames(task, driver):
            driver.do(f"draw {path}")
            ours = np.fromfile(path, np.uint8)
            size = options.size * options.size * 3
            for k, camera in enumerate(CAMERAS):
                theirs = task.obs[f"{camera}_image"].astype(np.int32).ravel()
                mine = ours[k * ((size + 7) // 8 * 8):][:size]
                gap = np.abs(mine - theirs)
                count += 1
                differ += bool(gap.any())
                worst = max(worst, float(gap.mean()))
                if gap.any() and options.renderer == "egl":
                    print(f"     {name} {what}: {camera} differs in {np.count_nonzero(gap)} of "
                          f"{size} numbers, by {gap.max()} at most")
    driver.close()
    task.env.close()
    print(f"{name}: {count} pictures, {differ} differ, mean difference at most {worst:.3f} of 255",
          flush=True)
    return worst


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--driver", required=True)
    parser.add_argument("--tasks", default=TASKS)
    parser.add_argument("--renderer", default="egl", choices=("egl", "rays"))
    parser.add_argument("--size", type=int, default=128)
    parser.add_argument("--robosuite", default="1.4.1", choices=("1.4.0", "1.4.1"))
    parser.add_argument("--root", default=os.path.join(here, "../../build/deps/libero"))
    options = parser.parse_args()
    options.root = os.path.abspath(options.root)
    try:
        import mujoco
        mujoco.GLContext(64, 64).free()
    except Exception as error:  # whatever the driver's loader says
        print(f"skipped: no EGL here: {error}")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as config:
        options.env, options.names, options.kept = libero_python.load(
            options.root, options.robosuite, config, pictures=True)
        worst = max(compare(options, name) for name in options.tasks.split(","))
    return 0 if worst <= {"egl": 0.0, "rays": 0.3}[options.renderer] else 1


if __name__ == "__main__":
    sys.exit(main())
