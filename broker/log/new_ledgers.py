"""The creation of raw ledgers: at a load, and in memory while the log is in use.

At a load, a new ledger is on disk before anything else happens. When a ledger has reached a limit,
a new one begins in memory, and entries queue up in it while its record and the topic's are written.
Nothing is flushed to it until those records are durable (broker/log/group_commit.py); if they
cannot be written, nothing is ever flushed.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable

from ledgerfold.broker.log.ledger_record import all_ledger_ids, last_entry
from ledgerfold.broker.log.raw_ledgers import RawLedgers
from ledgerfold.broker.log.state import LogState
from ledgerfold.broker.log.stored_topic import StoredTopic
from ledgerfold.broker.log.writers import Writers
from ledgerfold.storage.errors import DiskFailure, LedgerfoldError
from ledgerfold.storage.ledger import LedgerStore, LedgerWriter
from ledgerfold.storage.metadata import MetadataBatch
from ledgerfold.v1.records_pb2 import TopicRecord


class NewLedgers:
    """The ledgers whose records are not durable yet."""

    def __init__(
        self,
        stored: StoredTopic,
        store: LedgerStore,
        ledgers: RawLedgers,
        writers: Writers,
        state: LogState,
        on_listed: Callable[[TopicRecord], None] = lambda record: None,
    ) -> None:
        """Creates an empty set. `on_listed`: updates a record whose list of raw ledgers changes."""
        self._stored, self._store, self._state = stored, store, state
        self._ledgers, self._writers = ledgers, writers
        self._on_listed = on_listed
        # Oldest first.
        self._unrecorded: list[LedgerWriter] = []
        self._task: asyncio.Task[None] | None = None

    def __contains__(self, writer: LedgerWriter) -> bool:
        """Returns whether the ledger's record is not durable yet."""
        return writer in self._unrecorded

    def begin_after(self, writer: LedgerWriter) -> LedgerWriter:
        """Begins the next ledger, which replaces `writer` as the open one.

        Raises DiskFailure, which also fails the log.
        """
        try:
            created = self._store.create_ledger(self._stored.name)
        except DiskFailure as error:
            self._state.fail(error)
            raise
        self._ledgers.append(created.ledger_id)
        self._writers.follow(writer, created)
        self._unrecorded.append(created)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._record_all())
        return created

    async def _record_all(self) -> None:
        """Records new ledgers until none is left; each write includes all that exist."""
        try:
            while self._unrecorded:
                created = list[LedgerWriter]()
                await self._stored.change(functools.partial(self._put_unrecorded, created))
                del self._unrecorded[: len(created)]
        except Exception as error:
            self._fail(self._state.cause(error))
        finally:
            self._task = None

    def _put_unrecorded(
        self, created: list[LedgerWriter], record: TopicRecord, batch: MetadataBatch
    ) -> None:
        """Adds the ledgers unrecorded when the write starts to `created` and to the batch."""
        created += self._unrecorded
        for writer in created:
            record.ledger_ids.append(writer.ledger_id)
            batch.put(writer.record)
        self._on_listed(record)

    def _fail(self, error: LedgerfoldError) -> None:
        """Fails the log; entries queued in unrecorded ledgers must never be written."""
        self._state.fail(error)
        for writer in self._unrecorded:
            self._store.drop_writer(writer.ledger_id)
        self._ledgers.keep(self._stored.record.ledger_ids)

    async def settled(self) -> None:
        """Returns when no ledger is being recorded. If recording fails, the log fails."""
        while self._task is not None:
            await asyncio.shield(self._task)

    # -- at a load -------------------------------------------------------------------------

    def load(self) -> None:
        """Closes ledgers left open by a failed writer, drops empty ledgers, begins one. One batch.

        Runs in the caller's thread, before the topic is shared. Raises DiskFailure.
        """
        self._store.recover_ledgers(self._stored.record.ledger_ids)
        deleted = list[int]()
        created = list[LedgerWriter]()

        def edit(record: TopicRecord, batch: MetadataBatch) -> None:
            remaining = [each for each in record.ledger_ids if not self._is_empty(each)]
            deleted.extend(sorted({*record.ledger_ids} - {*remaining}))
            for ledger_id in deleted:
                self._store.mark_deleting(ledger_id, batch)
            deleted.extend(self._forget_truncated(record, batch))
            created.append(self._store.create_ledger(record.name, batch))
            record.ledger_ids[:] = [*remaining, created[0].ledger_id]
            record.epoch += 1
            self._on_listed(record)

        self._stored.change_now(edit)
        self._ledgers.keep(self._stored.record.ledger_ids)
        (self._writers.open,) = created
        self._store.delete_all_files(deleted)

    def first_ledger_id(self) -> int | None:
        """Returns the id for load_first(); None if the topic is not new, or the id needs the disk.

        NOTE: allocated at once: other topics may use up the available ids before load_first() runs.
        """
        record = self._stored.record
        is_new = not record.epoch and not all_ledger_ids(record)
        return self._store.free_ledger_id() if is_new else None

    async def load_first(self, ledger_id: int) -> None:
        """Begins the first ledger of a new topic, in a write that other topics may share.

        Raises DiskFailure.
        """
        created = list[LedgerWriter]()

        def edit(record: TopicRecord, batch: MetadataBatch) -> None:
            created.append(self._store.create_ledger(record.name, batch, ledger_id))
            record.ledger_ids.append(ledger_id)
            record.epoch += 1
            self._on_listed(record)

        try:
            await self._stored.change(edit)
        except DiskFailure:
            for writer in created:
                self._store.drop_writer(writer.ledger_id)
            raise
        self._ledgers.keep(self._stored.record.ledger_ids)
        (self._writers.open,) = created

    def _is_empty(self, ledger_id: int) -> bool:
        return last_entry(self._ledgers.record(ledger_id)) is None

    def _forget_truncated(self, record: TopicRecord, batch: MetadataBatch) -> list[int]:
        """Drops the compacted ledger that a truncation left for this load, if any."""
        if not (record.HasField("truncated_upto") and record.HasField("compacted")):
            return []
        ledger_id = record.compacted.ledger_id
        self._store.mark_deleting(ledger_id, batch)
        record.ClearField("compacted")
        return [ledger_id]
