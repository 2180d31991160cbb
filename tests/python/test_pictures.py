"""Pictures in observations: spaces, views, modes, a server, and `render`."""

import unittest
import warnings

import gymnasium as gym
import numpy as np
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode

import simstream
from helpers import assert_same, needs_program, server, singles
from simstream import errors

SMALL = dict(cameras=["track:20x12", "free,distance=4:9x7:rgb+depth+seg"], render_samples=1)
SHORT = dict(task="Hopper-v5", max_episode_steps=6, **SMALL)
NAMES = {"state", "track_image", "free_image", "free_depth", "free_segmentation"}


class Observations(unittest.TestCase):
    def test_gymnasiums_checker(self):
        env = simstream.SimstreamEnv("Hopper-v5", render_mode="rgb_array", **SMALL)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # float64 without bounds, and pictures that are small
            check_env(env, skip_render_check=True)
        self.assertEqual(env.render().shape, (12, 20, 3))
        env.close()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            check_env(gym.make("simstream/Reacher-v5", render_mode="rgb_array",
                               image_size="16x16").unwrapped)

    def test_equal_to_single_envs(self):
        for mode in AutoresetMode:
            with self.subTest(mode=mode):
                env = simstream.make_vec(num_envs=3, autoreset_mode=mode, **SHORT)
                oracle = singles(n=3, mode=mode, **SHORT)
                self.assertEqual(env.observation_space, oracle.observation_space)
                assert_same(env.reset(seed=5), oracle.reset(seed=5), "reset")
                oracle.action_space.seed(1)
                for t in range(14):
                    action = oracle.action_space.sample()
                    a, b = env.step(action), oracle.step(action)
                    assert_same(a, b, f"step {t}")
                    done = a[2] | a[3]
                    if mode == AutoresetMode.DISABLED and done.any():
                        options = {"reset_mask": done}
                        assert_same(env.reset(options=dict(options)),
                                    oracle.reset(options=dict(options)), f"reset after {t}")
                env.close()
                oracle.close()

    def test_what_is_in_them(self):
        env = simstream.make_vec("Hopper-v5", 2, **SMALL)
        obs, _ = env.reset(seed=0)
        self.assertEqual(set(obs), NAMES)
        self.assertTrue(env.observation_space.contains(obs))
        self.assertEqual(obs["free_depth"].shape, (2, 7, 9))
        self.assertEqual(obs["free_segmentation"].shape, (2, 7, 9, 2))
        self.assertEqual(obs["track_image"].dtype, np.uint8)
        self.assertGreater(obs["track_image"].std(), 5)
        self.assertTrue((obs["free_depth"] > 0).all())
        self.assertIn(5, obs["free_segmentation"][..., 1])  # geoms
        env.close()

    def test_numbers_do_not_change(self):
        with_pictures = simstream.make_vec("Hopper-v5", 2, **SMALL)
        without = simstream.make_vec("Hopper-v5", 2)
        rng = np.random.default_rng(0)
        obs, _ = with_pictures.reset(seed=1)
        plain, _ = without.reset(seed=1)
        for _ in range(30):
            np.testing.assert_array_equal(obs["state"], plain)
            action = rng.uniform(-1, 1, (2, 3))
            obs, *_ = with_pictures.step(action)
            plain, *_ = without.step(action)
        with_pictures.close()
        without.close()

    def test_batches_are_views(self):
        env = simstream.make_vec(num_envs=4, batch_size=2, autoreset_mode="SameStep", **SHORT)
        env.async_reset(seed=0)
        seen, kept = 0, []
        while seen < 60:
            obs, _, _, _, infos = env.recv()
            self.assertEqual(set(obs), NAMES)
            for name, array in obs.items():
                self.assertEqual(len(array), len(infos["env_id"]))
                self.assertFalse(array.flags.owndata, name)
            if infos["_final_obs"].any():
                self.assertEqual(set(infos["final_obs"]), NAMES)
                i = np.flatnonzero(infos["_final_obs"])[0]
                self.assertGreater(infos["final_obs"]["track_image"][i].std(), 5)
            kept.append((obs["track_image"], obs["track_image"].copy()))
            seen += len(infos["env_id"])
            env.send(np.zeros((len(infos["env_id"]), 3), np.float32), infos["env_id"])
        env.close()
        for view, copy in kept:
            np.testing.assert_array_equal(view, copy)

    def test_bad_options(self):
        with self.assertRaisesRegex(errors.InvalidError, "no camera 'wrist'; it has track"):
            simstream.make_vec("Hopper-v5", 2, cameras=["wrist"])
        with self.assertRaisesRegex(errors.InvalidError, "needs the address of a server"):
            simstream.make_vec("Hopper-v5", 2, pictures=["track_image"])

    def test_a_suite(self):
        env = simstream.make_vec("tabletop/6", 1, cameras="default", render_samples=1,
                                 settle_steps=1)
        obs, _ = env.reset(seed=0)
        self.assertEqual(obs["agentview_image"].shape, (1, 128, 128, 3))
        self.assertEqual(obs["robot0_eye_in_hand_image"].shape, (1, 128, 128, 3))
        env.close()


class Render(unittest.TestCase):
    def test_without_cameras(self):
        env = simstream.make_vec("InvertedPendulum-v5", 2, render_mode="rgb_array",
                                 image_size="24x16")
        obs, _ = env.reset(seed=0)
        self.assertEqual(obs.shape, (2, 4))
        first = env.render()
        self.assertEqual([f.shape for f in first], [(16, 24, 3)] * 2)
        for _ in range(5):
            env.step(np.ones((2, 1), np.float32))
        self.assertTrue((env.render()[0] != first[0]).any())
        env.async_reset(seed=0)
        received = 0
        while received < 2:
            received += len(env.recv()[0])
        np.testing.assert_array_equal(env.render()[0], first[0])
        env.close()

    def test_with_cameras_and_without_mode(self):
        env = simstream.make_vec("Hopper-v5", 2, render_mode="rgb_array", **SMALL)
        obs, _ = env.reset(seed=0)
        np.testing.assert_array_equal(env.render()[1], obs["track_image"][1])
        env.close()
        env = simstream.make_vec("Hopper-v5", 2)
        env.reset(seed=0)
        self.assertIsNone(env.render())
        env.close()


@needs_program
class AtServer(unittest.TestCase):
    def test_all_some_or_none(self):
        kwargs = '{"cameras": "track:20x12,free:9x7:depth", "render_samples": 1}'
        with server("Hopper-v5", 8, f"--kwargs={kwargs}") as (address, _):
            here = simstream.make_vec("Hopper-v5", 2, cameras="track:20x12,free:9x7:depth",
                                      render_samples=1)
            there = simstream.make_vec(address=address, num_envs=2)
            self.assertEqual(here.observation_space, there.observation_space)
            assert_same(here.reset(seed=3), there.reset(seed=3))
            action = np.full((2, 3), 0.5, np.float32)
            assert_same(here.step(action), there.step(action))
            one = simstream.make_vec(address=address, num_envs=2, pictures=["track_image:20x12"])
            self.assertEqual(set(one.single_observation_space), {"state", "track_image"})
            np.testing.assert_array_equal(one.reset(seed=3)[0]["track_image"],
                                          here.reset(seed=3)[0]["track_image"])
            none = simstream.make_vec(address=address, num_envs=2, pictures=[])
            self.assertEqual(none.reset(seed=3)[0].shape, (2, 11))
            with self.assertRaisesRegex(errors.InvalidError,
                                        "'track_image' of 64x64 is wanted; this server renders "
                                        "track_image 20x12 rgb, free_depth 9x7 depth"):
                simstream.make_vec(address=address, num_envs=1, pictures=["track_image:64x64"])
            with self.assertRaisesRegex(errors.InvalidError, "'wrist_image' is wanted"):
                simstream.make_vec(address=address, num_envs=1, pictures=["wrist_image"])
            with self.assertRaisesRegex(errors.InvalidError, "expected NAME or NAME:WIDTHxHEIGHT"):
                simstream.make_vec(address=address, num_envs=1, pictures=["track_image:64"])
            with self.assertRaises(errors.RenderModeError):
                simstream.make_vec(address=address, num_envs=1, pictures=[],
                                   render_mode="rgb_array")
            for env in (here, there, one, none):
                env.close()


if __name__ == "__main__":
    unittest.main()
