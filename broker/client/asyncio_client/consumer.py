"""Consumers and readers for asyncio.

broker/client/sync/consumer.py and broker/client/sync/reader.py explain the rules.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

from ledgerfold.broker.client.core.consumer_core import ConsumerCore
from ledgerfold.broker.client.core.partitioned_consumer import PartitionedConsumerCore
from ledgerfold.broker.client.core.partitioned_reader import PartitionedReaderCore
from ledgerfold.broker.client.core.reader_core import ReaderCore
from ledgerfold.broker.client.messages.message import Message
from ledgerfold.broker.client.messages.message_id import MessageId
from ledgerfold.broker.client.messages.start import id_of_offset
from ledgerfold.broker.client.streams.connection import full_topic_name
from ledgerfold.broker.client.streams.forks import invalidate_after_fork
from ledgerfold.broker.client.streams.inbox import Inbox, MergedInbox
from ledgerfold.storage.errors import LedgerfoldError, Timeout


async def _next_message(
    poll: Callable[[], Message | None], inbox: Inbox | MergedInbox, timeout_millis: int | None
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
        raise Timeout("No message was received in time.") from error


class Consumer:
    """A consumer of a subscription. See `ledgerfold.Consumer`."""

    def __init__(
        self, core: ConsumerCore | PartitionedConsumerCore, forget: Callable[[object], None]
    ) -> None:
        self._core = core
        self._forget = forget
        invalidate_after_fork(self)

    def topic(self) -> str:
        return full_topic_name(self._core.config.topic)

    def subscription_name(self) -> str:
        return self._core.config.subscription_name

    def consumer_name(self) -> str:
        return self._core.consumer_name

    def is_connected(self) -> bool:
        return self._core.is_connected

    async def receive(self, timeout_millis: int | None = None) -> Message:
        """Returns the next message. Raises Timeout, AlreadyClosed, Corruption."""
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
        await self._core.seek(messageid)

    async def has_message_available(self) -> bool:
        """Returns an estimate, as `ledgerfold.Consumer.has_message_available`."""
        return self._core.has_message_now() or await self._core.is_behind()

    async def get_last_message_id(self) -> MessageId:
        return await self._core.last_message_id()

    async def unsubscribe(self) -> None:
        """Deletes the subscription and closes this consumer."""
        self._forget(self)
        await self._core.unsubscribe()

    async def close(self) -> None:
        """Waits until all acknowledgements are durable, at most 5 s, and closes."""
        self._forget(self)
        await self._core.close()


class Reader:
    """A reader of a topic, without a subscription. See `ledgerfold.Reader`. For one task at a
    time.
    """

    def __init__(
        self, core: ReaderCore | PartitionedReaderCore, forget: Callable[[object], None]
    ) -> None:
        self._core = core
        self._forget = forget
        self._moving = asyncio.Lock()
        invalidate_after_fork(self)

    def topic(self) -> str:
        return full_topic_name(self._core.config.topic)

    def is_connected(self) -> bool:
        return self._core.is_connected

    async def read_next(self, timeout_millis: int | None = None) -> Message:
        """Returns the next message. Raises Timeout, AlreadyClosed, Corruption."""
        return await _next_message(self._core.receiver.poll, self._core.inbox, timeout_millis)

    async def has_message_available(self) -> bool:
        """Returns True exactly if `read_next` would return at once."""
        return await self._core.has_message_available()

    def has_reached_end_of_topic(self) -> bool:
        return self._core.has_reached_end()

    async def __aiter__(self) -> AsyncIterator[Message]:
        """Iterates over the messages up to the end of the topic; another loop continues from
        there.
        """
        while await self.has_message_available():
            for message in self._core.receiver.entry_messages():
                yield message

    async def seek(self, messageid: MessageId | int) -> None:
        """Moves to a message id, or to the first entry published at or after a time in ms."""
        async with self._moving:
            await self._core.seek(messageid)

    async def seek_offset(self, offset: int, partition: int = -1) -> None:
        """Moves to an offset of a Kafka topic. See `ledgerfold.Reader.seek_offset`."""
        async with self._moving:
            await self._core.seek(id_of_offset(offset, partition), inclusive=True)

    async def close(self) -> None:
        self._forget(self)
        await self._core.close()
