"""What becomes of clients when their process forks. (multiprocessing's "fork", prefork servers.)

gRPC's threads, and the one of the synchronous API, stay with the parent; its sockets and wake-ups
would be shared. So:

* In the child whatever the parent had opened is gone: each use of it raises AlreadyClosed at once.
* A client made in the child works if gRPC was at rest when the process forked, that is, if all
  clients and admins were closed or none was made yet. Otherwise making one raises NotAllowed.
* The parent goes on as if nothing had happened.

The last client's close returns before gRPC's threads have gone, and a fork in between would copy
the locks that they hold. So a fork waits for them, at most _REST_TIMEOUT_S; what is not at rest by
then counts as running (a program may use gRPC itself).

gRPC's own fork handlers must be off for that: beside its asyncio side they end the child with a
segmentation fault, whatever it does. They are read from the environment when grpc is imported, so
broker/client/__init__.py says it before. A program that imports grpc first sets
GRPC_ENABLE_FORK_SUPPORT=0 itself, if it forks while a client is open.

    >>> class Thing:
    ...     def __init__(self) -> None:
    ...         belongs_to_this_process(self)
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


class Gone:
    """Stands where something was: touching it raises AlreadyClosed, with this sentence."""

    def __init__(self, why: str) -> None:
        object.__setattr__(self, "_why", why)

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise AlreadyClosed(object.__getattribute__(self, "_why"))

    __getattr__ = __setattr__ = __call__ = __bool__ = __len__ = __iter__ = __enter__ = _refuse


# What people hold: clients, and all that these opened.
_facades: WeakSet[object] = WeakSet()
# gRPC's channels. One that is closed has let go of its threads once nobody refers to it.
_channels: WeakSet[object] = WeakSet()
# Of the parents, never touched again: ending it would take locks that nobody gives back.
_left_behind: list[object] = []


# How the threads of gRPC's core call themselves, to Linux.
_GRPC_THREADS = ("event_engine", "grpc_", "lifeguard", "default-exec", "resolver-exec", "timer_")
_TASKS = Path("/proc/self/task")
_REST_TIMEOUT_S = 2.0
_REST_POLL_S = 0.001


class _ThisProcess:
    # It was forked while gRPC ran, or one of its ancestors was.
    is_barred: ClassVar[bool] = False
    # A channel was opened since gRPC was last seen at rest.
    may_be_ending: ClassVar[bool] = False
    # What a fork waits for that; nothing after it was in vain, until a channel is opened again.
    patience_s: ClassVar[float] = _REST_TIMEOUT_S
    # At the fork that is under way.
    is_running: ClassVar[bool] = False


def belongs_to_this_process(facade: object) -> None:
    """In a forked child every attribute of it is Gone."""
    _facades.add(facade)


def channel_opened(channel: object) -> None:
    """From now on until it is closed and forgotten gRPC runs here."""
    _channels.add(channel)
    _ThisProcess.may_be_ending, _ThisProcess.patience_s = True, _REST_TIMEOUT_S


def leave_behind(thing: object) -> None:
    """In a forked child: keeps it, as it is, until the process ends."""
    _left_behind.append(thing)


def check_may_connect() -> None:
    """Raises NotAllowed in a process that was forked while gRPC ran in its parent."""
    if _ThisProcess.is_barred:
        raise NotAllowed(
            "This process was forked while a client was open, and gRPC does not survive that. "
            "Create the client after the fork and close those of the parent (Client.close, "
            "Admin.close) before it, or start the process with multiprocessing's 'spawn' or "
            "'forkserver'."
        )


def _grpc_runs() -> bool:
    """True while a thread of gRPC's core is there. (Where there is no /proc: False.)"""
    try:
        tasks = list(_TASKS.iterdir())
    except OSError:
        return False
    return any(_name_of(task).startswith(_GRPC_THREADS) for task in tasks)


def _name_of(task: Path) -> str:
    try:
        return (task / "comm").read_text()
    except OSError:
        return ""  # it has just ended


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
        _ThisProcess.is_barred = True
        # One reference for ever: what the list holds is not ended with the interpreter either.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(_left_behind))
    gone = Gone(
        f"It was opened in process {os.getppid()}, before that forked this one, and stayed there. "
        "Create the client after the fork, in the process that uses it."
    )
    _left_behind.extend(_channels)
    for facade in list(_facades):
        state = vars(facade)
        _left_behind.append(dict(state))
        for name in state:
            state[name] = gone


os.register_at_fork(before=_before_fork, after_in_child=_on_fork_in_child)
