"""Where entries are: the raw ledgers that exist, and the positions in and between them.

Positions are ordered by (ledger id, entry id) and are not dense: ledgers end, are trimmed, and may
have lost entries to a repair. A position that holds no entry stands for the next one that may.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from ledgerfold.broker.log.backlog import LedgerSums
from ledgerfold.broker.log.ledger_record import last_entry
from ledgerfold.broker.log.tail import LogTail
from ledgerfold.storage.entry import Position
from ledgerfold.storage.ledger import LedgerReader
from ledgerfold.v1.records_pb2 import LedgerRecord


class LogPositions(LogTail):
    """The part of a topic's log (broker/log/log.py) that tells where what is."""

    def _reader(self, ledger_id: int) -> LedgerReader:
        with self._moved_if_closed():
            return self._store.open_reader(ledger_id, self.ledgers.closed_record(ledger_id))

    def ledger_ids(self) -> Sequence[int]:
        """The raw ledgers that exist, oldest first; the last one may be empty."""
        return self.ledgers.ids

    def is_gone(self, position: Position) -> bool:
        """Whether raw entries at or behind it, of its ledger, were deleted.

        False at the end of a ledger that went when all of it had been read.
        """
        if self.has_ledger(position.ledger_id):
            return False
        return self._dropped_upto is None or position <= self._dropped_upto

    def note_dropped(self, upto: Position) -> None:
        """The ledgers up to the one of that entry, their last, are deleted now."""
        self._dropped_upto = max(self._dropped_upto or upto, upto)

    def has_ledger(self, ledger_id: int) -> bool:
        return ledger_id in self.ledgers

    def ledger_records(self) -> list[LedgerRecord]:
        """Of the raw ledgers, oldest first: what is durable of them."""
        return self.ledgers.records()

    def forget_ledgers(self, ledger_ids: Sequence[int]) -> None:
        """The oldest ones are deleted now: the topic's record does not list them any more."""
        last = max(filter(None, map(self.last_in, ledger_ids)), default=None)
        self.ledgers.drop_oldest(ledger_ids)
        if last is not None:
            self.note_dropped(last)

    def _find_last_durable(self) -> Position | None:
        for ledger_id in reversed(self.ledgers.ids):
            last = self.last_in(ledger_id)
            if last is not None:
                return last
        return None

    def last_position(self) -> Position:
        """The last durable raw entry; when there is none (L, -1) of the ledger that gets the next.

        Which is not the newest one where entries of an older one are on their way to the disk.
        """
        if self._last_durable is not None and self.has_ledger(self._last_durable.ledger_id):
            return self._last_durable
        next_ids = (writer.ledger_id for writer in self._flushing)
        return Position(next(next_ids, self.ledgers.ids[-1]), -1)

    def last_published(self) -> Position:
        """The same, but the entry may have been trimmed since the topic was loaded."""
        return self._last_durable or self.last_position()

    def first_position(self) -> Position:
        """Of the raw ledgers that exist."""
        return Position(self.ledgers.ids[0], 0)

    def next_position(self, position: Position) -> Position:
        """The one after, in the next ledger when `position` ends a finished one."""
        return self._existing(position.next)

    def previous_position(self, position: Position) -> Position:
        """The mark-delete form of "before": (L, -1) for the first entry of a ledger."""
        return Position(position.ledger_id, max(position.entry_id - 1, -1))

    def entries_between(self, after: Position, upto: Position) -> int:
        """Raw entries p with after < p <= upto in the ledgers that exist."""
        return self.ledgers.entries_between(after, upto)

    def ledger_sums(self) -> LedgerSums:
        """To ask about many positions at once."""
        return self.ledgers.sums()

    def last_in(self, ledger_id: int) -> Position | None:
        """The last durable entry of a raw ledger, None when it has none."""
        return last_entry(self.ledgers.record(ledger_id))

    def _existing(self, position: Position) -> Position:
        """`position` if it may hold an entry now or later, else the first one after it that may."""
        ids = self.ledgers.ids
        at = bisect_left(ids, position.ledger_id)
        if at == len(ids):
            return position
        if ids[at] != position.ledger_id:
            return Position(ids[at], 0)
        position = Position(position.ledger_id, max(position.entry_id, 0))
        last = self.last_in(position.ledger_id)
        if at + 1 < len(ids) and self._is_finished(at) and (last is None or position > last):
            return self._existing(Position(ids[at + 1], 0))
        return position

    def _is_finished(self, at: int) -> bool:
        """Whether no entry can come to this raw ledger any more."""
        # They are closed in order.
        oldest = self._flushing[0] if self._flushing else self._writer
        return oldest is None or self.ledgers.ids[at] < oldest.ledger_id

    def _after_last(self) -> Position:
        """Where the next published entry will be."""
        return self._existing(self.last_position().next)
