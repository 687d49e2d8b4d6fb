"""How raw ledgers begin: at a load, and in memory while the log goes on.

At a load, a new one is on the disk before anything else is done. Behind a ledger that has reached a
limit, a new one begins in memory, and entries queue up in it while its record and the topic's are
written. Until those are durable nothing is flushed to it (broker/log/group_commit.py), and if they
cannot be written nothing ever is.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable

from ledgerfold.broker.log.ledger_record import last_entry
from ledgerfold.broker.log.raw_ledgers import RawLedgers
from ledgerfold.broker.log.state import LogState
from ledgerfold.broker.log.stored_topic import StoredTopic
from ledgerfold.broker.log.writers import Writers
from ledgerfold.storage.errors import DiskFailure, LedgerfoldError
from ledgerfold.storage.ledger import LedgerStore, LedgerWriter
from ledgerfold.storage.metadata import MetadataBatch
from ledgerfold.v1.records_pb2 import TopicRecord


class NewLedgers:
    """Holds those whose records are not durable yet."""

    def __init__(
        self,
        stored: StoredTopic,
        store: LedgerStore,
        ledgers: RawLedgers,
        writers: Writers,
        state: LogState,
        on_listed: Callable[[TopicRecord], None] = lambda record: None,
    ) -> None:
        """`on_listed`: what else a record is to tell when the raw ledgers that it lists change."""
        self._stored, self._store, self._state = stored, store, state
        self._ledgers, self._writers = ledgers, writers
        self._on_listed = on_listed
        # Oldest first.
        self._unrecorded: list[LedgerWriter] = []
        self._task: asyncio.Task[None] | None = None

    def __contains__(self, writer: LedgerWriter) -> bool:
        """Whether the ledger's record is not durable yet."""
        return writer in self._unrecorded

    def begin_behind(self, writer: LedgerWriter) -> LedgerWriter:
        """The next one, which is open from now on; `writer` was, and gets no entry any more.

        Raises DiskFailure, with which the log has failed then.
        """
        try:
            begun = self._store.create_ledger(self._stored.name)
        except DiskFailure as error:
            self._state.fail(error)
            raise
        self._ledgers.append(begun.ledger_id)
        self._writers.follow(writer, begun)
        self._unrecorded.append(begun)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._record_all())
        return begun

    async def _record_all(self) -> None:
        """Makes new ledgers durable: in each write all that there are."""
        try:
            while self._unrecorded:
                begun = list[LedgerWriter]()
                await self._stored.change(functools.partial(self._put_unrecorded, begun))
                del self._unrecorded[: len(begun)]
        except Exception as error:
            self._fail(self._state.cause(error))
        finally:
            self._task = None

    def _put_unrecorded(
        self, begun: list[LedgerWriter], record: TopicRecord, batch: MetadataBatch
    ) -> None:
        """Into `begun`, too: those that there are when their turn has come."""
        begun += self._unrecorded
        for writer in begun:
            record.ledger_ids.append(writer.ledger_id)
            batch.put_ledger(writer.record)
        self._on_listed(record)

    def _fail(self, error: LedgerfoldError) -> None:
        """What waits in ledgers that no record names is not to be written, ever."""
        self._state.fail(error)
        for writer in self._unrecorded:
            self._store.drop_writer(writer.ledger_id)
        self._ledgers.keep(self._stored.record.ledger_ids)

    async def settled(self) -> None:
        """Returns when no ledger is being begun. What failed is the log's failure."""
        while self._task is not None:
            await asyncio.shield(self._task)

    # -- at a load -------------------------------------------------------------------------

    def load(self) -> None:
        """Closes what a failed writer left open, drops empty ledgers, begins one. One batch.

        In the caller's thread, of a topic that nobody else knows yet. Raises DiskFailure.
        """
        self._store.recover_ledgers(self._stored.record.ledger_ids)
        gone = list[int]()
        begun = list[LedgerWriter]()

        def edit(record: TopicRecord, batch: MetadataBatch) -> None:
            kept = [each for each in record.ledger_ids if not self._is_empty(each)]
            gone.extend(sorted({*record.ledger_ids} - {*kept}))
            for ledger_id in gone:
                self._store.mark_deleting(ledger_id, batch)
            gone.extend(self._forget_truncated(record, batch))
            begun.append(self._store.create_ledger(record.name, batch))
            record.ledger_ids[:] = [*kept, begun[0].ledger_id]
            record.epoch += 1
            self._on_listed(record)

        self._stored.change_now(edit)
        self._ledgers.keep(self._stored.record.ledger_ids)
        (self._writers.open,) = begun
        for ledger_id in gone:
            self._store.delete_files(ledger_id)

    def _is_empty(self, ledger_id: int) -> bool:
        return last_entry(self._ledgers.record(ledger_id)) is None

    def _forget_truncated(self, record: TopicRecord, batch: MetadataBatch) -> list[int]:
        """The compacted ledger that a truncation left for this load to drop, if it did."""
        if not (record.HasField("truncated_upto") and record.HasField("compacted")):
            return []
        ledger_id = record.compacted.ledger_id
        self._store.mark_deleting(ledger_id, batch)
        record.ClearField("compacted")
        return [ledger_id]
