"""The queue of waiting runs: at most one per topic, bounded, dirtiest topic first. Pure.

Dirtiness is evaluated when a worker becomes free, not when the run is queued: a topic that is
written to while it waits moves forward. Ties are resolved by waiting time, longest first.

  >>> queue = CompactionQueue(2, {"a": 10, "b": 30}.__getitem__)
  >>> queue.add("a"); queue.add("b")
  >>> queue.take(), queue.take(), queue.take()
  ('b', 'a', None)
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from ledgerfold.storage.errors import CompactionQueueFull

Item = TypeVar("Item", bound=Hashable)


class CompactionQueue(Generic[Item]):
    """A bounded queue. `dirtiness` returns the bytes after an item's horizon."""

    def __init__(self, items_max: int, dirtiness: Callable[[Item], int]) -> None:
        self._items_max, self._dirtiness = items_max, dirtiness
        # A dictionary, for its order and removal by key.
        self._waiting: dict[Item, None] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, item: Item) -> bool:
        return item in self._waiting

    def check_room(self, reserved: int = 0) -> None:
        """Raises CompactionQueueFull. `reserved`: places promised to others."""
        if len(self._waiting) + reserved >= self._items_max:
            raise CompactionQueueFull(len(self._waiting) + reserved)

    def add(self, item: Item) -> None:
        """Adds an item; the caller has checked for room."""
        self._waiting[item] = None

    def take(self) -> Item | None:
        """Removes and returns the dirtiest item."""
        if not self._waiting:
            return None
        item = max(self._waiting, key=self._dirtiness)
        del self._waiting[item]
        return item

    def remove(self, item: Item) -> bool:
        """Removes an item; returns False if it was not queued."""
        if item not in self._waiting:
            return False
        del self._waiting[item]
        return True
