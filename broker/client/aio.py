"""The client for asyncio, with the names of `pulsar.asyncio`.

    from broker.client.aio import Client
    from broker.client import MessageId

    async with Client("127.0.0.1:7650") as client:
        producer = await client.create_producer("prices")
        await asyncio.gather(*(producer.send(b"10", partition_key=f"p{n}") for n in range(100)))
        reader = await client.create_reader("prices", MessageId.earliest)
        async for message in reader:
            print(message.data())

It runs on the caller's event loop, and knows the same errors, limits and rules as the synchronous
API, whose docstrings explain them. Use one of the two in a process: gRPC wants one event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Self

from broker.client.aio_table_view import TableView, run_here
from broker.client.connection import (
    ClientSettings,
    Connection,
    address_of,
    full_topic_name,
    wall_clock_ms,
)
from broker.client.consumer_core import ConsumerConfig, ConsumerCore
from broker.client.inbox import Inbox
from broker.client.message import Message
from broker.client.message_id import MessageId
from broker.client.options import BatchingType, CompressionType, ConsumerType, InitialPosition
from broker.client.producer import PENDING_MESSAGES_MAX, ProducerConfig, ProducerCore
from broker.client.reader import ReaderConfig, ReaderCore
from broker.client.table import Schema
from broker.client.table_view_core import TableViewConfig, TableViewCore
from storage.errors import AlreadyClosed, LedgerfoldError, Overloaded, Timeout


async def _next_message(
    poll: Callable[[], Message | None], inbox: Inbox, timeout_millis: int | None
) -> Message:
    message = poll()
    if message is not None:
        return message
    try:
        async with asyncio.timeout(None if timeout_millis is None else timeout_millis / 1000):
            while (message := poll()) is None:
                await inbox.wait_async()
            return message
    except LedgerfoldError:
        raise
    except TimeoutError as error:
        raise Timeout("No message came in time.") from error


class Producer:
    """Publishes to a topic. See `broker.client.Producer`."""

    def __init__(self, core: ProducerCore, forget: Callable[[object], None]) -> None:
        self._core = core
        self._forget = forget

    def topic(self) -> str:
        return full_topic_name(self._core.config.topic)

    def producer_name(self) -> str:
        return self._core.stream.producer_name

    def last_sequence_id(self) -> int:
        """Of the last message that is stored; -1 when there is none."""
        return self._core.queue.last_sequence_id_stored

    def is_connected(self) -> bool:
        return self._core.stream.is_connected

    async def send(
        self,
        content: bytes | None,
        properties: dict[str, str] | None = None,
        partition_key: str | None = None,
        ordering_key: str | None = None,
        sequence_id: int | None = None,
        event_timestamp: int | None = None,
    ) -> MessageId:
        """Publishes one message and waits until it is durable.

        Messages of tasks that send at the same time share batches; a batch goes out when it is full
        or its delay is over. A task that is cancelled here does not take its message back.
        """
        stored: asyncio.Future[MessageId] = self._core.stream.loop.create_future()
        queue = self._core.queue
        while True:
            try:
                queue.add(
                    content,
                    stored,
                    properties,
                    partition_key,
                    ordering_key,
                    sequence_id,
                    event_timestamp,
                    wait=False,
                )
                break
            except Overloaded:
                if not self._core.config.block_if_queue_full:
                    raise
                await queue.change()
        return await stored

    async def flush(self) -> None:
        """Sends the open batch and waits until everything sent so far is durable."""
        await self._core.flush()

    async def close(self) -> None:
        """Flushes, and gives the producer's name back."""
        self._forget(self)
        await self._core.close()


class Consumer:
    """Receives a subscription's messages. See `broker.client.Consumer`."""

    def __init__(self, core: ConsumerCore, forget: Callable[[object], None]) -> None:
        self._core = core
        self._forget = forget
        self._moving = asyncio.Lock()

    def topic(self) -> str:
        return full_topic_name(self._core.config.topic)

    def subscription_name(self) -> str:
        return self._core.config.subscription_name

    def consumer_name(self) -> str:
        return self._core.stream.consumer_name

    def is_connected(self) -> bool:
        return self._core.stream.is_connected

    async def receive(self, timeout_millis: int | None = None) -> Message:
        """The next message. Raises Timeout, AlreadyClosed, Corruption."""
        return await _next_message(self._core.poll, self._core.inbox, timeout_millis)

    async def acknowledge(self, message: Message | MessageId) -> None:
        self._core.acknowledge(message)

    async def acknowledge_cumulative(self, message: Message | MessageId) -> None:
        self._core.acknowledge_cumulative(message)

    async def negative_acknowledge(self, message: Message | MessageId) -> None:
        self._core.negative_acknowledge(message)

    async def redeliver_unacknowledged_messages(self) -> None:
        await self._core.redeliver_unacknowledged()

    async def seek(self, messageid: MessageId | int) -> None:
        """Moves the subscription to a message id, or to a publish time in ms."""
        async with self._moving:
            await self._core.seek(messageid)

    async def has_message_available(self) -> bool:
        """An estimate, as `broker.client.Consumer.has_message_available` says."""
        return self._core.has_message_now() or await self._core.is_behind()

    async def get_last_message_id(self) -> MessageId:
        return await self._core.last_message_id()

    async def unsubscribe(self) -> None:
        """Deletes the subscription and closes this consumer."""
        self._forget(self)
        await self._core.unsubscribe()

    async def close(self) -> None:
        """Waits until all acknowledgements are durable, 5 s at most."""
        self._forget(self)
        await self._core.close()


class Reader:
    """Reads a topic without a subscription. See `broker.client.Reader`. For one task at a time."""

    def __init__(self, core: ReaderCore, forget: Callable[[object], None]) -> None:
        self._core = core
        self._forget = forget
        self._moving = asyncio.Lock()

    def topic(self) -> str:
        return full_topic_name(self._core.config.topic)

    def is_connected(self) -> bool:
        return self._core.stream.is_connected

    async def read_next(self, timeout_millis: int | None = None) -> Message:
        """The next message. Raises Timeout, AlreadyClosed, Corruption."""
        return await _next_message(self._core.receiver.poll, self._core.inbox, timeout_millis)

    async def has_message_available(self) -> bool:
        """True exactly when `read_next` would return now."""
        return await self._core.has_message_available()

    def has_reached_end_of_topic(self) -> bool:
        return self._core.has_reached_end()

    async def __aiter__(self) -> AsyncIterator[Message]:
        """The messages up to the end of the topic; another loop goes on from there."""
        while await self.has_message_available():
            for message in self._core.receiver.entry_messages():
                yield message

    async def seek(self, messageid: MessageId | int) -> None:
        """Moves to a message id, or to the first entry published at or after a time in ms."""
        async with self._moving:
            await self._core.seek(messageid)

    async def close(self) -> None:
        self._forget(self)
        await self._core.close()


class Client:
    """A connection to one broker, for the running event loop. See `broker.client.Client`."""

    def __init__(
        self,
        service_url: str,
        *,
        operation_timeout_seconds: float = 30,
        starting_backoff_interval_ms: int = 100,
        max_backoff_interval_ms: int = 5_000,
        clock_ms: Callable[[], int] = wall_clock_ms,
    ) -> None:
        address_of(service_url)
        self._service_url = service_url
        self._settings = ClientSettings(
            operation_timeout_seconds,
            starting_backoff_interval_ms,
            max_backoff_interval_ms,
            clock_ms,
        )
        self._connected: Connection | None = None
        self._open: dict[Any, Callable[[], Awaitable[None]]] = {}
        self._is_closed = False

    @property
    def _connection(self) -> Connection:
        # Late: a client may be made before the loop runs.
        if self._is_closed:
            raise AlreadyClosed("The client is closed.")
        if self._connected is None:
            self._connected = Connection(self._service_url, self._settings)
        return self._connected

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
    ) -> Producer:
        """As `broker.client.Client.create_producer`; batching is on unless said otherwise."""
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
        )
        # Nothing here may block, and `add` is never told to.
        core = await ProducerCore.open(self._connection, config, lambda: True)
        producer = Producer(core, self._forget)
        self._open[producer] = core.shut_down
        return producer

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
    ) -> Consumer:
        """As `broker.client.Client.subscribe`, without message listeners."""
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
        )
        core = await ConsumerCore.open(self._connection, config)
        consumer = Consumer(core, self._forget)
        self._open[consumer] = core.shut_down
        return consumer

    async def create_reader(
        self,
        topic: str,
        start_message_id: MessageId,
        *,
        receiver_queue_size: int = 1000,
        reader_name: str | None = None,
        is_read_compacted: bool = False,
        start_message_id_inclusive: bool = False,
    ) -> Reader:
        """As `broker.client.Client.create_reader`."""
        config = ReaderConfig(
            topic,
            start_message_id,
            start_message_id_inclusive,
            is_read_compacted,
            receiver_queue_size,
            reader_name or "",
        )
        core = await ReaderCore.open(self._connection, config)
        reader = Reader(core, self._forget)
        self._open[reader] = core.close
        return reader

    async def create_table_view(
        self, topic: str, subscription_name: str | None = None, schema: Schema | None = None
    ) -> TableView:
        """As `broker.client.Client.create_table_view`."""
        config = TableViewConfig(topic, subscription_name, schema)
        core = await TableViewCore.open(self._connection, config, run_here)
        view = TableView(core, self._forget)
        self._open[view] = core.close
        return view

    async def get_topic_partitions(self, topic: str) -> list[str]:
        """The topic's full name alone: topics are not partitioned."""
        return [full_topic_name(topic)]

    async def close(self) -> None:
        """Closes all it opened, then the connection. Raises the first error of these."""
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
        """Closes everything at once; see `broker.client.Client.shutdown`."""
        self._is_closed = True
        opened, self._open = list(self._open.values()), {}
        for shut_down in opened:
            await shut_down()
        if self._connected is not None:
            connection, self._connected = self._connected, None
            await connection.close()

    def _forget(self, opened: object) -> None:
        self._open.pop(opened, None)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()
