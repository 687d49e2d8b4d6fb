"""What was asked for last, made when somebody first asks for it, and only so much of it.

Threads may share it. Its lock is held to look and to keep, never while something is made or let go
of, for either may wait for the disk: so two who ask at the same time may both make one, and both
get the one that is kept first. What was begun before something was forgotten is not kept, for it
may be of what is gone now; whoever asked for it may use it.

    >>> squares = LruCache[int, int](2)
    >>> [squares.get(number, lambda: number**2) for number in (1, 2, 3, 3)]
    [1, 4, 9, 9]
    >>> squares.forget(lambda number: number == 3)
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class LruCache(Generic[K, V]):
    """At most `kept_max` values; the one that was asked for longest ago goes first."""

    def __init__(self, kept_max: int) -> None:
        self._kept_max = kept_max
        self._kept: OrderedDict[K, V] = OrderedDict()
        # How often something was forgotten.
        self._forgettings = 0
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, key: K, make: Callable[[], V]) -> V:
        """Raises what `make` raises; then nothing is kept."""
        with self._lock:
            kept = self._kept.get(key)
            if kept is not None:
                self._kept.move_to_end(key)
                return kept
            forgettings = self._forgettings
        made = make()
        gone = None
        with self._lock:
            if self._forgettings != forgettings:
                return made
            kept = self._kept.setdefault(key, made)
            self._kept.move_to_end(key)
            if len(self._kept) > self._kept_max:
                # Let go of at the end of this call, without the lock.
                gone = self._kept.popitem(last=False)
        del gone
        return kept

    def forget(self, is_meant: Callable[[K], bool]) -> None:
        """A caller that has one of them may go on with it."""
        with self._lock:
            self._forgettings += 1
            gone = [self._kept.pop(key) for key in [*self._kept] if is_meant(key)]
        del gone
