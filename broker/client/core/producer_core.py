"""A producer without its waiting, shared by both APIs: the configuration, stream and queue."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass

from ledgerfold.broker.client.core.partition_set import Core
from ledgerfold.broker.client.core.send_queue import SendLimits, SendQueue
from ledgerfold.broker.client.messages.arguments import (
    check_positive,
    check_topic_argument,
    resolve_choices,
)
from ledgerfold.broker.client.messages.options import (
    BatchingType,
    CompressionType,
    HashingScheme,
    PartitionsRoutingMode,
)
from ledgerfold.broker.client.streams.batching import container_for
from ledgerfold.broker.client.streams.connection import Connection, full_topic_name
from ledgerfold.broker.client.streams.pending import EntryMaker, KafkaEntries, NativeEntries
from ledgerfold.broker.client.streams.publish_stream import PublishStream
from ledgerfold.broker.client.streams.sequences import Sequences
from ledgerfold.storage.errors import InvalidRequest
from ledgerfold.v1 import data_pb2

# Large enough that a producer need not wait for receipts while the next batches fill; Pulsar's 1000
# is less than one full batch of small messages.
PENDING_MESSAGES_MAX = 50_000
_SEQUENCE_ID_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True)
class ProducerConfig:
    """The arguments of `Client.create_producer` (see there)."""

    topic: str
    producer_name: str | None = None
    _: KW_ONLY
    initial_sequence_id: int | None = None
    send_timeout_millis: int = 30_000
    compression_type: CompressionType = CompressionType.NONE
    max_pending_messages: int = PENDING_MESSAGES_MAX
    block_if_queue_full: bool = True
    batching_enabled: bool = False
    batching_max_messages: int = 1000
    batching_max_allowed_size_in_bytes: int = 128 * 1024
    batching_max_publish_delay_ms: int = 10
    batching_type: BatchingType = BatchingType.Default
    max_pending_messages_across_partitions: int = PENDING_MESSAGES_MAX
    message_routing_mode: PartitionsRoutingMode = PartitionsRoutingMode.RoundRobinDistribution
    hashing_scheme: HashingScheme = HashingScheme.Murmur3_32Hash

    def __post_init__(self) -> None:
        check_topic_argument(self.topic)
        resolve_choices(
            self,
            compression_type=CompressionType,
            batching_type=BatchingType,
            message_routing_mode=PartitionsRoutingMode,
            hashing_scheme=HashingScheme,
        )
        initial = self.initial_sequence_id
        if initial is not None and not -1 <= initial <= _SEQUENCE_ID_MAX:
            raise InvalidRequest(
                f"initial_sequence_id {initial} is not from -1 to {_SEQUENCE_ID_MAX} (the first "
                "message gets the next id)."
            )
        for name in ("send_timeout_millis", "max_pending_messages"):
            if getattr(self, name) < 0:
                raise InvalidRequest(f"{name} must be 0 (no limit) or more.")
        check_positive(
            self,
            "batching_max_messages",
            "batching_max_allowed_size_in_bytes",
            "batching_max_publish_delay_ms",
            "max_pending_messages_across_partitions",
        )

    def limits(self, batch_bytes_max: int = 0) -> SendLimits:
        """Returns the limits of a producer. `batch_bytes_max`: a Kafka topic's; 0: no limit."""
        batch_bytes = self.batching_max_allowed_size_in_bytes
        return SendLimits(
            batch_messages=self.batching_max_messages,
            batch_bytes=min(batch_bytes, batch_bytes_max or batch_bytes),
            batch_delay_s=self.batching_max_publish_delay_ms / 1000,
            pending_messages=self.max_pending_messages,
        )


async def _entry_maker(
    connection: Connection, stream: PublishStream, config: ProducerConfig
) -> EntryMaker:
    """Returns the entry maker for the kind of topic that the stream is open on. Raises
    InvalidRequest.
    """
    compression = CompressionType(config.compression_type)
    if stream.codec != data_pb2.ENTRY_CODEC_KAFKA:
        return NativeEntries(compression, is_plain=not config.batching_enabled)
    if config.initial_sequence_id is not None:
        raise InvalidRequest(
            "Kafka topics do not support sequence ids of the caller: omit initial_sequence_id."
        )
    entries = KafkaEntries(compression, lambda: stream.batch_bytes_max)
    stream.sequences = Sequences(await connection.new_producer_id())
    return entries


class ProducerCore(Core):
    """The stream and queue of one producer. Create it on the event loop."""

    def __init__(self, stream: PublishStream, queue: SendQueue, config: ProducerConfig) -> None:
        self.stream = stream
        self.queue = queue
        self.config = config
        self.topic = full_topic_name(config.topic)

    @classmethod
    async def open(
        cls, connection: Connection, config: ProducerConfig, is_io_thread: Callable[[], bool]
    ) -> ProducerCore:
        """Connects. Raises ProducerBusy if the name is in use, and the broker's other errors."""
        stream = PublishStream(
            connection,
            config.topic,
            config.producer_name or "",
            send_timeout_s=config.send_timeout_millis / 1000,
        )
        await stream.open()
        try:
            entries = await _entry_maker(connection, stream, config)
        except BaseException:
            await stream.close()
            raise
        initial = config.initial_sequence_id
        container = container_for(
            stream.producer_name,
            stream.last_sequence_id if initial is None else initial,
            batching_enabled=config.batching_enabled,
            batching_type=config.batching_type,
        )
        queue = SendQueue(
            stream,
            container,
            config.limits(stream.batch_bytes_max),
            entries=entries,
            clock_ms=connection.settings.clock_ms,
            is_io_thread=is_io_thread,
        )
        stream.attach(queue.on_done, queue.on_end)
        return cls(stream, queue, config)

    @property
    def producer_name(self) -> str:
        return self.stream.producer_name

    @property
    def is_connected(self) -> bool:
        return self.stream.is_connected

    async def flush(self) -> None:
        await self.queue.flush_async()

    async def close(self) -> None:
        """Waits for receipts, at most until the send timeout, and releases the name."""
        self.queue.close_for_new()
        try:
            await self.queue.flush_async()
        finally:
            await self.stream.close()

    async def shut_down(self) -> None:
        """Closes at once: messages without a receipt fail with AlreadyClosed."""
        self.queue.close_for_new()
        await self.stream.close(grace_s=0)
