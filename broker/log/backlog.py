"""The size of a backlog in raw entries and bytes: exact, or estimated as in Pulsar. Pure.

Exact bytes count whole segments, which suffices for the horizon: a run's range ends where a segment
ends. The estimate counts whole ledgers, and for the position's own ledger the share of its entries
(ManagedLedgerImpl.getEstimatedBacklogSize).

`LedgerSums` answers for many positions at once (the ranges of a cursor, all cursors of a topic):
the ledgers are summed once, and each answer is a binary search. A topic keeps the sums of its
closed ledgers (broker/log/raw_ledgers.py).

  >>> def ledger(ledger_id, entries):
  ...     last = {"ledger_id": ledger_id, "entry_id": entries - 1}
  ...     segment = {"entries": entries, "size_bytes": 100 * entries, "last": last}
  ...     return LedgerRecord(ledger_id=ledger_id, segments=[segment])
  >>> sums = LedgerSums([ledger(3, 10), ledger(5, 4)])
  >>> sums.entries_between(Position(3, 7), Position(5, 0))
  3
  >>> sums.estimated_bytes_after(Position(3, 4))
  900
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from copy import copy

from ledgerfold.broker.log.ledger_record import last_entry, lost_between, size_bytes
from ledgerfold.storage.entry import Position
from ledgerfold.v1.records_pb2 import LedgerRecord


class LedgerSums:
    """Prefix sums over raw ledgers, oldest first: a fixed list, or closed ledgers, which grow."""

    def __init__(self, records: Iterable[LedgerRecord] = ()) -> None:
        # The records of ledgers in which a repair gave up entries.
        self._gaps: dict[int, LedgerRecord] = {}
        self._ids: list[int] = []
        self._last_ids: dict[int, int] = {}
        # The entries and bytes before each ledger, and in total. Only differences matter, so the
        # oldest can be dropped.
        self._entries_before, self._bytes_before = [0], [0]
        for record in records:
            self.append(record)

    def append(self, record: LedgerRecord) -> None:
        """Appends a ledger. Its entry ids begin at 0; only a repair leaves gaps."""
        last = last_entry(record)
        entries = 0 if last is None else last.entry_id + 1
        if record.lost and last is not None:
            self._gaps[record.ledger_id] = record
            entries -= lost_between(record, -1, last.entry_id)
        self._ids.append(record.ledger_id)
        # Ids do not count entries if some were given up.
        self._last_ids[record.ledger_id] = -2 if record.ledger_id in self._gaps else entries - 1
        self._entries_before.append(self._entries_before[-1] + entries)
        self._bytes_before.append(self._bytes_before[-1] + size_bytes(record))

    def drop_oldest(self, count: int) -> None:
        for ledger_id in self._ids[:count]:
            del self._last_ids[ledger_id]
            self._gaps.pop(ledger_id, None)
        del self._ids[:count], self._entries_before[:count], self._bytes_before[:count]

    def followed_by(self, records: Iterable[LedgerRecord]) -> LedgerSums:
        """Returns a copy of these sums extended by `records`."""
        sums = copy(self)
        sums._gaps, sums._last_ids = self._gaps.copy(), self._last_ids.copy()
        sums._ids = self._ids.copy()
        sums._entries_before = self._entries_before.copy()
        sums._bytes_before = self._bytes_before.copy()
        for record in records:
            sums.append(record)
        return sums

    @property
    def size_bytes(self) -> int:
        return self._bytes_before[-1] - self._bytes_before[0]

    def bytes_above(self, ledger_id: int) -> int:
        """Returns the bytes of the ledgers after `ledger_id`."""
        return self._bytes_before[-1] - self._bytes_before[bisect_right(self._ids, ledger_id)]

    def bytes_of_oldest(self, count: int) -> int:
        return self._bytes_before[count] - self._bytes_before[0]

    def entries_between(self, after: Position, through: Position) -> int:
        """Counts raw entries p with after < p <= through."""
        return max(0, self._entries_through(through) - self._entries_through(after))

    def entries_in(self, ranges: Iterable[tuple[Position, Position]]) -> int:
        """Counts the entries in disjoint (after, through] ranges, of which there may be 100,000."""
        count, last_ids = 0, self._last_ids
        for after, through in ranges:
            # Almost all ranges lie within one ledger.
            if after[0] == through[0] and -1 <= after[1] <= through[1] <= last_ids.get(
                through[0], -2
            ):
                count += through[1] - after[1]
            else:
                count += self.entries_between(after, through)
        return count

    def _entries_through(self, position: Position) -> int:
        ledger_id, entry_id = position
        at = bisect_right(self._ids, ledger_id)
        entries = self._entries_before[at]
        if at and self._ids[at - 1] == ledger_id:
            before, count = self._entries_before[at - 1], entry_id + 1
            if ledger_id in self._gaps:
                count -= lost_between(self._gaps[ledger_id], -1, entry_id)
            return min(entries, max(before, before + count))
        return entries

    def estimated_bytes_after(self, position: Position) -> int:
        """Returns Pulsar's estimate of the bytes after `position`."""
        at = bisect_left(self._ids, position.ledger_id)
        size_bytes = self._bytes_before[-1] - self._bytes_before[at]
        if at == len(self._ids) or self._ids[at] != position.ledger_id:
            return size_bytes
        entries = self._entries_before[at + 1] - self._entries_before[at]
        ledger_bytes = self._bytes_before[at + 1] - self._bytes_before[at]
        remaining = self._entries_before[at + 1] - self._entries_through(position)
        share_bytes = ledger_bytes * remaining // entries if entries else 0
        return size_bytes - ledger_bytes + share_bytes
