"""Python LIBERO on robosuite 1.4.x: what libero_oracle.py compares ours with.

Runs in the environment of scripts/libero_oracle.sh, on the folder of `make libero-data`. LIBERO's
and robosuite's own code runs as it was published; this file only keeps PyTorch, gym and, unless they
are asked for, pictures out of it (none of them touches the state), lets robosuite 1.4 run on MuJoCo
3.10 and later, and compiles an unchanged scene once.
"""

import copy
import hashlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import pickle
import sys
import types
import zipfile

import mujoco
import numpy as np

NOT_NEEDED = {"PIL", "cloudpickle", "cv2", "future", "gym", "gymnasium", "h5py", "imageio",
              "matplotlib", "pynput", "torch", "tqdm"}
LARGE = 1 << 20  # bytes; larger model arrays are compared by their hash


class Absent(types.ModuleType):
    """A module that can be imported from, but in which nothing works."""

    __path__ = []

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Absent(f"{self.__name__}.{name}")

    def __call__(self, *_, **__):
        raise RuntimeError(f"{self.__name__} is not there and should not be needed")

    def __mro_entries__(self, _):
        return (object,)


class AbsentFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, fullname, path, target=None):
        if fullname.split(".")[0] in NOT_NEEDED:
            return importlib.machinery.ModuleSpec(fullname, self, is_package=True)
        return None

    def create_module(self, spec):
        return Absent(spec.name)

    def exec_module(self, module):
        pass


def patch_for_new_mujoco():
    """mj_fullM takes its arguments in another order since 3.10, and data.qM is gone since 3.11."""
    if tuple(int(x) for x in mujoco.__version__.split(".")[:2]) < (3, 10):
        return
    import robosuite.controllers.base_controller as base_controller
    import robosuite.utils.binding_utils as binding_utils

    full_mass, widths = mujoco.mj_fullM, {0: (7, 6), 1: (4, 3), 2: (1, 1), 3: (1, 1)}
    with_data = tuple(int(x) for x in mujoco.__version__.split(".")[:2]) >= (3, 11)

    class OldNames:
        def __getattr__(self, name):
            return getattr(mujoco, name)

        @staticmethod
        def mj_fullM(model, out, data):
            full_mass(model, data, out)

    def address(first, which):
        def get(self, name):
            joint = self.joint_name2id(name)
            start = getattr(self, first)[joint]
            width = widths[int(self.jnt_type[joint])][which]
            return start if width == 1 else (start, start + width)
        return get

    base_controller.mujoco = OldNames()
    if with_data:
        binding_utils.MjData.qM = property(lambda self: self._data)
    binding_utils.MjModel.get_joint_qpos_addr = address("jnt_qposadr", 0)
    binding_utils.MjModel.get_joint_qvel_addr = address("jnt_dofadr", 1)


def compile_once():
    """A hard reset compiles the same text again: copy the first result. Returns what it keeps."""
    import robosuite.utils.binding_utils as binding_utils

    kept = {"xml": None, "model": None}

    def from_xml_string(xml):
        if xml != kept["xml"]:
            kept["xml"], kept["model"] = xml, mujoco.MjModel.from_xml_string(xml)
        return binding_utils.MjSim(copy.copy(kept["model"]))

    binding_utils.MjSim.from_xml_string = staticmethod(from_xml_string)
    return kept


def suites(root):
    """The names of the tasks of each suite, in order."""
    spec = importlib.util.spec_from_file_location(
        "task_map", os.path.join(root, "python/common/libero/libero/benchmark/"
                                       "libero_suite_task_map.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.libero_task_map


def load(root, robosuite_version, config_dir, memoise=True, pictures=False):
    """Import LIBERO. Returns (ControlEnv, suites(root), what compile_once keeps)."""
    python = os.path.join(root, "python")
    sys.path[:0] = [os.path.join(python, f"robosuite-{robosuite_version}"),
                    os.path.join(python, "common")]
    sys.meta_path.append(AbsentFinder())
    if not pictures:
        context = Absent("robosuite.renderers.context.egl_context")
        sys.modules[context.__name__] = context
    os.makedirs(config_dir, exist_ok=True)
    with open(os.path.join(config_dir, "config.yaml"), "w", encoding="utf8") as file:
        for key, folder in (("benchmark_root", "python/common/libero/libero"),
                            ("bddl_files", "bddl_files"), ("init_states", "init_files"),
                            ("datasets", "datasets"), ("assets", "assets")):
            file.write(f"{key}: {os.path.join(root, folder)}\n")
    os.environ["LIBERO_CONFIG_PATH"] = config_dir

    import logging
    logging.disable(logging.WARNING)  # robosuite asks for a private macro file
    import robosuite
    from libero.libero.envs.env_wrapper import ControlEnv
    logging.disable(logging.NOTSET)

    if robosuite.__version__ != robosuite_version:
        raise RuntimeError(f"robosuite {robosuite.__version__} instead of {robosuite_version}")
    patch_for_new_mujoco()
    return ControlEnv, suites(root), compile_once() if memoise else None


def model_fields(model):
    """All numeric fields and all names of a model. Not: sizes of memory, paths of files."""
    skip = {"narena", "nbuffer", "nconmax", "njmax", "npaths", "paths", "signature"}
    fields = {}

    def walk(struct, prefix):
        for name in dir(struct):
            if name.startswith("_") or (not prefix and (name in skip or "pathadr" in name)):
                continue
            value = getattr(struct, name)
            if isinstance(value, (bytes, bytearray)):
                fields[prefix + name] = np.frombuffer(value, "u1")
            elif isinstance(value, (int, float, np.ndarray, np.generic)):
                fields[prefix + name] = np.asarray(value)
            elif type(value).__module__.startswith("mujoco") and not callable(value):
                walk(value, prefix + name + ".")

    walk(model, "")
    return fields


def model_digest(model):
    """model_fields, with each large array as its hash."""
    return {name: np.frombuffer(hashlib.sha256(np.ascontiguousarray(a)).digest(), "u1")
            if a.nbytes > LARGE else a for name, a in model_fields(model).items()}


def init_states(path):
    """The array of a .pruned_init file: a pickle in a zip file."""
    with zipfile.ZipFile(path) as archive:
        return pickle.loads(archive.read("archive/data.pkl"))


class Task:
    """One LIBERO environment."""

    def __init__(self, root, names, control_env, kept, suite, index, picture_size=None):
        name = names[suite][index]
        self.kept = kept
        camera = {"use_camera_obs": False, "has_offscreen_renderer": False}
        if picture_size:
            camera = {"use_camera_obs": True, "has_offscreen_renderer": True,
                      "camera_widths": picture_size, "camera_heights": picture_size}
        self.env = control_env(bddl_file_name=f"{root}/bddl_files/{suite}/{name}.bddl",
                               has_renderer=False, **camera)
        self.inits = init_states(f"{root}/init_files/{suite}/{name}.pruned_init")
        self.goal = [list(atom) for atom in self.env.env.parsed_problem["goal_state"]]
        self.obs = {}

    @property
    def model(self):
        return self.env.sim.model._model

    @property
    def data(self):
        return self.env.sim.data._data

    def state(self):
        data = self.data
        return {"qpos": data.qpos.tolist(), "qvel": data.qvel.tolist(), "ctrl": data.ctrl.tolist()}

    def observations(self):
        return {key: np.asarray(value, "f8").tolist() for key, value in self.obs.items()}

    def seed(self, seed):
        self.env.seed(seed)

    def reset(self):
        self.obs = self.env.reset()
        controller = self.env.robots[0].controller
        bodies = {name: self.model.body(name + "_main") for name in self.env.env.fixtures_dict}
        return {**self.state(),
                "fixtures": {n: {"pos": b.pos.tolist(), "quat": b.quat.tolist()}
                             for n, b in bodies.items()},
                "goal_pos": np.asarray(controller.goal_pos, "f8").tolist(),
                "goal_ori": np.asarray(controller.goal_ori, "f8").ravel().tolist(),
                "obs": self.observations()}

    def set_state(self, vector):
        self.obs = self.env.set_init_state(np.asarray(vector, "f8"))
        return {**self.state(), "obs": self.observations()}

    def step(self, action):
        self.obs, reward, done, _ = self.env.step(np.asarray(action, "f8"))
        return {**self.state(), "obs": self.observations(), "reward": float(reward),
                "done": bool(done)}

    def predicates(self, qpos):
        """Puts the scene into qpos; the truth of each goal atom, and success."""
        self.data.qpos[:] = qpos
        self.env.sim.forward()
        atoms = [bool(self.env.env._eval_predicate(atom)) for atom in self.goal]
        return {"atoms": atoms, "success": bool(self.env.check_success())}
