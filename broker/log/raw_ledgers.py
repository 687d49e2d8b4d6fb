"""The raw ledgers of a loaded topic, with cached records and sums, so that no query scans all of
them.

A closed ledger never changes: its record is cached on first use, and the sums through it. Ledgers
that may still change follow the closed ones: the open one, and any being flushed or closed. Their
records are fetched on each call.

  >>> stored = {3: LedgerRecord(ledger_id=3, state=LEDGER_STATE_CLOSED, segments=[
  ...     {"entries": 2, "size_bytes": 80, "last": {"ledger_id": 3, "entry_id": 1}}])}
  >>> ledgers = RawLedgers([3], stored.__getitem__)
  >>> ledgers.entries_between(Position(3, 0), Position(3, 1)), ledgers.passed_by(Position(3, 1))
  (1, 1)

Bounds: about 1.5 KB for a closed ledger and 0.2 KB for each of its segments but the first, as long
as its topic is loaded.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence

from ledgerfold.broker.log.backlog import LedgerSums
from ledgerfold.broker.log.ledger_record import last_entry
from ledgerfold.storage.entry import Position
from ledgerfold.v1.records_pb2 import LEDGER_STATE_CLOSED, LedgerRecord


class RawLedgers:
    """The raw ledgers, used on the event loop only.

    `record_of`: returns a ledger's current record.
    """

    def __init__(self, ledger_ids: Iterable[int], record_of: Callable[[int], LedgerRecord]) -> None:
        self._record_of = record_of
        self.ids = list(ledger_ids)
        # The longest closed prefix.
        self._closed: list[LedgerRecord] = []
        self._sums = LedgerSums()

    def append(self, ledger_id: int) -> None:
        """Appends a new ledger."""
        self.ids.append(ledger_id)

    def drop_oldest(self, ledger_ids: Sequence[int]) -> None:
        """Removes the ledgers, which must be the oldest."""
        count = len(ledger_ids)
        assert self.ids[:count] == list(ledger_ids)
        del self.ids[:count]
        self._sums.drop_oldest(min(count, len(self._closed)))
        del self._closed[:count]

    def keep(self, ledger_ids: Iterable[int]) -> None:
        """Keeps only these ledgers, some of which may be new. Scans all of them: for a load."""
        self.ids = list(ledger_ids)
        remaining = set(self.ids)
        self._closed = [each for each in self._closed if each.ledger_id in remaining]
        self._sums = LedgerSums(self._closed)

    def __contains__(self, ledger_id: int) -> bool:
        at = bisect_left(self.ids, ledger_id)
        return at < len(self.ids) and self.ids[at] == ledger_id

    # -- records ---------------------------------------------------------------------------

    def closed(self) -> Sequence[LedgerRecord]:
        """Returns the records of the oldest ledgers, up to the first that is not closed.

        Read-only.
        """
        closed, ids = self._closed, self.ids
        while len(closed) < len(ids):
            record = self._record_of(ids[len(closed)])
            if record.state != LEDGER_STATE_CLOSED:
                break
            closed.append(record)
            self._sums.append(record)
        return closed

    def open(self) -> list[LedgerRecord]:
        """Returns the current records of the ledgers after the closed ones."""
        return [self._record_of(each) for each in self.ids[len(self.closed()) :]]

    def records(self) -> list[LedgerRecord]:
        """Returns the records of all ledgers, oldest first."""
        return [*self.closed(), *self.open()]

    def record(self, ledger_id: int) -> LedgerRecord:
        """Returns a ledger's record. Raises MissingFile if there is none."""
        return self.closed_record(ledger_id) or self._record_of(ledger_id)

    def last_recorded(self) -> Position | None:
        """Returns the last entry according to the records, None if there is none."""
        for ledger_id in reversed(self.ids):
            last = last_entry(self.record(ledger_id))
            if last is not None:
                return last
        return None

    def closed_record(self, ledger_id: int) -> LedgerRecord | None:
        """Returns a ledger's record if it is among the closed ones."""
        closed = self.closed()
        at = bisect_left(self.ids, ledger_id, hi=len(closed))
        return closed[at] if at < len(closed) and self.ids[at] == ledger_id else None

    def since(self, ledger_id: int) -> Iterator[LedgerRecord]:
        """Yields the records of `ledger_id` and later ledgers, skipping those deleted meanwhile."""
        for each in self.ids[bisect_left(self.ids, ledger_id) :]:
            if each in self:
                yield self.record(each)

    # -- counts ----------------------------------------------------------------------------

    def sums(self) -> LedgerSums:
        """Returns the current sums of all ledgers."""
        still_open = self.open()
        return self._sums.followed_by(still_open)

    def entries_between(self, after: Position, through: Position) -> int:
        """Counts raw entries p with after < p <= through."""
        count = len(self.closed())
        entries = self._sums.entries_between(after, through)
        if count < len(self.ids) and through.ledger_id >= self.ids[count]:
            entries += LedgerSums(self.open()).entries_between(after, through)
        return entries

    def bytes_after(self, position: Position) -> int:
        """Returns the bytes of all segments that end after `position`."""
        still_open = self.open()
        size_bytes = self._sums.bytes_above(position.ledger_id)
        own = self.closed_record(position.ledger_id)
        return size_bytes + sum(
            segment.size_bytes
            for record in (*still_open, *([own] if own is not None else []))
            for segment in record.segments
            if segment.entries and (segment.last.ledger_id, segment.last.entry_id) > position
        )

    def estimated_bytes_after(self, position: Position) -> int:
        """Returns Pulsar's estimate of the bytes after `position`."""
        tail = LedgerSums(self.open())
        closed = self._sums.estimated_bytes_after(position)
        return closed + tail.estimated_bytes_after(position)

    # -- trimming --------------------------------------------------------------------------

    def passed_by(self, position: Position) -> int:
        """Counts the closed ledgers, from the oldest, that contain nothing after `position`."""
        closed = self.closed()
        at = bisect_right(self.ids, position.ledger_id, hi=len(closed))
        if at and (last_entry(closed[at - 1]) or position) > position:
            at -= 1
        while at < len(closed) and last_entry(closed[at]) is None:
            at += 1
        return at

    def bytes_of_oldest(self, count: int) -> int:
        """Returns the bytes of the `count` oldest closed ledgers."""
        return self._sums.bytes_of_oldest(count)
