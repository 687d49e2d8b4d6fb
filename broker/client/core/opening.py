"""Opens producers, consumers and readers, on partitioned and other topics."""

from __future__ import annotations

from collections.abc import Callable

from ledgerfold.broker.client.core.consumer_core import ConsumerConfig, ConsumerCore
from ledgerfold.broker.client.core.partition_set import names_of, partition_count
from ledgerfold.broker.client.core.partitioned_consumer import PartitionedConsumerCore
from ledgerfold.broker.client.core.partitioned_producer import PartitionedProducerCore
from ledgerfold.broker.client.core.partitioned_reader import PartitionedReaderCore
from ledgerfold.broker.client.core.producer_core import ProducerConfig, ProducerCore
from ledgerfold.broker.client.core.reader_core import ReaderConfig, ReaderCore
from ledgerfold.broker.client.streams.connection import Connection


async def open_producer(
    connection: Connection, config: ProducerConfig, is_io_thread: Callable[[], bool]
) -> ProducerCore | PartitionedProducerCore:
    count = await partition_count(connection, config.topic)
    if count:
        return await PartitionedProducerCore.open(connection, config, is_io_thread, count)
    return await ProducerCore.open(connection, config, is_io_thread)


async def open_consumer(
    connection: Connection, config: ConsumerConfig
) -> ConsumerCore | PartitionedConsumerCore:
    count = await partition_count(connection, config.topic)
    if count:
        return await PartitionedConsumerCore.open(connection, config, count)
    return await ConsumerCore.open(connection, config)


async def open_reader(
    connection: Connection, config: ReaderConfig
) -> ReaderCore | PartitionedReaderCore:
    count = await partition_count(connection, config.topic)
    if count:
        return await PartitionedReaderCore.open(connection, config, count)
    return await ReaderCore.open(connection, config)


async def topic_partitions(connection: Connection, topic: str) -> list[str]:
    """Returns the full names of the partitions; the topic's own if it is not partitioned."""
    return names_of(topic, await partition_count(connection, topic))
