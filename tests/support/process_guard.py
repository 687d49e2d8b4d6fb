"""Tests that start processes carry the mark `process`; the others are what `--fast` runs.

A test has the mark by a fixture that starts a process, by its folder, or explicitly (`pytestmark =
pytest.mark.process`). An audit hook sees each start and refuses it in a test without the mark, so
that the fast run stays fast.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

_STARTS = frozenset({"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn"})
_refusing: list[str] = []


class ProcessStarted(BaseException):
    """A BaseException, so that no `except Exception` swallows it."""


def _refuse(event: str, arguments: tuple[object, ...]) -> None:
    if event in _STARTS and _refusing:
        raise ProcessStarted(
            f"{_refusing[-1]} starts a process ({event}): mark it `pytest.mark.process`"
        )


sys.addaudithook(_refuse)


@contextmanager
def no_processes(test: str) -> Iterator[None]:
    """Refuses each start of a process within the block."""
    _refusing.append(test)
    try:
        yield
    finally:
        _refusing.pop()
