"""The mujoco package in the same process: neither side's errors become the other's."""

import unittest

import numpy as np

import simstream

try:
    import mujoco
except ImportError:
    mujoco = None


@unittest.skipUnless(mujoco, "no mujoco package")
class Together(unittest.TestCase):
    def test_its_errors_stay_exceptions(self):
        env = simstream.make_vec("Hopper-v5", 2)
        env.reset(seed=1)
        model = mujoco.MjModel.from_xml_string(
            "<mujoco><worldbody><body><freejoint/><geom size='1'/></body><geom type='plane'"
            " size='1 1 1'/></worldbody></mujoco>")
        data = mujoco.MjData(model)
        model.opt.solver = 99
        data.qpos[2] = 0.5
        with self.assertRaises(mujoco.FatalError):
            mujoco.mj_step(model, data)
        env.step(np.zeros((2, 3)))

    def test_a_bad_state_of_ours(self):
        env = simstream.make_vec("Hopper-v5", 2, reset_noise_scale=1e5,
                                 terminate_when_unhealthy=False)
        env.reset(seed=1)
        *_, trunc, infos = env.step(np.zeros((2, 3)))
        self.assertTrue(trunc.all() and infos["_error"].all())


if __name__ == "__main__":
    unittest.main()
