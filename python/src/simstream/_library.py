"""The C library: found, loaded, its functions typed, and forks counted.

An installed package has it beside itself (lib/libsimstream_c.so); SIMSTREAM_LIBRARY names another.
"""

import ctypes
import os
import pathlib

from . import errors

ABI = 3


class Batch(ctypes.Structure):
    """struct ss_batch of capi/simstream_c.h."""

    _fields_ = [
        ("block", ctypes.c_void_p),
        ("rows", ctypes.c_void_p),
        ("n", ctypes.c_int32),
        ("stride", ctypes.c_int32),
        ("why", ctypes.c_int32),
        ("in_flight", ctypes.c_int32),
    ]


class Columns(ctypes.Structure):
    """struct ss_columns of capi/simstream_c.h."""

    _fields_ = [
        ("obs", ctypes.c_void_p),
        ("reward", ctypes.c_void_p),
        ("info", ctypes.c_void_p),
        ("terminated", ctypes.c_void_p),
        ("truncated", ctypes.c_void_p),
        ("mask", ctypes.c_void_p),
        ("flags", ctypes.c_uint32),
        ("stepped", ctypes.c_uint32),
    ]


class Workers(ctypes.Structure):
    """struct ss_workers of capi/simstream_c.h."""

    _fields_ = [
        ("n", ctypes.c_int32),
        ("isolate", ctypes.c_int32),
        ("step_timeout_ns", ctypes.c_int64),
        ("affinity", ctypes.c_char_p),
        ("randomize", ctypes.c_char_p),
    ]


class Access(ctypes.Structure):
    """struct ss_access of capi/simstream_c.h."""

    _fields_ = [
        ("key_file", ctypes.c_char_p),
        ("tls_ca", ctypes.c_char_p),
        ("tls_name", ctypes.c_char_p),
        ("pictures", ctypes.c_char_p),
    ]


class States(ctypes.Structure):
    """struct ss_states of capi/simstream_c.h."""

    _fields_ = [
        ("block", ctypes.c_void_p),
        ("states", ctypes.c_void_p),
        ("stride", ctypes.c_int64),
        ("bytes", ctypes.c_int64),
    ]


_INT, _I64, _PTR, _STR = ctypes.c_int, ctypes.c_int64, ctypes.c_void_p, ctypes.c_char_p
_FUNCTIONS = {
    "ss_abi": (_INT, []),
    "ss_version": (_STR, []),
    "ss_error_text": (_STR, []),
    "ss_row_error_name": (_STR, [_INT]),
    "ss_task_name": (_STR, [_INT]),
    "ss_task_members": (_INT, [_INT]),
    "ss_task_limit": (_I64, [_INT, _INT]),
    "ss_open_pool": (_INT, [ctypes.POINTER(_PTR), _STR, _STR, _INT, ctypes.POINTER(Workers), _INT,
                            _INT, _I64]),
    "ss_open_remote": (_INT, [ctypes.POINTER(_PTR), _STR, _INT, _INT, _INT, _I64, _I64, _I64,
                              ctypes.POINTER(Access)]),
    "ss_describe": (_STR, [_PTR]),
    "ss_reset": (_INT, [_PTR, _PTR, _PTR, _INT]),
    "ss_send": (_INT, [_PTR, _PTR, _PTR, _INT]),
    "ss_recv": (_INT, [_PTR, _I64, ctypes.POINTER(Batch)]),
    "ss_gather": (_INT, [_PTR, _PTR, _I64]),
    "ss_step": (_INT, [_PTR, _PTR, _PTR, ctypes.POINTER(Columns), _I64]),
    "ss_in_flight": (_INT, [_PTR]),
    "ss_worker_pid": (_INT, [_PTR, _INT]),
    "ss_save": (_INT, [_PTR, _PTR, _INT, ctypes.POINTER(States)]),
    "ss_load": (_INT, [_PTR, _PTR, _INT, ctypes.POINTER(States)]),
    "ss_set_field": (_INT, [_PTR, _PTR, _INT, _STR, _STR, _PTR, _INT]),
    "ss_get_field": (_INT, [_PTR, _PTR, _INT, _STR, _STR, _PTR, _I64, ctypes.POINTER(_INT)]),
    "ss_block_free": (None, [_PTR]),
    "ss_close": (None, [_PTR]),
}


def _load():
    beside = pathlib.Path(__file__).parent / "lib" / "libsimstream_c.so"
    path = os.environ.get("SIMSTREAM_LIBRARY") or str(beside)
    try:
        library = ctypes.CDLL(path)
    except OSError as error:
        raise ImportError(
            f"cannot load the simstream library: {error}; install the package with "
            "'pip install ./python' or set SIMSTREAM_LIBRARY to libsimstream_c.so"
        ) from error
    for name, (result, arguments) in _FUNCTIONS.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    if library.ss_abi() != ABI:
        raise ImportError(
            f"{path} has the interface {library.ss_abi()}, this package needs {ABI}")
    return library


lib = _load()


def check(status):
    """Raise the exception of a status that is not 0, with the C library's text."""
    if status == errors.OK:
        return
    kind = errors.BY_STATUS.get(status, errors.SimstreamError)
    if status in (errors.AGAIN, errors.TIMEOUT):  # these have no text of their own
        raise kind("nothing came within the time allowed")
    raise kind(lib.ss_error_text().decode(errors="replace"))


# --- forks -----------------------------------------------------------------------------------------
# A fork copies neither the worker threads nor the threads of the sockets, and may copy a lock that
# one of them holds. So nothing made before a fork is used after it, and a child whose parent had
# such threads makes no new ones.


class _Forks:
    generation = 0  # forks between the first process and this one
    open_here = 0  # environments that are open in this process
    networked = False  # the socket library has started its threads in this process
    inherited = False  # it (or an open environment) was there when this process was forked


forks = _Forks()


def _after_fork_in_child():
    forks.generation += 1
    forks.inherited = forks.inherited or forks.open_here > 0 or forks.networked
    forks.open_here = 0
    forks.networked = False


os.register_at_fork(after_in_child=_after_fork_in_child)


def check_may_open():
    """ForkError if this process was forked from one that had simstream's threads."""
    if forks.inherited:
        raise errors.ForkError(
            "this process was forked from one in which simstream environments were open; its "
            "threads do not survive a fork. Make the environments after the fork, or start the "
            "processes with multiprocessing's 'spawn' or 'forkserver'"
        )
