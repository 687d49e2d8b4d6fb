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
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ledgerfold.storage.files import Files


@contextmanager
def removed_on_failure(path: Path, files: Files) -> Iterator[None]:
    """Removes the file that replaces `path` if the block does not end. Raises FileNotFoundError."""
    if not path.parent.is_dir():
        raise FileNotFoundError(f"The folder {path.parent} does not exist.")
    with Interrupts(signal.SIGTERM):
        try:
            yield
        except BaseException as error:
            files.remove(files.temporary_path(path))
            if isinstance(error, KeyboardInterrupt):
                print(f"ledgerfold: {path} was not written. Export it again.", file=sys.stderr)
            raise


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
        self.is_held = self._is_interrupted = False
        self._before: dict[signal.Signals, Any] = {}

    def check(self) -> None:
        """Raises KeyboardInterrupt if a signal was delayed."""
        if self._is_interrupted:
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
        is_first, self._is_interrupted = not self._is_interrupted, True
        if not (self.is_held and is_first):
            raise KeyboardInterrupt
