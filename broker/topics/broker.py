"""The broker: its topics, and what they share.

One process, one event loop, one data directory. Topics are loaded on first use and stay loaded.
Disk work runs in a small pool of threads.

A topic whose log has failed (a full disk, say) stays loaded, for readers, until someone wants to
write to it: then it is loaded anew, unless the disk is still full. Loading always ends with a topic
that can be read; if the disk takes nothing, it has failed again.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from ledgerfold.broker.compaction.interfaces import (
    CompactableTopic,
    CompactionSnapshot,
    OwnCompactor,
)
from ledgerfold.broker.compaction.scheduler import CompactionScheduler
from ledgerfold.broker.ground.clock import Clock, ManualClock, WallClock
from ledgerfold.broker.ground.names import TopicName, parse_partition, partition_name
from ledgerfold.broker.ground.settings import BrokerSettings
from ledgerfold.broker.ground.uncancelled import to_its_end
from ledgerfold.broker.topics.housekeeping import Housekeeping
from ledgerfold.broker.topics.partitions import PARTITIONS_MAX, Partitions
from ledgerfold.broker.topics.topic import Topic
from ledgerfold.storage.errors import Moved, NotAllowed, StorageError, TopicNotFound, Unavailable
from ledgerfold.storage.ledger import LedgerStore
from ledgerfold.storage.metadata import MetadataBatch, MetadataStore
from ledgerfold.v1.records_pb2 import Policies, TopicRecord

# Flushes and reads of different topics run beside each other, and no more of them than this.
DISK_THREADS = 8
_T = TypeVar("_T")
_log = logging.getLogger(__name__)


class Broker:
    """start() before use, stop() after."""

    def __init__(
        self,
        settings: BrokerSettings,
        metadata: MetadataStore,
        store: LedgerStore,
        compactor: OwnCompactor,
        clock: Clock | None = None,
    ) -> None:
        self.settings = settings
        self.metadata = metadata
        self.store = store
        self.clock = clock or WallClock()
        self.clock_ms = self.clock.now_ms
        # The clock, if it is one that is moved by hand.
        self.manual_clock = self.clock if isinstance(self.clock, ManualClock) else None
        self.started_ms = self.clock_ms()
        self.executor = ThreadPoolExecutor(DISK_THREADS, thread_name_prefix="disk")
        self.topics: dict[str, Topic] = {}
        self.partitions = Partitions(metadata, lambda: self.executor, self.clock_ms)
        self.compactor = compactor
        self.compaction = CompactionScheduler(self, compactor, self.clock.sleep)
        self.housekeeping = Housekeeping(self)
        # Told of every topic that was deleted.
        self.on_deleted: set[Callable[[str], None]] = {self.compaction.history.forget}
        # Each as long as somebody holds it or waits for it.
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._is_stopping = False

    async def start(self, *, by_itself: bool = True) -> None:
        """Starts the compactor (without waiting for it), the monitors and loads nothing.

        Without `by_itself` no monitor: no threshold, no time limit has an effect.
        """
        self.compactor.start()
        self.compaction.start(by_itself=by_itself)
        if by_itself:
            self.spawn(self.housekeeping.run())

    async def stop(self) -> None:
        """Ends runs and streams, makes everything durable, closes the ledgers."""
        self._is_stopping = True
        await self.compaction.stop()
        for task in tuple(self._tasks):
            task.cancel()
        # Also what is being loaded, unloaded or deleted: that goes to its end before.
        places = asyncio.Semaphore(DISK_THREADS)

        async def unload(name: str) -> None:
            async with places, self._lock(name):
                await self._unload(name)

        await asyncio.gather(*map(unload, sorted({*self.topics, *self._locks})))
        # Files that nobody names any more are being removed.
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.compactor.stop()
        self.executor.shutdown()

    def spawn(self, work: Coroutine[Any, Any, Any]) -> None:
        """Runs in the background until it ends or the broker stops; its errors are logged."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            _log.error("Background work failed", exc_info=task.exception())

    async def _in_thread(self, work: Callable[[], _T]) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self.executor, work)

    # -- what topics ask -------------------------------------------------------------------

    def is_loaded(self, topic: CompactableTopic) -> bool:
        """Whether it is the topic of its name: neither unloaded nor replaced."""
        return self.topics.get(topic.name) is topic

    def rolled(self, topic: CompactableTopic) -> None:
        """A ledger of it was closed."""
        self.compaction.consider(topic)

    def snapshot_of(self, topic: str) -> CompactionSnapshot | None:
        """What the topic's run reads, until it has ended."""
        return self.compaction.snapshot_of(topic)

    # -- topics ----------------------------------------------------------------------------

    @staticmethod
    def namespace_of(topic: str) -> str:
        return TopicName.parse(topic).namespace

    def list_topics(self, namespace: str) -> list[str]:
        """Full names, sorted; all of them when `namespace` is empty."""
        names = sorted(record.name for record in self.metadata.topics())
        return [name for name in names if not namespace or self.namespace_of(name) == namespace]

    async def topic(self, name: str, create: bool = True, *, to_write: bool = False) -> Topic:
        """The loaded topic of that full name; a new one if it may be created.

        Raises TopicNotFound, Unavailable (the broker is stopping), StorageError.
        """
        loaded = self._usable(name, to_write)
        while loaded is None:
            found = await to_its_end(self._load_anew(name, create, to_write=to_write))
            # It may have been unloaded again before its caller's turn came.
            loaded = found if found.is_loaded else self._usable(name, to_write)
        return loaded

    async def _load_anew(self, name: str, create: bool, *, to_write: bool) -> Topic:
        async with self._beside_partitions(name), self._lock(name):
            loaded = self._usable(name, to_write)
            if loaded is not None:
                return loaded
            await self._unload(name)
            return await self._load(name, create)

    @asynccontextmanager
    async def _beside_partitions(self, name: str) -> AsyncIterator[None]:
        """A topic that is not there yet may be named as a partition is: nobody makes the
        partitioned topic of that name, or more partitions, while it comes into being.
        """
        partition = parse_partition(name)
        if partition is None or self.metadata.topic(name) is not None:
            yield
            return
        async with self._lock(partition.topic):
            yield

    def _usable(self, name: str, to_write: bool) -> Topic | None:
        """The topic, if it is loaded and loading it anew would not help."""
        topic = self.topics.get(name)
        if topic is None or topic.log.failure is None or not to_write:
            return topic
        return None if self.store.has_room() else topic

    async def _load(self, name: str, create: bool) -> Topic:
        if self._is_stopping:
            raise Unavailable("The broker is stopping.")
        record = self.metadata.topic(name)
        if record is None:
            if not (create or self.partitions.count(name)):
                raise TopicNotFound(name)
            self.partitions.check_usable(name)
            record = TopicRecord(name=name, created_ms=self.clock_ms())
        topic = Topic(self, record)
        await topic.load()
        self.topics[name] = topic
        has_threshold = (topic.policies().compaction_threshold_bytes or 0) > 0
        if has_threshold and topic.log.failure is None:
            await topic.enable_compaction_cursor()
        return topic

    def _lock(self, name: str) -> asyncio.Lock:
        """Held while it is loaded, unloaded or deleted, or gets more partitions."""
        return self._locks.setdefault(name, asyncio.Lock())

    async def create_topic(self, name: str) -> None:
        """Raises TopicExists, NotAllowed."""
        self.partitions.check_creatable(name)
        await self.topic(name, to_write=True)

    async def unload_topic(self, name: str) -> None:
        """Ends its streams, closes its ledger, and loads it anew.

        Raises TopicNotFound, DiskFailure when it can only be read.
        """
        await self.topic(name, create=False)
        async with self._lock(name):
            await self._unload(name)
        topic = await self.topic(name, create=False)
        if topic.log.failure is not None:
            raise topic.log.failure
        if topic.has_durable_cursor:
            await topic.trim()

    @asynccontextmanager
    async def held(self, name: str) -> AsyncIterator[Topic]:
        """The topic, neither unloaded nor deleted inside. Raises Moved when it was before."""
        async with self._lock(name):
            topic = self.topics.get(name)
            if topic is None:
                raise Moved(f"{name} was unloaded; try again.")
            yield topic

    async def _unload(self, name: str) -> None:
        """Afterwards it is not loaded, whatever failed: the next load finds what is durable."""
        topic = self.topics.pop(name, None)
        if topic is None:
            return
        await self.compaction.fence(name)
        try:
            try:
                await topic.unload()
            finally:
                # Where its log has failed: nothing that was not acknowledged may be found later.
                await self._in_thread(topic.close_ledgers)
        except StorageError as error:
            _log.error("%s was unloaded, but not all of it was written: %s", name, error)

    async def delete_topic(self, name: str, force: bool) -> None:
        """Deletes it with all its ledgers. Raises TopicNotFound, TopicBusy, NotAllowed."""
        if self.partitions.count(name):
            raise NotAllowed(f"{name} is partitioned: delete it as a partitioned topic.")
        if self.metadata.topic(name) is None:
            raise TopicNotFound(name)
        await self._delete([name], force, lambda batch: None)

    async def delete_partitioned_topic(self, name: str, force: bool) -> None:
        """Deletes it with its partitions. Raises TopicNotFound, TopicBusy, NotAllowed."""
        async with self._lock(name):
            self.partitions.record(name)
            names = self.partitions.names(name)
            await self._delete(names, force, lambda batch: batch.delete_partitioned_topic(name))

    async def create_partitioned_topic(self, name: str, partitions: int) -> None:
        """With its partitions. Raises InvalidRequest, TopicExists."""
        async with self._partitions_held(name, partitions):
            await self.partitions.create(name, partitions)

    async def grow_partitioned_topic(self, name: str, partitions: int) -> None:
        """Raises InvalidRequest, TopicNotFound, NotAllowed."""
        async with self._partitions_held(name, partitions):
            await self.partitions.grow(name, partitions)

    async def update_partitioned_policies(
        self, name: str, update: Callable[[Policies], Policies]
    ) -> None:
        """Raises NotAllowed, TopicNotFound, and what `update` raises."""
        async with self._lock(name):
            await self.partitions.update_policies(name, update)

    @asynccontextmanager
    async def _partitions_held(self, name: str, partitions: int) -> AsyncIterator[None]:
        """Nobody else makes, loads or deletes one of them inside."""
        names = [partition_name(name, index) for index in range(min(partitions, PARTITIONS_MAX))]
        async with AsyncExitStack() as locks:
            for each in (name, *names):
                await locks.enter_async_context(self._lock(each))
            yield

    async def _delete(
        self, names: Sequence[str], force: bool, and_also: Callable[[MetadataBatch], None]
    ) -> None:
        """One write. Raises TopicBusy; then nothing has changed, and nobody was disconnected."""
        async with AsyncExitStack() as locks:
            for name in names:
                await locks.enter_async_context(self._lock(name))
            if not force:
                for name in names:
                    if name in self.topics:
                        self.topics[name].check_idle()
            for name in names:
                await self._unload(name)
            ledger_ids = [each for name in names for each in self._ledger_ids(name)]
            await to_its_end(self._in_thread(lambda: self._forget(names, ledger_ids, and_also)))
            for name in names:
                for callback in self.on_deleted:
                    callback(name)
            for ledger_id in ledger_ids:
                await self._in_thread(functools.partial(self.store.delete_files, ledger_id))

    def _forget(
        self,
        names: Sequence[str],
        ledger_ids: Sequence[int],
        and_also: Callable[[MetadataBatch], None],
    ) -> None:
        with self.metadata.batch() as batch:
            for name in names:
                batch.delete_topic(name)
            and_also(batch)
            for ledger_id in ledger_ids:
                self.store.mark_deleting(ledger_id, batch)

    def _ledger_ids(self, name: str) -> list[int]:
        """Raw and compacted; none of a topic that is not there."""
        record = self.metadata.topic(name) or TopicRecord()
        compacted = record.compacted.ledger_id if record.HasField("compacted") else -1
        return [*record.ledger_ids, *([compacted] if compacted >= 0 else [])]
