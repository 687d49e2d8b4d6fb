"""The raw ledgers of a loaded topic, so that nothing asked of them goes through them all.

A closed ledger never changes again: its record is kept from the first time it is asked for,
and sums up to there with it. The ledgers that may still change stand behind those: the open one,
and any that are being flushed or closed. They are asked for anew each time.

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

from ledgerfold.broker.log.backlog import LedgerSums, sums_of
from ledgerfold.broker.log.ledger_record import last_entry
from ledgerfold.storage.entry import Position
from ledgerfold.v1.records_pb2 import LEDGER_STATE_CLOSED, LedgerRecord


class RawLedgers:
    """Used on the event loop only. `record_of`: a ledger's record as it is now."""

    def __init__(self, ledger_ids: Iterable[int], record_of: Callable[[int], LedgerRecord]) -> None:
        self._record_of = record_of
        self.ids = list(ledger_ids)
        # Of the oldest ones, as far as all of them are closed.
        self._closed: list[LedgerRecord] = []
        self._sums = LedgerSums()

    def append(self, ledger_id: int) -> None:
        """A new one, behind all others."""
        self.ids.append(ledger_id)

    def drop_oldest(self, ledger_ids: Sequence[int]) -> None:
        """They are gone; they were the first ones."""
        count = len(ledger_ids)
        assert self.ids[:count] == list(ledger_ids)
        del self.ids[:count]
        self._sums.drop_oldest(min(count, len(self._closed)))
        del self._closed[:count]

    def keep(self, ledger_ids: Iterable[int]) -> None:
        """These are what is left, and new ones behind them. Goes through all: for a load."""
        self.ids = list(ledger_ids)
        left = set(self.ids)
        self._closed = [each for each in self._closed if each.ledger_id in left]
        self._sums = sums_of(self._closed)

    def __contains__(self, ledger_id: int) -> bool:
        at = bisect_left(self.ids, ledger_id)
        return at < len(self.ids) and self.ids[at] == ledger_id

    # -- records ---------------------------------------------------------------------------

    def closed(self) -> Sequence[LedgerRecord]:
        """Those of the oldest ledgers, up to the first that is not closed. Not to be changed."""
        closed, ids = self._closed, self.ids
        while len(closed) < len(ids):
            record = self._record_of(ids[len(closed)])
            if record.state != LEDGER_STATE_CLOSED:
                break
            closed.append(record)
            self._sums.append(record)
        return closed

    def open(self) -> list[LedgerRecord]:
        """Of the ledgers behind those, as they are now."""
        return [self._record_of(each) for each in self.ids[len(self.closed()) :]]

    def records(self) -> list[LedgerRecord]:
        """Of all, oldest first."""
        return [*self.closed(), *self.open()]

    def record(self, ledger_id: int) -> LedgerRecord:
        """Raises MissingFile when there is none."""
        return self.closed_record(ledger_id) or self._record_of(ledger_id)

    def last_recorded(self) -> Position | None:
        """The last entry that the records tell of; None: there is none."""
        for ledger_id in reversed(self.ids):
            last = last_entry(self.record(ledger_id))
            if last is not None:
                return last
        return None

    def closed_record(self, ledger_id: int) -> LedgerRecord | None:
        """None unless it is among the closed ones."""
        closed = self.closed()
        at = bisect_left(self.ids, ledger_id, hi=len(closed))
        return closed[at] if at < len(closed) and self.ids[at] == ledger_id else None

    def since(self, ledger_id: int) -> Iterator[LedgerRecord]:
        """Of that one and those behind it that are still there when their turn comes."""
        for each in self.ids[bisect_left(self.ids, ledger_id) :]:
            if each in self:
                yield self.record(each)

    # -- counts ----------------------------------------------------------------------------

    def sums(self) -> LedgerSums:
        """As they are now."""
        still_open = self.open()
        return self._sums.followed_by(still_open)

    def entries_between(self, after: Position, upto: Position) -> int:
        """Raw entries p with after < p <= upto."""
        count = len(self.closed())
        entries = self._sums.entries_between(after, upto)
        if count < len(self.ids) and upto.ledger_id >= self.ids[count]:
            entries += sums_of(self.open()).entries_between(after, upto)
        return entries

    def bytes_behind(self, position: Position) -> int:
        """Of all segments that end behind it."""
        still_open = self.open()
        size_bytes = self._sums.bytes_above(position.ledger_id)
        own = self.closed_record(position.ledger_id)
        return size_bytes + sum(
            segment.size_bytes
            for record in (*still_open, *([own] if own is not None else []))
            for segment in record.segments
            if segment.entries and (segment.last.ledger_id, segment.last.entry_id) > position
        )

    def estimated_bytes_behind(self, position: Position) -> int:
        """As Pulsar estimates them."""
        tail = sums_of(self.open())
        closed = self._sums.estimated_bytes_behind(position)
        return closed + tail.estimated_bytes_behind(position)

    # -- trimming --------------------------------------------------------------------------

    def passed_by(self, position: Position) -> int:
        """How many of the closed ledgers, from the oldest, hold nothing behind it."""
        closed = self.closed()
        at = bisect_right(self.ids, position.ledger_id, hi=len(closed))
        if at and (last_entry(closed[at - 1]) or position) > position:
            at -= 1
        while at < len(closed) and last_entry(closed[at]) is None:
            at += 1
        return at

    def count_before(self, ledger_id: int) -> int:
        """How many are older."""
        return bisect_left(self.ids, ledger_id)

    def bytes_of_oldest(self, count: int) -> int:
        """Of so many closed ones."""
        return self._sums.bytes_of_oldest(count)
