"""Processes that are known by a mark, `VARIABLE=value`, in their environment.

All processes that a marked one starts inherit its mark, in whatever group or session they are, and
keep it when their parent ends. So all of them can be ended together.

Without /proc (macOS), and before Linux 5.3, none is found.

  >>> list(marked("EXAMPLE=1"))
  []
  >>> end_marked("EXAMPLE=1", seconds=1.0)
  True
"""

from __future__ import annotations

import logging
import os
import select
import signal
import time
from collections.abc import Iterator
from pathlib import Path

_PROC = Path("/proc")
_log = logging.getLogger(__name__)


def marked(mark: str) -> Iterator[int]:
    """Yields the pids of all processes with the mark, except zombies."""
    if _PROC.is_dir() and hasattr(os, "pidfd_open"):
        for name in os.listdir(_PROC):
            if name.isdecimal() and _carries(int(name), mark):
                yield int(name)


def end_marked(mark: str, seconds: float) -> bool:
    """Kills all processes with the mark until none is left; returns False if some remain."""
    deadline = time.monotonic() + seconds
    try:
        while alive := list(marked(mark)):
            for pid in alive:
                _end(pid, mark, deadline - time.monotonic())
            if time.monotonic() > deadline:
                return False
    except OSError as error:
        _log.error("Processes with %s cannot be ended: %s", mark, error)
        return False
    return True


def _carries(pid: int, mark: str) -> bool:
    try:
        environment = (_PROC / str(pid) / "environ").read_bytes()
    except OSError:
        # Ended, or another user's.
        return False
    return mark.encode() in environment.split(b"\0")


def _end(pid: int, mark: str, seconds: float) -> None:
    """Kills a process and waits for its end, at most `seconds`."""
    # By a handle, and checked again: the pid may belong to another process by now.
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        if _carries(pid, mark):
            signal.pidfd_send_signal(handle, signal.SIGKILL)
            # Readable once it has ended.
            ended = select.poll()
            ended.register(handle, select.POLLIN)
            ended.poll(max(seconds, 0.0) * 1000)
    except ProcessLookupError:
        return
    finally:
        os.close(handle)
