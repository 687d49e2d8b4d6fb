"""Entries of a shared subscription that are not due yet. Pure: no clock, no task.

Shared and Key_Shared subscriptions hold an entry back until the time that its producer named; all
other consumers and readers get it at once, as in Pulsar. The reading goes on meanwhile. A restart
reads the entries again: their times are stored in them.

Bound: DELAYED_MAX entries of one subscription; then reading pauses until one of them is due.

  >>> delayed = DelayedEntries()
  >>> delayed.add(Candidate(Position(1, 0), messages=1, size_bytes=9, deliver_at_ms=500))
  >>> delayed.next_ms, [each.position.entry_id for each in delayed.take_due(499)]
  (500, [])
  >>> [each.position.entry_id for each in delayed.take_due(500)], len(delayed)
  ([0], 0)

Source: Pulsar's InMemoryDelayedDeliveryTracker.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush

from ledgerfold.broker.subscriptions.dispatcher import Candidate
from ledgerfold.storage.entry import Position

DELAYED_MAX = 100_000


class DelayedEntries:
    """The delayed entries of one subscription, by the time when they are due."""

    def __init__(self, entries_max: int = DELAYED_MAX) -> None:
        self._entries_max = entries_max
        self._heap: list[tuple[int, Position, Candidate]] = []

    def __len__(self) -> int:
        return len(self._heap)

    @property
    def is_full(self) -> bool:
        return len(self._heap) >= self._entries_max

    @property
    def next_ms(self) -> int | None:
        """The time when the next entry is due; None if there is none."""
        return self._heap[0][0] if self._heap else None

    def add(self, candidate: Candidate) -> None:
        heappush(self._heap, (candidate.deliver_at_ms, candidate.position, candidate))

    def take_due(self, now_ms: int) -> list[Candidate]:
        """Removes and returns the entries that are due, the earliest first."""
        due = []
        while self._heap and self._heap[0][0] <= now_ms:
            due.append(heappop(self._heap)[2])
        return due

    def pass_over(self, through: Position) -> None:
        """Forgets entries at or below a position."""
        left = [each for each in self._heap if each[1] > through]
        if len(left) < len(self._heap):
            heapify(left)
            self._heap = left

    def clear(self) -> None:
        self._heap.clear()
