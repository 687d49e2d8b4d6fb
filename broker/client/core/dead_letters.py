"""Dead letters of a consumer: entries that were redelivered too often.

The unacknowledged messages of such an entry are published to the dead letter topic; once they are
durable there, the entry is acknowledged. If that fails, the entry is redelivered later. After a
lost connection or a crash in between, its messages may be published again, as in Pulsar.

Entries wait here in the order of arrival, outside the consumer's inbox; one is published at a time.
They keep their permits until they are acknowledged: together with the inbox, they have at most
`receiver_queue_size` messages and one entry.

Source of the rules: Pulsar's ConsumerImpl (processPossibleToDLQ) and RetryMessageUtil.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from ledgerfold.broker.client.core.partitioned_producer import AnyProducer, open_producer
from ledgerfold.broker.client.messages.configs import ProducerConfig
from ledgerfold.broker.client.messages.message import Message
from ledgerfold.broker.client.messages.message_id import MessageId
from ledgerfold.broker.client.messages.new_message import NewMessage
from ledgerfold.broker.client.messages.policies import ConsumerDeadLetterPolicy
from ledgerfold.broker.client.streams.connection import Connection
from ledgerfold.broker.client.streams.inbox import Delivery
from ledgerfold.storage.errors import SubscriptionExists
from ledgerfold.storage.partition_names import base_topic
from ledgerfold.v1 import admin_pb2, data_pb2

_log = logging.getLogger(__name__)
_CLOSE_GRACE_S = 5.0


class Owner(Protocol):
    """The consumer, as its dead letters need it."""

    def unacknowledged(self, delivery: Delivery) -> Sequence[Message]:
        """Returns the messages of an entry to publish. Raises Corruption."""

    def buried(self, delivery: Delivery) -> None:
        """Acknowledges the entry."""

    def not_buried(self, delivery: Delivery) -> None:
        """Requests redelivery of the entry, after a delay."""


class DeadLetters:
    """The entries of one consumer that are to be published. Event loop only."""

    def __init__(
        self,
        connection: Connection,
        policy: ConsumerDeadLetterPolicy,
        topic: str,
        subscription: str,
        owner: Owner,
        release: Callable[[int], None],
    ) -> None:
        """`release` is called with the number of messages of each entry that is settled."""
        self._connection, self._policy = connection, policy
        self._source, self._subscription = topic, subscription
        self._topic = policy.topic_for(topic, subscription)
        self._owner, self._release = owner, release
        self._waiting: deque[Delivery] = deque()
        self._task: asyncio.Task[None] | None = None
        self._producer: AnyProducer | None = None
        # A number that changes when the entries received before become invalid.
        self._generation = 0

    def is_dead(self, delivery: Delivery) -> bool:
        return delivery.redelivery_count > self._policy.max_redeliver_count

    def add(self, delivery: Delivery) -> None:
        self._waiting.append(delivery)
        if self._task is None:
            self._task = asyncio.create_task(self._work())

    def forget(self) -> None:
        """Drops the entries that wait: they are redelivered, or a seek has moved the cursor."""
        self._generation += 1
        while self._waiting:
            self._release(self._waiting.popleft().messages)

    async def close(self, grace_s: float = _CLOSE_GRACE_S) -> None:
        """Waits for the entry that is being published, then closes the producer."""
        self.forget()
        if (task := self._task) is not None:
            _, late = await asyncio.wait({task}, timeout=grace_s)
            for each in late:
                each.cancel()
            await asyncio.wait({task})
        if self._producer is not None:
            await self._producer.shut_down()

    async def _work(self) -> None:
        try:
            while self._waiting:
                delivery = self._waiting.popleft()
                try:
                    await self._bury(delivery)
                finally:
                    self._release(delivery.messages)
        finally:
            self._task = None

    async def _bury(self, delivery: Delivery) -> None:
        generation = self._generation
        try:
            await self._publish(self._owner.unacknowledged(delivery))
        except Exception as error:  # any error: the entries that wait must not wait for ever
            _log.warning(
                "Entry %s of %s stays in the subscription %s: it was not published to %s: %s",
                delivery.header.position,
                self._source,
                self._subscription,
                self._topic,
                error,
            )
            if generation == self._generation:
                self._owner.not_buried(delivery)
            return
        if generation == self._generation:
            self._owner.buried(delivery)

    async def _publish(self, messages: Sequence[Message]) -> None:
        """Returns when the messages are durable."""
        if self._producer is None:
            self._producer = await self._open()
        queue, loop = self._producer.queue, asyncio.get_running_loop()
        try:
            stored: list[asyncio.Future[MessageId]] = []
            for message in messages:
                stored.append(loop.create_future())
                queue.add(self._letter(message), stored[-1], wait=False)
            queue.seal()
            outcomes = await asyncio.gather(*stored, return_exceptions=True)
            for outcome in outcomes:
                if isinstance(outcome, BaseException):
                    raise outcome
        except Exception:
            # It may have ended; the next entry opens another one.
            producer, self._producer = self._producer, None
            await producer.shut_down()
            raise

    async def _open(self) -> AnyProducer:
        # No limit: at most the messages of one entry are pending.
        config = ProducerConfig(self._topic, max_pending_messages=0)
        producer = await open_producer(self._connection, config, lambda: True)
        name = self._policy.initial_subscription_name
        if name is not None:
            request = admin_pb2.CreateSubscriptionRequest(
                topic=self._topic, subscription=name, start=data_pb2.StartPosition(earliest=True)
            )
            try:
                await self._connection.call(request)
            except SubscriptionExists:
                pass
            except Exception:
                await producer.shut_down()
                raise
        return producer

    def _letter(self, message: Message) -> NewMessage:
        """Returns the message to publish: a copy with its origin."""
        message_id = _id_text(message.message_id())
        origin = {
            "REAL_TOPIC": base_topic(self._source),
            "ORIGIN_MESSAGE_ID": message_id,
            # The name that older clients read.
            "ORIGIN_MESSAGE_IDY_TIME": message_id,
        }
        entry, row = message
        batch, batch_row = entry.decoded(row)
        return NewMessage(
            None if message.has_null_value() else message.data(),
            entry.key(row),
            properties=origin | message.properties(),
            event_time_ms=message.event_timestamp(),
            ordering_key=batch.ordering_key(batch_row),
            key_is_base64=batch.key_is_base64(batch_row),
        )


def _id_text(message_id: MessageId) -> str:
    """Returns the id as Pulsar's Java client writes it."""
    parts = [message_id.ledger_id(), message_id.entry_id(), message_id.partition()]
    if message_id.batch_index() >= 0:
        parts.append(message_id.batch_index())
    return ":".join(map(str, parts))
