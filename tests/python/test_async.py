"""send and recv: dynamic batches by env id, views without a copy, refusals, threads and forks."""

import gc
import os
import pathlib
import signal
import tempfile
import threading
import time
import unittest
import weakref

import numpy as np

import simstream
from helpers import assert_same, held
from simstream import errors


# nothing else can step its envs, and it is not replaced while it is stopped
ONE_WORKER = {"num_threads": 1, "isolate": "process", "step_timeout": 3600}


def resident_kib():
    for line in pathlib.Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1])


class SendRecv(unittest.TestCase):
    def test_batches_equal_steps(self):
        # The rows of an env are the same whether it is stepped with the others or on its own.
        n, steps = 6, 30
        rng = np.random.default_rng(0)
        actions = rng.uniform(-1, 1, (steps, n, 3)).astype(np.float32)
        for mode in ("NextStep", "SameStep"):
            make = dict(task="Hopper-v5", num_envs=n, max_episode_steps=9, autoreset_mode=mode)
            env = simstream.make_vec(**make)
            want = [env.reset(seed=4)[0]]
            rewards = []
            for t in range(steps):
                obs, reward, *_ = env.step(actions[t])
                want.append(obs)
                rewards.append(reward)
            env = simstream.make_vec(batch_size=2, num_threads=3, **make)
            env.async_reset(seed=4)
            at = np.zeros(n, int)
            while (at <= steps).any():
                obs, reward, term, trunc, infos = env.recv()
                self.assertLessEqual(len(obs), 2)
                ids = infos["env_id"]
                for row, i in enumerate(ids):
                    np.testing.assert_array_equal(obs[row], want[at[i]][i])
                    if at[i] > 0:
                        self.assertEqual(reward[row], rewards[at[i] - 1][i])
                    at[i] += 1
                go = ids[at[ids] <= steps]
                if len(go):
                    env.send(actions[at[go] - 1, go], go)
            self.assertEqual(env.in_flight(), 0)

    def test_infos_of_a_batch(self):
        env = simstream.make_vec("Hopper-v5", 3, max_episode_steps=2, autoreset_mode="SameStep",
                                 terminate_when_unhealthy=False)
        env.async_reset(seed=[5, 6, 7])
        *_, infos = env.recv()
        order = np.argsort(infos["env_id"])
        self.assertEqual(infos["seed"][order].tolist(), [5, 6, 7])
        self.assertTrue(infos["_x_position"].all() and not infos["_x_velocity"].any())
        self.assertTrue(np.isnan(infos["x_velocity"]).all())
        for t in range(1, 3):
            env.send(np.zeros((3, 3)))
            obs, reward, term, trunc, infos = env.recv()
            self.assertEqual(infos["elapsed_step"].tolist(), [t] * 3)
            self.assertEqual(trunc.all(), t == 2)
        self.assertTrue(infos["_final_obs"].all() and infos["_final_info"].all())
        self.assertEqual(infos["episode_id"].tolist(), [0] * 3)
        self.assertFalse(np.isnan(infos["final_info"]["x_velocity"]).any())
        env.send(np.zeros((3, 3)))
        *_, infos = env.recv()
        self.assertEqual(infos["episode_id"].tolist(), [1] * 3)

    def test_timeouts(self):
        env = simstream.make_vec("Hopper-v5", 4, **ONE_WORKER)
        env.reset(seed=1)
        with held(env):
            env.send(np.zeros((4, 3)))
            with self.assertRaises(errors.BatchTimeoutError):
                env.recv(timeout=0)
            start = time.monotonic()
            with self.assertRaises(TimeoutError):
                env.recv(timeout=0.002)
            self.assertGreaterEqual(time.monotonic() - start, 0.002)
        obs, *_ = env.recv()  # nothing was lost
        self.assertEqual(len(obs), 4)

    def test_a_deadline_makes_short_batches(self):
        env = simstream.make_vec("Humanoid-v5", 256, num_threads=1, batch_timeout=0.001)
        env.reset(seed=1)
        sizes = []
        while len(sizes) < 2:  # until one is received while the others are still at work
            sizes.clear()
            env.send(np.zeros((256, 17)))  # 50 ms at least
            while env.in_flight():
                sizes.append(len(env.recv()[0]))
            self.assertEqual(sum(sizes), 256)

    def test_refusals(self):
        env = simstream.make_vec("Hopper-v5", 3)
        zero = np.zeros((3, 3))
        with self.assertRaisesRegex(errors.ProtocolError, "nothing would ever be received"):
            env.recv()
        with self.assertRaisesRegex(errors.ProtocolError, "env 0 needs a reset"):
            env.send(zero)
        env.async_reset(seed=0)
        with self.assertRaisesRegex(errors.ProtocolError, "env 0 has a request in flight"):
            env.step(zero)
        with self.assertRaisesRegex(errors.ProtocolError, "env 2 has a request in flight"):
            env.async_reset(env_id=[2])
        env.recv()
        for actions, ids, text in (
            (zero, [0, 1], r"shape \(3, 3\), expected \(2, 3\)"),
            (zero[:2], [1, 1], "env 1 has a request in flight"),
            (zero[:1], [3], r"env 3 is outside 0..2"),
            (zero[:1], [-1], "negative"),
            (zero[:1], [0.0], "list of ints"),
            (zero[:0], np.zeros(0, int), "0 envs"),
            (np.array([[0, np.nan, 0]]), [1], r"env 1: action \[1\] is NaN"),
            (np.array([[0, 0, -np.inf]]), [2], r"env 2: action \[2\] is infinite"),
        ):
            with self.assertRaisesRegex(errors.SimstreamError, text):
                env.send(actions, ids)
        self.assertEqual(env.in_flight(), 0)
        for ids in ([3], [-1]):
            with self.assertRaises(errors.InvalidError):
                env.async_reset(env_id=ids)
        env.step(zero)  # nothing of the refused requests is left

    def test_reset_after_an_interrupted_step(self):
        env = simstream.make_vec("Hopper-v5", 2)
        want, _ = env.reset(seed=1)
        env.send(np.zeros((2, 3)))  # as a step that was interrupted while it waited
        np.testing.assert_array_equal(env.reset(seed=1)[0], want)

    def test_interrupt_while_waiting(self):
        env = simstream.make_vec("Hopper-v5", 4, **ONE_WORKER)
        env.reset(seed=1)
        with held(env):
            with self.assertRaises(KeyboardInterrupt):
                threading.Timer(0.02, os.kill, (os.getpid(), signal.SIGINT)).start()
                while True:
                    env.step(np.zeros((4, 3)))
        env.reset()


class Views(unittest.TestCase):
    def batch(self, n=4):
        env = simstream.make_vec("Hopper-v5", n)
        env.async_reset(seed=3)
        return env, env.recv()

    def test_nothing_is_copied(self):
        env, (obs, reward, _, _, infos) = self.batch()
        block = obs.base
        for view in (obs, reward, infos["env_id"], infos["x_position"], infos["seed"]):
            self.assertFalse(view.flags.owndata)
            self.assertIs(view.base, block)
        self.assertTrue(obs.flags.writeable and obs.flags.aligned)
        self.assertEqual((obs.shape, obs.dtype), ((4, 11), np.float64))

    def test_views_outlive_the_next_batches_and_the_env(self):
        env, (obs, *_) = self.batch()
        kept = obs.copy()
        for _ in range(20):
            env.send(np.ones((4, 3)))
            other, *_ = env.recv()
            other[:] = -1  # the caller's: it reaches nothing else
            del other
        env.close()
        gc.collect()
        np.testing.assert_array_equal(obs, kept)

    def test_the_last_view_frees_the_block(self):
        env, (obs, reward, *rest) = self.batch()
        owner = obs
        while isinstance(owner.base, np.ndarray):
            owner = owner.base
        alive = weakref.ref(owner)
        del owner, rest, reward
        gc.collect()
        self.assertIsNotNone(alive())
        del obs
        gc.collect()
        self.assertIsNone(alive())

    def test_dlpack(self):
        _, (obs, reward, *_) = self.batch()
        for view in (obs, reward):
            shared = np.from_dlpack(view)
            self.assertTrue(np.shares_memory(shared, view))
            np.testing.assert_array_equal(shared, view)
        shared = np.from_dlpack(obs)
        kept = obs.copy()
        del obs, reward, view
        gc.collect()
        np.testing.assert_array_equal(shared, kept)  # the capsule keeps the block
        try:
            import torch
        except ImportError:
            return
        _, (obs, *_) = self.batch()
        tensor = torch.from_dlpack(obs)
        obs[1, 2] = 42
        self.assertEqual(tensor[1, 2].item(), 42)

    def test_memory_stays(self):
        env = simstream.make_vec("Humanoid-v5", 8, max_episode_steps=3, autoreset_mode="SameStep")

        def run(batches):
            env.async_reset(seed=1)
            for _ in range(batches):
                *_, infos = env.recv()
                env.send(np.zeros((8, 17)))
            env.recv()
            env.reset()
            return resident_kib()

        before = run(200)
        after = run(600)
        self.assertLess(after, 1.02 * before)
        descriptors = len(os.listdir("/proc/self/fd"))
        tasks = len(os.listdir("/proc/self/task"))
        for _ in range(5):
            other = simstream.make_vec("Hopper-v5", 3)
            other.reset()
            other.close()
            del other
            simstream.make("Hopper-v5").reset()  # closed by its end
        gc.collect()
        self.assertEqual(len(os.listdir("/proc/self/fd")), descriptors)
        self.assertEqual(len(os.listdir("/proc/self/task")), tasks)


class Threads(unittest.TestCase):
    def test_the_interpreter_runs_while_c_waits(self):
        env = simstream.make_vec("Hopper-v5", 4, **ONE_WORKER)
        env.reset(seed=1)
        count = 0
        with held(env) as let_go:
            def work():
                nonlocal count
                for _ in range(100):
                    count += 1
                    time.sleep(0.0005)
                let_go()

            thread = threading.Thread(target=work)
            thread.start()
            env.step(np.zeros((4, 3)))  # lasts until the other thread has run to its end
            self.assertEqual(count, 100)
            thread.join()

    def test_one_thread_sends_another_receives(self):
        env = simstream.make_vec("Hopper-v5", 8, batch_size=3)
        env.async_reset(seed=0)
        todo, rows = 500, 0
        batches = []
        ready = threading.Semaphore(0)

        def send():
            for _ in range(todo):
                if not ready.acquire(timeout=3600):
                    return
                ids = batches.pop()
                env.send(np.zeros((len(ids), 3)), ids)

        thread = threading.Thread(target=send)
        thread.start()
        sent = 0
        while sent < todo:
            try:
                *_, infos = env.recv(timeout=3600)
            except errors.ProtocolError:  # all rows are here, the sender has not sent yet
                time.sleep(0.0001)
                continue
            batches.append(infos["env_id"].copy())
            rows += len(infos["env_id"])
            sent += 1
            ready.release()
        thread.join(timeout=3600)
        self.assertFalse(thread.is_alive())
        self.assertGreaterEqual(rows, todo)

    def test_close_while_another_thread_receives(self):
        env = simstream.make_vec("Humanoid-v5", 256, num_threads=1)
        env.async_reset(seed=0)
        caught = []

        def receive():
            try:
                while True:
                    env.recv()
            except errors.SimstreamError as error:
                caught.append(error)

        thread = threading.Thread(target=receive)
        thread.start()
        time.sleep(0.02)
        env.close()
        thread.join(timeout=3600)
        self.assertFalse(thread.is_alive())
        self.assertEqual(len(caught), 1)


def in_child(function):
    """What `function` does in a forked child: its return value as text, or its exception."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            text = str(function())
        except BaseException as error:
            text = f"{type(error).__name__}: {error}"
        os.write(write, text.encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        text = pipe.read()
    os.waitpid(pid, 0)
    return text


class Forks(unittest.TestCase):
    def setUp(self):
        import warnings

        warnings.filterwarnings("ignore", category=DeprecationWarning)  # of forks with threads

    def test_use_in_a_child_is_refused(self):
        env = simstream.make_vec("Hopper-v5", 2)
        env.async_reset(seed=1)
        obs, *_ = env.recv()
        for use in (lambda: env.step(np.zeros((2, 3))), env.reset, env.recv, env.in_flight):
            self.assertRegex(in_child(use), "ForkError: .*made before a fork.*spawn")
        self.assertRegex(in_child(lambda: simstream.make_vec("Hopper-v5", 2)),
                         "ForkError: .*environments were open")

        def drop():
            nonlocal env, obs
            value = obs[0, 0]
            env.close()
            del env, obs
            gc.collect()
            return value

        value = obs[0, 0]
        self.assertEqual(in_child(drop), str(value))
        env.step(np.zeros((2, 3)))  # the parent is not disturbed

    def test_a_child_may_make_its_own(self):
        gc.collect()
        want, _ = simstream.make("Hopper-v5").reset(seed=3)
        gc.collect()
        from simstream._library import forks

        self.assertEqual(forks.open_here, 0)
        text = in_child(lambda: simstream.make("Hopper-v5").reset(seed=3)[0].tolist())
        if forks.networked:
            self.assertIn("ForkError", text)
        else:
            self.assertEqual(text, str(want.tolist()))


class States(unittest.TestCase):
    def test_a_saved_state_goes_on_to_the_bit(self):
        env = simstream.make_vec("Ant-v5", 3, max_episode_steps=9)
        env.reset(seed=1)
        env.action_space.seed(1)
        actions = [env.action_space.sample() for _ in range(20)]
        for action in actions[:5]:
            env.step(action)
        states = env.snapshot()
        self.assertGreater(len(states[0]), 8 * 29)
        want = [env.step(action)[:4] for action in actions[5:]]
        self.assertTrue(any(step[3].any() for step in want))
        env.restore(None, states)
        assert_same([env.step(action)[:4] for action in actions[5:]], want)
        other = simstream.make_vec("Ant-v5", 3, max_episode_steps=9, autoreset_mode="NextStep")
        other.reset(seed=7)
        other.restore([2, 1, 0], states)  # env i goes on as env 2 - i
        got = [other.step(action[::-1])[:4] for action in actions[5:]]
        assert_same([tuple(part[::-1].copy() for part in step) for step in got],
                    [tuple(part.copy() for part in step) for step in want])

    def test_refusals(self):
        env = simstream.make_vec("Ant-v5", 2)
        env.reset(seed=1)
        state, = env.snapshot([0])
        with self.assertRaises(errors.InvalidError):
            env.snapshot([2])
        for wrong in (b"", state[:-1], state + b"0", bytes(len(state))):
            with self.assertRaises(errors.SimstreamError):
                env.restore([0], [wrong])
        env.send(np.zeros((2, 8)))
        with self.assertRaises(errors.ProtocolError):
            env.snapshot([1])
        env.step_wait()
        other = simstream.make_vec("Hopper-v5", 2)
        other.reset()
        with self.assertRaises(errors.SimstreamError):
            other.restore([0], state)


class Models(unittest.TestCase):
    def test_models_differ_per_env(self):
        plan = [{"field": "body_mass", "op": "scale", "range": [0.5, 1.5]}, {"field": "gravity"}]
        env = simstream.make_vec("Hopper-v5", 2, randomize=plan)
        plain = simstream.make_vec("Hopper-v5", 2)
        obs = env.reset(seed=[1, 1])[0]
        np.testing.assert_array_equal(obs, plain.reset(seed=[1, 1])[0])
        masses = [env.get_field(i, "body_mass", "torso") for i in range(2)]
        np.testing.assert_array_equal(*masses)  # the same episode has the same model
        env.reset(seed=[1, 2])
        masses = [env.get_field(i, "body_mass", "torso") for i in range(2)]
        self.assertNotEqual(*masses)
        env.reset(seed=[1, 1])
        env.set_field(1, "gravity", [0, 0, 0])
        np.testing.assert_array_equal(env.get_field(1, "gravity"), [0, 0, 0])
        self.assertLess(env.get_field(0, "gravity")[2], -9)
        for _ in range(10):
            obs, *_ = env.step(np.zeros((2, 3)))
        self.assertGreater(obs[1, 0], obs[0, 0] + 0.001)  # it does not fall
        for args, text in (((0, "nothing", [1]), "nothing"), ((0, "gravity", [1]), "gravity"),
                           ((2, "gravity", [0, 0, 0]), "env 2 is outside")):
            with self.assertRaisesRegex(errors.InvalidError, text):
                env.set_field(*args)
        with self.assertRaisesRegex(errors.InvalidError, "geom_size|entry|field"):
            simstream.make_vec("Hopper-v5", 2, randomize=[{"field": "geom_size"}])


class Processes(unittest.TestCase):
    def test_a_killed_worker_ends_its_episode_only(self):
        env = simstream.make_vec("Humanoid-v5", 32, num_threads=2, isolate="process")
        same = simstream.make_vec("Humanoid-v5", 32, num_threads=2)
        assert_same(env.reset(seed=1), same.reset(seed=1))
        actions = np.zeros((32, 17))
        assert_same(env.step(actions), same.step(actions))
        workers = [env._client.worker_pid(w) for w in range(2)]
        self.assertEqual(len(set(workers) - {0, os.getpid()}), 2)
        env.send(actions)
        os.kill(workers[0], signal.SIGKILL)
        obs, reward, term, trunc, infos = env.step_wait()
        hit = np.flatnonzero(trunc)
        self.assertLessEqual(len(hit), 1)  # none if it was idle just then
        for i in hit:
            self.assertIn("error", infos)
            self.assertRegex(infos["error"][i], "crash|died|worker|process")
        while env._client.worker_pid(0) in (0, workers[0]):
            env.step(actions)
        again = [env._client.worker_pid(w) for w in range(2)]
        env.close()
        for pid in again:
            while os.path.exists(f"/proc/{pid}"):
                time.sleep(0.01)

    def test_arguments(self):
        for kwargs, text in (({"isolate": "no"}, "isolate is 'no'"),
                             ({"step_timeout": 0}, "step_timeout is 0 s"),
                             ({"affinity": "nonsense"}, "nonsense")):
            with self.assertRaisesRegex(errors.InvalidError, text):
                simstream.make_vec("Hopper-v5", 2, **kwargs)


class Faults(unittest.TestCase):
    def test_an_unstable_world_ends_its_episode_alone(self):
        # A huge initial state makes the engine give up in the first step.
        with tempfile.TemporaryDirectory() as folder:
            home = os.getcwd()
            os.chdir(folder)
            try:
                env = simstream.make_vec("Hopper-v5", 2, reset_noise_scale=1e5,
                                         terminate_when_unhealthy=False)
                env.reset(seed=1)
                obs, reward, term, trunc, infos = env.step(np.zeros((2, 3)))
                self.assertTrue(trunc.all() and not term.any())
                self.assertTrue(infos["_error"].all())
                self.assertRegex(infos["error"][0], "bad (position|velocity|acceleration)")
                self.assertFalse(obs.any() or reward.any() or "x_velocity" in infos)
                self.assertEqual(os.listdir("."), [])  # no MUJOCO_LOG.TXT
            finally:
                os.chdir(home)

    def test_single_env(self):
        env = simstream.make("Hopper-v5", reset_noise_scale=1e5, terminate_when_unhealthy=False)
        env.reset(seed=1)
        *_, term, trunc, info = env.step(np.zeros(3))
        self.assertEqual((term, trunc), (False, True))
        self.assertIn("error", info)
        with self.assertRaises(errors.ProtocolError):
            env.step(np.zeros(3))

    def test_texts_are_the_librarys(self):
        for call, kind, text in (
            (lambda: simstream.make_vec("Ant-v6", 2), errors.InvalidError,
             "unknown task 'Ant-v6'; the nearest is 'Ant-v5'"),
            (lambda: simstream.make_vec("Ant-v5", 2, foo=1), errors.InvalidError,
             "unknown option 'foo'"),
            (lambda: simstream.make_vec("Ant-v5", 2, xml_file="/no/such.xml"), errors.MissingError,
             "cannot read model file '/no/such.xml'"),
            (lambda: simstream.make_vec("Ant-v5", 2, batch_size=0), errors.InvalidError,
             "batch size 0 is outside"),
            (lambda: simstream.make_vec("Ant-v5", 0), ValueError, "num_envs is 0"),
            (lambda: simstream.make_vec("Ant-v5", 2, num_threads=1000), errors.InvalidError,
             "1000 threads"),
            (lambda: simstream.make_vec(), errors.InvalidError, "neither a task nor"),
            (lambda: simstream.make_vec("Ant-v5", 2, autoreset_mode="no"), ValueError, "no"),
        ):
            with self.assertRaisesRegex(kind, text):
                call()


if __name__ == "__main__":
    unittest.main()
