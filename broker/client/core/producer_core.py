"""The part of a producer that both APIs share, except waiting: configuration, stream, queue."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

from ledgerfold.broker.client.core.partition_set import Core
from ledgerfold.broker.client.core.send_queue import SendQueue
from ledgerfold.broker.client.messages.configs import ProducerConfig
from ledgerfold.broker.client.messages.options import (
    CompressionType,
)
from ledgerfold.broker.client.streams.batching import container_for
from ledgerfold.broker.client.streams.connection import Connection, full_topic_name
from ledgerfold.broker.client.streams.pending import EntryMaker, KafkaEntries, NativeEntries
from ledgerfold.broker.client.streams.publish_stream import PublishStream
from ledgerfold.broker.client.streams.reconnecting_stream import CLOSE_GRACE_S
from ledgerfold.broker.client.streams.sequences import Sequences
from ledgerfold.storage.errors import InvalidRequest
from ledgerfold.v1 import data_pb2


async def _entry_maker(
    connection: Connection, stream: PublishStream, config: ProducerConfig
) -> EntryMaker:
    """Returns the entry maker for the kind of topic that the stream is open on. Raises
    InvalidRequest.
    """
    compression = CompressionType(config.compression_type)
    if stream.codec != data_pb2.ENTRY_CODEC_KAFKA:
        return NativeEntries(
            compression,
            is_plain=not config.batching_enabled,
            schema_version=lambda: stream.schema_version,
        )
    if config.initial_sequence_id is not None:
        raise InvalidRequest(
            "Kafka topics do not support sequence ids of the caller: omit initial_sequence_id."
        )
    entries = KafkaEntries(compression, lambda: stream.batch_bytes_max)
    stream.sequences = Sequences(await connection.new_producer_id())
    return entries


def _limited(config: ProducerConfig, batch_bytes_max: int) -> ProducerConfig:
    """Returns `config` with a Kafka topic's limit of a batch; 0: no limit."""
    size = config.batching_max_allowed_size_in_bytes
    if not 0 < batch_bytes_max < size:
        return config
    return replace(config, batching_max_allowed_size_in_bytes=batch_bytes_max)


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
        stream = PublishStream(connection, config)
        await stream.open()
        try:
            entries = await _entry_maker(connection, stream, config)
        except BaseException:
            await stream.close()
            raise
        initial = config.initial_sequence_id
        container = container_for(
            config, stream.producer_name, stream.last_sequence_id if initial is None else initial
        )
        queue = SendQueue(
            stream,
            container,
            _limited(config, stream.batch_bytes_max),
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

    @property
    def is_kafka_topic(self) -> bool:
        return self.stream.codec == data_pb2.ENTRY_CODEC_KAFKA

    async def flush(self) -> None:
        await self.queue.flush_async()

    async def close(self) -> None:
        """Waits for receipts, and releases the name.

        Messages fail with AlreadyClosed if there is no connection for CLOSE_GRACE_S or, without a
        send timeout, no receipt for the operation timeout. Raises the first error of a message
        without a callback.
        """
        self.queue.close_for_new()
        limit_s = self.stream.connection.settings.operation_timeout_seconds
        waits = [
            asyncio.ensure_future(
                self._drain(None if self.config.send_timeout_millis else limit_s)
            ),
            asyncio.ensure_future(self.stream.out_of_reach(CLOSE_GRACE_S)),
        ]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
            await self.stream.close(CLOSE_GRACE_S)
        self.queue.raise_unreported()

    async def _drain(self, patience_s: float | None) -> None:
        """Waits until all messages are answered, or none has been for `patience_s`."""
        while not self.queue.is_answered:
            answered, _ = await asyncio.wait({self.queue.change()}, timeout=patience_s)
            if not answered:
                return

    async def shut_down(self) -> None:
        """Closes at once: messages without a receipt fail with AlreadyClosed."""
        self.queue.close_for_new()
        await self.stream.close(grace_s=0)
