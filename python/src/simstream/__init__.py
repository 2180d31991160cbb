"""simstream: batched MuJoCo environments, in process or at an env server.

    import gymnasium, simstream
    envs = gymnasium.make_vec("simstream/Ant-v5", num_envs=64)
    envs = simstream.make_vec("Ant-v5", 64, autoreset_mode="SameStep")
    envs = simstream.make_vec(address="ipc:///tmp/env.sock", num_envs=32)

The environments follow Gymnasium's VectorEnv; `send` and `recv` step some of them at a time.
"""

from . import errors
from ._library import lib as _lib
from .registration import register, tasks
from .single import SimstreamEnv
from .vector import SimstreamVectorEnv

__version__ = _lib.ss_version().decode()
__all__ = ["SimstreamEnv", "SimstreamVectorEnv", "errors", "make", "make_vec", "tasks"]


def make(task=None, **kwargs):
    """A SimstreamEnv, without Gymnasium's registry and its wrappers."""
    return SimstreamEnv(task, **kwargs)


def make_vec(task=None, num_envs=None, **kwargs):
    """A SimstreamVectorEnv, without Gymnasium's registry."""
    return SimstreamVectorEnv(task, num_envs, **kwargs)


register()
