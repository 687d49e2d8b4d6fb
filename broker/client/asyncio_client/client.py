"""The client for asyncio, with the names of `pulsar.asyncio`.

    >>> import asyncio
    >>> from ledgerfold import MessageId
    >>> from ledgerfold.aio import Client
    >>> async def example() -> None:
    ...     async with Client("127.0.0.1:7650") as client:
    ...         producer = await client.create_producer("prices")
    ...         await asyncio.gather(*(producer.send(b"%d" % price) for price in (10, 7)))
    ...         reader = await client.create_reader("prices", MessageId.earliest)
    ...         async for message in reader:
    ...             print(message.data())
    >>> asyncio.run(example())
    b'10'
    b'7'

It runs on the caller's event loop, with the same errors, limits and rules as the synchronous API,
whose docstrings explain them. Use only one of the two in a process: gRPC needs a single event loop.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Self

from ledgerfold.broker.client.asyncio_client.consumer import Consumer, Reader
from ledgerfold.broker.client.asyncio_client.producer import Producer
from ledgerfold.broker.client.asyncio_client.table_view import TableView, run_here
from ledgerfold.broker.client.core.consumer_core import RECEIVER_QUEUE_MAX, ConsumerConfig
from ledgerfold.broker.client.core.opening import (
    open_consumer,
    open_producer,
    open_reader,
    topic_partitions,
)
from ledgerfold.broker.client.core.producer_core import PENDING_MESSAGES_MAX, ProducerConfig
from ledgerfold.broker.client.core.reader_core import Isolation, ReaderConfig
from ledgerfold.broker.client.core.table import Schema
from ledgerfold.broker.client.core.table_view_core import TableViewConfig, TableViewCore
from ledgerfold.broker.client.messages.arguments import (
    AIO_CONSUMER_NOT_EMULATED,
    CLIENT_NOT_EMULATED,
    PRODUCER_NOT_EMULATED,
    READER_NOT_EMULATED,
    rejects_unknown_arguments,
)
from ledgerfold.broker.client.messages.message_id import MessageId
from ledgerfold.broker.client.messages.options import (
    BatchingType,
    CompressionType,
    ConsumerType,
    HashingScheme,
    InitialPosition,
    PartitionsRoutingMode,
)
from ledgerfold.broker.client.streams import forks
from ledgerfold.broker.client.streams.address import address_of
from ledgerfold.broker.client.streams.connection import (
    ClientSettings,
    Connection,
    wall_clock_ms,
)
from ledgerfold.storage.errors import AlreadyClosed, LedgerfoldError
from ledgerfold.strategies.strategic import TopicCompactionStrategy

__all__ = ["Client", "Consumer", "Producer", "Reader", "TableView"]


class Client:
    """A connection to one broker, for the running event loop. See `ledgerfold.Client`."""

    @rejects_unknown_arguments(CLIENT_NOT_EMULATED)
    def __init__(
        self,
        service_url: str,
        *,
        operation_timeout_seconds: float = 30,
        starting_backoff_interval_ms: int = 100,
        max_backoff_interval_ms: int = 5_000,
        partitions_update_interval_seconds: float = 60,
        clock_ms: Callable[[], int] = wall_clock_ms,
    ) -> None:
        address_of(service_url)
        forks.check_may_connect()
        self._service_url = service_url
        self._settings = ClientSettings(
            operation_timeout_seconds,
            starting_backoff_interval_ms,
            max_backoff_interval_ms,
            clock_ms,
            partitions_update_interval_seconds,
        )
        self._connected: Connection | None = None
        self._open: dict[Any, Callable[[], Awaitable[None]]] = {}
        self._is_closed = False
        forks.invalidate_after_fork(self)

    @property
    def _connection(self) -> Connection:
        # Created on first use: a client may be created before the loop runs.
        if self._is_closed:
            raise AlreadyClosed("The client is closed.")
        if self._connected is None:
            self._connected = Connection(self._service_url, self._settings)
        return self._connected

    @rejects_unknown_arguments(PRODUCER_NOT_EMULATED)
    async def create_producer(
        self,
        topic: str,
        producer_name: str | None = None,
        *,
        initial_sequence_id: int | None = None,
        send_timeout_millis: int = 30_000,
        compression_type: CompressionType = CompressionType.NONE,
        max_pending_messages: int = PENDING_MESSAGES_MAX,
        block_if_queue_full: bool = True,
        batching_enabled: bool = True,
        batching_max_messages: int = 1000,
        batching_max_allowed_size_in_bytes: int = 128 * 1024,
        batching_max_publish_delay_ms: int = 10,
        batching_type: BatchingType = BatchingType.Default,
        max_pending_messages_across_partitions: int = PENDING_MESSAGES_MAX,
        message_routing_mode: PartitionsRoutingMode = PartitionsRoutingMode.RoundRobinDistribution,
        hashing_scheme: HashingScheme = HashingScheme.Murmur3_32Hash,
    ) -> Producer:
        """Opens a producer, as `ledgerfold.Client.create_producer`, with batching by default."""
        config = ProducerConfig(
            topic,
            producer_name,
            initial_sequence_id,
            send_timeout_millis,
            compression_type,
            max_pending_messages,
            block_if_queue_full,
            batching_enabled,
            batching_max_messages,
            batching_max_allowed_size_in_bytes,
            batching_max_publish_delay_ms,
            batching_type,
            max_pending_messages_across_partitions,
            message_routing_mode,
            hashing_scheme,
        )
        # Nothing here may block, and `add` is called with wait=False.
        core = await open_producer(self._connection, config, lambda: True)
        producer = Producer(core, self._forget)
        await self._opened(producer, core.shut_down)
        return producer

    @rejects_unknown_arguments(AIO_CONSUMER_NOT_EMULATED)
    async def subscribe(
        self,
        topic: str,
        subscription_name: str,
        consumer_type: ConsumerType = ConsumerType.Exclusive,
        *,
        receiver_queue_size: int = 1000,
        consumer_name: str | None = None,
        unacked_messages_timeout_ms: int | None = None,
        negative_ack_redelivery_delay_ms: int = 60_000,
        is_read_compacted: bool = False,
        properties: dict[str, str] | None = None,
        initial_position: InitialPosition = InitialPosition.Latest,
        start_message_id_inclusive: bool = False,
        max_total_receiver_queue_size_across_partitions: int = RECEIVER_QUEUE_MAX,
    ) -> Consumer:
        """Subscribes, as `ledgerfold.Client.subscribe`, without message listeners."""
        config = ConsumerConfig(
            topic,
            subscription_name,
            consumer_type,
            receiver_queue_size,
            consumer_name,
            unacked_messages_timeout_ms,
            negative_ack_redelivery_delay_ms,
            is_read_compacted,
            properties or {},
            initial_position,
            start_message_id_inclusive,
            max_total_receiver_queue_size_across_partitions,
        )
        core = await open_consumer(self._connection, config)
        consumer = Consumer(core, self._forget)
        await self._opened(consumer, core.shut_down)
        return consumer

    @rejects_unknown_arguments(READER_NOT_EMULATED)
    async def create_reader(
        self,
        topic: str,
        start_message_id: MessageId | None = None,
        *,
        receiver_queue_size: int = 1000,
        reader_name: str | None = None,
        is_read_compacted: bool = False,
        start_message_id_inclusive: bool = False,
        start_offset: int | None = None,
        start_time_ms: int | None = None,
        isolation: str = Isolation.READ_UNCOMMITTED,
    ) -> Reader:
        """Opens a reader, as `ledgerfold.Client.create_reader`."""
        config = ReaderConfig(
            topic,
            start_message_id,
            start_message_id_inclusive,
            is_read_compacted,
            receiver_queue_size,
            reader_name or "",
            start_offset,
            start_time_ms,
            isolation,
        )
        core = await open_reader(self._connection, config)
        reader = Reader(core, self._forget)
        await self._opened(reader, core.close)
        return reader

    @rejects_unknown_arguments({})
    async def create_table_view(
        self,
        topic: str,
        subscription_name: str | None = None,
        schema: Schema | None = None,
        strategy: TopicCompactionStrategy | None = None,
    ) -> TableView:
        """Opens a table view, as `ledgerfold.Client.create_table_view`."""
        config = TableViewConfig(topic, subscription_name, schema, strategy)
        core = await TableViewCore.open(self._connection, config, run_here)
        view = TableView(core, self._forget)
        await self._opened(view, core.close)
        return view

    async def get_topic_partitions(self, topic: str) -> list[str]:
        """Returns the full names of the partitions; only the topic's own if it is not
        partitioned.
        """
        return await topic_partitions(self._connection, topic)

    async def close(self) -> None:
        """Closes everything opened from the client, then the connection. Raises the first error."""
        first_error: LedgerfoldError | None = None
        while self._open:
            try:
                await next(iter(self._open)).close()
            except LedgerfoldError as error:
                first_error = first_error or error
        await self.shutdown()
        if first_error is not None:
            raise first_error

    async def shutdown(self) -> None:
        """Closes everything at once; see `ledgerfold.Client.shutdown`."""
        self._is_closed = True
        opened, self._open = list(self._open.values()), {}
        for shut_down in opened:
            await shut_down()
        if self._connected is not None:
            connection, self._connected = self._connected, None
            await connection.close()

    async def _opened(self, opened: Any, shut_down: Callable[[], Awaitable[None]]) -> None:
        """Registers an opened object. Raises AlreadyClosed if the client was closed meanwhile."""
        if self._is_closed:
            await shut_down()
            raise AlreadyClosed("The client is closed.")
        self._open[opened] = shut_down

    def _forget(self, opened: object) -> None:
        self._open.pop(opened, None)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()
