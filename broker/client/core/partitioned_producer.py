"""A producer of a partitioned topic: one producer per partition, and a router.

Each partition has its own queue, batches, sequence ids and receipts; all have one producer name. A
message stays with the partition it was routed to, even if partitions are added later. Source:
Pulsar's PartitionedProducerImpl.
"""

from __future__ import annotations

import asyncio
import random
import secrets
from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

from ledgerfold.broker.client.core.partition_set import PartitionSet
from ledgerfold.broker.client.core.producer_core import ProducerCore
from ledgerfold.broker.client.core.send_queue import SendQueue
from ledgerfold.broker.client.messages.configs import ProducerConfig
from ledgerfold.broker.client.messages.new_message import NewMessage
from ledgerfold.broker.client.messages.options import PartitionsRoutingMode
from ledgerfold.broker.client.messages.routing import (
    DELAYS_PER_TURN,
    HASHES,
    RoundRobinRouter,
    Router,
    SinglePartitionRouter,
)
from ledgerfold.broker.client.streams.batching import Listener, QuickRows
from ledgerfold.broker.client.streams.connection import Connection
from ledgerfold.storage.errors import LedgerfoldError, TopicNotFound


def router_for(
    config: ProducerConfig,
    partitions: int,
    clock_ms: Callable[[], int],
    chance: Callable[[int], int] = random.randrange,
) -> Router:
    """Returns the router of a producer.

    `chance(n)` is a random number below n: the partition to start with, so that producers do not
    all start with the same one.
    """
    hash_key, first = HASHES[config.hashing_scheme], chance(partitions)
    if config.message_routing_mode == PartitionsRoutingMode.UseSinglePartition:
        return SinglePartitionRouter(hash_key, first)
    delays = DELAYS_PER_TURN if config.batching_enabled else 0
    return RoundRobinRouter(
        hash_key, first, delays * config.batching_max_publish_delay_ms, clock_ms
    )


class RoutedQueue:
    """The queues of all partitions as one. Thread-safe."""

    def __init__(self, partitions: PartitionSet[ProducerCore], router: Router) -> None:
        self._partitions, self._router = partitions, router
        # Always full: a message's key decides its queue.
        self.quick = QuickRows(lambda: None)

    def _queues(self) -> list[SendQueue]:
        return [core.queue for core in self._partitions.cores]

    @property
    def clock_ms(self) -> Callable[[], int]:
        return self._queues()[0].clock_ms

    @property
    def last_sequence_id_stored(self) -> int:
        """The highest of all partitions."""
        return max(queue.last_sequence_id_stored for queue in self._queues())

    def add(self, message: NewMessage, listener: Listener, *, wait: bool) -> None:
        """Adds a message to its partition's queue, as SendQueue.add."""
        cores = self._partitions.cores
        core = cores[self._router.choose(message.key, len(cores))]
        core.queue.add(message, listener, wait=wait)

    def seal(self) -> None:
        """Seals the open batches of all partitions."""
        for queue in self._queues():
            queue.seal()

    def flush(self) -> None:
        """Flushes all partitions, as SendQueue.flush; raises the first error."""
        self.seal()
        errors = [error for queue in self._queues() if (error := _failure_of(queue.flush))]
        if errors:
            raise errors[0]

    async def change(self) -> None:
        """Waits until a receipt arrives on any partition."""
        # NOTE: called on all before the loop may process a receipt; an earlier receipt would be
        # missed.
        waiting = [queue.change() for queue in self._queues()]
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waiting:
                each.cancel()


def _failure_of(call: Callable[[], object]) -> LedgerfoldError | None:
    try:
        call()
    except LedgerfoldError as error:
        return error
    return None


class PartitionedProducerCore(PartitionSet[ProducerCore]):
    """The counterpart of ProducerCore for partitioned topics."""

    def __init__(
        self,
        connection: Connection,
        config: ProducerConfig,
        is_io_thread: Callable[[], bool],
        count: int,
    ) -> None:
        super().__init__(connection, config.topic)
        self.config = config_of_each(config, count)
        self.queue = RoutedQueue(self, router_for(config, count, connection.settings.clock_ms))
        self._is_io_thread = is_io_thread

    async def _open_one(self, topic: str, *, is_new: bool) -> ProducerCore:
        config = replace(self.config, topic=topic)
        return await ProducerCore.open(self._connection, config, self._is_io_thread)

    @property
    def producer_name(self) -> str:
        return self.config.producer_name or ""

    @property
    def is_connected(self) -> bool:
        """True if every partition is connected."""
        return all(core.is_connected for core in self.cores)

    @property
    def is_kafka_topic(self) -> bool:
        """True if the partitions are Kafka topics: all are, or none is."""
        return self.cores[0].is_kafka_topic

    async def flush(self) -> None:
        await self.for_each(lambda core: core.flush())


# The producer of a partitioned topic, or of any other topic.
AnyProducer: TypeAlias = PartitionedProducerCore | ProducerCore


async def open_producer(
    connection: Connection, config: ProducerConfig, is_io_thread: Callable[[], bool]
) -> AnyProducer:
    """Opens a producer on a topic of either kind. Raises the broker's errors."""
    try:
        # A topic that is not partitioned, as most are, costs no call for their number.
        return await ProducerCore.open(connection, config, is_io_thread)
    except TopicNotFound:
        # No topic has the name of a partitioned topic.
        count = await connection.partition_count(config.topic)
        if not count:
            raise
    core = PartitionedProducerCore(connection, config, is_io_thread, count)
    return await core.open(count)


def config_of_each(config: ProducerConfig, count: int) -> ProducerConfig:
    """Returns the configuration of each of `count` producers: the name, and its share of pending
    messages.
    """
    share = max(1, config.max_pending_messages_across_partitions // count)
    return replace(
        config,
        producer_name=config.producer_name or f"ledgerfold-{secrets.token_hex(4)}",
        # 0 (no limit) stays 0.
        max_pending_messages=min(config.max_pending_messages, share),
    )
