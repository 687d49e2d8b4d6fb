"""The client of the synchronous API.

    >>> from ledgerfold import Client, MessageId
    >>> with Client("127.0.0.1:7650") as client:
    ...     with client.create_producer("prices", batching_enabled=True) as producer:
    ...         sent = producer.send(b"10", partition_key="p3")
    ...     with client.create_reader("prices", MessageId.earliest) as reader:
    ...         print([message.data() for message in reader])
    [b'10']

All producers, consumers and readers of a client share one channel; the synchronous clients of a
process share one I/O thread (io_thread.py). Names and defaults are those of Apache Pulsar's Python
client unless a docstring states otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeVar

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
from ledgerfold.broker.client.core.table_view_core import TableViewConfig
from ledgerfold.broker.client.messages.arguments import (
    CLIENT_NOT_EMULATED,
    CONSUMER_NOT_EMULATED,
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
from ledgerfold.broker.client.sync.consumer import Consumer, MessageListener
from ledgerfold.broker.client.sync.io_thread import IoThread
from ledgerfold.broker.client.sync.producer import Producer
from ledgerfold.broker.client.sync.reader import Reader
from ledgerfold.broker.client.sync.table_view import TableView
from ledgerfold.storage.errors import AlreadyClosed, LedgerfoldError
from ledgerfold.strategies.strategic import TopicCompactionStrategy

Answer = TypeVar("Answer")


class _Closable(Protocol):
    def close(self) -> None: ...


class Client:
    """A connection to one broker (`pulsar.Client`). Thread-safe.

    `service_url` is host:port, optionally prefixed with `ledgerfold://`. The client connects on
    first use. While the broker is unreachable, calls are retried until the operation timeout and
    then raise Unavailable. The two backoff intervals are those of Pulsar's Java client; `clock_ms`
    stamps published messages, in ms since the epoch. `partitions_update_interval_seconds`: the
    interval of checks for new partitions (as in the C++ client).

    A forked process cannot use its parent's clients: each call raises AlreadyClosed there. Create
    the client after the fork; that raises NotAllowed if the parent had a client open at the fork.
    """

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
        settings = ClientSettings(
            operation_timeout_seconds,
            starting_backoff_interval_ms,
            max_backoff_interval_ms,
            clock_ms,
            partitions_update_interval_seconds,
        )
        self._io = IoThread.shared()
        self._connection = self._io.call(_connect(service_url, settings))
        # In order of opening.
        self._open: dict[_Closable, Callable[[], Coroutine[Any, Any, None]]] = {}
        self._is_closed = False
        forks.invalidate_after_fork(self)

    @rejects_unknown_arguments(PRODUCER_NOT_EMULATED)
    def create_producer(
        self,
        topic: str,
        producer_name: str | None = None,
        *,
        initial_sequence_id: int | None = None,
        send_timeout_millis: int = 30_000,
        compression_type: CompressionType = CompressionType.NONE,
        max_pending_messages: int = PENDING_MESSAGES_MAX,
        block_if_queue_full: bool = True,
        batching_enabled: bool = False,
        batching_max_messages: int = 1000,
        batching_max_allowed_size_in_bytes: int = 128 * 1024,
        batching_max_publish_delay_ms: int = 10,
        batching_type: BatchingType = BatchingType.Default,
        max_pending_messages_across_partitions: int = PENDING_MESSAGES_MAX,
        message_routing_mode: PartitionsRoutingMode = PartitionsRoutingMode.RoundRobinDistribution,
        hashing_scheme: HashingScheme = HashingScheme.Murmur3_32Hash,
    ) -> Producer:
        """Opens a producer; creates the topic if it does not exist.

        `producer_name`: None lets the broker choose one. With a name, a later producer, too,
        recognises resent messages: sequence ids continue after the last one stored under it, or
        after `initial_sequence_id`. `send_timeout_millis`: 0 = no limit. `max_pending_messages`:
        the number of messages that may wait for their receipts (default 50,000, Pulsar's is 1000);
        0 = no limit. `block_if_queue_full`: whether sending then waits (default True, Pulsar's is
        False) or raises Overloaded. `batching_enabled`: groups messages into entries, up to the
        limits in messages, bytes and delay; otherwise each message is an entry and has no batch
        index.

        On a partitioned topic the messages of a key go to one partition, chosen by `hashing_scheme`
        (as in Pulsar's Java client; Pulsar's Python client uses yet another hash);
        `message_routing_mode` routes messages without a key. Each partition counts its own sequence
        ids.

        Raises ProducerBusy, NotAllowed, InvalidRequest, Unavailable.
        """
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
        core = self._call(
            lambda connection: open_producer(connection, config, lambda: self._io.is_current)
        )
        producer = Producer(core, self._io, self._forget)
        self._opened(producer, core.shut_down)
        return producer

    @rejects_unknown_arguments(CONSUMER_NOT_EMULATED)
    def subscribe(
        self,
        topic: str,
        subscription_name: str,
        consumer_type: ConsumerType = ConsumerType.Exclusive,
        *,
        message_listener: MessageListener | None = None,
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
        """Subscribes; creates the topic and the durable subscription if they do not exist.

        `message_listener(consumer, message)` replaces `receive`; it runs in the consumer's own
        thread. `receiver_queue_size`: the number of messages prefetched, at least 1; one entry may
        exceed it. `unacked_messages_timeout_ms`: redeliver messages that were not acknowledged for
        this time; None = never. `is_read_compacted`: Exclusive and Failover only.
        `initial_position`: the start of a new subscription. `start_message_id_inclusive`: whether a
        seek to a message id delivers that message. Raises SubscriptionBusy, NotAllowed,
        InvalidRequest, Unavailable.
        """
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
        core = self._call(lambda connection: open_consumer(connection, config))
        consumer = Consumer(core, self._io, self._forget, message_listener)
        self._opened(consumer, core.shut_down)
        return consumer

    @rejects_unknown_arguments(READER_NOT_EMULATED)
    def create_reader(
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
        """Opens a reader; creates the topic if it does not exist.

        It begins after `start_message_id`, or with it if `start_message_id_inclusive`. `latest` is
        the current last message; a partitioned topic accepts only `earliest`, `latest` and a time.
        `start_time_ms` instead begins with the first message of that time or later.
        `is_read_compacted`: reads only the last message of each key, where the topic is compacted.
        `receiver_queue_size`: the number of messages prefetched, at least 1; one entry may exceed
        it.

        Kafka topics: `start_offset`, instead of an id, begins with the message at that offset, or
        the next one that exists. `isolation`: "read_committed" skips the records of aborted
        transactions, and reads only up to the first open one.

        Raises NotAllowed, InvalidRequest, KafkaError, Unavailable.
        """
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
        core = self._call(lambda connection: open_reader(connection, config))
        reader = Reader(core, self._io, self._forget)
        self._opened(reader, core.close)
        return reader

    @rejects_unknown_arguments({})
    def create_table_view(
        self,
        topic: str,
        subscription_name: str | None = None,
        schema: Schema | None = None,
        strategy: TopicCompactionStrategy | None = None,
    ) -> TableView:
        """Opens a table view, and returns when it holds everything that is in the topic at the
        call.

        Creates the topic if it does not exist. `subscription_name`: that of the view's readers.
        While the view is open, no other view, reader or consumer of the topic may use it
        (SubscriptionBusy), and no durable subscription may have that name (NotAllowed). None: a
        generated name. `schema`: its `decode` converts contents to values; without one, values are
        the contents as bytes. Keys are those of `Message.partition_key`. `strategy`: an object with
        `should_keep_left` (ledgerfold.strategies) that decides whether a message replaces its key's
        current one, for this view only; without one it always does. Raises SubscriptionBusy,
        NotAllowed, InvalidRequest, Unavailable, Corruption.
        """
        config = TableViewConfig(topic, subscription_name, schema, strategy)
        view = self._call(
            lambda connection: TableView.open(connection, config, self._io, self._forget)
        )
        self._opened(view, view.shut_down)
        return view

    def get_topic_partitions(self, topic: str) -> list[str]:
        """Returns the full names of the partitions; only the topic's own if it is not
        partitioned.
        """
        return self._call(lambda connection: topic_partitions(connection, topic))

    def close(self) -> None:
        """Closes everything opened from the client, then the connection.

        Raises the first error, once everything is closed.
        """
        first_error: LedgerfoldError | None = None
        # Copied in one step: other threads may open and close concurrently.
        while opened := list(self._open):
            try:
                opened[0].close()
            except LedgerfoldError as error:
                first_error = first_error or error
        self.shutdown()
        if first_error is not None:
            raise first_error

    def shutdown(self) -> None:
        """Closes everything at once: messages without a receipt fail with AlreadyClosed.

        Acknowledgements that are not durable yet may be lost: their messages are redelivered.
        """
        if self._is_closed:
            return
        self._is_closed = True
        opened, self._open = list(self._open.values()), {}
        for shut_down in opened:
            self._io.call(shut_down())
        self._io.call(self._connection.close())

    def _call(self, opening: Callable[[Connection], Coroutine[Any, Any, Answer]]) -> Answer:
        if self._is_closed:
            raise AlreadyClosed("The client is closed.")
        return self._io.call(opening(self._connection))

    def _opened(
        self, opened: _Closable, shut_down: Callable[[], Coroutine[Any, Any, None]]
    ) -> None:
        """Registers an opened object. Raises AlreadyClosed if the client was closed meanwhile."""
        self._open[opened] = shut_down
        if self._is_closed:
            self._forget(opened)
            self._io.call(shut_down())
            raise AlreadyClosed("The client is closed.")

    def _forget(self, opened: Any) -> None:
        self._open.pop(opened, None)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


async def _connect(service_url: str, settings: ClientSettings) -> Connection:
    # Runs on the event loop, to which the channel is bound.
    return Connection(service_url, settings)
