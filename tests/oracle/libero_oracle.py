"""Python LIBERO beside ours: same MuJoCo, same data, same seeds, same actions.

    libero_oracle.py [--driver PROGRAM] [--tasks subset|all|SUITE/INDEX,...] [--robosuite VERSION]
                     [--dump] [--golden FILE] [--jobs N] [--json] [--root DIR] [--cache DIR]

What Python does (libero_record.py) is kept in the cache as commands with their replies, together
with the compiled scene's fields: SUITE_INDEX.json and SUITE_INDEX.model.npz in a folder named after
the versions and the recording code. The driver then gets the same commands, and each of its
replies is compared. --dump only records. --golden plays a file of golden numbers with Python, or
with the driver if one is given. Run it through scripts/libero_oracle.sh.

The driver, text: `PROGRAM DATA_ROOT` reads one command a line from its standard input and writes
one JSON object a line to its standard output. Numbers in commands are decimal; strtod reads them
exactly. Numbers in replies are written with %.17g. When a command fails, its reply is
{"error": "why"}. The end of the input ends the driver with status 0.

    task SUITE/INDEX ROBOSUITE   a new environment as LIBERO's constructor leaves it: loaded once,
                                 never reset. Reply {"mujoco": mj_version(), "nq": N, "nv": N,
                                 "goal": [["on", "a", "b"], ...]}: the goal's atoms in file order.
                                 With CAMERAS RENDERER behind, `draw` can be said
    model PATH                   mj_saveModel to PATH: the scene with its visual part as compiled,
                                 untouched by any reset. Reply {}
    physics PATH                 the same with the model that is stepped, without its visual part
    draw PATH                    the pictures of the present observation to PATH, raw. Reply {}
    seed S                       env.seed(S). Reply {}
    reset                        reply STATE and "fixtures": {name: {"pos": [3], "quat": [4]}}, all
                                 but the workspace, "goal_pos": [3] and "goal_ori": [9] (by rows)
                                 of the controller
    init ROW                     set_init_state with that row of the task's file. Reply STATE
    set V ...                    set_init_state with these 1 + nq + nv numbers. Reply STATE
    step A0 ... A6               reply STATE and "reward": number, "done": bool
    qpos Q ...                   qpos becomes these nq numbers, and nothing else happens. Reply {}
    state Q ...                  qpos becomes these nq numbers, then mj_forward. Reply {"atoms":
                                 [bool, ...], "success": bool}

STATE is "qpos", "qvel", "ctrl" and "obs": every observation under LIBERO's name for it, flat.
"""

import argparse
import concurrent.futures
import functools
import hashlib
import json
import math
import multiprocessing
import os
import subprocess
import sys
import tempfile

import mujoco
import numpy as np

import libero_python
import libero_record

SUITES = {"libero_spatial": 10, "libero_object": 10, "libero_goal": 10, "libero_10": 10,
          "libero_90": 90}
# all five problem classes, drawers, door, knob, every kind of placement and of goal atom
SUBSET = ["libero_spatial/4", "libero_object/6", "libero_goal/7", "libero_10/3", "libero_10/4",
          "libero_10/5", "libero_10/9", "libero_90/88"]

# the largest difference of a phase; velocities and torques follow positions at a distance
TOLERANCE = {"reset": 0.0, "init": 1e-12, "timing": 1e-9, "dummy": 1e-9, "random": 1e-5,
             "replay": 1e-5, "predicates": 0.0}
STEEP = {"qvel", "ctrl", "robot0_joint_vel", "robot0_gripper_qvel", "robot0_proprio-state"}
STEEP_FACTOR = 100
SUMS = 1e-12  # what LIBERO computes from qpos, in whatever order of sums
FLOAT32 = 1e-6  # poses relative to the hand go through float32
SHARE = 2  # at least so many sampled states of a task must meet the goal, and miss it
REPLAYS = 0.7  # of the tasks, at least this share must have an episode in which `done` changes


# --- recordings ----------------------------------------------------------------------------------
LIBERO = {}  # what libero_python.load has returned, once a process


def make_task(options, name):
    if not LIBERO:
        parts = libero_python.load(options.root, options.robosuite,
                                   os.path.join(options.cache, "config"))
        LIBERO.update(zip(("env", "suites", "kept"), parts))
    suite, index = name.split("/")
    return libero_python.Task(options.root, LIBERO["suites"], LIBERO["env"], LIBERO["kept"], suite,
                              int(index))


@functools.cache  # the code that this process runs, even when the files change
def code_hash():
    here = os.path.dirname(os.path.abspath(__file__))
    digest = hashlib.sha256(os.environ.get("OPENBLAS_CORETYPE", "").encode())  # rounds otherwise
    for name in ("libero_python.py", "libero_record.py"):
        with open(os.path.join(here, name), "rb") as file:
            digest.update(file.read())
    return digest.hexdigest()[:10]


def paths(options, name):
    folder = (f"mujoco-{mujoco.__version__}_robosuite-{options.robosuite}_numpy-{np.__version__}_"
              f"{code_hash()}")
    stem = os.path.join(options.cache, folder, name.replace("/", "_"))
    return stem + ".json", stem + ".model.npz"


def save(path, write):
    """Under its name only when complete."""
    part = f"{path}.{os.getpid()}"
    with open(part, "wb") as file:
        write(file)
    os.replace(part, path)


def recording(options, name):
    text, arrays = paths(options, name)
    if not (os.path.exists(text) and os.path.exists(arrays)):
        os.makedirs(os.path.dirname(text), exist_ok=True)
        task = make_task(options, name)
        digest = libero_python.model_digest(task.kept["model"])
        save(arrays, lambda file: np.savez_compressed(file, **digest))
        made = json.dumps(libero_record.record(task, name)).encode()
        save(text, lambda file: file.write(made))
    with open(text, encoding="utf8") as file:
        made = json.load(file)
    with np.load(arrays) as file:
        return made, dict(file)


# --- the driver ----------------------------------------------------------------------------------
class Driver:
    def __init__(self, options, name, pictures=""):
        self.process = subprocess.Popen([options.driver, options.root], text=True, bufsize=1,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.head = self.do(f"task {name} {options.robosuite} {pictures}".rstrip())

    def do(self, command):
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        short = command[:60]
        if not line:
            raise AssertionError(f"the driver has ended at '{short}'")
        reply = json.loads(line)
        if "error" in reply:
            raise AssertionError(f"'{short}': {reply['error']}")
        return reply

    def close(self):
        self.process.stdin.close()
        if self.process.wait() != 0:
            raise AssertionError(f"the driver ended with status {self.process.returncode}")


# --- comparison ----------------------------------------------------------------------------------
def difference(ours, theirs):
    a, b = np.asarray(ours, "f8").ravel(), np.asarray(theirs, "f8").ravel()
    if a.shape != b.shape:
        return math.inf
    worst = float(np.max(np.abs(a - b))) if a.size else 0.0
    return worst if math.isfinite(worst) else math.inf  # max() overlooks NaN


def limit(phase, key):
    most = TOLERANCE[phase]
    if key.startswith("goal_"):
        return max(most, SUMS)
    if key.startswith("obs/"):
        key = key[4:]
        if key == "object-state" or "_to_robot0_eef_" in key:
            return max(most, FLOAT32)
        most = max(most, SUMS)
    return most * STEEP_FACTOR if key in STEEP else most


def flat(reply, prefix=""):
    """{"obs": {"a": [1]}} as {"obs/a": [1]}"""
    out = {}
    for key, value in reply.items():
        if isinstance(value, dict):
            out.update(flat(value, f"{prefix}{key}/"))
        else:
            out[prefix + key] = value
    return out


class Comparison:
    """Of one task: the worst differences by phase, and what is beyond its limit."""

    def __init__(self):
        self.worst, self.failures = {}, []

    def fail(self, text):
        self.failures.append(text)

    def compare(self, phase, where, ours, theirs):
        ours, theirs = flat(ours), flat(theirs)
        if set(ours) != set(theirs):
            self.fail(f"{phase} {where}: only ours {sorted(set(ours) - set(theirs))}, only "
                      f"Python's {sorted(set(theirs) - set(ours))}")
        for key in set(ours) & set(theirs):
            gap = difference(ours[key], theirs[key])
            if key in ("qpos", "atoms"):
                self.worst[phase] = max(self.worst.get(phase, 0.0), gap)
            if not gap <= limit(phase, key):
                self.fail(f"{phase} {where}: {key} differs by {gap:.3g}, allowed "
                          f"{limit(phase, key):.3g}")

    def model(self, ours, theirs):
        if set(ours) != set(theirs):
            self.fail(f"model: fields {sorted(set(ours) ^ set(theirs))}")
        for name in sorted(set(ours) & set(theirs)):
            a, b = ours[name], theirs[name]
            if a.shape != b.shape:
                self.fail(f"model: {name} has shape {a.shape}, Python's {b.shape}")
            elif a.dtype != b.dtype or not np.array_equal(a, b):
                where = np.argwhere(np.atleast_1d(a != b))
                self.fail(f"model: {name} differs in {len(where)} of {a.size} elements, first at "
                          f"{where[0].tolist()}")


def saved_model(driver, folder):
    """The driver's compiled scene, read back by Python's MuJoCo."""
    with tempfile.TemporaryDirectory(dir=folder) as place:
        path = os.path.join(place, "scene.mjb")
        driver.do(f"model {path}")
        return libero_python.model_digest(mujoco.MjModel.from_binary_path(path))


def first_difference(a, b):
    return next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), None)


def replay(driver, made, result):
    """Every command of the recording. Returns how many sampled states met the goal."""
    met = 0
    for number, entry in enumerate(made["entries"]):
        reply = driver.do(entry["command"])
        where = f"command {number} ({entry['command'][:24]})"
        result.compare(entry["phase"], where, reply, entry["reply"])
        met += entry["phase"] == "predicates" and entry["reply"].get("success", False)
    return met


def check(options, name):
    """Records or reads what Python does, and compares. Returns the result as a dictionary."""
    made, fields = recording(options, name)
    row = {"task": name, "robosuite": options.robosuite, "mujoco": mujoco.__version__,
           "changed_at": made["changed_at"],
           "states": sum(e["command"].startswith("state") for e in made["entries"]),
           "states_met": sum(e["reply"].get("success", False) for e in made["entries"])}
    result = Comparison()
    if not SHARE <= row["states_met"] <= row["states"] - SHARE:
        result.fail(f"{row['states_met']} of {row['states']} sampled states meet the goal")
    if options.driver:
        driver = Driver(options, name)
        if driver.head["mujoco"] != mujoco.mj_version():
            raise AssertionError(f"MuJoCo {driver.head['mujoco']}, Python {mujoco.mj_version()}")
        if driver.head["goal"] != made["goal"]:
            result.fail(f"goal {driver.head['goal']}, Python {made['goal']}")
        result.model(saved_model(driver, os.path.dirname(paths(options, name)[0])), fields)
        replay(driver, made, result)
        driver.close()
        row["fields"] = len(fields)
    return {**row, "worst": result.worst, "failures": result.failures}


def guarded(work, options, name):
    try:
        return work(options, name)
    except AssertionError as error:
        return {"task": name, "failures": [str(error)]}


# --- golden numbers ------------------------------------------------------------------------------
def golden_actions():
    for k in range(-10, 40):
        if k < 0:
            yield libero_record.DUMMY
        else:
            gripper = -1.0 if k // 10 % 2 == 0 else 1.0
            yield [0.5 * math.sin(0.3 * k + i) for i in range(6)] + [gripper]


def golden_player(options, name):
    if options.driver:
        return Driver(options, name)
    return libero_record.Recorder(make_task(options, name))


def play(player, verb, *numbers):
    if isinstance(player, Driver):
        return player.do(" ".join([verb, *(repr(x) for x in numbers)]))
    return player.do(verb, *numbers)


def golden_reset(reply):
    return {"qpos": reply["qpos"], "ctrl_goal_pos": reply["goal_pos"],
            "ctrl_goal_ori": reply["goal_ori"], "fixtures": reply["fixtures"]}


def golden_step(step, reply):
    obs = {f"obs_{k}": reply["obs"][f"robot0_{k}"]
           for k in ("eef_pos", "eef_quat", "joint_pos", "gripper_qpos")}
    state = {k: reply[k] for k in ("qpos", "qvel", "ctrl", "reward", "done")}
    return {"step": step, **state, **obs}


def check_golden(options, name):
    """One task of the golden file, whose tasks are named by their files."""
    with open(options.golden, encoding="utf8") as file:
        golden = json.load(file)
    if golden["robosuite"] != options.robosuite or golden["mujoco"] != mujoco.__version__:
        raise AssertionError(f"golden numbers of MuJoCo {golden['mujoco']} and robosuite "
                             f"{golden['robosuite']}")
    folder, file_name = name.split("/")
    made, result = golden["tasks"][name], Comparison()
    index = libero_python.suites(options.root)[folder].index(file_name)
    player = golden_player(options, f"{folder}/{index}")
    play(player, "seed", 0)
    theirs = {key: made[key] for key in ("ctrl_goal_pos", "fixtures")}
    theirs["qpos"] = made["reset_qpos"]
    theirs["ctrl_goal_ori"] = np.ravel(made["ctrl_goal_ori"])
    result.compare("init", "reset", golden_reset(play(player, "reset")), theirs)
    obs = play(player, "init", 0)["obs"]
    for key in ("eef_pos", "eef_quat"):
        result.compare("init", "init 0", {"obs": obs[f"robot0_{key}"]},
                       {"obs": made[f"init_obs_{key}"]})
    kept = {row["step"]: {k: v for k, v in row.items() if k != "ncon"} for row in made["steps"]}
    for step, action in enumerate(golden_actions()):
        reply = play(player, "step", *action)
        if step in kept:
            result.compare("dummy" if step < 10 else "random", f"step {step}",
                           golden_step(step, reply), kept[step])
    return {"task": name, "robosuite": options.robosuite, "mujoco": mujoco.__version__,
            "worst": result.worst, "failures": result.failures}


# --- command line --------------------------------------------------------------------------------
def task_list(options):
    if options.golden:
        with open(options.golden, encoding="utf8") as file:
            return list(json.load(file)["tasks"])
    if options.tasks == "subset":
        return SUBSET
    if options.tasks == "all":
        return [f"{suite}/{i}" for suite, n in SUITES.items() for i in range(n)]
    return options.tasks.split(",")


def arguments():
    build = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../build")
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--driver")
    parser.add_argument("--tasks", default="subset")
    parser.add_argument("--robosuite", default="1.4.1", choices=("1.4.0", "1.4.1"))
    parser.add_argument("--dump", action="store_true")
    parser.add_argument("--golden")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--root", default=os.path.join(build, "deps/libero"))
    parser.add_argument("--cache", default=os.path.join(build, "libero-oracle"))
    options = parser.parse_args()
    if not (options.driver or options.dump or options.golden):
        parser.error("give --driver PROGRAM, --dump or --golden FILE")
    for name in ("root", "cache", "driver", "golden"):
        if getattr(options, name):
            setattr(options, name, os.path.abspath(getattr(options, name)))
    if options.dump:
        options.driver = None
    return options


def show(row, as_json):
    if as_json:
        print(json.dumps(row), flush=True)
        return
    if row["failures"]:
        print(f"FAIL {row['task']}: {len(row['failures'])} differences", flush=True)
        for text in row["failures"][:8]:
            print(f"     {text}", flush=True)
        return
    phases = ", ".join(f"{phase} {gap:.1e}" for phase, gap in row["worst"].items())
    if "states" in row:
        phases += (f" goal met in {row['states_met']} of {row['states']} states, done changes at "
                   f"step {row['changed_at']}")
    print(f"ok   {row['task']}: {phases}", flush=True)


def main():
    options = arguments()
    work = check_golden if options.golden else check
    passed = failed = changed = 0
    # processes: NumPy's global generator and LIBERO's modules are one a process
    with concurrent.futures.ProcessPoolExecutor(
            options.jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        jobs = [pool.submit(guarded, work, options, name) for name in task_list(options)]
        for job in concurrent.futures.as_completed(jobs):
            row = job.result()
            show(row, options.json)
            passed += not row["failures"]
            failed += bool(row["failures"])
            changed += options.golden is not None or row.get("changed_at") is not None
    if changed < REPLAYS * (passed + failed):
        print(f"FAIL only {changed} tasks have an episode in which `done` changes", flush=True)
        failed += 1
    print(json.dumps({"passed": passed, "failed": failed}) if options.json else
          f"{passed} passed, {failed} failed", flush=True)
    return 0 if passed and not failed else 1


if __name__ == "__main__":
    sys.exit(main())
