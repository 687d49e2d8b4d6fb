"""A readers-writer lock for threads, which may be held during disk access.

>>> lock = SharedLock()
>>> with lock.shared(), lock.shared():
...     print("both")
both
>>> with lock.exclusive():
...     print("one")
one
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class SharedLock:
    """The lock. The thread that holds it exclusively may also share it."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._inside = 0

    @contextmanager
    def shared(self) -> Iterator[None]:
        with self._changed:
            self._inside += 1
        try:
            yield
        finally:
            with self._changed:
                self._inside -= 1
                self._changed.notify_all()

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        with self._changed:
            while self._inside:
                self._changed.wait()
            # New sharers wait while this is held.
            yield
