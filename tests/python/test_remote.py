"""The same environments at an env server."""

import contextlib
import json
import os
import tempfile
import time
import unittest

import gymnasium as gym
import numpy as np

import simstream
from helpers import assert_same, make_when_free, needs_program, server
from simstream import errors


@needs_program
class Remote(unittest.TestCase):
    def test_the_same_bits_as_in_process(self):
        for mode in ("NextStep", "SameStep", "Disabled"):
            with server("Hopper-v5", 6, '--kwargs={"max_episode_steps": 12}') as (address, _):
                runs = []
                for where in ({"task": "Hopper-v5", "max_episode_steps": 12},
                              {"address": address}):
                    env = simstream.make_vec(num_envs=5, autoreset_mode=mode, **where)
                    env.action_space.seed(2)
                    run = [env.reset(seed=9)]
                    for _ in range(40):
                        run.append(env.step(env.action_space.sample()))
                        done = run[-1][2] | run[-1][3]
                        if mode == "Disabled" and done.any():
                            run.append(env.reset(options={"reset_mask": done}))
                    runs.append(run)
                    env.close()
                assert_same(*runs)

    def test_clients_lease_disjoint_envs(self):
        with server("Hopper-v5", 5) as (address, _):
            a = gym.make_vec("simstream/Hopper-v5", num_envs=2, address=address)
            b = simstream.make_vec(address=address)  # all that are free
            self.assertEqual((a.num_envs, b.num_envs), (2, 3))
            self.assertEqual(a.unwrapped.engine_spec["env"] + b.engine_spec["env"], list(range(5)))
            with self.assertRaisesRegex(errors.InvalidError, "0 of 5 are free"):
                simstream.make_vec(address=address, num_envs=1)
            obs_a, obs_b = a.reset(seed=1)[0], b.reset(seed=1)[0]
            np.testing.assert_array_equal(obs_a, obs_b[:2])  # numbered from 0 in each
            b.async_reset(seed=1)
            *_, infos = b.recv()
            self.assertEqual(sorted(infos["env_id"]), [0, 1, 2])
            a.close()
            c = make_when_free(address=address, num_envs=2)
            np.testing.assert_array_equal(c.reset(seed=1)[0], obs_a)
            single = simstream.make  # no env is left for it
            with self.assertRaises(errors.InvalidError):
                single(address=address)

    def test_views_and_async(self):
        with server("Hopper-v5", 4) as (address, _):
            env = simstream.make_vec(address=address, batch_size=2, batch_timeout=0.01)
            env.async_reset(seed=1)
            kept = []
            for _ in range(50):
                obs, *_, infos = env.recv()
                kept.append((obs, obs.copy()))
                self.assertFalse(obs.flags.owndata)
                env.send(np.zeros((len(obs), 3)), infos["env_id"])
            env.close()
            for obs, copy in kept:
                np.testing.assert_array_equal(obs, copy)

    def test_several_servers_are_one(self):
        with contextlib.ExitStack() as stack:
            servers = [stack.enter_context(server("Hopper-v5", 2 + i)) for i in range(4)]
            together = ",".join(address for address, _ in servers)
            many = simstream.make_vec(address=together)
            own = simstream.make_vec("Hopper-v5", 14)
            self.assertEqual(many.num_envs, 14)
            runs = []
            for env in (many, own):
                env.action_space.seed(2)
                runs.append([env.reset(seed=9)] + [env.step(env.action_space.sample())
                                                   for _ in range(60)])
                env.close()
            assert_same(*runs)
            with server("Reacher-v5", 1) as (other, _):
                with self.assertRaisesRegex(errors.InvalidError, "different tasks"):
                    simstream.make_vec(address=f"{together},{other}")

    def lose_and_return(self, mode, lost, present):
        """Step four servers of 2 envs each; kill the second one, start it again. lost(env) and
        present(env) step until the envs 2 and 3 are seen to be gone, and to be back."""
        with contextlib.ExitStack() as stack:
            servers = [stack.enter_context(server("Hopper-v5", 2)) for _ in range(4)]
            env = simstream.make_vec(address=",".join(a for a, _ in servers), autoreset_mode=mode)
            stack.callback(env.close)
            env.reset(seed=5)
            address, process = servers[1]
            process.kill()
            process.wait()
            lost(env)
            stack.enter_context(server("Hopper-v5", 2, address=address))
            present(env)

    def test_step_while_a_server_is_away(self):
        action = np.zeros((8, 3), np.float32)
        away = np.array([False, False, True, True] + 4 * [False])

        def lost(env):
            errors_seen = np.zeros(8, int)
            for _ in range(500):
                obs, rewards, terms, truncs, infos = env.step(action)
                errors_seen += infos.get("_error", np.zeros(8, bool))
                self.assertFalse(infos.get("_error", away)[~away].any())
                if errors_seen[2] >= 3:
                    break
            self.assertTrue((errors_seen[away] >= 3).all())
            self.assertEqual(set(infos["error"][away]), {"server lost"})
            self.assertTrue(truncs[away].all() and not terms[away].any())
            self.assertTrue((obs[away] == 0).all() and (rewards[away] == 0).all())
            self.assertTrue((obs[~away] != 0).any(axis=1).all())

        def present(env):
            while True:
                obs, _, _, truncs, infos = env.step(action)
                if "error" not in infos:
                    break
                time.sleep(0.01)
            # the first observation of the next episode of their seed, as in process
            own = simstream.make_vec("Hopper-v5", 8)
            own.reset(seed=5)
            first = own.reset()[0]
            np.testing.assert_array_equal(obs[away], first[away])
            self.assertFalse(truncs[away].any())
            self.assertEqual(env.get_attr("episode_id")[2:4], (1, 1))
            self.assertEqual(env.get_attr("elapsed_steps")[2:4], (0, 0))
            env.step(action)
            self.assertEqual(env.get_attr("elapsed_steps")[2:4], (1, 1))

        for mode in ("NextStep", "SameStep"):
            self.lose_and_return(mode, lost, present)

    def test_recv_while_a_server_is_away(self):
        def exchange(env):
            obs, *_, infos = env.recv()
            env.send(np.zeros((len(obs), 3)), infos["env_id"])
            return infos

        def lost(env):
            for i in range(8):
                env.send(np.zeros((1, 3)), [i])
            seen = []
            while len(seen) < 2:
                infos = exchange(env)
                seen += infos["env_id"][infos["_error"]].tolist() if "_error" in infos else []
            self.assertEqual(sorted(seen), [2, 3])
            for _ in range(200):  # the others go on, these two are not heard of
                self.assertFalse({2, 3} & set(exchange(env)["env_id"].tolist()))
            self.assertEqual(env.in_flight(), 8)

        def present(env):
            seen = {}
            while len(seen) < 2:
                infos = exchange(env)
                for i, episode, step in zip(infos["env_id"], infos["episode_id"],
                                            infos["elapsed_step"]):
                    if i in (2, 3):
                        seen.setdefault(int(i), (int(episode), int(step)))
            self.assertEqual(seen, {2: (1, 0), 3: (1, 0)})

        self.lose_and_return("NextStep", lost, present)

    def test_refusals(self):
        with server("Hopper-v5", 2) as (address, _):
            for kwargs, text in (
                ({"task": "Ant-v5"}, "its task is 'Hopper-v5', not 'Ant-v5'"),
                ({"max_episode_steps": 7}, "its max_episode_steps is 1000, not 7"),
                ({"frame_skip": 3}, "are the server's"),
                ({"num_threads": 3}, "num_threads is the server's"),
                ({"num_envs": 3}, "3 envs wanted, 2 of 2 are free"),
            ):
                with self.assertRaisesRegex(errors.InvalidError, text):
                    make_when_free(address=address, **kwargs)
            env = simstream.make_vec(address=address)
            env.reset(seed=1)
            with self.assertRaisesRegex(errors.SimstreamError, "env 1: action .0. is NaN"):
                env.step([[0, 0, 0], [np.nan, 0, 0]])
            env.step(np.zeros((2, 3)))

    def test_a_server_that_goes_away(self):
        with server("Humanoid-v5", 8) as (address, process):
            env = simstream.make_vec(address=address)
            env.reset(seed=1)
            process.kill()
            process.wait()
            with self.assertRaisesRegex(errors.ClosedError, f"env server {address} is gone"):
                for _ in range(100):
                    env.step(np.zeros((8, 17)))
            env.close()

    def test_a_key(self):
        with tempfile.TemporaryDirectory() as folder:
            for name in ("right", "wrong"):
                with open(f"{folder}/{name}", "wb") as file:
                    file.write(os.urandom(16).hex().encode() + b"\n")
                os.chmod(f"{folder}/{name}", 0o600)
            with server("Hopper-v5", 1, f"--key-file={folder}/right") as (address, _):
                for key in (None, f"{folder}/wrong", f"{folder}/absent"):
                    with self.assertRaisesRegex(errors.SimstreamError, "key|absent"):
                        simstream.make(address=address, key_file=key)
                env = simstream.make(address=address, key_file=f"{folder}/right")
                env.reset()
        with self.assertRaisesRegex(errors.InvalidError, "key_file needs the address"):
            simstream.make("Hopper-v5", key_file="x")

    def test_states_travel(self):
        # of two servers and a pool: branches of one state are the same to the bit
        with server("Hopper-v5", 3) as (first, _), server("Hopper-v5", 3) as (second, _):
            a, b = (simstream.make_vec(address=address) for address in (first, second))
            c = simstream.make_vec("Hopper-v5", 3)
            a.reset(seed=4)
            for _ in range(5):
                a.step(np.full((3, 3), 0.3))
            states = a.snapshot()
            self.assertEqual(len(states), 3)
            for env in (b, c):
                env.restore([2, 0], states[1:][::-1])
                env.restore([1], states[0])
            actions = np.tile([[0.1], [-0.2], [0.3]], (1, 3))
            want = a.step(actions)
            for env in (b, c):
                got = env.step(actions[[1, 0, 2]])
                for part in range(4):
                    np.testing.assert_array_equal(got[part], want[part][[1, 0, 2]])
            with self.assertRaisesRegex(errors.SimstreamError, "CRC"):
                b.restore([0], [states[0][:-1] + bytes([states[0][-1] ^ 1])])
            a.send(np.zeros((3, 3)))
            with self.assertRaisesRegex(errors.ProtocolError, "in flight"):
                a.snapshot([0])
            a.step_wait()

    def test_fields_of_a_servers_envs(self):
        plan = '--randomize=[{"field": "body_mass", "range": [0.5, 2]}, {"field": "gravity"}]'
        with server("Hopper-v5", 3, plan) as (address, _):
            env = simstream.make_vec(address=address)
            env.reset(seed=[1, 2, 3])
            mass = env.get_field(None, "body_mass", "torso")
            self.assertEqual(mass.shape, (3, 1))
            self.assertEqual(len(np.unique(mass)), 3)
            env.set_field([0, 2], "gravity", [0, 0, -1.62])
            env.set_field(1, "body_mass", 4, "torso")
            np.testing.assert_array_equal(env.get_field([0, 1, 2], "gravity")[:, 2],
                                          [-1.62, -9.81, -1.62])
            self.assertEqual(env.get_field(1, "body_mass", "torso").tolist(), [4])
            with self.assertRaisesRegex(errors.InvalidError, "'geom_size' is not in the plan"):
                env.set_field(0, "geom_size", 1)
            env.step(np.zeros((3, 3)))

    def test_states_and_fields_through_several_servers(self):
        plan = '[{"field": "body_mass", "range": [0.5, 2]}, {"field": "gravity"}]'
        option = f"--randomize={plan}"
        with server("Hopper-v5", 2, option) as (a, _), server("Hopper-v5", 2, option) as (b, dies):
            env = simstream.make_vec(address=f"{a},{b}")
            alone = simstream.make_vec("Hopper-v5", 4, randomize=json.loads(plan))
            env.reset(seed=4)
            for _ in range(5):
                env.step(np.full((4, 3), 0.3))
            states = env.snapshot()
            alone.restore(None, states)
            env.restore([3, 0, 2], states[:3])  # each goes to the other server but one
            actions = np.array([[0.1], [-0.2], [0.3], [0.4]]) * np.ones(3)
            want = alone.step(actions)
            order = [3, 0, 2, 1]
            env.restore([1], states[3])
            got = env.step(actions[np.argsort(order)])
            for part in range(4):
                np.testing.assert_array_equal(got[part][order], want[part])
            env.set_field([3, 0], "gravity", [[0, 0, -1], [0, 0, -2]])
            np.testing.assert_array_equal(env.get_field([0, 1, 3], "gravity")[:, 2],
                                          [-2, -9.81, -1])
            np.testing.assert_array_equal(env.get_field(order, "body_mass"),
                                          alone.get_field(None, "body_mass"))
            with self.assertRaisesRegex(errors.SimstreamError, f"{b}.*CRC"):
                env.restore([2], [states[0][:-1] + bytes([states[0][-1] ^ 1])])
            with self.assertRaisesRegex(errors.InvalidError, f"{a}.*'geom_size' is not in the plan"):
                env.set_field(None, "geom_size", 1)
            dies.kill()
            dies.wait()
            env.step(actions)  # the loss is known after it
            with self.assertRaisesRegex(errors.ClosedError, f"env server {b} is lost"):
                env.snapshot()
            self.assertEqual(len(env.snapshot([0, 1])), 2)
            env.close()

    def test_nobody_listens(self):
        with tempfile.TemporaryDirectory() as folder:
            with self.assertRaisesRegex(OSError, f"cannot connect to ipc://{folder}/no.sock"):
                simstream.make_vec(address=f"ipc://{folder}/no.sock", connect_timeout=0.2)
        with self.assertRaises(errors.InvalidError):
            simstream.make_vec(address="nonsense[", connect_timeout=0.2)

    def test_a_fork_after_a_connection(self):
        with server("Hopper-v5", 2) as (address, _):
            simstream.make(address=address).close()
            pid = os.fork()
            if pid == 0:
                try:
                    simstream.make(address=address)
                except errors.ForkError:
                    os._exit(3)
                os._exit(4)
            self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 3)


if __name__ == "__main__":
    unittest.main()
