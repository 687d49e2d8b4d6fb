"""A topic's log, which topics, subscriptions and compactions use. It consists of these parts:

  state.py         the durable position, failure and closing
  raw_ledgers.py   the raw ledgers that exist
  files.py         the files of ledgers, on a thread
  writers.py       the ledgers being written
  new_ledgers.py   the creation of ledgers
  group_commit.py  flushes of queued entries
  tail.py          appends
  positions.py     the positions of entries
  view.py          the compacted view
  reads.py         combined reads of raw ledgers and the view
  search.py        searches: by time, the last entry, a reader's start

A part uses only parts above it.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Executor

from ledgerfold.broker.log.files import LogFiles
from ledgerfold.broker.log.group_commit import GroupCommit
from ledgerfold.broker.log.new_ledgers import NewLedgers
from ledgerfold.broker.log.positions import LogPositions
from ledgerfold.broker.log.raw_ledgers import RawLedgers
from ledgerfold.broker.log.reads import LogReads
from ledgerfold.broker.log.search import LogSearch
from ledgerfold.broker.log.state import LogState
from ledgerfold.broker.log.stored_topic import StoredTopic
from ledgerfold.broker.log.tail import LogTail
from ledgerfold.broker.log.view import Views
from ledgerfold.broker.log.writers import Writers
from ledgerfold.storage.entry import Position
from ledgerfold.storage.errors import DiskFailure
from ledgerfold.storage.ledger import LedgerStore
from ledgerfold.storage.metadata import MetadataBatch
from ledgerfold.v1.records_pb2 import Position as PositionRecord
from ledgerfold.v1.records_pb2 import TopicRecord

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
        self.commit = GroupCommit(writers, self._new, files, state)
        self.tail = LogTail(stored, writers, self._new, self.commit, state, clock_ms)
        self.positions = LogPositions(self.ledgers, writers, state)
        self.views = Views(stored, store)
        self.reads = LogReads(self.ledgers, self.positions, self.views, files, state)
        self.search = LogSearch(self.ledgers, self.positions, self.views, self.reads, files, state)

    async def open(self) -> None:
        """Begins a new ledger and opens the compacted view, on a thread.

        If the disk accepts no new ledger, existing entries can be read and the log has failed.
        Raises DiskFailure if there is no ledger yet.
        """
        ledger_id = self._new.first_ledger_id()
        if ledger_id is not None:
            await self._new.load_first(ledger_id)
        else:
            await self._files.in_thread(self._open)

    def _open(self) -> None:
        try:
            self._new.load()
        except DiskFailure as error:
            if not self._stored.record.ledger_ids:
                raise
            _log.error("%s can only be read: %s", self._stored.name, error)
            self.state.fail(error)
        self.state.last_durable = self.ledgers.last_recorded()
        self.views.renew()
        if self.views.horizon is not None:
            # Raw entries deleted earlier were at or below it.
            self.positions.note_dropped(self.views.horizon)

    async def terminate(self) -> Position:
        """Terminates the topic; returns its last entry (broker/log/tail.py)."""
        return await self.tail.terminate(self.positions.last)

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

        await self._stored.change(edit, lambda: self.positions.forget(dropped))
        if dropped:
            await self._files.in_thread(functools.partial(store.delete_all_files, dropped))
        return dropped
