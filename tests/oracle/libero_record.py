"""What libero_oracle.py does with Python LIBERO, kept as commands with their replies.

A change here or in libero_python.py makes other recordings: the cache goes by these two files.
"""

import hashlib

import mujoco
import numpy as np

DUMMY = [0.0] * 6 + [-1.0]
STATES = 54  # a task; 7,020 over all 130


class Recorder:
    """Does commands with a libero_python.Task and keeps them with their replies."""

    def __init__(self, task):
        self.task, self.phase, self.entries = task, None, []

    def do(self, verb, *numbers):
        task, reply = self.task, {}
        if verb == "seed":
            task.seed(numbers[0])
        elif verb == "reset":
            reply = task.reset()
        elif verb == "init":
            reply = task.set_state(task.inits[numbers[0]])
        elif verb == "set":
            reply = task.set_state(numbers)
        elif verb == "step":
            reply = task.step(numbers)
        elif verb == "state":
            reply = task.predicates(numbers)
        command = " ".join([verb, *(repr(x) for x in numbers)])
        self.entries.append({"phase": self.phase, "command": command, "reply": reply})
        return reply


# --- what is done --------------------------------------------------------------------------------
def noise(rng):
    return rng.uniform(-1, 1, 7).tolist()


def towards(task, rng, step):
    """Noise, pulled to the first movable object: reach, close, lift, so that there is contact."""
    action = rng.uniform(-0.7, 0.7, 7)
    name = next(iter(task.env.env.objects_dict))
    offset = np.asarray(task.obs[f"{name}_pos"]) - task.obs["robot0_eef_pos"]
    if step < 30:
        action[:3] += np.clip(10 * offset, -1, 1)
    else:
        action[2] += 0.6
    action[6] = -1.0 if step < 25 else 1.0
    return np.clip(action, -1, 1).tolist()


def record_resets(recorder):
    recorder.phase = "reset"
    for seed in (0, 7):
        recorder.do("seed", seed)
        for _ in range(3):
            recorder.do("reset")


def record_episode(recorder, rng):
    recorder.phase = "init"
    recorder.do("seed", 0)
    recorder.do("reset")
    recorder.do("init", 0)
    recorder.phase = "dummy"
    for _ in range(10):
        recorder.do("step", *DUMMY)
    recorder.phase = "random"
    for step in range(50):
        recorder.do("step", *towards(recorder.task, rng, step))


def record_timing(recorder, rng):
    """When observations are sampled depends on how often they were forced: once, twice, thrice."""
    recorder.phase = "timing"
    for rows in ((), (1,), (1, 2)):
        recorder.do("reset")
        for row in rows:
            recorder.do("init", row)
        for _ in range(2):
            recorder.do("step", *noise(rng))


# --- states around the goal ----------------------------------------------------------------------
class Goal:
    """Samples states in which the atoms of a task's goal are now true, now false."""

    def __init__(self, task, rng):
        self.task, self.rng, self.env = task, rng, task.env.env

    def joints(self, name):
        thing = self.env.object_sites_dict.get(name) or self.env.get_object(name)
        owner = name if name not in self.env.object_sites_dict else \
            self.env.object_sites_dict[name].parent_name
        articulation = self.env.get_object(owner).object_properties["articulation"]
        limits = sorted({x for r in articulation.values() for x in r})
        return list(thing.joints), limits

    def free_address(self, name):
        return int(self.task.model.joint(f"{name}_joint0").qposadr[0])

    def move_joints(self, qpos):
        for atom in self.env.parsed_problem["goal_state"]:
            if len(atom) == 2:
                names, limits = self.joints(atom[1])
                for name in names:
                    joint = self.task.model.joint(name)
                    low, high = joint.range
                    if self.rng.random() < 0.5:
                        value = self.rng.uniform(low, high)
                    else:
                        value = self.rng.choice(limits) + self.rng.normal(0, 0.01 * (high - low))
                    qpos[joint.qposadr[0]] = value

    def spot(self, atom):
        """A place for the first argument of In or On, from the current kinematics."""
        data, rng, (predicate, _, other) = self.task.data, self.rng, atom
        if other not in self.env.object_sites_dict:
            return data.body(f"{other}_main").xpos + np.append(
                rng.uniform(-0.026, 0.026, 2), rng.uniform(-0.005, 0.035))
        site = data.site(other)
        size = self.env.object_sites_dict[other].size
        matrix = site.xmat.reshape(3, 3)
        if predicate == "in":
            return site.xpos + rng.uniform(-1.12, 1.12, 3) * np.abs(matrix @ size)
        delta = np.append(rng.uniform(-1.12, 1.12, 2) * size[:2],
                          size[2] + rng.uniform(-0.03, 0.12))
        return site.xpos + matrix.T @ delta

    def turn(self, quat):
        if self.rng.random() < 0.5:
            return quat
        quat = quat + self.rng.normal(0, 0.2, 4)
        return quat / np.linalg.norm(quat)

    def state(self, base):
        qpos = np.array(base)
        for name in self.env.objects_dict:
            if self.rng.random() < 0.2:
                at = self.free_address(name)
                qpos[at:at + 3] += self.rng.normal(0, 0.03, 3)
        self.move_joints(qpos)
        for _ in range(2):  # twice: an object may stand on one that a later atom moves
            for atom in self.env.parsed_problem["goal_state"]:
                if len(atom) == 3:
                    self.task.data.qpos[:] = qpos
                    mujoco.mj_kinematics(self.task.model, self.task.data)
                    at = self.free_address(atom[1])
                    qpos[at:at + 3] = self.spot(atom)
                    qpos[at + 3:at + 7] = self.turn(qpos[at + 3:at + 7])
        return qpos.tolist()

    def start_joints(self, atom, qpos, qvel):
        """Each joint short of where it belongs, moving there."""
        owner = atom[1]
        if owner in self.env.object_sites_dict:
            owner = self.env.object_sites_dict[owner].parent_name
        articulation = self.env.get_object(owner).object_properties["articulation"]
        low, high = sorted(articulation[f"default_{atom[0]}_ranges"])
        for name in self.joints(atom[1])[0]:
            joint = self.task.model.joint(name)
            start, end = joint.range
            up = low + high > start + end
            away = self.rng.uniform(0.02, 0.3) * (end - start)
            qpos[joint.qposadr[0]] = low - away if up else high + away
            qvel[joint.dofadr[0]] = (1 if up else -1) * self.rng.uniform(0.5, 8) * (end - start)

    def near(self, other):
        """A place near the one where something belongs, and a velocity: falling to it or flying
        into it from one side; or that place itself, if the goal also needs a joint to move."""
        rng = self.rng
        if other in self.env.object_sites_dict:
            place = np.array(self.task.data.site(other).xpos)
            half = np.abs(self.task.data.site(other).xmat.reshape(3, 3)
                          @ self.env.object_sites_dict[other].size)
        else:
            place, half = np.array(self.task.data.body(f"{other}_main").xpos), np.full(3, 0.03)
        moving = any(len(atom) == 2 for atom in self.env.parsed_problem["goal_state"])
        if moving and rng.random() < 0.7:
            return place, np.zeros(3)
        if rng.random() < 0.5:
            place += np.append(rng.normal(0, 0.005, 2), half[2] + rng.uniform(0, 0.1))
            return place, np.zeros(3)
        axis, side = rng.integers(2), rng.choice((-1, 1))
        speed = np.array([0, 0, rng.uniform(0, 0.5)])
        speed[axis] = -side * rng.uniform(0.3, 1)
        place[axis] += side * (half[axis] + rng.uniform(0.01, 0.06))
        place[2] += rng.uniform(-0.5, 0.5) * half[2]
        return place, speed

    def nearly(self, base):
        """A state vector from which the goal may come true by itself."""
        qpos, qvel = np.array(base), np.zeros(self.task.model.nv)
        goal = self.env.parsed_problem["goal_state"]
        for atom in goal:
            if len(atom) == 2:
                self.start_joints(atom, qpos, qvel)
        for atom in goal:
            if len(atom) == 3:
                self.task.data.qpos[:] = qpos
                mujoco.mj_kinematics(self.task.model, self.task.data)
                joint = self.task.model.joint(f"{atom[1]}_joint0")
                at, dof = joint.qposadr[0], joint.dofadr[0]
                qpos[at:at + 3], qvel[dof:dof + 3] = self.near(atom[2])
        return [0.0, *qpos.tolist(), *qvel.tolist()]


    def leaving(self, base):
        """A state vector that meets the goal, with velocities that will end that."""
        best, least = base, np.inf
        for _ in range(150):
            qpos = self.state(base)
            if self.task.predicates(qpos)["success"]:
                depth = -min(self.task.data.contact.dist, default=0)
                if depth < least:  # deep contact would throw things about in the first step
                    best, least = qpos, depth
        qvel, speed = np.zeros(self.task.model.nv), self.rng.choice((0.1, 0.3, 1))
        for atom in self.env.parsed_problem["goal_state"]:
            if len(atom) == 3:
                dof = self.task.model.joint(f"{atom[1]}_joint0").dofadr[0]
                qvel[dof:dof + 3] = speed * self.rng.uniform(-1, 1, 3) + [0, 0, speed / 2]
        return [0.0, *best, *qvel.tolist()]


def record_predicates(recorder, rng):
    recorder.phase = "reset"
    recorder.do("seed", 0)
    base = recorder.do("reset")["qpos"]
    recorder.phase = "predicates"
    goal = Goal(recorder.task, rng)
    for _ in range(STATES):
        recorder.do("state", *goal.state(base))


def attempt(recorder, vector, rng):
    """One episode from a state. Returns the first step whose `done` is another than the last's."""
    recorder.do("seed", 0)
    recorder.do("reset")
    recorder.do("set", *vector)
    done = []
    for _ in range(20):
        done.append(recorder.do("step", *(0.3 * rng.uniform(-1, 1, 7)).tolist())["done"])
        if len(done) > 4 and done[-4] != done[-5]:
            break
    return next((i for i in range(1, len(done)) if done[i] != done[i - 1]), None)


def record_replay(recorder, rng, tries=16):
    """An episode in which the goal comes true, or if none of some tries has one, ceases to be."""
    goal = Goal(recorder.task, rng)
    recorder.phase = "replay"
    base = recorder.task.inits[0][1:1 + recorder.task.model.nq]
    for number in range(tries):
        start = len(recorder.entries)
        vector = goal.nearly(base) if number < tries // 3 else goal.leaving(base)
        changed = attempt(recorder, vector, rng)
        if changed is not None:
            return changed
        del recorder.entries[start + 2:]  # not the seed and the reset: each load adds draws to the next
    return None


def record(task, name):
    rng = np.random.default_rng(int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big"))
    recorder = Recorder(task)
    record_resets(recorder)
    record_episode(recorder, rng)
    record_timing(recorder, rng)
    record_predicates(recorder, rng)
    changed = record_replay(recorder, rng)
    return {"task": name, "goal": task.goal, "mujoco": mujoco.mj_version(), "changed_at": changed,
            "entries": recorder.entries}
