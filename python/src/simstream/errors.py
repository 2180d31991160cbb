"""Exceptions. Each carries the text of the C library as it stands."""


class SimstreamError(RuntimeError):
    """Base of all errors of this package, and one that has no better name."""


class InvalidError(SimstreamError, ValueError):
    """An argument, option or file is wrong."""


class RenderModeError(InvalidError, TypeError):
    """There is no rendering. A TypeError too, so that callers which try a render mode by default
    (Stable-Baselines3's make_vec_env) go on without one."""


class ProtocolError(SimstreamError):
    """A request that its env may not execute now, or a peer that broke the protocol."""


class ClosedError(SimstreamError, ConnectionError):
    """The env server is gone, or the environment was closed."""


class BatchTimeoutError(SimstreamError, TimeoutError):
    """No batch within the time allowed. Nothing is lost: call again."""


class SystemIOError(SimstreamError, OSError):
    """The operating system refused: a socket, a file, a thread."""


class MissingError(SimstreamError, FileNotFoundError):
    """A file or library is absent."""


class OutOfMemoryError(SimstreamError, MemoryError):
    """There is not enough memory."""


class EngineError(SimstreamError):
    """The physics engine reported an error."""


class ForkError(SimstreamError):
    """Used in a process that was forked after the environment had been made."""


# enum status of common/base/status.h
OK, AGAIN, TIMEOUT, CLOSED, INVAL, PROTO, IO, NOMEM, ENGINE, MISSING = range(10)

BY_STATUS = {
    AGAIN: BatchTimeoutError,
    TIMEOUT: BatchTimeoutError,
    CLOSED: ClosedError,
    INVAL: InvalidError,
    PROTO: ProtocolError,
    IO: SystemIOError,
    NOMEM: OutOfMemoryError,
    ENGINE: EngineError,
    MISSING: MissingError,
}
