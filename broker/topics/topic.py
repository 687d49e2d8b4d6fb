"""A loaded topic: its log, producers, readers and subscriptions.

It runs on the broker's event loop; disk work runs in threads. The topic's durable state is its
record, which only its owner changes (broker/log/stored_topic.py).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress

from ledgerfold.broker.common.names import COMPACTION_CURSOR
from ledgerfold.broker.compaction.snapshot import TopicSnapshot
from ledgerfold.broker.log.log import TopicLog
from ledgerfold.broker.policies.profiles import Emulation
from ledgerfold.broker.subscriptions.delivery import DeliveryRules
from ledgerfold.broker.subscriptions.dispatcher import UnackedLimits
from ledgerfold.broker.subscriptions.lifecycle import load_subscription
from ledgerfold.broker.subscriptions.subscription import Subscription
from ledgerfold.broker.topics.access import Claim, ProducerAccess
from ledgerfold.broker.topics.deduplication import (
    Deduplication,
    duplicates_through,
    headers_after,
    last_sequence_ids,
)
from ledgerfold.broker.topics.faulty_streams import producer_kind, reader_kind
from ledgerfold.broker.topics.loaded_topic import LoadedTopic, TopicContext
from ledgerfold.broker.topics.producer import Producer
from ledgerfold.broker.topics.quotas import check_producer
from ledgerfold.broker.topics.reader import Reader, ReaderOptions
from ledgerfold.broker.topics.trimming import keepers, trim
from ledgerfold.storage.crash_points import reach
from ledgerfold.storage.entry import EARLIEST, Position, position_of
from ledgerfold.storage.errors import (
    DiskFailure,
    LedgerfoldError,
    Moved,
    NotAllowed,
    ProducerBusy,
    StorageError,
    SubscriptionBusy,
    TopicBusy,
)
from ledgerfold.storage.metadata import MetadataBatch
from ledgerfold.v1.admin_pb2 import FAULT_OPERATION_CREATE_PRODUCER, FAULT_OPERATION_SUBSCRIBE
from ledgerfold.v1.data_pb2 import StartPosition
from ledgerfold.v1.records_pb2 import CursorRecord, Policies, TopicRecord

_log = logging.getLogger(__name__)


class Topic(LoadedTopic):
    """A loaded topic, created by Broker.topic() and unloaded by Broker.unload_topic()."""

    def __init__(self, broker: TopicContext, record: TopicRecord) -> None:
        super().__init__(broker, record)
        self.last_run_before_load = record.last_run_number
        self.log = TopicLog(self.stored, broker.store, broker.executor, broker.clock.now_ms)
        self.deduplication = Deduplication(self.stored, broker.metadata.producers(record.name))
        self.producers: dict[str, Producer] = {}
        self.access = ProducerAccess(self.name, self.producers, self.stored)
        self.subscriptions: dict[str, Subscription] = {}
        self.readers: set[Reader] = set()

    @property
    def failure(self) -> LedgerfoldError | None:
        """The error after which nothing can be appended."""
        return self.log.state.failure

    @property
    def is_terminated(self) -> bool:
        """Returns whether the end of its log is durable."""
        return self.log.tail.is_terminated

    # -- loading and unloading -------------------------------------------------------------

    async def load(self) -> None:
        """Opens the log, finds the last sequence ids, and loads the durable subscriptions."""
        await self.log.open()
        if self.deduplication.has_producers:
            recorded, ledgers = self.deduplication.recorded, self.log.ledgers.records()
            headers = headers_after(self.store, self.name, recorded, ledgers)
            last_ids = await self.broker.in_thread(lambda: last_sequence_ids(headers))
            self.deduplication.replay(last_ids)
        try:
            await self._record_sequence_ids()
        except DiskFailure as error:
            # Ledgers with their headers stay until the ids are recorded.
            _log.warning("%s: sequence ids are not recorded yet: %s", self.name, error)
        for cursor in self.broker.metadata.cursors(self.name):
            self.subscriptions[cursor.subscription] = load_subscription(self, cursor)
        self.log.tail.on_roll_begun.add(self.deduplication.capture)
        self.log.commit.on_roll.add(self._rolled)

    async def _record_sequence_ids(self) -> None:
        """Stores the in-memory sequence ids, all of which must be durable. Raises DiskFailure."""
        durable = self.log.state.last_durable
        if durable is not None:
            self.deduplication.capture(durable)
            await self.deduplication.write(durable)

    async def unload(self) -> None:
        """Ends all streams with Moved and closes the log. Acknowledged entries are durable.

        Raises the first StorageError after everything has ended.
        """
        try:
            await self._unload()
        finally:
            await self.stored.close()

    async def _unload(self) -> None:
        self.access.close()
        for producer in tuple(self.producers.values()):
            producer.end(Moved(f"{self.name} was unloaded; connect again."))
        closings = [each.close() for each in self.subscriptions.values()]
        outcomes = await asyncio.gather(*closings, return_exceptions=True)
        is_all_durable = await self.log.commit.close()
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
        if is_all_durable:
            # NOTE: otherwise memory holds ids of entries that were appended and are not stored.
            await self._record_sequence_ids()

    # -- producers -------------------------------------------------------------------------

    async def attach_producer(
        self, name: str, claim: Claim | None = None, *, is_pulsar_client: bool = False
    ) -> Producer:
        """Connects a producer. `claim`: its access, Shared without one.

        `is_pulsar_client`: a policy decides about its duplicates, and it sends Pulsar's entries.

        Raises ProducerBusy if one of that name is connected or another one is exclusive,
        ProducerFenced, BacklogQuotaExceeded, TopicTerminated, Moved, StorageError.
        """
        claim = claim or Claim()
        await self.apply_faults(FAULT_OPERATION_CREATE_PRODUCER, producer=name)
        self.log.tail.check_open()
        await check_producer(self)
        try:
            await self.access.take(claim)
            self._check_producer(name)
            record = await self.deduplication.register(name, lambda: self.log.state.last_durable)
            # Another producer of that name, or an exclusive one, may have connected meanwhile.
            self.access.check(claim)
            self._check_producer(name)
        except BaseException:
            self.access.release(claim)
            raise
        through = duplicates_through(record, self.policies()) if is_pulsar_client else None
        producer = self.producers[name] = producer_kind(self.faults)(
            self,
            self.log,
            self.deduplication,
            name,
            record,
            self._detach_producer,
            claim,
            duplicates_through=through,
            is_pulsar_client=is_pulsar_client,
        )
        producer.topic_epoch = self.access.epoch
        return producer

    def _check_producer(self, name: str) -> None:
        self.log.tail.check_open()
        if name in self.producers:
            raise ProducerBusy(self.name, name)

    def _detach_producer(self, producer: Producer) -> None:
        if self.producers.get(producer.name) is producer:
            del self.producers[producer.name]
            self.deduplication.disconnected(producer.record, self.clock.now_ms())
            self.access.release(producer.claim)

    # -- readers ---------------------------------------------------------------------------

    async def open_reader(self, start: StartPosition, options: ReaderOptions) -> Reader:
        """Connects a reader until it is detached.

        Raises NotAllowed, SubscriptionBusy, and what the log raises.
        """
        await self.apply_faults(FAULT_OPERATION_SUBSCRIBE, subscription=options.subscription)
        self._check_free(options.subscription)
        make = reader_kind(self.faults)
        reader = make(self, self.log, self.emulation, options, self.readers)
        try:
            await reader.move(start)
            # Another reader may have connected meanwhile.
            self._check_free(options.subscription)
        except BaseException:
            reader.detach()
            raise
        self.readers.add(reader)
        self.log.state.on_closed.add(reader.wake)
        return reader

    def _check_free(self, name: str) -> None:
        """Checks that a reader may use the subscription name.

        Pulsar's readers have an exclusive, non-durable subscription. Raises NotAllowed,
        SubscriptionBusy.
        """
        subscription = self.subscriptions.get(name)
        if name == COMPACTION_CURSOR or (subscription is not None and subscription.is_durable):
            raise NotAllowed(
                f"{name!r} is a durable subscription of {self.name}: a reader or table view needs "
                "another name."
            )
        if subscription is not None:
            raise SubscriptionBusy(self.name, name, "a consumer is connected.")
        if name in self.reader_names:
            why = "another reader or table view is connected under that name."
            raise SubscriptionBusy(self.name, name, why)

    @property
    def reader_names(self) -> set[str]:
        return {each.subscription for each in self.readers}

    @property
    def held_by_readers(self) -> list[tuple[str, Position | None]]:
        """The first raw entry that each reader still needs although a run has overtaken it."""
        return [(each.subscription, each.held_position) for each in self.readers]

    def check_idle(self) -> None:
        """Raises TopicBusy if a client publishes, consumes or reads."""
        consumers = sum(len(each.consumers) for each in self.subscriptions.values())
        if self.producers or self.readers or consumers:
            raise TopicBusy(self.name, len(self.producers), len(self.readers) + consumers)

    # -- cursors (broker/subscriptions/lifecycle.py) ------------------------------------------

    def new_incarnation(self) -> int:
        return self.broker.metadata.new_incarnation(self.clock.now_ms())

    async def persist_cursor(self, record: CursorRecord) -> None:
        def write() -> None:
            with self.broker.metadata.batch() as batch:
                batch.put(record)

        await self.broker.in_thread(write)

    def recorded_cursor(self, subscription: str) -> CursorRecord | None:
        cursors = self.broker.metadata.cursors(self.name)
        return next((each for each in cursors if each.subscription == subscription), None)

    async def delete_cursor(
        self, subscription: str, check: Callable[[], None], deleted: Callable[[], None]
    ) -> None:
        def edit(record: TopicRecord, batch: MetadataBatch) -> None:
            check()
            batch.delete("cursor", record.name, subscription)

        await self.stored.change(edit, deleted)

    @property
    def has_durable_cursor(self) -> bool:
        """Returns whether it has a durable subscription or a compaction cursor."""
        durable = any(each.is_durable for each in self.subscriptions.values())
        return durable or self.record.compaction_cursor

    # -- policies --------------------------------------------------------------------------

    def policies(self) -> Policies:
        """Returns the effective policies: topic over namespace over broker."""
        return self.broker.policy_levels.in_force(self.record)

    def emulation(self) -> Emulation:
        """Returns the profile's fields in force for this topic."""
        return self.broker.policy_levels.emulation(self.record)

    @property
    def delivery_rules(self) -> DeliveryRules:
        return DeliveryRules(
            self.delays_delivery,
            self.broker.settings.failover_pause_ms,
            lambda: UnackedLimits(*self.broker.policy_levels.unacked_limits(self.record)),
        )

    def delays_delivery(self) -> bool:
        """Returns whether shared subscriptions hold delayed messages back."""
        policies = self.policies()
        return policies.delayed_delivery or not policies.HasField("delayed_delivery")

    # -- compaction ------------------------------------------------------------------------

    def compaction_backlog_bytes(self) -> int:
        """Returns the size that is compared with the threshold (docs/PROFILES.md, rule 11.3).

        Raw bytes after the horizon, exact or estimated by the profile's rule. Without a
        `__compaction` cursor: the estimate after the slowest durable cursor, or all without one.
        """
        if not self.record.compaction_cursor:
            cursors = [each.mark_delete for each in self.subscriptions.values() if each.is_durable]
            return self.log.ledgers.estimated_bytes_after(min(cursors, default=EARLIEST))
        if self.emulation().exact_backlog:
            return self.log.ledgers.bytes_after(self.compaction_mark_delete)
        return self.log.ledgers.estimated_bytes_after(self.compaction_mark_delete)

    @property
    def compaction_mark_delete(self) -> Position:
        """The mark-delete of `__compaction`.

        Its moved position, or the horizon or last truncation.
        """
        moved = self.compaction_moved_to
        if moved is not None:
            return moved
        horizon = self.log.views.horizon or EARLIEST
        if not self.record.HasField("truncated_upto"):
            return horizon
        return max(horizon, position_of(self.record.truncated_upto))

    @property
    def compaction_moved_to(self) -> Position | None:
        """The position an administrator moved `__compaction` to since the last run.

        Source: broker/compaction/cursor_operations.py.
        """
        if not self.record.HasField("compaction_moved_to"):
            return None
        return position_of(self.record.compaction_moved_to)

    async def enable_compaction_cursor(self) -> None:
        """Makes raw data wait for the horizon from now on (Pulsar creates `__compaction`).

        Does nothing for an unloaded topic: its record has another owner by now.
        """

        def edit(record: TopicRecord, batch: MetadataBatch) -> None:
            record.compaction_cursor = True

        if not self.record.compaction_cursor:
            with suppress(Moved):
                await self.stored.change(edit)

    def running_snapshot(self) -> TopicSnapshot | None:
        """Returns the input of the running compaction, until it has ended."""
        return self.broker.compaction.snapshot_of(self.name)

    # -- trimming --------------------------------------------------------------------------

    def _rolled(self) -> None:
        self.broker.spawn(self._after_roll())
        self.broker.compaction.consider(self)

    async def _after_roll(self) -> None:
        durable = self.log.state.last_durable
        with suppress(Moved):
            if durable is not None:
                await self.deduplication.write(durable)
            await self.trim()

    def remove_files(self, ledger_id: int) -> None:
        """Removes the files of an unreferenced ledger in the background; retries after a failure.

        NOTE: the caller, for example a closing reader, cannot handle a failure.
        """
        self.broker.spawn(self.files_removed(ledger_id))

    async def files_removed(self, ledger_id: int) -> None:
        """Removes the files of an unreferenced ledger; awaitable."""
        reach("commit.before-delete")
        try:
            await self.broker.in_thread(lambda: self.store.delete_files(ledger_id))
        except StorageError as error:
            _log.warning("%s: files of ledger %d remain for now: %s", self.name, ledger_id, error)
        reach("commit.after-delete")

    async def trim(self) -> int:
        """Deletes raw ledgers that nothing retains; returns their number (trimming.py).

        Cursors become durable first: positions to which they may return after a crash must stay.
        """
        cursors = [each for each in self.subscriptions.values() if each.is_durable]
        unsaved = [each for each in cursors if each.durable_mark_delete < each.mark_delete]
        # If a cursor cannot be written, trimming still deletes what the cursor does not retain.
        await asyncio.gather(*(each.persist() for each in unsaved), return_exceptions=True)
        return await trim(self)

    def keepers(self) -> dict[int, list[str]]:
        """Returns what keeps each raw ledger (trimming.py)."""
        return keepers(self)
