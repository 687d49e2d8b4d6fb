"""The processes that a test or benchmark started, found by a mark in their environment.

    >>> mark = new_mark()  # for environment[MARK] of what is started
    >>> memory_bytes(marked(mark))
    0
    >>> end(mark)

A child inherits the mark in any session or group, and keeps it when its parent dies. The mark is
read from /proc: without it (macOS) nothing is found, and only the product's cleanup works.
"""

from __future__ import annotations

import os
import signal
import sys
import uuid
from collections.abc import Iterable
from pathlib import Path

MARK = "LEDGERFOLD_TEST_MARK"
_PROC = Path("/proc")


def new_mark() -> str:
    return uuid.uuid4().hex


def marked(mark: str) -> list[int]:
    """The pids, zombies not among them."""
    wanted = f"{MARK}={mark}".encode()
    return [pid for pid in _pids() if wanted in _environment(pid).split(b"\0")]


def end(mark: str) -> None:
    """SIGKILL to all of them."""
    for pid in marked(mark):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def clean_up_when_terminated() -> None:
    """For a main program: SIGTERM ends its `with` blocks, which end the started processes."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))


def memory_bytes(pids: Iterable[int], field: str = "VmRSS") -> int:
    """Resident now; with `VmHWM` the peak. The sum over those that still run; 0 without /proc."""
    total = 0
    for pid in pids:
        try:
            status = (_PROC / str(pid) / "status").read_text()
        except OSError:
            continue
        total += sum(
            int(line.split()[1]) * 1024
            for line in status.splitlines()
            if line.startswith(field + ":")
        )
    return total


def processor_seconds(pids: Iterable[int]) -> float:
    """Returns the processor time of those that still run, together."""
    total = 0
    for pid in pids:
        try:
            stat = (_PROC / str(pid) / "stat").read_text(errors="replace")
        except OSError:
            continue
        # "pid (name) state ...": a name may hold spaces and brackets. utime and stime.
        total += sum(map(int, stat.rpartition(")")[2].split()[11:13]))
    return total / os.sysconf("SC_CLK_TCK")


def parent(pid: int) -> int:
    """Returns the pid of its parent; 0 once it has ended."""
    try:
        stat = (_PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return 0
    return int(stat.rpartition(")")[2].split()[1])


def command(pid: int) -> str:
    """Returns its command line; "" once it has ended."""
    try:
        return (_PROC / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def _pids() -> list[int]:
    return [int(path.name) for path in _PROC.glob("[0-9]*")]


def _environment(pid: int) -> bytes:
    try:
        return (_PROC / str(pid) / "environ").read_bytes()
    except OSError:
        # Ended, or another user's.
        return b""
