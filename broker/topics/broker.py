"""The broker: all its topics and the resources they share.

One process, one event loop, one data directory. Topics are loaded on first use and stay loaded.
Disk work runs in a small pool of threads.

A topic whose log has failed (on a full disk, for example) stays loaded for readers. The next caller
that wants to write reloads it, unless the disk is still full. A load always yields a readable
topic; if the disk accepts no write, its log has failed again.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from typing import Any, TypeVar

from ledgerfold.broker.common.clock import Clock, ManualClock, WallClock
from ledgerfold.broker.common.names import is_non_persistent
from ledgerfold.broker.common.outgoing import Outgoing
from ledgerfold.broker.common.request_rates import rates_of
from ledgerfold.broker.common.settings import BrokerSettings
from ledgerfold.broker.common.shielding import run_to_completion, runs_to_completion
from ledgerfold.broker.compaction.scheduler import CompactionScheduler
from ledgerfold.broker.faults.faults import Faults
from ledgerfold.broker.kafka.cleaner.cleaner import Cleaner
from ledgerfold.broker.kafka.config.config import BrokerConfig
from ledgerfold.broker.kafka.partition import Partition
from ledgerfold.broker.log.record_writes import RecordWrites
from ledgerfold.broker.policies.effective import PolicyLevels
from ledgerfold.broker.topics.deletion import delete_records
from ledgerfold.broker.topics.housekeeping import Housekeeping
from ledgerfold.broker.topics.kafka_settings import defects_of, prepare_kafka_topic, start_cleaning
from ledgerfold.broker.topics.kafka_topic import IS_KAFKA, IS_NOT_KAFKA, KafkaTopic
from ledgerfold.broker.topics.loaded_topic import LoadedTopic
from ledgerfold.broker.topics.locks import TopicLocks
from ledgerfold.broker.topics.namespaces import Namespaces
from ledgerfold.broker.topics.non_persistent_topic import IS_NON_PERSISTENT, NonPersistentTopic
from ledgerfold.broker.topics.non_persistent_topics import NonPersistentTopics
from ledgerfold.broker.topics.partitions import PARTITIONS_MAX, Partitions, RecordChange
from ledgerfold.broker.topics.policy_store import PolicyStore
from ledgerfold.broker.topics.schemas import Schemas
from ledgerfold.broker.topics.topic import Topic
from ledgerfold.broker.topics.topic_names import TopicNames, check_records
from ledgerfold.broker.topics.unloading import unload_each
from ledgerfold.broker.worker.compactor import Compactor
from ledgerfold.storage.errors import Moved, NotAllowed, StorageError, TopicNotFound, Unavailable
from ledgerfold.storage.ledger import LedgerStore
from ledgerfold.storage.metadata import MetadataBatch, MetadataStore
from ledgerfold.storage.partition_names import parse_partition, partition_name
from ledgerfold.v1.records_pb2 import KafkaLog, TopicRecord

# The maximum number of concurrent flushes and reads of all topics.
DISK_THREADS = 8
_T = TypeVar("_T")
# Naming, locking, unloading and deleting are the same for both kinds.
StoredKind = Topic | KafkaTopic
PulsarTopic = Topic | NonPersistentTopic
AnyTopic = StoredKind | NonPersistentTopic
Texts = Mapping[str, str] | None
_log = logging.getLogger(__name__)


class Broker:
    """The loaded topics and their shared resources. Used between start() and stop()."""

    def __init__(
        self,
        settings: BrokerSettings,
        metadata: MetadataStore,
        store: LedgerStore,
        compactor: Compactor,
        clock: Clock | None = None,
        faults: Faults | None = None,
    ) -> None:
        self.settings, self.metadata, self.store, self.faults = settings, metadata, store, faults
        self.names = TopicNames(metadata)
        self.clock = clock or WallClock()
        self.clock_ms = self.clock.now_ms
        self.manual_clock = self.clock if isinstance(self.clock, ManualClock) else None
        self.started_ms = self.clock_ms()
        self.executor = ThreadPoolExecutor(DISK_THREADS, thread_name_prefix="disk")
        self.record_writes = RecordWrites(metadata, lambda: self.executor)
        self.outgoing = Outgoing(settings.streams_max, settings.unsent_bytes_max)
        self.rates = rates_of(settings.requests_per_second_max)
        # The loaded topics by kind; no name is in both.
        self.topics: dict[str, Topic] = {}
        self.kafka_topics: dict[str, KafkaTopic] = {}
        self.kafka_config = BrokerConfig.of(settings.kafka_config)
        self.partitions = Partitions(metadata, lambda: self.executor, self.clock_ms)
        self.compactor = compactor
        self.policy_levels = PolicyLevels(metadata, settings)
        self.policies = PolicyStore(self)
        self.schemas = Schemas(metadata, self.policy_levels, self.clock_ms, self.exists)
        self.non_persistent = NonPersistentTopics(self, self.partitions, self.schemas)
        in_memory = self.non_persistent.listed
        self.namespaces = Namespaces(metadata, self.policies.turn, self.in_thread, in_memory)
        self.compaction = CompactionScheduler(self, compactor, self.clock.sleep, faults)
        self.cleaner = Cleaner(self, compactor, functools.partial(defects_of, self))
        self.housekeeping = Housekeeping(self, self.topics, self.non_persistent)
        # Called with the name of every deleted topic.
        self.on_deleted: set[Callable[[str], None]] = {self.compaction.history.forget}
        self.on_deleted.update((self.cleaner.deleted, self.names.deleted))
        # Held by loads, unloads, deletions and additions of partitions.
        self.locks = TopicLocks()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._is_stopping = False

    async def start(self, *, monitors: bool = True) -> None:
        """Starts the compactor (without waiting for it) and the monitors; loads no topic.

        Without `monitors`, thresholds and time limits have no effect.
        """
        self.compactor.start()
        self.compaction.start(monitors=monitors)
        if monitors:
            self.spawn(self.housekeeping.run())
            self.spawn(start_cleaning(self))

    def partitions_of_kafka(self) -> Mapping[str, Partition]:
        """Returns the loaded Kafka partitions by topic name."""
        return {name: topic.partition for name, topic in self.kafka_topics.items()}

    async def stop(self) -> None:
        """Ends runs and streams, makes all data durable and closes the ledgers."""
        self._is_stopping = True
        self.non_persistent.stop()
        await self.compaction.stop()
        for task in tuple(self._tasks):
            task.cancel()
        # Last, because the tasks above may be about to start it.
        await self.cleaner.stop()
        # Topics being loaded, unloaded or deleted: those operations finish first.
        async with self.locks.every():
            await self.unload_all()
        # They remove files that are no longer referenced.
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.compactor.stop()
        self.schemas.close()
        self.executor.shutdown()

    def spawn(self, work: Coroutine[Any, Any, Any]) -> None:
        """Runs `work` in the background until it ends or the broker stops; logs its errors."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            _log.error("Background work failed", exc_info=task.exception())

    async def in_thread(self, work: Callable[[], _T]) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self.executor, work)

    def exists(self, name: str) -> bool:
        """Returns whether a topic of any kind has the full name. Thread-safe."""
        return self.metadata.topic(name) is not None or self.non_persistent.exists(name)

    def is_loaded(self, topic: LoadedTopic) -> bool:
        """Returns whether `topic` is still the loaded topic of its name."""
        return self._loaded(topic.name) is topic

    # -- topics ----------------------------------------------------------------------------

    async def topic(self, name: str, create: bool = True, *, to_write: bool = False) -> Topic:
        """Returns the loaded topic with the full name `name`, creating it if `create` allows.

        Raises TopicNotFound, InvalidRequest, NotAllowed for a topic of another kind, Unavailable
        (the broker is stopping), StorageError.
        """
        topic = await self.pulsar_topic(name, create, to_write=to_write)
        if isinstance(topic, Topic):
            return topic
        raise NotAllowed(IS_NON_PERSISTENT.format(name))

    async def pulsar_topic(
        self, name: str, create: bool = True, *, to_write: bool = False
    ) -> PulsarTopic:
        """Returns a topic as topic() does, persistent or not."""
        topic = await self.any_topic(name, create, to_write=to_write)
        if isinstance(topic, KafkaTopic):
            raise NotAllowed(IS_KAFKA.format(name))
        return topic

    async def kafka_topic(self, name: str, *, to_write: bool = False) -> KafkaTopic:
        """Raises TopicNotFound, NotAllowed for other topics, Unavailable, StorageError."""
        topic = await self.any_topic(name, create=False, to_write=to_write)
        if isinstance(topic, KafkaTopic):
            return topic
        raise NotAllowed(IS_NOT_KAFKA.format(name))

    async def any_topic(
        self, name: str, create: bool = True, *, to_write: bool = False
    ) -> AnyTopic:
        """Returns a topic of any kind; see topic()."""
        if is_non_persistent(name):
            return self.non_persistent.topic(name, create)
        loaded, create = self._usable(name, to_write), create and self.settings.creates_topics
        while loaded is None:
            topic = await run_to_completion(self._load_locked(name, create, to_write))
            # It may have been unloaded again before this task resumed.
            loaded = topic if topic.is_loaded else self._usable(name, to_write)
        return loaded

    async def _load_locked(
        self, name: str, create: bool, to_write: bool, new: TopicRecord | None = None
    ) -> StoredKind:
        partition, exists = parse_partition(name), self.metadata.topic(name) is not None
        # A new partition: its partitioned topic is neither created nor grown meanwhile.
        parent = nullcontext() if partition is None or exists else self.locks.one(partition.topic)
        async with parent, self.locks.one(name):
            if new is not None:
                self.partitions.check_creatable(name)
            if (loaded := self._usable(name, to_write)) is not None:
                return loaded
            if not exists or self.metadata.topic(name) is not None:
                await self._unload(name)
                # A load may fail after it has written the record of a new topic.
                with self.names.announced([name]):
                    return await self._load(name, create, new)
        # It was deleted while this call waited for the locks, so it would be created.
        return await self._load_locked(name, create, to_write, new)

    def _loaded(self, name: str) -> StoredKind | None:
        return self.topics.get(name) or self.kafka_topics.get(name)

    def _usable(self, name: str, to_write: bool) -> StoredKind | None:
        """Returns the topic if it is loaded and reloading it would not help."""
        topic = self._loaded(name)
        if topic is None or topic.failure is None or not to_write:
            return topic
        return None if self.store.has_room() else topic

    async def _load(self, name: str, create: bool, new: TopicRecord | None) -> StoredKind:
        if self._is_stopping:
            raise Unavailable("The broker is stopping.")
        check_records(self.store, name)
        record = self.metadata.topic(name)
        if record is None:
            if not (create or self.partitions.count(name)):
                raise self.partitions.not_found(name, self.settings.creates_topics)
            self.partitions.check_usable(name)
            record = new or TopicRecord(name=name)
            record.created_ms = self.clock_ms()
            if record.HasField("kafka"):
                await prepare_kafka_topic(self, name, record.kafka.config)
        if record.HasField("kafka"):
            return await self._load_kafka(record)
        topic = Topic(self, record)
        await topic.load()
        self.topics[name] = topic
        has_threshold = self.policy_levels.threshold(record).threshold_bytes > 0
        if has_threshold and topic.log.state.failure is None:
            await topic.enable_compaction_cursor()
        return topic

    async def _load_kafka(self, record: TopicRecord) -> KafkaTopic:
        topic = KafkaTopic(self, record)
        await topic.load()
        self.cleaner.restore_pauses(topic.name, topic.record.kafka.pauses)
        self.kafka_topics[topic.name] = topic
        return topic

    async def create_topic(self, name: str, kafka: Texts = None, properties: Texts = None) -> None:
        """Raises TopicExists, NotAllowed, InvalidConfig. `kafka`: the settings of a Kafka topic."""
        if is_non_persistent(name):
            self.non_persistent.create(name, kafka)
        else:
            log = None if kafka is None else KafkaLog(config=kafka)
            new = TopicRecord(name=name, kafka=log, properties=properties)
            await run_to_completion(self._load_locked(name, True, True, new))

    async def unload_topic(self, name: str) -> None:
        """Ends the topic's streams, closes its ledger and loads it again.

        Raises TopicNotFound, DiskFailure if it can only be read.
        """
        await self.any_topic(name, create=False)
        if is_non_persistent(name):
            self.non_persistent.end(name)
            return
        async with self.kept_unloaded(name):
            pass
        topic = await self.any_topic(name, create=False)
        if isinstance(topic, StoredKind) and topic.failure is not None:
            raise topic.failure
        if isinstance(topic, Topic) and topic.has_durable_cursor:
            await topic.trim()

    @asynccontextmanager
    async def held(self, name: str) -> AsyncIterator[Topic]:
        """Keeps the topic loaded in the block. Raises Moved if it was unloaded before."""
        async with self.locks.one(name):
            topic = self.topics.get(name)
            if topic is None:
                raise Moved(f"{name} was unloaded; try again.")
            yield topic

    @asynccontextmanager
    async def kept_unloaded(self, name: str) -> AsyncIterator[StoredKind | None]:
        """Unloads the topic and keeps it unloaded in the block; yields it if it was loaded."""
        async with self.locks.one(name):
            topic = self._loaded(name)
            await self._unload(name)
            yield topic

    async def unload_all(self) -> list[StorageError]:
        """Unloads all topics, whose names the caller has locked. Returns why some failed."""
        names = sorted({*self.topics, *self.kafka_topics})
        return await unload_each(names, self._unload, DISK_THREADS)

    async def _unload(self, name: str) -> StorageError | None:
        """Unloads the topic even on a failure, which it returns; a load finds what is durable."""
        topic: StoredKind | None = self.topics.pop(name, None) or self.kafka_topics.pop(name, None)
        if topic is None:
            return None
        await self.compaction.fence(name)
        await self.cleaner.forget(name)
        try:
            try:
                await topic.unload()
            finally:
                # If its log has failed: entries that were not acknowledged must not be found later.
                await self.in_thread(topic.close_ledgers)
        except StorageError as error:
            _log.error("%s was unloaded, but not all of it was written: %s", name, error)
            return error
        return None

    @runs_to_completion
    async def delete_topic(self, name: str, force: bool) -> None:
        """Deletes the topic and all its ledgers. Raises TopicNotFound, TopicBusy, NotAllowed."""
        if self.partitions.count(name):
            raise NotAllowed(f"{name} is partitioned: use `topics delete-partitioned-topic`.")
        if not self.exists(name):
            raise TopicNotFound(name)
        await self._delete([name], force, lambda batch: None)

    @runs_to_completion
    async def delete_partitioned_topic(self, name: str, force: bool) -> None:
        """Deletes the topic and its partitions. Raises TopicNotFound, TopicBusy, NotAllowed."""
        async with self.locks.one(name):
            self.partitions.record(name)
            names = self.partitions.names(name)
            await self._delete(names, force, lambda batch: batch.delete_partitioned_topic(name))

    @runs_to_completion
    async def create_partitioned_topic(
        self, name: str, partitions: int, kafka: Texts = None, properties: Texts = None
    ) -> None:
        """Raises InvalidRequest, TopicExists. `kafka`: see create_topic()."""
        if is_non_persistent(name):
            self.non_persistent.check_partitionable(name, kafka)
        elif kafka is not None:
            await prepare_kafka_topic(self, name, kafka)
        async with self._partitions_held(name, partitions):
            await self.partitions.create(name, partitions, kafka, properties)

    @runs_to_completion
    async def grow_partitioned_topic(self, name: str, partitions: int) -> None:
        """Adds partitions up to `partitions`. Raises InvalidRequest, TopicNotFound, NotAllowed."""
        async with self._partitions_held(name, partitions):
            await self.partitions.grow(name, partitions)

    async def change_partitioned(self, name: str, change: RecordChange) -> None:
        """Raises NotAllowed, TopicNotFound, and what `change` raises."""
        async with self.locks.one(name):
            await self.partitions.change_record(name, change)

    @asynccontextmanager
    async def _partitions_held(self, name: str, partitions: int) -> AsyncIterator[None]:
        """Prevents others from creating, loading or deleting the topic and its partitions."""
        names = [partition_name(name, index) for index in range(min(partitions, PARTITIONS_MAX))]
        check_records(self.store, name)
        async with AsyncExitStack() as locks:
            for each in (name, *names):
                await locks.enter_async_context(self.locks.one(each))
            with self.names.announced(names):
                yield

    async def _delete(
        self, names: Sequence[str], force: bool, and_also: Callable[[MetadataBatch], None]
    ) -> None:
        """Deletes the topics in one write. Raises TopicBusy; then nothing has changed."""
        check_records(self.store, *names)
        async with AsyncExitStack() as locks:
            for name in names:
                await locks.enter_async_context(self.locks.one(name))
            for name in () if force else names:
                topic = self._loaded(name) or self.non_persistent.get(name)
                if topic is not None:
                    topic.check_idle()
            for name in names:
                self.non_persistent.end(name)
                await self._unload(name)
            await delete_records(self, names, and_also, self.on_deleted)
