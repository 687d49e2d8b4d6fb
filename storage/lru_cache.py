"""A bounded, thread-safe LRU cache; values are built on first use.

The lock is held for lookups and insertions, never while a value is built or released, which may
wait for the disk: two threads may build the same value, and both get the one that is inserted
first. A value whose building began before an invalidation is not cached, since it may be stale; its
caller may use it.

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
    """A cache that evicts the least recently used values.

    `kept_max`: the largest sum of the sizes of its values; one value may be larger. `size_of`: by
    default each counts as 1.
    """

    def __init__(self, kept_max: int, size_of: Callable[[V], int] = lambda value: 1) -> None:
        self._kept_max, self._size_of = kept_max, size_of
        self._size = 0
        self._entries: OrderedDict[K, V] = OrderedDict()
        # Counts the calls of forget().
        self._forgettings = 0
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: K, make: Callable[[], V]) -> V:
        """Returns the cached value, or builds it. Raises what `make` raises; then nothing is
        cached.
        """
        with self._lock:
            cached = self._entries.get(key)
            if cached is not None:
                self._entries.move_to_end(key)
                return cached
            forgettings = self._forgettings
        built, evicted = make(), list[V]()
        with self._lock:
            if self._forgettings != forgettings:
                return built
            if key not in self._entries:
                self._entries[key] = built
                self._size += self._size_of(built)
            self._entries.move_to_end(key)
            cached = self._entries[key]
            while self._size > self._kept_max and len(self._entries) > 1:
                evicted.append(self._pop(next(iter(self._entries))))
        # Released without the lock.
        del evicted
        return cached

    def _pop(self, key: K) -> V:
        value = self._entries.pop(key)
        self._size -= self._size_of(value)
        return value

    def forget(self, matches: Callable[[K], bool]) -> None:
        """Removes all values whose key matches. Callers that hold one may continue to use it."""
        with self._lock:
            self._forgettings += 1
            removed = [self._pop(key) for key in [*self._entries] if matches(key)]
        # Released without the lock.
        del removed
