"""The open end of a topic's log: appends, rolls and termination.

append() gives the entry its position and queues it; nothing is written yet. The group commit writes
it (broker/log/group_commit.py). A ledger that has reached a limit is followed by a new one at once
(broker/log/new_ledgers.py).

A failed write or sync ends all writing: later appends raise the error, durable entries can be read,
and the topic has to be reloaded (broker/topics/broker.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from ledgerfold.broker.log.group_commit import GroupCommit
from ledgerfold.broker.log.new_ledgers import NewLedgers
from ledgerfold.broker.log.state import LogState
from ledgerfold.broker.log.stored_topic import StoredTopic
from ledgerfold.broker.log.writers import Writers
from ledgerfold.storage.entry import Buffer, EntryHeader, Position, position_of
from ledgerfold.storage.errors import DiskFailure, Moved, TopicTerminated
from ledgerfold.storage.ledger import LedgerWriter
from ledgerfold.storage.metadata import MetadataBatch
from ledgerfold.storage.writer import Body
from ledgerfold.v1.records_pb2 import TopicRecord


class LogTail:
    """The appendable end of one log. Used on the event loop only."""

    def __init__(
        self,
        stored: StoredTopic,
        writers: Writers,
        new_ledgers: NewLedgers,
        group_commit: GroupCommit,
        state: LogState,
        clock_ms: Callable[[], int],
    ) -> None:
        self._stored, self._state = stored, state
        self._writers, self._new, self._commit = writers, new_ledgers, group_commit
        self._clock_ms = clock_ms
        # No more appends are accepted, whether or not that is recorded yet.
        self._is_ending = stored.record.HasField("terminated_at")
        # Called with the position of a ledger's last entry.
        self.on_roll_begun: set[Callable[[Position], None]] = set()

    @property
    def last_appended(self) -> Position | None:
        """The last position assigned, durable or not."""
        return self._writers.last_appended() or self._state.last_durable

    @property
    def is_terminated(self) -> bool:
        """Returns whether the termination is durable: no more entries will follow."""
        return self._stored.record.HasField("terminated_at")

    def check_open(self) -> None:
        """Raises the error that failed the log, TopicTerminated, or Moved until that is durable."""
        if self._state.failure is not None:
            raise self._state.failure
        if self._is_ending:
            if self.is_terminated:
                raise TopicTerminated(self._stored.name)
            raise Moved(f"{self._stored.name} is being terminated; connect again.")

    def append(
        self,
        header: EntryHeader,
        sections: tuple[Buffer, ...],
        producer_number: int,
        append_time_ms: int | None = None,
    ) -> Position:
        """Gives the entry its position and queues it. It is durable once the state says so.

        `sections`: the entry's parts, end to end; `append_time_ms`: None means now.
        """
        # Checked inline first: this runs for each entry, and a call takes time.
        if self._is_ending or self._state.failure is not None:
            self.check_open()
        writer = self._writers.open
        assert writer is not None
        if writer.should_roll():
            writer = self._roll(writer)
        if append_time_ms is None:
            append_time_ms = self._clock_ms()
        position = writer.append(header, sections, append_time_ms, producer_number)
        self._commit.start()
        return position

    def append_all(
        self, headers: Sequence[EntryHeader], bodies: Sequence[Body], producer_number: int
    ) -> Iterator[tuple[Position, int]]:
        """Appends entries as append() does, group by group.

        Yields the first position and the number of entries of each group, whose positions are
        consecutive, in one ledger.
        """
        done = 0
        while done < len(headers):
            self.check_open()
            writer = self._writers.open
            assert writer is not None
            if writer.should_roll():
                writer = self._roll(writer)
            first = Position(writer.ledger_id, writer.next_entry_id)
            count = writer.append_all(
                headers[done:], bodies[done:], self._clock_ms(), producer_number
            )
            self._commit.start()
            yield first, count
            done += count

    async def roll_if_due(self) -> None:
        """Rolls the open ledger if a limit is reached, usually its age.

        Raises the error that failed the log.
        """
        writer = self._writers.open
        if self._state.failure is None and writer is not None and writer.should_roll():
            await self.roll()

    async def roll(self) -> int:
        """Closes the open ledger, if it has an entry, and begins another.

        Returns the id of the ledger that is open then, all earlier ones being closed; entries
        published meanwhile may have caused further rolls. Raises the error that failed the log.
        """
        if self._state.failure is not None:
            raise self._state.failure
        writer = self._writers.open
        assert writer is not None
        if writer.next_entry_id:
            writer = self._roll(writer)
            self._commit.start()
        await self._commit.flush_before(writer.ledger_id)
        return writer.ledger_id

    def begin_ledger(self) -> int:
        """Begins a new ledger for later appends, even if the open one is empty, and returns its id.

        Raises like append().
        """
        self.check_open()
        writer = self._writers.open
        assert writer is not None
        created = self._roll(writer)
        self._commit.start()
        return created.ledger_id

    def _roll(self, writer: LedgerWriter) -> LedgerWriter:
        """Begins another ledger after `writer`, which gets no more entries."""
        created = self._new.begin_after(writer)
        for callback in tuple(self.on_roll_begun):
            callback(Position(writer.ledger_id, writer.next_entry_id - 1))
        return created

    async def terminate(self, last: Callable[[], Position]) -> Position:
        """Terminates the topic and returns the last entry once both are durable.

        `last`: called when everything is durable. Raises the error that failed the log,
        DiskFailure.
        """

        def edit(record: TopicRecord, batch: MetadataBatch) -> None:
            # Another call may have terminated it meanwhile.
            if not record.HasField("terminated_at"):
                record.terminated_at.ledger_id, record.terminated_at.entry_id = last()

        if not self.is_terminated:
            self._is_ending = True
            await self._commit.flush()
            if self._state.closed is not None:
                raise self._state.closed
            try:
                await self._stored.change(edit, self._state.wake)
            except DiskFailure as error:
                # The next load shows whether it is durable.
                self._state.fail(error)
                raise
        return position_of(self._stored.record.terminated_at)
