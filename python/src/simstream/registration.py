"""Gymnasium's registry: every task of the C library, as soon as the package is imported.

A task NAME is "simstream/NAME"; a member of a suite is "SUITE/INDEX", such as "libero_spatial/3".
Nothing is compiled or loaded before an environment is made.
"""

import gymnasium

from ._library import lib
from .single import SimstreamEnv
from .vector import SimstreamVectorEnv


def tasks():
    """(name, Gymnasium id, default time limit in steps or None) of every task and member."""
    i = 0
    while (name := lib.ss_task_name(i)) is not None:
        name, members = name.decode(), lib.ss_task_members(i)
        if members == 0:
            yield name, f"simstream/{name}", lib.ss_task_limit(i, 0) or None
        for member in range(members):
            task = f"{name}/{member}"
            yield task, task, lib.ss_task_limit(i, member) or None
        i += 1


def make_env(task, **kwargs):
    """Entry point of gymnasium.make, whose TimeLimit wrapper is the time limit."""
    if kwargs.get("address") is None:
        kwargs["max_episode_steps"] = 0
    return SimstreamEnv(task, **kwargs)


def make_vec(task, num_envs=1, **kwargs):
    """Entry point of gymnasium.make_vec."""
    return SimstreamVectorEnv(task, num_envs, **kwargs)


def register():
    """Add the tasks to gymnasium.registry; ids that are there stay."""
    for task, gym_id, limit in tasks():
        if gym_id not in gymnasium.registry:
            gymnasium.register(
                gym_id,
                entry_point="simstream.registration:make_env",
                vector_entry_point="simstream.registration:make_vec",
                max_episode_steps=limit,
                kwargs={"task": task},
            )
