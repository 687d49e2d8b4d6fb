"""The cursor of a subscription: its acknowledged positions. Pure: no clock, no file, no task.

A cursor is a *mark-delete* position, at or below which everything is acknowledged, and ranges after
it that were acknowledged individually. Positions are ordered by (ledger id, entry id) and are not
dense: ledgers end, ledgers are trimmed, and a reader of the compacted view sees only the entries
that compaction kept. So a range is written `(after, through]`, and starts where the reader found
the previous entry:

1. Reading reports each gap it crosses: `note_gap(after, before)` says that the entry at `before`
   was the next one after `after`.
2. Acknowledging the entry at `before` acknowledges all of `(after, before]`.
3. `pass_over(after, through)` reports a gap without an entry after it (tombstones at the end of the
   compacted data): it is acknowledged once everything up to `after` is.

So acknowledging everything delivered brings the backlog to 0, also on a compacted topic, while
a consumer that acknowledged nothing may return without read-compacted and gets the raw log: each
reading begins with `begin_reading()`, which forgets the gaps of the reading before it.
(Pulsar 4.0 leaves superseded entries in the backlog: apache/pulsar#23245.)

Bounds, all harmless to delivery (at worst an entry is delivered again):

* RANGES_MAX ranges in memory: an acknowledgement that would add another one is ignored.
* RANGES_PERSISTED_MAX, the lowest ones, in the record (Pulsar's
  managedLedgerMaxUnackedRangesToPersist).
* GAPS_MAX gaps in memory: the oldest is forgotten, and its span stays in the backlog until a
  cumulative acknowledgement passes it.

  >>> cursor = Cursor(Position(1, 4))
  >>> cursor.note_gap(Position(1, 5), Position(3, 2))
  >>> cursor.acknowledge(Position(3, 2)), cursor.mark_delete
  (True, Position(ledger_id=1, entry_id=4))
  >>> cursor.acknowledge(Position(1, 5)), cursor.mark_delete
  (True, Position(ledger_id=3, entry_id=2))
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Iterator
from typing import NamedTuple

from ledgerfold.storage.entry import Position, position_of
from ledgerfold.v1 import records_pb2

RANGES_MAX = 100_000
RANGES_PERSISTED_MAX = 10_000
GAPS_MAX = 50_000


class Range(NamedTuple):
    """Positions p with after < p <= through."""

    after: Position
    through: Position

    def __str__(self) -> str:
        return f"({self.after}..{self.through}]"


class Cursor:
    """Mark-delete and the acknowledged ranges after it. Not thread-safe."""

    def __init__(
        self,
        mark_delete: Position,
        *,
        incarnation: int = 0,
        ranges_max: int = RANGES_MAX,
        gaps_max: int = GAPS_MAX,
    ) -> None:
        self._mark_delete = mark_delete
        # Incremented by each reset: earlier acknowledgements are invalid.
        self.incarnation = incarnation
        self._ranges_max, self._gaps_max = ranges_max, gaps_max
        # Two sorted lists of equal length; ranges neither touch nor overlap, all end after
        # mark-delete.
        self._afters: list[Position] = []
        self._ends: list[Position] = []
        # Entry -> the previous entry that was read, if their ids are not consecutive. In reading
        # order.
        self._gaps: OrderedDict[Position, Position] = OrderedDict()
        self._trailing: Range | None = None

    @classmethod
    def from_record(cls, record: records_pb2.CursorRecord) -> Cursor:
        cursor = cls(position_of(record.mark_delete), incarnation=record.incarnation)
        for each in record.acknowledged:
            cursor._insert(
                Position(each.ledger_id, each.first_entry_id - 1),
                Position(each.ledger_id, each.last_entry_id),
            )
        for span in record.spans:
            cursor._insert(position_of(span.after), position_of(span.upto))
        cursor._advance()
        return cursor

    def to_record(
        self, topic: str, subscription: str, created_ms: int = 0
    ) -> records_pb2.CursorRecord:
        """Returns the durable form."""
        record = records_pb2.CursorRecord(
            topic=topic,
            subscription=subscription,
            mark_delete=records_pb2.Position(
                ledger_id=self._mark_delete.ledger_id, entry_id=self._mark_delete.entry_id
            ),
            created_ms=created_ms,
            incarnation=self.incarnation,
        )
        persisted = slice(RANGES_PERSISTED_MAX)
        for after, through in zip(self._afters[persisted], self._ends[persisted], strict=True):
            if after.ledger_id == through.ledger_id:
                record.acknowledged.add(
                    ledger_id=through.ledger_id,
                    first_entry_id=after.entry_id + 1,
                    last_entry_id=through.entry_id,
                )
            else:
                span = record.spans.add()
                span.after.ledger_id, span.after.entry_id = after
                span.upto.ledger_id, span.upto.entry_id = through
        return record

    @property
    def mark_delete(self) -> Position:
        return self._mark_delete

    @property
    def ranges(self) -> list[Range]:
        """The acknowledged ranges after mark-delete, in order."""
        return list(map(Range, self._afters, self._ends))

    def bounds(self) -> Iterator[tuple[Position, Position]]:
        """Returns the same ranges as plain pairs, for counting."""
        return zip(self._afters, self._ends, strict=True)

    @property
    def range_count(self) -> int:
        return len(self._afters)

    def is_acknowledged(self, position: Position) -> bool:
        return position <= self._mark_delete or self.is_acknowledged_beyond(position)

    def is_acknowledged_beyond(self, position: Position) -> bool:
        """Returns whether one of the ranges contains `position`, regardless of mark-delete."""
        at = bisect_left(self._ends, position)
        return at < len(self._ends) and self._afters[at] < position

    def begin_reading(self) -> None:
        """Forgets the gaps that an earlier reading found: the next one may find entries there."""
        self._gaps.clear()
        self._trailing = None

    def note_gap(self, after: Position, before: Position) -> None:
        """Records that reading found no entry between `after` and `before`."""
        if before <= self._mark_delete:
            return
        self._gaps[before] = after
        if len(self._gaps) > self._gaps_max:
            self._gaps.popitem(last=False)

    def pass_over(self, after: Position, through: Position) -> None:
        """Records that reading found no entry in (after, through].

        `after` is the last entry that it found.
        """
        self._trailing = Range(after, through)
        self._advance()

    def acknowledge(self, position: Position) -> bool:
        """Acknowledges one entry and the gap before it. Returns False if nothing changed."""
        gap = self._gaps.pop(position, None)
        if position <= self._mark_delete:
            return False
        if gap is None and self.is_acknowledged_beyond(position):
            return False
        after = Position(position.ledger_id, position.entry_id - 1) if gap is None else gap
        if after <= self._mark_delete:
            self._mark_delete = position
        elif not self._insert(after, position):
            return False
        self._advance()
        return True

    def acknowledge_cumulative(self, position: Position) -> bool:
        """Acknowledges `position` and all before it. Returns False if nothing changed.

        Entry id -1 means everything before its ledger's first entry.
        """
        if position.entry_id < 0:
            # NOTE: kept out of mark-delete, where entry id -1 would make a read-compacted consumer
            # begin again (test_a_cumulative_acknowledgement_before_the_first_entry_of_a_ledger).
            position = self._gaps.get(position.next, self._mark_delete)
        if position <= self._mark_delete:
            return False
        self._mark_delete = position
        self._advance()
        return True

    def passed_over(self, through: Position) -> Cursor:
        """Returns a copy that has acknowledged `through` and all before it."""
        cursor = Cursor(self._mark_delete, incarnation=self.incarnation)
        cursor._afters, cursor._ends = self._afters[:], self._ends[:]
        cursor.acknowledge_cumulative(through)
        return cursor

    def reset(self, mark_delete: Position) -> None:
        """Moves to `mark_delete`, forwards or backwards, and forgets all other state."""
        self._mark_delete = mark_delete
        self.incarnation += 1
        self._afters, self._ends = [], []
        self.begin_reading()

    def _insert(self, after: Position, through: Position) -> bool:
        first = bisect_left(self._ends, after)
        end = bisect_right(self._afters, through)
        if first == end:
            if len(self._afters) >= self._ranges_max:
                return False
        else:
            after = min(after, self._afters[first])
            through = max(through, self._ends[end - 1])
        self._afters[first:end] = [after]
        self._ends[first:end] = [through]
        return True

    def _advance(self) -> None:
        """Extends mark-delete over everything contiguous with it."""
        while True:
            swallowed = bisect_right(self._afters, self._mark_delete)
            if swallowed:
                self._mark_delete = max(self._mark_delete, self._ends[swallowed - 1])
                del self._afters[:swallowed], self._ends[:swallowed]
            trailing = self._trailing
            if trailing is None or trailing.after > self._mark_delete:
                break
            self._mark_delete = max(self._mark_delete, trailing.through)
            self._trailing = None
        while self._gaps and next(iter(self._gaps)) <= self._mark_delete:
            self._gaps.popitem(last=False)
