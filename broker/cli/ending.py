"""Interruption of commands, so that they can undo what they began.

>>> try:
...     with Interrupts(signal.SIGTERM):
...         signal.raise_signal(signal.SIGTERM)
... except KeyboardInterrupt:
...     print("ended")
ended
"""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any


class Interrupts:
    """A context manager that makes signals raise KeyboardInterrupt, at once or in `check`.

    While `is_held`, the first signal is delayed, until `check` is called.

    >>> with Interrupts(signal.SIGINT, signal.SIGTERM) as interrupts:
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

    def __init__(self, *signals: signal.Signals) -> None:
        self._signals = signals
        self.is_held = self._has_come = False
        self._before: dict[signal.Signals, Any] = {}

    def check(self) -> None:
        """Raises KeyboardInterrupt if a signal was delayed."""
        if self._has_come:
            raise KeyboardInterrupt

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            for number in self._signals:
                self._before[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(self, *exc_info: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        is_first, self._has_come = not self._has_come, True
        if not (self.is_held and is_first):
            raise KeyboardInterrupt
