"""A limited number of places that many holders share. A holder that finds none is called when
places are available again.

Once all places are taken, none is available until a tenth is free, so that holders do not retry for
every single place.

  >>> places = Places(10)
  >>> sum(places.take(lambda: print("room")) for _ in range(11)), places.count
  (10, 10)
  >>> places.give(1)
  >>> places.give(1)
  room
"""

from __future__ import annotations

from collections.abc import Callable

# The part of all places that may be taken when places become available again.
RESUMED = 0.9


class Places:
    """Used on one event loop."""

    def __init__(self, most: int) -> None:
        self.most, self.count = most, 0
        self._is_open = True
        self._waiting: set[Callable[[], object]] = set()

    def take(self, on_room: Callable[[], object]) -> bool:
        """Takes one. If there is none, returns False and calls `on_room` once there is room."""
        if self.count >= self.most:
            self._is_open = False
        if not self._is_open:
            self._waiting.add(on_room)
            return False
        self.count += 1
        return True

    def give(self, count: int) -> None:
        """Returns places that were taken."""
        self.count -= count
        if not self._is_open and self.count < RESUMED * self.most:
            self._is_open = True
            waiting, self._waiting = self._waiting, set()
            for on_room in waiting:
                on_room()

    def forget(self, on_room: Callable[[], object]) -> None:
        """Cancels the call of `on_room`."""
        self._waiting.discard(on_room)
