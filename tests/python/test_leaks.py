"""Memory, descriptors and threads stay as they are however often envs begin anew."""

import contextlib
import os
import pathlib
import unittest

import simstream
from helpers import needs_program, server


def counts(pid):
    """(resident kB, open files, threads) of a process."""
    status = dict(line.split(":", 1) for line in
                  pathlib.Path(f"/proc/{pid}/status").read_text().splitlines())
    return (int(status["VmRSS"].split()[0]), len(os.listdir(f"/proc/{pid}/fd")),
            int(status["Threads"]))


@needs_program
class Leaks(unittest.TestCase):
    def test_2000_resets_of_8_envs(self):
        with contextlib.ExitStack() as stack:
            address, process = stack.enter_context(server("Hopper-v5", 8))
            for where, pid in (({"task": "Hopper-v5", "num_threads": 2}, os.getpid()),
                               ({"address": address}, process.pid)):
                env = simstream.make_vec(num_envs=8, **where)
                for i in range(2000):
                    env.reset(seed=i)
                    if i == 499:
                        before = counts(pid)
                after = counts(pid)
                env.close()
                self.assertLessEqual(after[0], 1.02 * before[0])
                self.assertEqual(after[1:], before[1:])


if __name__ == "__main__":
    unittest.main()
