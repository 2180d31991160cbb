"""demos.hdf5 as others see it: h5py, MuJoCo's Python and, if given, robomimic's reader.

    record_check.py SIMSTREAM DRIVER [--robomimic FOLDER] [FILE ...]

Records tasks of `tabletop` with SIMSTREAM and checks keys, types, shapes, numbering and masks; that
obs moves with --libero-alignment; that DRIVER (libero_driver), given the start and the recorded
actions, passes through the recorded states, to the bit; that model_file compiles in MuJoCo, has the
fixtures where this episode had them, and puts the hand where obs says it was; and that
--policy=replay repeats every recorded success at the same step; that pictures are stored under LIBERO's
names, one compressed piece each, move with --libero-alignment and repeat. A plan with feedback lifts a block,
so that there are successes. FOLDER is robomimic's source (0.2.0 or 0.3.0): then its SequenceDataset
reads the files too, with torch and the like replaced by stubs. FILEs are checked as they are, for their layout.
"""

import argparse
import importlib.abc
import importlib.machinery
import json
import os
import subprocess
import sys
import tempfile
import types

import h5py
import mujoco
import numpy as np

HAND_SITE = "gripper0_grip_site"
SETTLE_STEPS = 10
OBS = {"gripper_states": 2, "joint_states": 7, "ee_states": 6, "ee_pos": 3, "ee_ori": 3}
TEXTS = ["env_args", "env_name", "problem_info", "bddl_file_name", "bddl_file_content",
         "macros_image_convention", "tag", "task", "policy", "kwargs", "engine"]

checks = 0


def check(ok, *what):
    global checks
    checks += 1
    if not ok:
        raise SystemExit("record_check: " + " ".join(str(w) for w in what))


# --- the C side ----------------------------------------------------------------------------------
class Driver:
    def __init__(self, program):
        self.process = subprocess.Popen([program, ""], stdin=subprocess.PIPE, text=True,
                                        stdout=subprocess.PIPE)

    def ask(self, *words):
        line = " ".join(w if isinstance(w, str) else repr(float(w)) for w in words)
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        reply = json.loads(self.process.stdout.readline())
        check("error" not in reply, line[:80], "->", reply.get("error"))
        return reply

    def start(self, task, episode, n_row):
        """As `simstream eval --seed=0` starts an episode; the reply after settling, the fixtures."""
        self.ask("task", task, "1.4.1")
        self.ask("seed", 0)
        for _ in range(episode + 1):
            fixtures = self.ask("reset")["fixtures"]
        self.ask("init", episode % n_row)
        for _ in range(SETTLE_STEPS):
            reply = self.ask("step", 0, 0, 0, 0, 0, 0, -1)
        return reply, fixtures

    def close(self):
        self.process.stdin.close()
        check(self.process.wait() == 0, "the driver ended with", self.process.returncode)


def evaluate(program, out, *options):
    command = [program, "eval", "--seed=0", "--num-envs=3", "--threads=2", f"--out={out}", *options]
    done = subprocess.run(command, capture_output=True, text=True)
    check(done.returncode == 0, " ".join(command), done.stderr)
    with open(f"{out}/results.jsonl") as lines:
        return [json.loads(line) for line in lines]


# --- layout --------------------------------------------------------------------------------------
def check_strings(group, names):
    for name in names:
        info = h5py.check_string_dtype(group.attrs.get_id(name).dtype)
        check(info is not None and info.length is None and info.encoding == "utf-8",
              group.name, name, "is no variable-length UTF-8 text")
        check(isinstance(group.attrs[name], str), group.name, name)


def check_number(value, dtype, *what):
    check(np.dtype(type(value)) == dtype and np.ndim(value) == 0, *what, "is", type(value))


def check_demo(demo, n_act, pictures):
    n = demo.attrs["num_samples"]
    check_number(n, np.int64, "num_samples")
    check(n > 0, demo.name, "is empty")
    check_number(demo.attrs["success"], np.uint8, "success")
    check_strings(demo, ["model_file", "obs_alignment"])
    width = demo["states"].shape[1]
    shapes = {"actions": (n, n_act), "states": (n, width), "robot_states": (n, 9)}
    shapes.update({f"obs/{k}": (n, w) for k, w in OBS.items()})
    for name, shape in shapes.items():
        check(demo[name].shape == shape and demo[name].dtype == np.float64, demo.name, name,
              demo[name].shape, demo[name].dtype)
    for name in "rewards", "dones":
        check(demo[name].shape == (n,) and demo[name].dtype == np.uint8, demo.name, name)
    check(set(demo) == {"actions", "states", "robot_states", "rewards", "dones", "obs"}, demo.name)
    check(set(demo["obs"]) == set(OBS) | set(pictures), demo.name, "obs", set(demo["obs"]))
    for name, (shape, dtype) in pictures.items():
        frames = demo["obs"][name]
        check(frames.shape == (n, *shape) and frames.dtype == dtype and
              frames.chunks == (1, *shape) and frames.compression == "gzip", demo.name, name,
              frames.shape, frames.dtype, frames.chunks, frames.compression)
    check(demo.attrs["init_state"].dtype == np.float64 and
          np.array_equal(demo.attrs["init_state"], demo["states"][0]), demo.name, "init_state")
    success = bool(demo.attrs["success"])
    check(demo["rewards"][-1] == success and not demo["rewards"][:-1].any(), demo.name, "rewards")
    check(demo["dones"][-1] == 1 and not demo["dones"][:-1].any(), demo.name, "dones")
    times = np.diff(demo["states"][:, 0])
    check(np.allclose(times, 0.05, atol=1e-9, rtol=0), demo.name, "is not at 20 Hz")
    obs = {k: demo["obs"][k][()] for k in OBS}
    check(np.array_equal(obs["ee_states"], np.hstack([obs["ee_pos"], obs["ee_ori"]])), demo.name)
    robot = demo["robot_states"][()]
    check(np.array_equal(robot[:, :2], obs["gripper_states"]) and
          np.array_equal(robot[:, 2:5], obs["ee_pos"]), demo.name, "robot_states")
    for quat, turn in zip(robot[:, 5:], obs["ee_ori"]):  # the same rotation, by MuJoCo
        a, b = np.zeros(9), np.zeros(4)
        mujoco.mju_quat2Mat(a, quat[[3, 0, 1, 2]] / np.linalg.norm(quat))
        angle = np.linalg.norm(turn)
        mujoco.mju_axisAngle2Quat(b, turn / angle if angle > 0 else turn, angle)
        matrix = np.zeros(9)
        mujoco.mju_quat2Mat(matrix, b)
        check(np.allclose(a, matrix, atol=1e-9), demo.name, "ee_ori", quat, turn)
    return success


def check_layout(path, n_act=7, pictures={}):
    """The successes of the demos, in order."""
    with h5py.File(path, "r") as f:
        data = f["data"]
        check(set(f) == {"data", "mask"}, path, set(f))
        check_strings(data, TEXTS)
        check_number(data.attrs["total"], np.int64, "total")
        check_number(data.attrs["num_demos"], np.int64, "num_demos")
        check(data.attrs["tag"] == "libero-v1", "tag")
        check(data.attrs["macros_image_convention"] == "opengl", "macros_image_convention")
        env_args, info = (json.loads(data.attrs[k]) for k in ("env_args", "problem_info"))
        check(env_args["type"] == 1 and isinstance(env_args["env_kwargs"], dict) and
              env_args["env_name"] == data.attrs["env_name"] and
              env_args["bddl_file"] == data.attrs["bddl_file_name"] and
              env_args["problem_name"] == info["problem_name"], "env_args", env_args)
        text = " ".join(data.attrs["bddl_file_content"].lower().split())  # as the bddl package reads it
        check(info["language_instruction"] in text,
              "problem_info", info)
        check("/" != data.attrs["bddl_file_name"][0], "bddl_file_name is of one machine")
        n = len(data)
        check(sorted(data, key=lambda k: int(k[5:])) == [f"demo_{i}" for i in range(n)],
              "demos are not dense:", sorted(data))
        check(n == data.attrs["num_demos"], "num_demos")
        outcomes = [check_demo(data[f"demo_{i}"], n_act, pictures) for i in range(n)]
        check(sum(d.attrs["num_samples"] for d in data.values()) == data.attrs["total"], "total")
        episodes = [data[f"demo_{i}"].attrs["episode"] for i in range(n)]
        check(episodes == sorted(set(episodes)), "demos are not in episode order:", episodes)
        for mask, want in ("success", True), ("failure", False):
            names = f["mask"][mask]
            check(names.dtype.kind == "S", "mask", names.dtype)
            check([m.decode() for m in names] ==
                  [f"demo_{i}" for i in range(n) if outcomes[i] == want], "mask", mask)
    return outcomes


# --- physics -------------------------------------------------------------------------------------
def flat(reply, time):
    return np.concatenate([[time], reply["qpos"], reply["qvel"]])


def check_passage(driver, task, demo, n_row):
    """The driver passes through the recorded states and observations; no tolerance."""
    reply, fixtures = driver.start(task, int(demo.attrs["episode"]), n_row)
    obs = demo["obs"]
    post = demo.attrs["obs_alignment"] == "post"
    for t, action in enumerate(demo["actions"]):
        state = demo["states"][t]
        check(np.array_equal(flat(reply, state[0]), state), demo.name, "leaves its states at", t,
              np.abs(flat(reply, state[0]) - state).max())
        before, reply = reply["obs"], driver.ask("step", *action)
        now = reply["obs"] if post else before
        for ours, theirs in ("ee_pos", "robot0_eef_pos"), ("gripper_states", "robot0_gripper_qpos"), \
                ("joint_states", "robot0_joint_pos"):
            check(np.array_equal(obs[ours][t], now[theirs]), demo.name, ours, "at", t)
        check(reply["done"] == bool(demo["rewards"][t]), demo.name, "done at", t)
    return fixtures


def check_model(demo, fixtures, hand_tolerance):
    """model_file compiles, has the fixtures in their places, and the hand where obs has it."""
    model = mujoco.MjModel.from_xml_string(demo.attrs["model_file"])
    data = mujoco.MjData(model)
    check(demo["states"].shape[1] == 1 + model.nq + model.nv, demo.name, "states")
    for name, pose in fixtures.items():
        body = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_BODY, name + "_main")
        check(body >= 0, "model_file has no", name)
        check(np.array_equal(model.body_pos[body], pose["pos"]) and
              np.allclose(model.body_quat[body], pose["quat"], atol=1e-15, rtol=0),
              demo.name, "fixture", name, model.body_pos[body], pose)
    if demo.attrs["obs_alignment"] == "post":
        return 0.0
    site = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_SITE, HAND_SITE)
    off = 0.0
    for state, pos in zip(demo["states"], demo["obs/ee_pos"]):
        data.qpos[:] = state[1:1 + model.nq]
        mujoco.mj_kinematics(model, data)
        off = max(off, np.abs(data.site_xpos[site] - pos).max())
    check(off <= hand_tolerance, demo.name, "the hand is", off, "m from where obs has it")
    return off


def lift(driver, task, episode, n_row):
    """Actions that lift the red block, by feedback, to the goal; and the first state."""
    reply, _ = driver.start(task, episode, n_row)
    first, actions, phase = reply, [], 0
    for _ in range(150):
        obs = reply["obs"]
        hand, block = np.array(obs["robot0_eef_pos"]), np.array(obs["red_block_1_pos"])
        target = block + [0, 0, 0.10 if phase == 0 else 0.30 if phase > 10 else 0.0]
        off = target - hand
        if phase == 0 and np.abs(off).max() < 0.01 or phase == 1 and np.abs(off).max() < 0.008:
            phase += 1
        elif phase >= 2:
            phase += 1
        move = np.clip(off / 0.05, -1, 1) if phase < 2 or phase > 10 else np.zeros(3)
        action = np.float32([*move, 0, 0, 0, 1 if phase >= 2 else -1]).astype(float)
        actions.append(action)
        reply = driver.ask("step", *action)
        if reply["done"]:
            return first, np.array(actions)
    raise SystemExit(f"record_check: the plan does not lift the block of episode {episode}")


def write_plan(path, plans, width):
    """What --policy=replay needs, nothing else: as a file of other programs would be."""
    with h5py.File(path, "w") as f:
        data = f.create_group("data")
        data.attrs["num_demos"] = len(plans)
        for i, (state, actions) in enumerate(plans):
            demo = data.create_group(f"demo_{i}")
            demo["actions"] = actions
            demo["states"] = np.tile(state, (len(actions), 1))
            demo.attrs["init_state"] = state
            check(len(state) == width, "plan")


# --- robomimic -----------------------------------------------------------------------------------
class StubClass(type):
    def __getattr__(cls, name):
        return stub_class(name)


def stub_class(name):
    if name.startswith("__"):
        raise AttributeError(name)
    return StubClass(name, (), {"__init__": lambda self, *args, **kwargs: None})


class Stub(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Stands in for packages of which robomimic's reader needs the names alone."""
    tops = {"torch", "torchvision", "egl_probe", "tensorboardX", "imageio", "matplotlib",
            "termcolor", "psutil", "transformers", "diffusers", "huggingface_hub", "IPython"}

    def find_spec(self, name, path, target=None):
        if name.split(".")[0] in self.tops:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        module = types.ModuleType(spec.name)

        module.__getattr__ = stub_class
        return module

    def exec_module(self, module):
        pass


def check_robomimic(folder, paths):
    sys.meta_path.insert(0, Stub())
    sys.path.insert(0, folder)
    import robomimic
    import robomimic.utils.file_utils as files
    import robomimic.utils.obs_utils as obs_utils
    from robomimic.utils.dataset import SequenceDataset

    obs_utils.initialize_obs_utils_with_obs_specs({"obs": {"low_dim": list(OBS)}})
    for path, n_success in paths:
        env = files.get_env_metadata_from_dataset(path)
        check(env["type"] == 1 and "env_kwargs" in env and env["env_name"], env)
        for mask in [None, "success"]:
            if mask and n_success == 0:
                continue
            data = SequenceDataset(
                hdf5_path=path, obs_keys=list(OBS), frame_stack=1, seq_length=10,
                dataset_keys=("actions", "rewards", "dones"), pad_frame_stack=True,
                pad_seq_length=True, get_pad_mask=False, goal_mode=None, hdf5_cache_mode="low_dim",
                hdf5_use_swmr=True, hdf5_normalize_obs=False, filter_by_attribute=mask,
                load_next_obs=False)
            with h5py.File(path, "r") as f:
                demos = [f["data"][k] for k in f["data"]
                         if not mask or f["data"][k].attrs["success"]]
                total = sum(int(d.attrs["num_samples"]) for d in demos)
            check(data.n_demos == len(demos) and len(data) == total, path, mask, len(data), total)
            item = data[0]
            check(item["actions"].shape == (10, 7), item["actions"].shape)
            for key, width in OBS.items():
                check(item["obs"][key].shape == (10, width), key, item["obs"][key].shape)
    print(f"robomimic {robomimic.__version__} reads {len(paths)} files")


# --- the cases -----------------------------------------------------------------------------------
def rows_of(driver, task):
    driver.ask("task", task, "1.4.1")
    driver.process.stdin.write("init 1000000\n")
    driver.process.stdin.flush()
    text = json.loads(driver.process.stdout.readline())["error"]
    n = int(text.rsplit("..", 1)[1]) + 1
    check(n > 0, text)
    return n


def check_failures(program, driver, folder, task, n_row, has_fixtures):
    """Random actions, failures kept, both alignments."""
    paths = {}
    for align in "pre", "post":
        out = f"{folder}/{task.replace('/', '_')}_{align}"
        evaluate(program, out, f"--task={task}", "--policy=random", "--episodes=3", "--record=hdf5",
                 "--record-failures", f"--libero-alignment={align}")
        paths[align] = f"{out}/demos.hdf5"
        check(len(check_layout(paths[align])) == 3, "all episodes are kept")
    worst = 0.0
    with h5py.File(paths["pre"], "r") as pre, h5py.File(paths["post"], "r") as post:
        for name in pre["data"]:
            a, b = pre["data"][name], post["data"][name]
            check(np.array_equal(a["states"], b["states"]), name)
            for key in OBS:
                check(np.array_equal(a["obs"][key][1:], b["obs"][key][:-1]), name, key)
            fixtures = check_passage(driver, task, a, n_row)
            check(bool(fixtures) == has_fixtures, task, "fixtures", fixtures)
            check_passage(driver, task, b, n_row)
            # here observations are late, as LIBERO's: one or two physics steps
            worst = max(worst, check_model(a, fixtures, 5e-3))
    print(f"{task}: states repeat to the bit, late observations are off by {worst:.2g} m at most")
    return [(p, 0) for p in paths.values()]


def check_clean(program, folder, task):
    """Without LIBERO's late observations obs is exactly what model_file gives at states[t]."""
    out = f"{folder}/clean"
    evaluate(program, out, f"--task={task}", "--policy=random", "--episodes=2", "--record=hdf5",
             "--record-failures", '--kwargs={"compat": "clean"}')
    check_layout(f"{out}/demos.hdf5")
    with h5py.File(f"{out}/demos.hdf5", "r") as f:
        worst = max(check_model(d, {}, 1e-12) for d in f["data"].values())
    print(f"{task} clean: obs is that of states[t] to {worst:.2g} m")
    return [(f"{out}/demos.hdf5", 0)]


def check_pictures(program, folder, task):
    """Colours, depth and segmentation; LIBERO's two cameras."""
    pictures = {"agentview_rgb": ((24, 32, 3), np.uint8), "eye_in_hand_rgb": ((16, 16, 3), np.uint8),
                "agentview_depth": ((24, 32), np.float32),
                "agentview_segmentation": ((24, 32, 2), np.int32)}
    kwargs = {"cameras": "agentview:32x24:opengl:rgb+depth+seg,robot0_eye_in_hand:16x16:opengl"}
    demos = {}
    for i, align in enumerate(("pre", "post", "post")):
        out = f"{folder}/pictures_{i}"
        evaluate(program, out, f"--task={task}", "--policy=random", "--episodes=2", "--record=hdf5",
                 "--record-failures", f"--libero-alignment={align}", f"--kwargs={json.dumps(kwargs)}")
        check_layout(f"{out}/demos.hdf5", pictures=pictures)
        with h5py.File(f"{out}/demos.hdf5", "r") as f:
            env = json.loads(f["data"].attrs["env_args"])["env_kwargs"]
            check(env["camera_names"] == ["agentview", "robot0_eye_in_hand"] and
                  env["camera_depths"] is True, env)
            got = {(d, p): f[f"data/{d}/obs/{p}"][()] for d in f["data"] for p in pictures}
        check(align not in demos or all(np.array_equal(got[k], demos[align][k]) for k in got),
              "pictures do not repeat")
        demos[align] = got
    for key, pre in demos["pre"].items():
        check(np.array_equal(pre[1:], demos["post"][key][:-1]), key, "does not move")
        check(not np.array_equal(pre[0], pre[-1]), key, "never changes")
        check(len(np.unique(pre[0])) > 4, key, "shows nothing")
    depth = demos["pre"]["demo_0", "agentview_depth"]
    check(0.2 < np.median(depth) < 5, "depth in metres", np.median(depth))
    print(f"{task}: {len(pictures)} kinds of pictures are stored, move and repeat")
    return []


def check_successes(program, driver, folder, task, n_row):
    plans = []
    for episode in range(5):
        reply, actions = lift(driver, task, episode, n_row)
        if episode in (1, 4):
            actions[:] = 0  # two failures
        plans.append((flat(reply, SETTLE_STEPS * 0.05), actions))
    write_plan(f"{folder}/plan.hdf5", plans, len(plans[0][0]))
    first = evaluate(program, f"{folder}/lift", f"--task={task}", "--record=hdf5",
                     f"--policy=replay:{folder}/plan.hdf5")
    check([r["success"] for r in first] == [True, False, True, True, False], "outcomes", first)
    path = f"{folder}/lift/demos.hdf5"
    check(check_layout(path) == [True] * 3, "successes alone are kept")
    with h5py.File(path, "r") as f:
        demos = [f["data"][f"demo_{i}"] for i in range(3)]
        check([d.attrs["episode"] for d in demos] == [0, 2, 3], "episodes")
        lengths = [int(d.attrs["num_samples"]) for d in demos]
        check(lengths == [len(plans[i][1]) for i in (0, 2, 3)], "lengths", lengths)
        for d in demos:
            check_model(d, check_passage(driver, task, d, n_row), 5e-3)
    again = evaluate(program, f"{folder}/again", f"--task={task}", "--record=hdf5",
                     f"--policy=replay:{path}")
    check([(r["success"], r["length"]) for r in again] == [(True, n) for n in lengths],
          "a replay must succeed at the same steps", again, lengths)
    check_same(path, f"{folder}/again/demos.hdf5")
    wrong = subprocess.run([program, "eval", f"--policy=replay:{path}", f"--task={task}",
                            "--seed=0", f"--out={folder}/wrong",
                            '--kwargs={"settle_steps": 11}'], capture_output=True, text=True)
    check(wrong.returncode == 2 and "was recorded from another state" in wrong.stderr, wrong.stderr)
    print(f"{task}: {len(demos)} successes repeat at steps {lengths}")
    return [(path, 3)]


def check_same(a, b):
    with h5py.File(a, "r") as f, h5py.File(b, "r") as g:
        names = []
        f["data"].visititems(lambda n, o: names.append(n) if isinstance(o, h5py.Dataset) else None)
        for name in names:
            check(np.array_equal(f["data"][name], g["data"][name]), "a replay changed", name)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("driver")
    parser.add_argument("--robomimic")
    parser.add_argument("files", nargs="*")
    options = parser.parse_args()
    driver = Driver(options.driver)
    with tempfile.TemporaryDirectory() as folder:
        paths = []
        for task, has_fixtures in ("tabletop/0", False), ("tabletop/4", True): # 4 has a cabinet
            paths += check_failures(options.program, driver, folder, task, rows_of(driver, task),
                                    has_fixtures)
        paths += check_clean(options.program, folder, "tabletop/4")
        paths += check_pictures(options.program, folder, "tabletop/4")
        paths += check_successes(options.program, driver, folder, "tabletop/0",
                                 rows_of(driver, "tabletop/0"))
        driver.close()
        for path in options.files:
            paths.append((path, sum(check_layout(path))))
        if options.robomimic:
            check_robomimic(options.robomimic, paths)
    print(f"{checks} checks passed")


if __name__ == "__main__":
    main()
