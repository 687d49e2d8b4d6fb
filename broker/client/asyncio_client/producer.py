"""Producers for asyncio. broker/client/sync/producer.py explains the rules."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ledgerfold.broker.client.core.partitioned_producer import PartitionedProducerCore
from ledgerfold.broker.client.core.producer_core import ProducerCore
from ledgerfold.broker.client.messages.message_id import MessageId
from ledgerfold.broker.client.streams.connection import full_topic_name
from ledgerfold.broker.client.streams.forks import invalidate_after_fork
from ledgerfold.storage.errors import Overloaded


class Producer:
    """A producer of a topic. See `ledgerfold.Producer`."""

    def __init__(
        self, core: ProducerCore | PartitionedProducerCore, forget: Callable[[object], None]
    ) -> None:
        self._core = core
        self._forget = forget
        invalidate_after_fork(self)

    def topic(self) -> str:
        return full_topic_name(self._core.config.topic)

    def producer_name(self) -> str:
        return self._core.producer_name

    def last_sequence_id(self) -> int:
        """The sequence id of the last stored message; -1 without one."""
        return self._core.queue.last_sequence_id_stored

    def is_connected(self) -> bool:
        return self._core.is_connected

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

        Messages of tasks that send concurrently share batches; a batch is sent when it is full or
        its delay is over. Cancelling the call does not withdraw its message.
        """
        stored: asyncio.Future[MessageId] = asyncio.get_running_loop().create_future()
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
        """Sends the open batch and waits until all messages so far are durable."""
        await self._core.flush()

    async def close(self) -> None:
        """Flushes, and releases the producer's name."""
        self._forget(self)
        await self._core.close()
