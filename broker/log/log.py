"""A topic's log as used by topics, subscriptions, compactions and stats; composed of these parts:

  state.py         the durable position, failure and closing
  raw_ledgers.py   the raw ledgers that exist
  files.py         the files of ledgers, on a thread
  writers.py       the ledgers being written
  new_ledgers.py   the creation of ledgers
  group_commit.py  flushes of queued entries
  tail.py          appends
  positions.py     the positions of entries
  views.py         the compacted view
  reads.py         combined reads of raw ledgers and the view
  search.py        searches: by time, the last entry, a reader's start

A part uses some of those above it, and none below. Producers use the tail and the state directly;
all others use TopicLog, and the part that implements a call documents it.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Executor

from ledgerfold.broker.log.backlog import LedgerSums
from ledgerfold.broker.log.files import LogFiles
from ledgerfold.broker.log.group_commit import GroupCommit
from ledgerfold.broker.log.new_ledgers import NewLedgers
from ledgerfold.broker.log.positions import LogPositions
from ledgerfold.broker.log.raw_ledgers import RawLedgers
from ledgerfold.broker.log.reads import LogReads, ReadResult
from ledgerfold.broker.log.search import LogSearch
from ledgerfold.broker.log.state import LogState
from ledgerfold.broker.log.stored_topic import StoredTopic
from ledgerfold.broker.log.tail import LogTail
from ledgerfold.broker.log.view import View
from ledgerfold.broker.log.views import Views
from ledgerfold.broker.log.writers import Writers
from ledgerfold.storage.entry import Position
from ledgerfold.storage.errors import DiskFailure, LedgerfoldError
from ledgerfold.storage.ledger import LedgerStore, StoredEntry
from ledgerfold.storage.metadata import MetadataBatch
from ledgerfold.v1.data_pb2 import StartPosition
from ledgerfold.v1.records_pb2 import LedgerRecord, SegmentRecord, TopicRecord
from ledgerfold.v1.records_pb2 import Position as PositionRecord

_log = logging.getLogger(__name__)


class TopicLog:
    """The log of one loaded topic, used on the event loop only."""

    def __init__(
        self,
        stored: StoredTopic,
        store: LedgerStore,
        executor: Executor,
        clock_ms: Callable[[], int],
    ) -> None:
        self._stored = stored
        self.state = state = LogState(stored.name)
        self._files = files = LogFiles(store, executor, state)
        # The listed ledgers, and after those the ones to be listed soon.
        self.ledgers = RawLedgers(stored.record.ledger_ids, files.record)
        writers = Writers()
        self._new = NewLedgers(stored, store, self.ledgers, writers, state)
        self._commit = GroupCommit(writers, self._new, files, state)
        self.tail = LogTail(stored, writers, self._new, self._commit, state, clock_ms)
        self._positions = LogPositions(self.ledgers, writers, state)
        self._views = Views(stored, store)
        self._reads = LogReads(self.ledgers, self._positions, self._views, files, state)
        self._search = LogSearch(
            self.ledgers, self._positions, self._views, self._reads, files, state
        )
        # Called when a ledger got its last entry (its position), was closed, or reads have ended.
        self.on_roll_begun = self.tail.on_roll_begun
        self.on_roll = self._commit.on_roll
        self.on_closed = state.on_closed

    # -- life cycle --------------------------------------------------------------------------

    async def open(self) -> None:
        """Begins a new ledger and opens the compacted view, on a thread.

        If the disk accepts no new ledger, existing entries can be read and the log has failed.
        Raises DiskFailure if there is no ledger yet.
        """
        await self._files.in_thread(self._open)

    def _open(self) -> None:
        try:
            self._new.load()
        except DiskFailure as error:
            if not self._stored.record.ledger_ids:
                raise
            _log.error("%s can only be read: %s", self._stored.name, error)
            self.state.fail(error)
        self.state.last_durable = self._positions.last_recorded()
        self._views.renew()
        if self.horizon is not None:
            # Raw entries deleted earlier were at or below it.
            self.note_dropped(self.horizon)

    async def close(self) -> bool:
        return await self._commit.close()

    async def terminate(self) -> Position:
        return await self.tail.terminate(self._positions.last)

    @property
    def failure(self) -> LedgerfoldError | None:
        """The error after which nothing can be appended."""
        return self.state.failure

    @property
    def closed(self) -> LedgerfoldError | None:
        """The error after which nothing can be read: the topic was unloaded."""
        return self.state.closed

    @property
    def is_terminated(self) -> bool:
        return self.tail.is_terminated

    def check_open(self) -> None:
        self.tail.check_open()

    # -- the disk --------------------------------------------------------------------------

    @property
    def last_durable(self) -> Position | None:
        return self.state.last_durable

    async def flush(self) -> None:
        await self._commit.flush()

    async def roll_if_due(self) -> None:
        await self.tail.roll_if_due()

    async def roll(self) -> int:
        return await self.tail.roll()

    async def seal(self) -> Position | None:
        return await self._commit.seal()

    # -- the view --------------------------------------------------------------------------

    @property
    def view(self) -> View:
        """The current view."""
        return self._views.current

    def renew_view(self) -> View:
        return self._views.renew()

    @property
    def horizon(self) -> Position | None:
        return self._views.current.horizon

    @property
    def floor(self) -> Position:
        return self._views.floor

    @property
    def has_damage(self) -> bool:
        """Returns whether the compacted ledger is known to be damaged or missing."""
        return self._views.current.damage is not None

    def check_compacted(self) -> None:
        self._views.check()

    def compacted_segments(self) -> list[SegmentRecord]:
        return self._views.segments()

    # -- raw ledgers -----------------------------------------------------------------------

    def ledger_ids(self) -> Sequence[int]:
        """Returns the existing raw ledgers, oldest first; the last one may be empty."""
        return self.ledgers.ids

    def has_ledger(self, ledger_id: int) -> bool:
        return ledger_id in self.ledgers

    def ledger_records(self) -> list[LedgerRecord]:
        """Returns the records of the raw ledgers, oldest first, with what is durable."""
        return self.ledgers.records()

    def ledger_sums(self) -> LedgerSums:
        """Returns sums that answer for many positions at once."""
        return self.ledgers.sums()

    def entries_between(self, after: Position, through: Position) -> int:
        """Counts raw entries p with after < p <= through in the existing ledgers."""
        return self.ledgers.entries_between(after, through)

    async def drop_ledgers(
        self, choose: Callable[[], Sequence[int]], *, hides_compacted: bool
    ) -> list[int]:
        """Removes raw ledgers from the log in one batch, then deletes their files.

        Returns their ids.
        `choose`: returns the oldest ledgers that may be deleted, called inside the change.
        `hides_compacted`: the compacted ledger's entries from their range are hidden as well.
        """
        dropped = list[int]()
        store = self._files.store

        def edit(record: TopicRecord, batch: MetadataBatch) -> None:
            dropped.extend(choose())
            for ledger_id in dropped:
                record.ledger_ids.remove(ledger_id)
                store.mark_deleting(ledger_id, batch)
            if dropped and hides_compacted:
                record.retention_floor.CopyFrom(PositionRecord(ledger_id=record.ledger_ids[0]))

        await self._stored.change(edit, lambda: self.forget_ledgers(dropped))
        for ledger_id in dropped:
            await self._files.in_thread(functools.partial(store.delete_files, ledger_id))
        return dropped

    def forget_ledgers(self, ledger_ids: Sequence[int]) -> None:
        self._positions.forget(ledger_ids)

    # -- positions -------------------------------------------------------------------------

    def first_position(self) -> Position:
        return self._positions.first()

    def last_position(self) -> Position:
        return self._positions.last()

    def last_published(self) -> Position:
        return self._positions.last_published()

    def last_in(self, ledger_id: int) -> Position | None:
        return self._positions.last_in(ledger_id)

    def previous_position(self, position: Position) -> Position:
        return self._positions.previous(position)

    def is_deleted(self, position: Position) -> bool:
        return self._positions.is_deleted(position)

    def note_dropped(self, through: Position) -> None:
        self._positions.note_dropped(through)

    # -- reading ---------------------------------------------------------------------------

    async def read(self, position: Position, *, view: View, bytes_max: int) -> ReadResult:
        return await self._reads.read(position, view=view, bytes_max=bytes_max)

    async def wait_beyond(self, position: Position) -> None:
        await self._reads.wait_beyond(position)

    async def resolve_start(
        self, start: StartPosition, read_compacted: bool
    ) -> tuple[Position, bool]:
        return await self._search.resolve_start(start, read_compacted)

    async def last_entry(self, read_compacted: bool) -> StoredEntry | None:
        return await self._search.last_entry(read_compacted)

    async def first_published_since(self, publish_time_ms: int) -> Position:
        return await self._search.first_published_since(publish_time_ms)

    async def last_published_before(self, publish_time_ms: int, after: Position) -> Position:
        return await self._search.last_published_before(publish_time_ms, after)
