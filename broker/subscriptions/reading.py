"""The read position of a subscription. Pure.

Reading proceeds through the log in order, ahead of the acknowledgements. It starts, and restarts
after a redelivery of ordered types, by this rule (Pulsar's
PersistentDispatcherSingleActiveConsumer and CompactedTopicImpl, "read from earliest"):

* if the consumer is read-compacted and durable, and the mark-delete is before its ledger's first
  entry (entry id -1): at the beginning of the compacted data;
* otherwise: after the mark-delete.

Entries are filtered: acknowledged ones are not delivered again, and gaps between entries are
reported to the cursor (see broker/subscriptions/cursor.py).

The profile (broker/policies/profiles.py) decides whether a gap left by compaction is acknowledged
along with the entry after it, and whether entries of the compacted ledger are filtered: Pulsar 4
does neither. broker/subscriptions/route.py selects the ledgers to read.
"""

from __future__ import annotations

from collections.abc import Sequence

from ledgerfold.broker.log.log import TopicLog
from ledgerfold.broker.log.reads import ReadResult
from ledgerfold.broker.policies.profiles import Emulation
from ledgerfold.broker.subscriptions.cursor import Cursor
from ledgerfold.broker.subscriptions.route import Route
from ledgerfold.storage.entry import EARLIEST, Position
from ledgerfold.storage.ledger import StoredEntry


class Reading:
    """A single pass over the log. A rewind starts a new one."""

    def __init__(
        self,
        cursor: Cursor,
        log: TopicLog,
        emulation: Emulation,
        *,
        read_compacted: bool,
        durable: bool,
    ) -> None:
        self._cursor, self._log, self._emulation = cursor, log, emulation
        self.route = Route(emulation, read_compacted=read_compacted)
        cursor.begin_reading()
        mark_delete = cursor.mark_delete
        from_earliest = read_compacted and durable and mark_delete.entry_id < 0
        # The last position read; the gap of the next entry begins after it.
        self._last = EARLIEST if from_earliest else mark_delete
        self.position = EARLIEST if from_earliest else _after(mark_delete)
        # At or below it, the mark-delete does not reflect what this reading delivered.
        self._replays_through = mark_delete if from_earliest else EARLIEST

    def catch_up(self) -> None:
        """Continues after the mark-delete if that has overtaken the reading."""
        mark_delete = self._cursor.mark_delete
        if mark_delete >= self.position and self.position > self._replays_through:
            self._last, self.position = mark_delete, _after(mark_delete)

    def filter_entries(
        self, entries: Sequence[StoredEntry], horizon: Position | None
    ) -> list[StoredEntry]:
        """Returns the entries to deliver. `horizon`: that of their view."""
        cursor, last, entries_wanted = self._cursor, self._last, []
        redelivers_through = self._replays_through
        if horizon is not None and not self._emulation.acks_pass_compacted_out:
            redelivers_through = max(redelivers_through, horizon)
        for entry in entries:
            position = entry.header.position
            if position != last.next and self._is_covered(last, position):
                cursor.note_gap(last, position)
            last = position
            if position > redelivers_through and cursor.is_acknowledged(position):
                # For the gap before it: at first only the entry itself is known to be
                # acknowledged.
                cursor.acknowledge(position)
            else:
                entries_wanted.append(entry)
        return entries_wanted

    def finish(self, result: ReadResult, horizon: Position | None) -> None:
        """Advances past `result`, which was fully handled. `horizon`: that of its view."""
        if result.entries:
            self._last = result.entries[-1].header.position
        self.position = result.next_position
        if (
            horizon is not None
            and self._last < horizon < result.next_position
            and self._is_covered(self._last, horizon.next)
        ):
            self._cursor.pass_over(self._last, horizon)

    def _is_covered(self, after: Position, before: Position) -> bool:
        """Returns whether the gap between two entries is acknowledged along with the later one."""
        through = Position(before.ledger_id, before.entry_id - 1)
        return self._emulation.acks_pass_compacted_out or not self._log.ledgers.entries_between(
            after, through
        )

    def stop_before(self, entries: Sequence[StoredEntry], undelivered: Position) -> None:
        """Advances up to `undelivered`, which is read again with all later entries."""
        for entry in entries:
            position = entry.header.position
            if position >= undelivered:
                break
            self._last = position
        self.position = undelivered


def _after(position: Position) -> Position:
    return EARLIEST if position.ledger_id < 0 else position.next


def mark_delete_before(log: TopicLog, position: Position) -> Position:
    """Returns the mark-delete that makes `position` the next read. EARLIEST stays EARLIEST."""
    if position <= EARLIEST:
        return EARLIEST
    previous = log.positions.previous(position)
    if previous.entry_id >= 0:
        return previous
    # NOTE: the last entry of an earlier ledger, if there is one: entry id -1 would make a
    # read-compacted consumer begin at the very start (test_seek_to_the_first_entry_of_a_ledger).
    for ledger_id in reversed(log.ledgers.ids):
        if ledger_id < position.ledger_id:
            last = log.positions.last_in(ledger_id)
            if last is not None:
                return last
    return previous
