"""Handles clients in processes that fork. (multiprocessing's "fork", prefork servers.)

gRPC's threads, and the one of the synchronous API, remain in the parent; its sockets and wake-ups
would be shared. Therefore:

* In the child, everything that the parent had opened is invalid: each use raises AlreadyClosed.
* A client created in the child works if gRPC was idle at the fork, that is, if all clients and
  admins were closed or none had been created. Otherwise creating one raises NotAllowed.
* The parent is not affected.

The last client's close returns before gRPC's threads have ended, and a fork in between would copy
the locks that they hold. So a fork waits for them, at most _REST_TIMEOUT_S; if gRPC is not idle by
then (a program may use gRPC directly), it counts as running.

gRPC's own fork handlers must be disabled: together with its asyncio API they end the child with a
segmentation fault. gRPC reads the setting from the environment when it is imported, so
broker/client/__init__.py sets it before. A program that imports grpc first must set
GRPC_ENABLE_FORK_SUPPORT=0 itself, if it forks while a client is open.

    >>> class Thing:
    ...     def __init__(self) -> None:
    ...         invalidate_after_fork(self)
"""

from __future__ import annotations

import ctypes
import os
import threading
import time
from pathlib import Path
from typing import Any, ClassVar, NoReturn
from weakref import WeakSet

from ledgerfold.storage.errors import AlreadyClosed, NotAllowed


class Invalidated:
    """A placeholder for a closed object: each use raises AlreadyClosed with this text."""

    def __init__(self, why: str) -> None:
        object.__setattr__(self, "_why", why)

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise AlreadyClosed(object.__getattribute__(self, "_why"))

    __getattr__ = __setattr__ = __call__ = __bool__ = __len__ = __iter__ = __enter__ = _refuse


# Objects that users hold: clients, and everything opened from them.
_facades: WeakSet[object] = WeakSet()
# gRPC's channels. A closed one has released its threads once it is unreferenced.
_channels: WeakSet[object] = WeakSet()
# Objects of the parent, never touched again: finalizing one would take locks that are never
# released.
_kept_until_exit: list[object] = []


# Names of the threads of gRPC's core, on Linux.
_GRPC_THREADS = ("event_engine", "grpc_", "lifeguard", "default-exec", "resolver-exec", "timer_")
_TASKS = Path("/proc/self/task")
_REST_TIMEOUT_S = 2.0
_REST_POLL_S = 0.001


class _ThisProcess:
    # This process, or an ancestor, was forked while gRPC ran.
    must_not_connect: ClassVar[bool] = False
    # A channel was opened since gRPC was last found idle.
    may_be_ending: ClassVar[bool] = False
    # How long a fork waits for gRPC; 0 after a wait that timed out, until a channel is opened
    # again.
    patience_s: ClassVar[float] = _REST_TIMEOUT_S
    # gRPC is running, at the current fork.
    is_running: ClassVar[bool] = False


def invalidate_after_fork(facade: object) -> None:
    """Registers an object: in a forked child, each of its attributes is Invalidated."""
    _facades.add(facade)


def channel_opened(channel: object) -> None:
    """Registers a channel: gRPC counts as running until it is closed and unreferenced."""
    _channels.add(channel)
    _ThisProcess.may_be_ending, _ThisProcess.patience_s = True, _REST_TIMEOUT_S


def keep_until_exit(opened: object) -> None:
    """Keeps an object unfinalized until the process ends. For a forked child."""
    _kept_until_exit.append(opened)


def check_may_connect() -> None:
    """Raises NotAllowed in a process that was forked while gRPC ran in its parent."""
    if _ThisProcess.must_not_connect:
        raise NotAllowed(
            "This process was forked while a client was open, and gRPC does not survive that. "
            "Create the client after the fork and close those of the parent (Client.close, "
            "Admin.close) before it, or start the process with multiprocessing's 'spawn' or "
            "'forkserver'."
        )


def _grpc_runs() -> bool:
    """Returns whether gRPC's core has a running thread. (Without /proc: False.)"""
    try:
        tasks = list(_TASKS.iterdir())
    except OSError:
        return False
    return any(_name_of(task).startswith(_GRPC_THREADS) for task in tasks)


def _name_of(task: Path) -> str:
    try:
        return (task / "comm").read_text()
    except OSError:
        return ""  # the thread has just ended


def _before_fork() -> None:
    if _channels or not _ThisProcess.may_be_ending:
        _ThisProcess.is_running = bool(_channels)
        return
    pause = threading.Event()
    give_up_at = time.monotonic() + _ThisProcess.patience_s
    while (is_running := _grpc_runs()) and time.monotonic() < give_up_at:
        pause.wait(_REST_POLL_S)
    _ThisProcess.is_running = _ThisProcess.may_be_ending = is_running
    if is_running:
        _ThisProcess.patience_s = 0.0


def _on_fork_in_child() -> None:
    _ThisProcess.may_be_ending = False
    if _ThisProcess.is_running:
        _ThisProcess.must_not_connect = True
        # A reference that is never released: the interpreter must not finalize the list's members
        # at exit.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(_kept_until_exit))
    gone = Invalidated(
        f"It was opened in process {os.getppid()}, before that process forked this one. "
        "Create the client after the fork, in the process that uses it."
    )
    _kept_until_exit.extend(_channels)
    for facade in list(_facades):
        state = vars(facade)
        _kept_until_exit.append(dict(state))
        for name in state:
            state[name] = gone


os.register_at_fork(before=_before_fork, after_in_child=_on_fork_in_child)
