"""Positions in and between the existing raw ledgers. No I/O.

Positions are ordered by (ledger id, entry id) and are not dense: ledgers end, are trimmed, and may
have lost entries to a repair. A position without an entry means the next position that has one.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from ledgerfold.broker.log.ledger_record import last_entry
from ledgerfold.broker.log.raw_ledgers import RawLedgers
from ledgerfold.broker.log.state import LogState
from ledgerfold.broker.log.writers import Writers
from ledgerfold.storage.entry import Position


class LogPositions:
    """The arithmetic of positions over the raw ledgers and their durable ends."""

    def __init__(self, ledgers: RawLedgers, writers: Writers, state: LogState) -> None:
        self._ledgers, self._writers, self._state = ledgers, writers, state
        # No entry after it was ever deleted. None: unknown.
        self._dropped_through: Position | None = None

    # -- ends --------------------------------------------------------------------------

    def first(self) -> Position:
        """Returns the first position of the existing raw ledgers."""
        return Position(self._ledgers.ids[0], 0)

    def last(self) -> Position:
        """Returns the last durable raw entry, or (L, -1) of the ledger that gets the next entry.

        While entries of an older ledger are being flushed, L is not the newest ledger.
        """
        durable = self._state.last_durable
        if durable is not None and durable.ledger_id in self._ledgers:
            return durable
        next_ids = (writer.ledger_id for writer in self._writers.followed)
        return Position(next(next_ids, self._ledgers.ids[-1]), -1)

    def last_published(self) -> Position:
        """Returns last(), or a later entry that was trimmed since the topic was loaded."""
        return self._state.last_durable or self.last()

    def after_last(self) -> Position:
        """Returns the position of the next published entry."""
        return self.existing(self.last().next)

    def last_in(self, ledger_id: int) -> Position | None:
        """Returns the last durable entry of a raw ledger, None if it has none."""
        return last_entry(self._ledgers.record(ledger_id))

    # -- neighbours ---------------------------------------------------------------

    def existing(self, position: Position) -> Position:
        """Returns `position` if it can hold an entry now or later, else the next one that can."""
        ids = self._ledgers.ids
        at = bisect_left(ids, position.ledger_id)
        if at == len(ids):
            return position
        if ids[at] != position.ledger_id:
            return Position(ids[at], 0)
        position = Position(position.ledger_id, max(position.entry_id, 0))
        last = self.last_in(position.ledger_id)
        is_finished = at + 1 < len(ids) and self._writers.is_finished(ids[at])
        if is_finished and (last is None or position > last):
            return self.existing(Position(ids[at + 1], 0))
        return position

    def next(self, position: Position) -> Position:
        """Returns the next position, in the next ledger if `position` ends a finished one."""
        return self.existing(position.next)

    def previous(self, position: Position) -> Position:
        """Returns the mark-delete form of "before": (L, -1) for the first entry of a ledger."""
        return Position(position.ledger_id, max(position.entry_id - 1, -1))

    # -- deleted entries ------------------------------------------------------------------

    def is_deleted(self, position: Position) -> bool:
        """Returns whether raw entries at or after `position` in its ledger were deleted.

        False at the end of a ledger that was deleted after all of it had been read.
        """
        if position.ledger_id in self._ledgers:
            return False
        return self._dropped_through is None or position <= self._dropped_through

    def note_dropped(self, through: Position) -> None:
        """Records that the ledgers through `through`, the last entry of one, are deleted."""
        self._dropped_through = max(self._dropped_through or through, through)

    def forget(self, ledger_ids: Sequence[int]) -> None:
        """Removes the oldest ledgers, which the topic's record no longer lists."""
        last = max(filter(None, map(self.last_in, ledger_ids)), default=None)
        self._ledgers.drop_oldest(ledger_ids)
        if last is not None:
            self.note_dropped(last)
