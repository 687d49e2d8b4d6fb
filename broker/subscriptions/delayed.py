"""Entries of a shared subscription that are not due yet. Pure: no clock, no task.

Shared and Key_Shared subscriptions hold an entry back until the time that its producer named; all
other consumers and readers get it at once, as in Pulsar. Reading continues meanwhile. A restart
reads the entries again: their times are stored in them.

Bound: DELAYED_MAX entries of one subscription, about 70 bytes each, and DELAYED_ALL_MAX of a broker
(broker/common/outgoing.py). Then reading pauses until a tenth of that is free.

  >>> delayed = DelayedEntries()
  >>> delayed.add(Candidate(Position(1, 0), messages=1, size_bytes=9, deliver_at_ms=500))
  True
  >>> delayed.next_ms, [each.position.entry_id for each in delayed.take_due(499, most=10)]
  (500, [])
  >>> [each.position.entry_id for each in delayed.take_due(500, most=10)], len(delayed)
  ([0], 0)

Source: Pulsar's InMemoryDelayedDeliveryTracker.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush

from ledgerfold.broker.common.places import RESUMED, Places
from ledgerfold.broker.subscriptions.dispatcher import Candidate
from ledgerfold.storage.entry import Position

DELAYED_MAX = 100_000
# An entry is one number: a heap of objects would need five times the memory.
_SLOT_BITS, _MESSAGES_BITS, _ID_BITS = 16, 32, 64
_POSITION_AT = _SLOT_BITS + _MESSAGES_BITS
_TIME_AT = _POSITION_AT + 2 * _ID_BITS


class DelayedEntries:
    """The delayed entries of one subscription, by the time when they are due.

    `places`: those of the broker. `on_room`: called if it was full because of the broker's places,
    and places are available again.
    """

    def __init__(
        self,
        entries_max: int = DELAYED_MAX,
        places: Places | None = None,
        on_room: Callable[[], object] = lambda: None,
    ) -> None:
        self._entries_max, self._on_room = entries_max, on_room
        self._places = places or Places(entries_max)
        # The entries, by time, then by position.
        self._heap: list[int] = []
        self._is_paused = self._is_refused = False

    def __len__(self) -> int:
        return len(self._heap)

    @property
    def is_full(self) -> bool:
        """True if no entry may be added. It stays full until a tenth is free."""
        if not self.free:
            self._is_paused = True
        elif len(self._heap) < RESUMED * self._entries_max:
            self._is_paused = False
        return self._is_paused or self._is_refused

    @property
    def free(self) -> int:
        """The number of entries that the subscription may still add."""
        return self._entries_max - len(self._heap)

    @property
    def next_ms(self) -> int | None:
        """The time when the next entry is due; None if there is none."""
        return self._heap[0] >> _TIME_AT if self._heap else None

    def add(self, candidate: Candidate) -> bool:
        """Adds an entry. Returns False if it is full."""
        if self.is_full:
            return False
        if not self._places.take(self._resume):
            self._is_refused = True
            return False
        heappush(self._heap, _packed(candidate))
        return True

    def take_due(self, now_ms: int, most: int) -> list[Candidate]:
        """Removes and returns entries that are due, the earliest first. Their sizes are 0."""
        due, end = list[Candidate](), (now_ms + 1) << _TIME_AT
        while self._heap and self._heap[0] < end and len(due) < most:
            due.append(_unpacked(heappop(self._heap)))
        self._places.give(len(due))
        return due

    def pass_over(self, through: Position) -> None:
        """Forgets entries at or below a position."""
        self._keep([each for each in self._heap if _unpacked(each).position > through])

    def close(self) -> None:
        """Forgets all entries: the consumers have left."""
        self._places.forget(self._resume)
        self._keep([])

    def _keep(self, remaining: list[int]) -> None:
        released = len(self._heap) - len(remaining)
        if released:
            heapify(remaining)
            self._heap = remaining
            self._places.give(released)

    def _resume(self) -> None:
        self._is_refused = False
        self._on_room()


def _packed(candidate: Candidate) -> int:
    ledger_id, entry_id = candidate.position
    number = (candidate.deliver_at_ms << _ID_BITS | ledger_id) << _ID_BITS | entry_id
    return (number << _MESSAGES_BITS | candidate.messages) << _SLOT_BITS | candidate.slot


def _unpacked(number: int) -> Candidate:
    def take(bits: int) -> int:
        nonlocal number
        taken, number = number & ((1 << bits) - 1), number >> bits
        return taken

    slot, messages, entry_id, ledger_id = map(
        take, (_SLOT_BITS, _MESSAGES_BITS, _ID_BITS, _ID_BITS)
    )
    return Candidate(Position(ledger_id, entry_id), messages, 0, slot, number)
