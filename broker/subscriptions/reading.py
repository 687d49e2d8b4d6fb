"""Where the reading of a subscription stands. Pure.

Reading goes through the log in order, ahead of the acknowledgements. It starts, and starts again
after a redelivery of ordered types, by this rule (Pulsar's PersistentDispatcherSingleActiveConsumer
and CompactedTopicImpl, "read from earliest"):

* read-compacted, durable, and the mark-delete is before its ledger's first entry (entry id -1):
  from the beginning of the compacted data, wherever the mark-delete is;
* otherwise: behind the mark-delete.

What it meets on its way is sifted: what is acknowledged is not delivered again, and gaps between
entries go to the cursor (broker/subscriptions/cursor.py tells why).

The profile (broker/policies/profiles.py) decides whether a gap that compaction made counts as
acknowledged along with the entry behind it, and whether entries of the compacted ledger are sifted:
Pulsar 4 does neither. Which ledgers are read is broker/subscriptions/route.py's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ledgerfold.broker.log.backlog import LedgerSums
from ledgerfold.broker.log.view import View
from ledgerfold.broker.policies.profiles import Emulation
from ledgerfold.broker.subscriptions.cursor import Cursor
from ledgerfold.broker.subscriptions.route import ReadResult, Route, StoredEntry
from ledgerfold.storage.entry import EARLIEST, Position
from ledgerfold.v1.data_pb2 import StartPosition


class LogReader(Protocol):
    """What a subscription needs of a topic's log (broker/log/log.py)."""

    @property
    def horizon(self) -> Position | None: ...

    @property
    def view(self) -> View: ...

    @property
    def closed(self) -> Exception | None: ...

    async def read(self, position: Position, *, view: View, bytes_max: int) -> ReadResult: ...

    async def wait_beyond(self, position: Position) -> None: ...

    def last_position(self) -> Position: ...

    def last_published(self) -> Position: ...

    def previous_position(self, position: Position) -> Position: ...

    def entries_between(self, after: Position, upto: Position) -> int: ...

    def ledger_sums(self) -> LedgerSums: ...

    def last_in(self, ledger_id: int) -> Position | None: ...

    def ledger_ids(self) -> Sequence[int]: ...

    def is_gone(self, position: Position) -> bool: ...

    async def resolve_start(
        self, start: StartPosition, read_compacted: bool
    ) -> tuple[Position, bool]: ...


class Reading:
    """One pass over the log. A rewind makes a new one."""

    def __init__(
        self,
        cursor: Cursor,
        log: LogReader,
        emulation: Emulation,
        *,
        read_compacted: bool,
        durable: bool,
    ) -> None:
        self._cursor, self._log, self._emulation = cursor, log, emulation
        self.route = Route(emulation, read_compacted=read_compacted)
        mark_delete = cursor.mark_delete
        from_earliest = read_compacted and durable and mark_delete.entry_id < 0
        # The last position met; the next entry's gap begins behind it.
        self._last = EARLIEST if from_earliest else mark_delete
        self.position = EARLIEST if from_earliest else _behind(mark_delete)
        # At or below it the mark-delete says nothing about what this reading delivered.
        self._replays_upto = mark_delete if from_earliest else EARLIEST

    def catch_up(self) -> None:
        """Goes on behind the mark-delete when that overtook the reading."""
        mark_delete = self._cursor.mark_delete
        if mark_delete >= self.position and self.position > self._replays_upto:
            self._last, self.position = mark_delete, _behind(mark_delete)

    def sift(self, entries: Sequence[StoredEntry], horizon: Position | None) -> list[StoredEntry]:
        """Those to deliver. `horizon`: of the view that they are from."""
        cursor, last, wanted = self._cursor, self._last, []
        comes_again = self._replays_upto
        if horizon is not None and not self._emulation.acks_pass_compacted_out:
            comes_again = max(comes_again, horizon)
        for entry in entries:
            position = entry.header.position
            if position != last.next and self._is_covered(last, position):
                cursor.note_gap(last, position)
            last = position
            if position > comes_again and cursor.is_acknowledged(position):
                # Again, for the gap before it: after a restart only this entry was remembered.
                cursor.acknowledge(position)
            else:
                wanted.append(entry)
        return wanted

    def finish(self, result: ReadResult, horizon: Position | None) -> None:
        """All of `result` was dealt with. `horizon`: of the view that it is from."""
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
        """Whether the gap between two entries is acknowledged along with the later one."""
        upto = Position(before.ledger_id, before.entry_id - 1)
        return self._emulation.acks_pass_compacted_out or not self._log.entries_between(after, upto)

    def stop_before(self, entries: Sequence[StoredEntry], undelivered: Position) -> None:
        """Of what was read, `undelivered` and what follows it is to be read again."""
        for entry in entries:
            position = entry.header.position
            if position >= undelivered:
                break
            self._last = position
        self.position = undelivered


def _behind(position: Position) -> Position:
    return EARLIEST if position.ledger_id < 0 else position.next


def mark_delete_before(log: LogReader, position: Position) -> Position:
    """The mark-delete that makes `position` the next to be read. EARLIEST stays EARLIEST."""
    if position <= EARLIEST:
        return EARLIEST
    previous = log.previous_position(position)
    if previous.entry_id >= 0:
        return previous
    # NOTE: the last entry of an earlier ledger, where there is one: entry id -1 would make a
    # read-compacted consumer begin at the very start (test_seek_to_the_first_entry_of_a_ledger).
    for ledger_id in reversed(log.ledger_ids()):
        if ledger_id < position.ledger_id:
            last = log.last_in(ledger_id)
            if last is not None:
                return last
    return previous
