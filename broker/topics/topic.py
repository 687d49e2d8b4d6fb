"""A loaded topic: its log, its producers, its subscriptions, and the commit of its compactions.

All of it runs on the broker's event loop; disk work runs in threads. The topic's durable state is
its record, which only its owner changes (broker/log/stored_topic.py).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

from ledgerfold.broker.compaction.commit import TopicSnapshot, commit, snapshot
from ledgerfold.broker.compaction.interfaces import CompactionSnapshot
from ledgerfold.broker.ground.clock import Clock
from ledgerfold.broker.ground.names import TopicName
from ledgerfold.broker.ground.outgoing import Outgoing
from ledgerfold.broker.ground.traffic import Traffic
from ledgerfold.broker.log.log import TopicLog
from ledgerfold.broker.log.stored_topic import StoredTopic
from ledgerfold.broker.policies.effective import broker_policies, effective_policies
from ledgerfold.broker.policies.profiles import Emulation
from ledgerfold.broker.policies.profiles import emulation as effective_emulation
from ledgerfold.broker.subscriptions.lifecycle import load_subscription
from ledgerfold.broker.subscriptions.subscription import Subscription
from ledgerfold.broker.topics.deduplication import Deduplication, last_sequence_ids
from ledgerfold.broker.topics.producer import Producer
from ledgerfold.broker.topics.reader import Reader
from ledgerfold.broker.topics.surroundings import Surroundings
from ledgerfold.broker.topics.trimming import trim
from ledgerfold.storage.crash_points import reach
from ledgerfold.storage.entry import EARLIEST, EntryHeader, Position
from ledgerfold.storage.errors import (
    Corruption,
    DiskFailure,
    IncompatibleFormat,
    LedgerfoldError,
    MissingFile,
    Moved,
    ProducerBusy,
    StorageError,
    TopicBusy,
)
from ledgerfold.storage.metadata import MetadataBatch
from ledgerfold.storage.segment import record_position
from ledgerfold.v1.compactor_pb2 import Manifest
from ledgerfold.v1.records_pb2 import (
    CursorRecord,
    LedgerRecord,
    Policies,
    RunRecord,
    TopicRecord,
)
from ledgerfold.v1.records_pb2 import Emulation as Settings

_log = logging.getLogger(__name__)


class Topic:
    """Made by Broker.topic(); unloaded by Broker.unload_topic()."""

    def __init__(self, broker: Surroundings, record: TopicRecord) -> None:
        self.broker = broker
        self.store = broker.store
        self.stored = StoredTopic(record, broker.metadata, broker.executor)
        self.last_run_before_load = record.last_run_number
        self.log = TopicLog(self.stored, broker.store, broker.executor, broker.clock.now_ms)
        self.deduplication = Deduplication(self.stored, broker.metadata.producers(record.name))
        self.producers: dict[str, Producer] = {}
        self.subscriptions: dict[str, Subscription] = {}
        self.readers: set[Reader] = set()
        # Since it was loaded. Out: to consumers and readers, also to those that left.
        self.messages_in = self.bytes_in = self.entries_in = 0
        self.messages_out = self.bytes_out = 0

    @property
    def name(self) -> str:
        return self.stored.name

    @property
    def record(self) -> TopicRecord:
        """As it is on the disk; not to be changed but through `stored`."""
        return self.stored.record

    @property
    def clock(self) -> Clock:
        return self.broker.clock

    @property
    def outgoing(self) -> Outgoing:
        return self.broker.outgoing

    @property
    def is_loaded(self) -> bool:
        """Whether it is the broker's topic of its name: neither unloaded nor replaced."""
        return self.broker.is_loaded(self)

    @property
    def failure(self) -> LedgerfoldError | None:
        """Why nothing can be appended any more."""
        return self.log.failure

    # -- loading and unloading -------------------------------------------------------------

    async def load(self) -> None:
        """Opens the log, finds the last sequence ids, and loads the durable subscriptions."""
        await self.log.open()
        headers = self._headers_after(self.deduplication.recorded, self.log.ledger_records())
        self.deduplication.replay(await asyncio.to_thread(lambda: last_sequence_ids(headers)))
        try:
            await self._record_sequence_ids()
        except DiskFailure as error:
            # Ledgers that tell them stay until they are recorded.
            _log.warning("%s: sequence ids are not recorded yet: %s", self.name, error)
        for cursor in self.broker.metadata.cursors(self.name):
            self.subscriptions[cursor.subscription] = load_subscription(self, cursor)
        self.log.on_roll_begun.add(self.deduplication.capture)
        self.log.on_roll.add(self._rolled)

    def _headers_after(
        self, after: Position, ledgers: Sequence[LedgerRecord]
    ) -> Iterator[EntryHeader]:
        """As far as they can be read: damage ends the segment that has it, and nothing else.

        A message behind it that is sent again is stored twice: better than not at all.
        """
        for record in ledgers:
            for segment in record.segments:
                if not segment.entries or record_position(segment, last=True) <= after:
                    continue
                try:
                    headers = self.broker.store.headers(segment)
                    yield from (header for header in headers if header.position > after)
                except (Corruption, IncompatibleFormat, MissingFile) as error:
                    _log.error("%s: sequence ids behind damage are not known: %s", self.name, error)

    async def _record_sequence_ids(self) -> None:
        """Those in memory, all of them durable. Raises DiskFailure."""
        durable = self.log.last_durable
        if durable is not None:
            self.deduplication.capture(durable)
            await self.deduplication.write(durable)

    async def unload(self) -> None:
        """Ends all streams with Moved and closes the log. What was acknowledged is durable.

        Raises the first StorageError, once everything has ended.
        """
        try:
            await self._unload()
        finally:
            await self.stored.close()

    async def _unload(self) -> None:
        for producer in tuple(self.producers.values()):
            producer.end(Moved(f"{self.name} was unloaded; connect again."))
        closings = [each.close() for each in self.subscriptions.values()]
        outcomes = await asyncio.gather(*closings, return_exceptions=True)
        is_all_durable = await self.log.close()
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
        if is_all_durable:
            # NOTE: otherwise what is in memory was appended and is nowhere.
            await self._record_sequence_ids()

    def close_ledgers(self) -> None:
        """Those that a failure left open, at their last durable entry; on a thread, after unload().

        Nothing that was not acknowledged may be found later. Raises DiskFailure.
        """
        self.store.recover_ledgers(self.record.ledger_ids)

    @property
    def entry_bytes_max(self) -> int:
        """The largest entry that is taken."""
        return self.broker.settings.entry_bytes_max

    # -- producers -------------------------------------------------------------------------

    async def attach_producer(self, name: str) -> Producer:
        """Raises ProducerBusy when one of that name is connected, TopicTerminated, StorageError."""
        self._check_producer(name)
        record = await self.deduplication.register(name, lambda: self.log.last_durable)
        # Another one of that name may have been faster.
        self._check_producer(name)
        producer = self.producers[name] = Producer(self, name, record)
        return producer

    def _check_producer(self, name: str) -> None:
        self.log.check_open()
        if name in self.producers:
            raise ProducerBusy(self.name, name)

    def detach_producer(self, producer: Producer) -> None:
        if self.producers.get(producer.name) is producer:
            del self.producers[producer.name]
            self.deduplication.left(producer.record, self.clock.now_ms())

    def count_in(self, header: EntryHeader) -> None:
        self.messages_in += header.message_count
        self.bytes_in += header.size_bytes
        self.entries_in += 1

    def count_out(self, sent: Traffic) -> None:
        self.messages_out += sent.messages
        self.bytes_out += sent.bytes

    @property
    def reader_names(self) -> set[str]:
        return {each.subscription for each in self.readers}

    @property
    def held_positions(self) -> list[Position | None]:
        """The first raw entries that readers still need, though a run has overtaken them."""
        return [each.held_position for each in self.readers]

    def check_idle(self) -> None:
        """Raises TopicBusy when someone publishes, consumes or reads."""
        consumers = sum(len(each.consumers) for each in self.subscriptions.values())
        if self.producers or self.readers or consumers:
            raise TopicBusy(self.name, len(self.producers), len(self.readers) + consumers)

    # -- cursors (broker/subscriptions/lifecycle.py) ------------------------------------------

    async def persist_cursor(self, record: CursorRecord) -> None:
        def write() -> None:
            with self.broker.metadata.batch() as batch:
                batch.put_cursor(record)

        await asyncio.get_running_loop().run_in_executor(self.broker.executor, write)

    def recorded_cursor(self, subscription: str) -> CursorRecord | None:
        """As it is on the disk."""
        cursors = self.broker.metadata.cursors(self.name)
        return next((each for each in cursors if each.subscription == subscription), None)

    async def delete_cursor(
        self, subscription: str, check: Callable[[], None], deleted: Callable[[], None]
    ) -> None:
        def edit(record: TopicRecord, batch: MetadataBatch) -> None:
            check()
            batch.delete_cursor(record.name, subscription)

        await self.stored.change(edit, deleted)

    @property
    def has_durable_cursor(self) -> bool:
        """A durable subscription's, or the one of compaction."""
        durable = any(each.is_durable for each in self.subscriptions.values())
        return durable or self.record.compaction_cursor

    # -- policies --------------------------------------------------------------------------

    def own_policies(self) -> Policies:
        """Those set on it, or on the partitioned topic that it belongs to."""
        return self.broker.partitions.policies_of(self.record)

    def policies(self) -> Policies:
        """The effective ones: topic over namespace over broker."""
        namespace = self.broker.metadata.namespace(TopicName.parse(self.name).namespace)
        return effective_policies(
            self.own_policies(),
            namespace.policies if namespace is not None else Policies(),
            broker_policies(self.broker.settings),
        )

    def emulation(self) -> Emulation:
        """The profile's fields in force for this topic."""
        namespace = self.broker.metadata.namespace(TopicName.parse(self.name).namespace)
        return effective_emulation(
            self.broker.settings.emulation,
            namespace.policies.emulation if namespace is not None else Settings(),
            self.own_policies().emulation,
        )

    # -- compaction ------------------------------------------------------------------------

    def compaction_backlog_bytes(self) -> int:
        """What the threshold is compared with (docs/PROFILES.md, rule 11.3).

        Raw bytes behind the horizon, exact or estimated as the profile wants. While there is no
        `__compaction` those behind the slowest durable cursor, estimated; without one, all.
        """
        if not self.record.compaction_cursor:
            cursors = [each.mark_delete for each in self.subscriptions.values() if each.is_durable]
            return self.log.ledgers.estimated_bytes_behind(min(cursors, default=EARLIEST))
        if self.emulation().exact_backlog:
            return self.log.ledgers.bytes_behind(self.compaction_mark_delete)
        return self.log.ledgers.estimated_bytes_behind(self.compaction_mark_delete)

    @property
    def compaction_mark_delete(self) -> Position:
        """Of `__compaction`: the horizon, unless it was moved, or a truncation moved it further."""
        moved = self.compaction_moved_to
        if moved is not None:
            return moved
        horizon = self.log.horizon or EARLIEST
        if not self.record.HasField("truncated_upto"):
            return horizon
        truncated = self.record.truncated_upto
        return max(horizon, Position(truncated.ledger_id, truncated.entry_id))

    @property
    def compaction_moved_to(self) -> Position | None:
        """Where an administrator moved `__compaction` since the last run (compaction_moves.py)."""
        if not self.record.HasField("compaction_moved_to"):
            return None
        moved = self.record.compaction_moved_to
        return Position(moved.ledger_id, moved.entry_id)

    async def enable_compaction_cursor(self) -> None:
        """From now on raw data wait for the horizon (Pulsar creates `__compaction`).

        Nothing of a topic that was unloaded: its record is another one's by now.
        """

        def edit(record: TopicRecord, batch: MetadataBatch) -> None:
            record.compaction_cursor = True

        if not self.record.compaction_cursor:
            with suppress(Moved):
                await self.stored.change(edit)

    def snapshot_on_its_way(self) -> CompactionSnapshot | None:
        """What its run reads, until that has ended."""
        return self.broker.snapshot_of(self.name)

    async def snapshot_for_compaction(self, *, again: bool = False) -> TopicSnapshot | None:
        """Seals the open segment; what is published later belongs to the next run.

        `again`: the view is compacted also where nothing is new.
        """
        return await snapshot(self, again=again)

    async def commit_compaction(
        self, run: RunRecord, manifest: Manifest, snapshot: CompactionSnapshot
    ) -> None:
        """Makes what a run wrote the topic's view (broker/compaction/commit.py).

        Raises CompactionFenced, CompactionFailed, StorageError. Nothing has changed then.
        """
        await commit(self, run, manifest, snapshot)

    # -- trimming --------------------------------------------------------------------------

    def _rolled(self) -> None:
        self.broker.spawn(self._after_roll())
        self.broker.rolled(self)

    async def _after_roll(self) -> None:
        durable = self.log.last_durable
        with suppress(Moved):
            if durable is not None:
                await self.deduplication.write(durable)
            await self.trim()

    def remove_files(self, ledger_id: int) -> None:
        """Of a ledger that nobody names any more, in the background: what stays is removed later.

        NOTE: whoever comes by, a reader that ends for one, has done nothing that could fail.
        """
        self.broker.spawn(self.files_removed(ledger_id))

    async def files_removed(self, ledger_id: int) -> None:
        """The same, to be waited for."""
        loop = asyncio.get_running_loop()
        reach("commit.before-delete")
        try:
            await loop.run_in_executor(self.broker.executor, self.store.delete_files, ledger_id)
        except StorageError as error:
            _log.warning("%s: files of ledger %d stay for now: %s", self.name, ledger_id, error)
        reach("commit.after-delete")

    async def trim(self) -> int:
        """Deletes raw ledgers that nothing holds back; their number. See broker/topics/trimming.py.

        Cursors are made durable first: what one may go back to after a crash must stay.
        """
        cursors = [each for each in self.subscriptions.values() if each.is_durable]
        behind = [each for each in cursors if each.durable_mark_delete < each.mark_delete]
        # A disk that takes no cursor takes nothing from trimming but what these hold back.
        await asyncio.gather(*(each.persist() for each in behind), return_exceptions=True)
        return await trim(self)
