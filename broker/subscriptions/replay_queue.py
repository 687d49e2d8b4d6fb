"""The replay queue of a shared subscription: entries that wait to be sent, in order of id. Pure.

Entries leave it one at a time, usually the first, and return in any order and number. A sorted list
has their order. Entries that have left stay in the list until they are half of it, so that leaving
is cheap. A few new entries are inserted at their places; many are appended, and the list is sorted.

  >>> queue = ReplayQueue()
  >>> for entry_id in (2, 0, 1):
  ...     queue.add(Position(1, entry_id), Unsettled(messages=1, redeliveries=0, slot=0))
  >>> queue.pop(Position(1, 0)), [each.entry_id for each in queue]
  (Unsettled(messages=1, redeliveries=0, slot=0), [1, 2])
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

from ledgerfold.broker.subscriptions.dispatcher import Unsettled
from ledgerfold.storage.entry import Position

# New entries are inserted up to this number, or this share of the list; more are sorted in.
_INSERTED_MAX, _INSERTED_PART = 16, 256
# Entries that left remain in the list up to this number, even if few others are left.
_GONE_MAX = 64


class ReplayQueue:
    """The entries by position. Iterating yields the positions in order."""

    def __init__(self) -> None:
        self._entries: dict[Position, Unsettled] = {}
        # Sorted; contains all of _entries except _new, and some that left. Before _first: only
        # entries that left.
        self._order: list[Position] = []
        self._first = 0
        self._new: list[Position] = []

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, position: Position) -> bool:
        return position in self._entries

    def __getitem__(self, position: Position) -> Unsettled:
        return self._entries[position]

    def get(self, position: Position) -> Unsettled | None:
        return self._entries.get(position)

    def __iter__(self) -> Iterator[Position]:
        self._put_in_order()
        order, entries = self._order, self._entries
        while self._first < len(order) and order[self._first] not in entries:
            self._first += 1
        for at in range(self._first, len(order)):
            if order[at] in entries:
                yield order[at]

    def add(self, position: Position, entry: Unsettled) -> None:
        if position not in self._entries:
            self._new.append(position)
        self._entries[position] = entry

    def pop(self, position: Position) -> Unsettled | None:
        return self._entries.pop(position, None)

    def _put_in_order(self) -> None:
        inserted_max = max(_INSERTED_MAX, len(self._order) // _INSERTED_PART)
        if len(self._new) > inserted_max or len(self._order) > 2 * len(self) + _GONE_MAX:
            order = [each for each in self._order if each in self._entries]
            new = {each for each in self._new if each in self._entries}.difference(order)
            # Two sorted runs: sorting them together is a merge.
            self._order, self._first = sorted(order + sorted(new)), 0
        else:
            for position in self._new:
                self._insert(position)
        self._new.clear()

    def _insert(self, position: Position) -> None:
        at = bisect_left(self._order, position)
        if at == len(self._order) or self._order[at] != position:
            self._order.insert(at, position)
        self._first = min(self._first, at)
