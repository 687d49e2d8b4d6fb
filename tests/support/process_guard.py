"""Tests that start processes carry the mark `process`; the others are what `--fast` runs.

A test has the mark by a fixture that starts one, by its folder, or by its own word
(`pytestmark = pytest.mark.process`). An audit hook sees each start, whoever makes it, and refuses
it in a test without the mark: so nothing slow creeps into the fast run.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

_STARTS = frozenset({"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn"})
_refusing: list[str] = []


class ProcessStarted(BaseException):
    """Not to be swallowed by what catches exceptions."""


def _refuse(event: str, arguments: tuple[object, ...]) -> None:
    if event in _STARTS and _refusing:
        raise ProcessStarted(
            f"{_refusing[-1]} starts a process ({event}): mark it `pytest.mark.process`"
        )


sys.addaudithook(_refuse)


@contextmanager
def no_processes(test: str) -> Iterator[None]:
    """Within the block nothing of this process starts another one."""
    _refusing.append(test)
    try:
        yield
    finally:
        _refusing.pop()
