"""Pauses of tasks. If an engine cannot kill a task, it ends the task's pauses when the work is
cancelled.

>>> slept: list[float] = []
>>> with pauses_by(slept.append):
...     pause(0.5)
>>> slept
[0.5]
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_sleep: ContextVar[Callable[[float], None]] = ContextVar("sleep", default=time.sleep)


def pause(seconds: float) -> None:
    """Waits. Raises what the engine raises in cancelled work."""
    _sleep.get()(seconds)


@contextmanager
def pauses_by(sleep: Callable[[float], None]) -> Iterator[None]:
    """Makes the tasks that this thread runs in the block wait by `sleep`."""
    before = _sleep.set(sleep)
    try:
        yield
    finally:
        _sleep.reset(before)
