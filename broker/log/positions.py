"""Where entries are: the raw ledgers that exist, and the positions in and between them. No I/O.

Positions are ordered by (ledger id, entry id) and are not dense: ledgers end, are trimmed, and may
have lost entries to a repair. A position that holds no entry stands for the next one that may.
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
    """Tells where what is, by the raw ledgers and how far they are durable."""

    def __init__(self, ledgers: RawLedgers, writers: Writers, state: LogState) -> None:
        self._ledgers, self._writers, self._state = ledgers, writers, state
        # No entry behind it was ever deleted. None: nobody knows.
        self._dropped_upto: Position | None = None

    # -- the ends --------------------------------------------------------------------------

    def first(self) -> Position:
        """Of the raw ledgers that exist."""
        return Position(self._ledgers.ids[0], 0)

    def last(self) -> Position:
        """The last durable raw entry; when there is none (L, -1) of the ledger that gets the next.

        Which is not the newest one where entries of an older one are on their way to the disk.
        """
        durable = self._state.last_durable
        if durable is not None and durable.ledger_id in self._ledgers:
            return durable
        next_ids = (writer.ledger_id for writer in self._writers.followed)
        return Position(next(next_ids, self._ledgers.ids[-1]), -1)

    def last_published(self) -> Position:
        """The same, but the entry may have been trimmed since the topic was loaded."""
        return self._state.last_durable or self.last()

    def after_last(self) -> Position:
        """Where the next published entry will be."""
        return self.existing(self.last().next)

    def last_in(self, ledger_id: int) -> Position | None:
        """The last durable entry of a raw ledger, None when it has none."""
        return last_entry(self._ledgers.record(ledger_id))

    def last_recorded(self) -> Position | None:
        """The last entry that the ledgers' records tell of: what a load finds."""
        return self._ledgers.last_recorded()

    # -- from one to another ---------------------------------------------------------------

    def existing(self, position: Position) -> Position:
        """`position` if it may hold an entry now or later, else the first one after it that may."""
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
        """The one after, in the next ledger when `position` ends a finished one."""
        return self.existing(position.next)

    def previous(self, position: Position) -> Position:
        """The mark-delete form of "before": (L, -1) for the first entry of a ledger."""
        return Position(position.ledger_id, max(position.entry_id - 1, -1))

    # -- what was deleted ------------------------------------------------------------------

    def is_gone(self, position: Position) -> bool:
        """Whether raw entries at or behind it, of its ledger, were deleted.

        False at the end of a ledger that went when all of it had been read.
        """
        if position.ledger_id in self._ledgers:
            return False
        return self._dropped_upto is None or position <= self._dropped_upto

    def note_dropped(self, upto: Position) -> None:
        """The ledgers up to the one of that entry, their last, are deleted now."""
        self._dropped_upto = max(self._dropped_upto or upto, upto)

    def forget(self, ledger_ids: Sequence[int]) -> None:
        """The oldest ones are deleted now: the topic's record does not list them any more."""
        last = max(filter(None, map(self.last_in, ledger_ids)), default=None)
        self._ledgers.drop_oldest(ledger_ids)
        if last is not None:
            self.note_dropped(last)
