"""Gymnasium's VectorEnv and Env contracts, with Gymnasium's own code as the oracle."""

import unittest
import warnings

import gymnasium as gym
import numpy as np
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers import vector as wrappers

import simstream
from helpers import assert_same, assert_same_form, singles

MODES = list(AutoresetMode)
# ends early by its own rule under random actions, and by the limit
SHORT = dict(task="Hopper-v5", max_episode_steps=12, reset_noise_scale=0.05)


def masked_reset(env, done):
    return env.reset(options={"reset_mask": done.copy()})


class AgainstSyncVectorEnv(unittest.TestCase):
    def drive(self, env, oracle, mode, steps, same):
        """Step both with the same actions; counts the ends of episodes seen."""
        ended = np.zeros(2, int)
        same(env.reset(seed=5), oracle.reset(seed=5), "reset")
        oracle.action_space.seed(1)
        for t in range(steps):
            action = oracle.action_space.sample().astype(float)  # Gymnasium: float64 infos
            a, b = env.step(action), oracle.step(action)
            same(a, b, f"step {t}")
            ended += [a[2].sum(), a[3].sum()]
            done = a[2] | a[3]
            if mode == AutoresetMode.DISABLED and done.any():
                same(masked_reset(env, done), masked_reset(oracle, done), f"reset after {t}")
        return ended

    def test_every_number_in_every_mode(self):
        # Same seeds, same episodes: the vector env and Gymnasium's loop over single ones must
        # agree in every bit of every array, in all keys and masks of the infos.
        for mode in MODES:
            for n in (1, 5):
                with self.subTest(mode=mode, n=n):
                    env = simstream.make_vec(num_envs=n, autoreset_mode=mode, **SHORT)
                    oracle = singles(n=n, mode=mode, **SHORT)
                    ended = self.drive(env, oracle, mode, 60, assert_same)
                    self.assertGreater(ended.sum(), 3)
                    if n == 5:
                        self.assertTrue((ended > 0).all(), "both kinds of end must occur")
                    env.close()
                    oracle.close()

    def test_form_of_gymnasiums_own_tasks(self):
        # Gymnasium draws other initial states, so here only the time limit ends an episode.
        cases = {"Ant-v5": {"terminate_when_unhealthy": False}, "HalfCheetah-v5": {},
                 "Reacher-v5": {}, "Swimmer-v5": {}, "InvertedPendulum-v5": {},
                 "Walker2d-v5": {"terminate_when_unhealthy": False},
                 "Hopper-v5": {"terminate_when_unhealthy": False},
                 "Humanoid-v5": {"terminate_when_unhealthy": False},
                 "HumanoidStandup-v5": {}, "Pusher-v5": {}, "InvertedDoublePendulum-v5": {}}
        for task, kwargs in cases.items():
            for mode in MODES:
                with self.subTest(task=task, mode=mode), warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    env = simstream.make_vec(task, 2, autoreset_mode=mode, max_episode_steps=3,
                                             **kwargs)
                    oracle = gym.make_vec(task, 2, vectorization_mode="sync", max_episode_steps=3,
                                          vector_kwargs={"autoreset_mode": mode}, **kwargs)
                    self.assertEqual(env.observation_space, oracle.observation_space)
                    self.assertEqual(env.action_space, oracle.action_space)
                    self.assertEqual(env.single_observation_space,
                                     oracle.single_observation_space)
                    self.assertEqual(env.single_action_space, oracle.single_action_space)
                    self.assertEqual(env.metadata["autoreset_mode"], mode)
                    self.assertEqual(env.metadata["render_fps"], oracle.metadata["render_fps"])
                    ended = self.drive(env, oracle, mode, 8, assert_same_form)
                    self.assertGreater(ended[1], 2)
                    env.close()
                    oracle.close()

    def test_next_step_ignores_the_action_after_an_end(self):
        env = simstream.make_vec("InvertedPendulum-v5", 2, max_episode_steps=2)
        first, _ = env.reset(seed=[7, 8])
        for _ in range(2):
            obs, reward, term, trunc, _ = env.step(np.zeros((2, 1)))
        self.assertTrue(trunc.all() and not term.any())
        obs, reward, term, trunc, _ = env.step(np.full((2, 1), 3.0))
        np.testing.assert_array_equal(reward, [0, 0])
        self.assertFalse(trunc.any())
        again = simstream.make_vec("InvertedPendulum-v5", 2, max_episode_steps=2)
        again.reset(seed=[7, 8])
        np.testing.assert_array_equal(again.reset()[0], obs)  # the second episode of these seeds

    def test_disabled_refuses_an_ended_episode(self):
        env = simstream.make_vec("InvertedPendulum-v5", 2, max_episode_steps=2,
                                 autoreset_mode="Disabled")
        env.reset(seed=1)
        env.step(np.zeros((2, 1)))
        env.reset(options={"reset_mask": np.array([False, True])})
        env.step(np.zeros((2, 1)))
        with self.assertRaisesRegex(simstream.errors.ProtocolError, "env 0 needs a reset"):
            env.step(np.zeros((2, 1)))
        env.reset(options={"reset_mask": np.array([True, False])})
        self.assertEqual(env.get_attr("elapsed_steps"), (0, 1))
        env.step(np.zeros((2, 1)))  # the refusal executed nothing, so env 1 ends only now
        self.assertEqual(env.get_attr("elapsed_steps"), (1, 2))


class Seeds(unittest.TestCase):
    def test_a_seed_per_env(self):
        a = simstream.make_vec("Hopper-v5", 3)
        obs, _ = a.reset(seed=10)
        self.assertEqual(a.np_random_seed, (10, 11, 12))
        one = simstream.make("Hopper-v5")
        for i in range(3):
            np.testing.assert_array_equal(one.reset(seed=10 + i)[0], obs[i])
        other, _ = a.reset(seed=[12, None, 10])
        np.testing.assert_array_equal(other[[0, 2]], obs[[2, 0]])
        self.assertEqual(a.np_random_seed, (12, 11, 10))
        self.assertFalse(np.array_equal(other[1], obs[1]))  # the next episode of seed 11
        self.assertEqual(a.get_attr("episode_id"), (0, 1, 0))

    def test_without_a_seed_envs_and_runs_differ(self):
        obs = [simstream.make_vec("Hopper-v5", 2).reset()[0] for _ in range(2)]
        self.assertEqual(len({row.tobytes() for row in np.concatenate(obs)}), 4)

    def test_wrong_seeds(self):
        env = simstream.make_vec("Hopper-v5", 2)
        for seed in (-1, [1], [1, 2, 3], [1, -2], 2**63, 1.5):
            with self.assertRaises((ValueError, TypeError), msg=repr(seed)):
                env.reset(seed=seed)
        env.reset(seed=np.int64(3))

    def test_threads_do_not_change_a_bit(self):
        runs = []
        for threads in (1, 3):
            env = simstream.make_vec("Ant-v5", 6, num_threads=threads, max_episode_steps=8)
            env.reset(seed=2)
            env.action_space.seed(4)
            runs.append([env.step(env.action_space.sample()) for _ in range(20)])
        assert_same(*runs)


class ResetMask(unittest.TestCase):
    def test_others_keep_their_episode(self):
        env = simstream.make_vec("Hopper-v5", 3)
        env.reset(seed=1)
        before, *_ = env.step(np.zeros((3, 3)))
        mask = np.array([False, True, False])
        after, infos = env.reset(seed=[5, 6, 7], options={"reset_mask": mask})
        np.testing.assert_array_equal(after[~mask], before[~mask])
        np.testing.assert_array_equal(after[1], simstream.make("Hopper-v5").reset(seed=6)[0])
        np.testing.assert_array_equal(infos["_x_position"], mask)
        self.assertEqual(env.get_attr("elapsed_steps"), (1, 0, 1))
        self.assertEqual(env.np_random_seed, (1, 6, 3))

    def test_wrong_masks(self):
        env = simstream.make_vec("Hopper-v5", 2)
        with self.assertRaises(simstream.errors.ProtocolError):
            env.reset(options={"reset_mask": np.array([True, False])})  # env 1 never began
        env.reset()
        for mask in ([True, True], np.array([1, 0]), np.array([True]), np.zeros(2, bool)):
            with self.assertRaises((TypeError, ValueError), msg=repr(mask)):
                env.reset(options={"reset_mask": mask})
        with self.assertRaisesRegex(ValueError, "low"):
            env.reset(options={"low": 0})


class Registered(unittest.TestCase):
    def test_make_vec_without_a_warning(self):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            env = gym.make_vec("simstream/HalfCheetah-v5", num_envs=3, max_episode_steps=4)
        self.assertIsInstance(env, simstream.SimstreamVectorEnv)
        env.reset(seed=0)
        for t in range(4):
            *_, trunc, _ = env.step(np.zeros((3, 6)))
            self.assertEqual(trunc.all(), t == 3)
        self.assertEqual(env.spec.id, "simstream/HalfCheetah-v5")
        self.assertEqual(gym.spec("simstream/Reacher-v5").max_episode_steps, 50)
        env.close()
        env.close()
        with self.assertRaises(simstream.errors.ClosedError):
            env.step(np.zeros((3, 6)))

    def test_the_limit_of_make_may_be_longer_or_shorter(self):
        for limit in (7, 60):
            env = gym.make("simstream/Reacher-v5", max_episode_steps=limit)
            env.reset(seed=0)
            n, trunc = 0, False
            while not trunc:
                *_, trunc, _ = env.step(np.zeros(2))
                n += 1
            self.assertEqual(n, limit)

    def test_sync_and_async_of_gymnasium(self):
        for mode in ("sync", "async"):  # async forks
            env = gym.make_vec("simstream/Reacher-v5", 2, vectorization_mode=mode)
            obs, _ = env.reset(seed=3)
            ours, _ = simstream.make_vec("Reacher-v5", 2).reset(seed=3)
            np.testing.assert_array_equal(obs, ours)
            env.close()

    def test_env_checker(self):
        for _, gym_id, _ in simstream.tasks():
            if not gym_id.startswith("simstream/"):
                continue
            with self.subTest(gym_id), warnings.catch_warnings():
                warnings.simplefilter("error")
                warnings.filterwarnings("ignore", message=".*(infinity|symmetric|normalized).*")
                check_env(gym.make(gym_id).unwrapped, skip_render_check=True)

    def test_names_with_a_slash(self):
        with self.assertRaisesRegex(simstream.errors.InvalidError, "no_such_suite/3"):
            simstream.make_vec("no_such_suite/3", 2)
        for task, gym_id, limit in simstream.tasks():
            self.assertIn(gym_id, gym.registry)
            self.assertEqual(gym.registry[gym_id].max_episode_steps, limit)
            self.assertEqual(gym_id, task if "/" in task else f"simstream/{task}")


class Wrappers(unittest.TestCase):
    def test_record_episode_statistics(self):
        for mode in (AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP):
            seen = []
            for env in (simstream.make_vec(num_envs=4, autoreset_mode=mode, **SHORT),
                        singles(n=4, mode=mode, **SHORT)):
                env = wrappers.RecordEpisodeStatistics(env)
                env.reset(seed=3)
                env.action_space.seed(3)
                for _ in range(40):
                    env.step(env.action_space.sample())
                seen.append((list(env.return_queue), list(env.length_queue)))
            self.assertGreater(len(seen[0][0]), 5)
            self.assertEqual(*seen)

    def test_others_run(self):
        env = simstream.make_vec(num_envs=3, **SHORT)
        env = wrappers.ClipAction(env)
        env = wrappers.NormalizeObservation(env)
        env = wrappers.NormalizeReward(env)
        env = wrappers.DtypeObservation(env, np.float32)
        env = wrappers.DictInfoToList(env)
        obs, infos = env.reset(seed=1)
        self.assertEqual((obs.dtype, len(infos)), (np.float32, 3))
        for _ in range(30):
            obs, reward, *_, infos = env.step(10 * env.action_space.sample())
            self.assertTrue(np.isfinite(obs).all() and np.isfinite(reward).all())
            self.assertEqual(len(infos), 3)

    def test_normalize_observation(self):
        values = []
        for env in (simstream.make_vec(num_envs=3, **SHORT),
                    singles(n=3, mode=AutoresetMode.NEXT_STEP, **SHORT)):
            env = wrappers.NormalizeObservation(env)
            env.reset(seed=1)
            env.action_space.seed(3)
            values.append([env.step(env.action_space.sample())[:4] for _ in range(30)])
        assert_same(*values)


class Attributes(unittest.TestCase):
    def test_get_set_call(self):
        env = simstream.make_vec("Hopper-v5", 2, max_episode_steps=9)
        self.assertEqual(env.call("_max_episode_steps"), (9, 9))
        self.assertEqual(env.get_attr("task"), ("Hopper-v5",) * 2)
        self.assertEqual(env.call("task_description")[0], "hop to the right")
        self.assertAlmostEqual(env.get_attr("dt")[0], 0.008)
        env.set_attr("goal", [1, 2])
        self.assertEqual(env.get_attr("goal"), (1, 2))
        env.set_attr("goal", 5)
        self.assertEqual(env.call("goal"), (5, 5))
        for name in ("task", "num_envs", "step"):
            with self.assertRaises(AttributeError):
                env.set_attr(name, 3)
        with self.assertRaisesRegex(AttributeError, "nothing"):
            env.get_attr("nothing")
        with self.assertRaises(ValueError):
            env.set_attr("goal", [1, 2, 3])
        with self.assertRaises(ValueError):
            simstream.make_vec("Hopper-v5", 2, render_mode="human")


class Copy(unittest.TestCase):
    def test_copy_is_the_callers(self):
        env = simstream.make_vec("Hopper-v5", 1)
        first, _ = env.reset(seed=1)
        kept = first.copy()
        env.step(np.zeros((1, 3)))
        np.testing.assert_array_equal(first, kept)
        view = simstream.make_vec("Hopper-v5", 1, copy=False)
        first, _ = view.reset(seed=1)
        np.testing.assert_array_equal(first, kept)
        second, *_ = view.step(np.zeros((1, 3)))
        self.assertTrue(np.shares_memory(first, second))


if __name__ == "__main__":
    unittest.main()
