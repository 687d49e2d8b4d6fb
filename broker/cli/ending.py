"""Interruption of commands, so that they can undo what they began.

>>> import os
>>> try:
...     with interruptible():
...         os.kill(os.getpid(), signal.SIGTERM)
... except KeyboardInterrupt:
...     print("ended")
ended
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


@contextmanager
def interruptible() -> Iterator[None]:
    """Makes SIGTERM raise KeyboardInterrupt, as Ctrl-C does."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


class Interrupts:
    """A context manager that delays Ctrl-C and SIGTERM while `is_held`.

    Otherwise, and for a second signal, KeyboardInterrupt is raised at once; `check` raises a
    delayed one.

    >>> with Interrupts() as interrupts:
    ...     interrupts.is_held = True
    ...     signal.raise_signal(signal.SIGTERM)
    ...     print("sent to its end")
    ...     interrupts.is_held = False
    ...     try:
    ...         interrupts.check()
    ...     except KeyboardInterrupt:
    ...         print("ended")
    sent to its end
    ended
    """

    def __init__(self) -> None:
        self.is_held = self._has_come = False
        self._before: dict[signal.Signals, Any] = {}

    def check(self) -> None:
        """Raises KeyboardInterrupt if a signal was delayed."""
        if self._has_come:
            raise KeyboardInterrupt

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(self, *exc_info: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        is_first, self._has_come = not self._has_come, True
        if not (self.is_held and is_first):
            raise KeyboardInterrupt
