"""How much lies behind a position, in raw entries and bytes: exact, or as Pulsar estimates. Pure.

Exact bytes are those of whole segments, which is enough for the horizon: a run's range ends where a
segment ends. The estimate takes whole ledgers, and of the ledger in which the position stands the
share of its entries (ManagedLedgerImpl.getEstimatedBacklogSize; reference section 11.3).

What is asked of many positions at once (the ranges of a cursor, all cursors of a topic) is asked of
`LedgerSums`: the ledgers are gone through once, and each answer is a search.

    >>> sums = LedgerSums([(3, 10, 1000), (5, 4, 400)])
    >>> sums.entries_between(Position(3, 7), Position(5, 0))
    3
    >>> sums.estimated_bytes_behind(Position(3, 4))
    900
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from types import MappingProxyType
from typing import Protocol

from ledgerfold.v1.records_pb2 import LedgerRecord

from broker.lost import lost_between
from broker.retention import last_entry
from storage.entry import Position


class RawLedgers(Protocol):
    """What is needed of a topic's log (broker/log.py)."""

    def ledger_records(self) -> list[LedgerRecord]: ...


class LedgerSums:
    """Raw ledgers as they are at one moment: (id, entries, bytes) of each, oldest first.

    `gaps`: the records of those of which a repair gave up entries, by id.
    """

    def __init__(
        self,
        ledgers: Sequence[tuple[int, int, int]],
        gaps: Mapping[int, LedgerRecord] = MappingProxyType({}),
    ) -> None:
        self._gaps = gaps
        self._ids = [ledger_id for ledger_id, _, _ in ledgers]
        self._last_ids = {ledger_id: entries - 1 for ledger_id, entries, _ in ledgers}
        self._entries_before = list(accumulate((each for _, each, _ in ledgers), initial=0))
        self._bytes_before = list(accumulate((each for _, _, each in ledgers), initial=0))

    def entries_between(self, after: Position, upto: Position) -> int:
        """Raw entries p with after < p <= upto."""
        return max(0, self._entries_upto(upto) - self._entries_upto(after))

    def entries_in(self, ranges: Iterable[tuple[Position, Position]]) -> int:
        """Of (after, upto] ranges that do not overlap, of which there may be 100,000."""
        count, last_ids = 0, self._last_ids
        for after, upto in ranges:
            # Nearly all lie within one ledger.
            if after[0] == upto[0] and -1 <= after[1] <= upto[1] <= last_ids.get(upto[0], -2):
                count += upto[1] - after[1]
            else:
                count += self.entries_between(after, upto)
        return count

    def _entries_upto(self, position: Position) -> int:
        ledger_id, entry_id = position
        at = bisect_right(self._ids, ledger_id)
        entries = self._entries_before[at]
        if at and self._ids[at - 1] == ledger_id:
            before, count = self._entries_before[at - 1], entry_id + 1
            if ledger_id in self._gaps:
                count -= lost_between(self._gaps[ledger_id], -1, entry_id)
            return min(entries, max(before, before + count))
        return entries

    def estimated_bytes_behind(self, position: Position) -> int:
        """As Pulsar estimates them."""
        at = bisect_left(self._ids, position.ledger_id)
        size_bytes = self._bytes_before[-1] - self._bytes_before[at]
        if at == len(self._ids) or self._ids[at] != position.ledger_id:
            return size_bytes
        entries = self._entries_before[at + 1] - self._entries_before[at]
        ledger_bytes = self._bytes_before[at + 1] - self._bytes_before[at]
        behind = self._entries_before[at + 1] - self._entries_upto(position)
        share_bytes = ledger_bytes * behind // entries if entries else 0
        return size_bytes - ledger_bytes + share_bytes


def sums_of(records: Iterable[LedgerRecord]) -> LedgerSums:
    """Entry ids of a ledger begin at 0; no gaps are in them but what a repair gave up."""
    ledgers, gaps = [], {}
    for record in records:
        last = last_entry(record)
        size_bytes = sum(segment.size_bytes for segment in record.segments)
        entries = 0 if last is None else last.entry_id + 1
        if record.lost and last is not None:
            gaps[record.ledger_id] = record
            entries -= lost_between(record, -1, last.entry_id)
        ledgers.append((record.ledger_id, entries, size_bytes))
    return LedgerSums(ledgers, gaps)


def bytes_behind(position: Position, log: RawLedgers) -> int:
    """Of all segments that end behind it."""
    return sum(
        segment.size_bytes
        for record in log.ledger_records()
        for segment in record.segments
        if segment.entries and (segment.last.ledger_id, segment.last.entry_id) > position
    )


def estimated_bytes_behind(position: Position, log: RawLedgers) -> int:
    """As Pulsar estimates them."""
    return sums_of(log.ledger_records()).estimated_bytes_behind(position)
