"""Producers, consumers, readers and table views for asyncio.

The modules of broker/client/sync explain the rules.

    >>> import asyncio
    >>> from ledgerfold.broker.client.asyncio_client.client import Client
    >>> async def example() -> None:
    ...     async with Client("127.0.0.1:7650") as client:
    ...         producer = await client.create_producer("prices")
    ...         await producer.send(b"10", partition_key="p3")
    ...         async with await client.create_table_view("prices") as view:
    ...             view.for_each_and_listen(lambda key, value: print(key, value))
    >>> asyncio.run(example())
    p3 b'10'

Listeners of table views are plain functions, called on the event loop: they must not block, and
should start a task for longer work.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import timedelta
from typing import Any, Self

from ledgerfold.broker.client.core.client_core import AnyConsumer, AnyReader, Forget
from ledgerfold.broker.client.core.opened import (
    BaseConsumer,
    BaseProducer,
    BaseReader,
    BaseTableView,
)
from ledgerfold.broker.client.messages.argument_types import TIMEOUT_TYPES, check_type
from ledgerfold.broker.client.messages.arguments import check_may_time_out
from ledgerfold.broker.client.messages.message import Message
from ledgerfold.broker.client.messages.message_id import MessageId
from ledgerfold.broker.client.messages.start import id_of_offset
from ledgerfold.storage.errors import LedgerfoldError, Overloaded, Timeout


class Producer(BaseProducer):
    """A producer of a topic. See `ledgerfold.Producer`."""

    async def send(
        self,
        content: Any,
        properties: dict[str, str] | None = None,
        partition_key: str | bytes | None = None,
        ordering_key: str | bytes | None = None,
        sequence_id: int | None = None,
        replication_clusters: Sequence[str] | None = None,
        disable_replication: bool | None = None,
        event_timestamp: int | None = None,
        deliver_at: int | None = None,
        deliver_after: timedelta | None = None,
    ) -> MessageId:
        """Publishes one message and waits until it is durable.

        Messages of tasks that send concurrently share batches; a batch is sent when it is full or
        its delay is over. Cancelling the call does not withdraw its message.
        """
        message = self._checked(
            self._encoded(content),
            properties,
            partition_key,
            ordering_key,
            sequence_id,
            replication_clusters,
            disable_replication,
            event_timestamp,
            deliver_at,
            deliver_after,
        )
        stored: asyncio.Future[MessageId] = asyncio.get_running_loop().create_future()
        queue = self._core.queue
        while True:
            try:
                queue.add(message, stored, wait=False)
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
        """Flushes, and releases the producer's name, as `ledgerfold.Producer.close`."""
        await self._close()


async def _next_message(core: AnyConsumer | AnyReader, timeout_millis: int | None) -> Message:
    check_type(timeout_millis, TIMEOUT_TYPES, "timeout_millis")
    check_may_time_out(core.config.receiver_queue_size, timeout_millis)
    message = core.poll()
    if message is not None:
        return message
    try:
        async with asyncio.timeout(None if timeout_millis is None else timeout_millis / 1000):
            while (message := core.poll()) is None:
                await core.inbox.wait_async()
            return message
    except LedgerfoldError:
        raise
    except TimeoutError as error:
        raise Timeout("No message was received in time.") from error


class Consumer(BaseConsumer):
    """A consumer of a subscription. See `ledgerfold.Consumer`."""

    def __init__(self, core: AnyConsumer, forget: Forget) -> None:
        super().__init__(core, forget)
        # Received by a `batch_receive` that was cancelled.
        self._uncollected: list[Message] = []

    async def receive(self, timeout_millis: int | None = None) -> Message:
        """Returns the next message. Raises Timeout, AlreadyClosed, Corruption."""
        return await _next_message(self._core, timeout_millis)

    async def batch_receive(self) -> list[Message]:
        """Returns the next messages, up to the limits of the `batch_receive_policy`.

        If a call is cancelled, the next one returns its messages.
        """
        core, clock = self._core, asyncio.get_running_loop().time
        batch = self._new_batch(clock(), self._uncollected)
        self._uncollected = []
        try:
            while True:
                message = core.poll()
                if message is not None:
                    batch.add(message)
                if batch.is_complete(clock()):
                    break
                if message is None:
                    async with asyncio.timeout_at(batch.deadline_s):
                        await core.inbox.wait_async()
        except asyncio.CancelledError:
            self._uncollected += batch.messages
            raise
        except LedgerfoldError:
            # The next call raises it again.
            if not batch.messages:
                raise
        except TimeoutError:
            pass
        return batch.messages

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
        await self._close()


class Reader(BaseReader):
    """A reader of a topic, without a subscription. See `ledgerfold.Reader`. It may be used by one
    task at a time.
    """

    def __init__(self, core: AnyReader, forget: Forget) -> None:
        super().__init__(core, forget)
        self._moving = asyncio.Lock()

    async def read_next(self, timeout_millis: int | None = None) -> Message:
        """Returns the next message. Raises Timeout, AlreadyClosed, Corruption."""
        return await _next_message(self._core, timeout_millis)

    async def has_message_available(self) -> bool:
        """Returns True exactly if `read_next` would return at once."""
        return await self._core.has_message_available()

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
        await self._close()


async def run_here(call: Callable[[], None]) -> None:
    """Runs `call` on the event loop, after other tasks have had a chance to run."""
    await asyncio.sleep(0)
    call()


class TableView(BaseTableView):
    """The last value of each key. See `ledgerfold.TableView`."""

    async def refresh(self) -> None:
        """Returns when the view holds everything in the topic at the call. Raises AlreadyClosed."""
        await self._core.refresh()

    async def close(self) -> None:
        """Stops reading and listening."""
        await self._close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()
