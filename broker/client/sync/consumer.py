"""Consumers of the synchronous API.

    >>> from ledgerfold.broker.client import Client, ConsumerType
    >>> client = Client("127.0.0.1:7650")
    >>> consumer = client.subscribe("orders", "billing", ConsumerType.Shared)
    >>> sent = client.create_producer("orders").send(b"12.50", partition_key="p3")
    >>> message = consumer.receive(timeout_millis=10_000)
    >>> consumer.acknowledge(message)
    >>> message.partition_key(), message.data()
    ('p3', b'12.50')
    >>> client.close()

Acknowledgements are sent without waiting, as in Pulsar. The client keeps them until the broker
confirms that they are durable, and resends them after a lost connection; unacknowledged messages
are then redelivered. `close` waits until all are durable.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from ledgerfold.broker.client.core.client_core import AnyConsumer, Forget
from ledgerfold.broker.client.core.opened import BaseConsumer
from ledgerfold.broker.client.messages.arguments import check_may_time_out
from ledgerfold.broker.client.messages.configs import ConsumerConfig
from ledgerfold.broker.client.messages.message import Message
from ledgerfold.broker.client.messages.message_id import MessageId
from ledgerfold.broker.client.streams.closing import Closing
from ledgerfold.broker.client.streams.inbox import deadline_after
from ledgerfold.broker.client.sync.io_thread import IoThread
from ledgerfold.broker.client.sync.listening import Listened, ListenerThread
from ledgerfold.storage.errors import LedgerfoldError, Timeout

MessageListener = Callable[["Consumer", Message], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class ListeningConsumerConfig(ConsumerConfig):
    """The arguments of `Client.subscribe` (see there)."""

    message_listener: MessageListener | None = None


class Consumer(Listened[AnyConsumer], BaseConsumer, Closing):
    """A consumer of a subscription (`pulsar.Consumer`). Thread-safe."""

    def __init__(
        self,
        io: IoThread,
        message_listener: MessageListener | None,
        core: AnyConsumer,
        forget: Forget,
    ) -> None:
        super().__init__(core, forget)
        self._io = io
        if message_listener is not None:
            listen = partial(message_listener, self)
            self._begin_listening(ListenerThread(core.consumer_name, self._receive, listen))

    def receive(self, timeout_millis: int | None = None) -> Message:
        """Returns the next message; waits for one, without limit if no timeout is given.

        Raises Timeout, AlreadyClosed, Corruption; InvalidConfiguration if there is a message
        listener, or for a timeout with a `receiver_queue_size` of 0.
        """
        if self._has_listener:
            self._refuse_receiving()
        check_may_time_out(self._core.config.receiver_queue_size, timeout_millis)
        return self._receive(timeout_millis)

    def _receive(self, timeout_millis: int | None = None) -> Message:
        deadline_s = deadline_after(timeout_millis)
        while (message := self._core.poll()) is None:
            self._core.inbox.wait(deadline_s)
        return message

    def batch_receive(self) -> list[Message]:
        """Returns the next messages, up to the limits of the `batch_receive_policy`.

        Waits for the first of the policy's limits; returns an empty list if the time is over before
        a message arrives. Raises AlreadyClosed and Corruption, once nothing precedes the error;
        InvalidConfiguration if there is a message listener; NotAllowed with a `receiver_queue_size`
        of 0.
        """
        if self._has_listener:
            self._refuse_receiving()
        batch = self._new_batch(time.monotonic())
        try:
            while True:
                message = self._core.poll()
                if message is not None:
                    batch.add(message)
                if batch.is_complete(time.monotonic()):
                    break
                if message is None:
                    self._core.inbox.wait(batch.deadline_s)
        except LedgerfoldError as error:
            # The next call raises any other error again.
            if not isinstance(error, Timeout) and not batch.messages:
                raise
        return batch.messages

    def pause_message_listener(self) -> None:
        """Pauses the listener; one more message may still be passed to it."""
        if self._listening is not None:
            self._listening.pause()

    def resume_message_listener(self) -> None:
        """Resumes a paused listener."""
        if self._listening is not None:
            self._listening.resume()

    def acknowledge(self, message: Message | MessageId) -> None:
        """Acknowledges a message. The broker's entry is acknowledged once all its messages are."""
        self._core.acknowledge(message)

    def acknowledge_cumulative(self, message: Message | MessageId) -> None:
        """Acknowledges the message and all before it.

        Raises NotAllowed on a Shared or KeyShared subscription.
        """
        self._core.acknowledge_cumulative(message)

    def negative_acknowledge(self, message: Message | MessageId) -> None:
        """Requests redelivery of the message's entry after `negative_ack_redelivery_delay_ms`.

        On an Exclusive or Failover subscription everything unacknowledged is redelivered, in order,
        as in Pulsar. Acknowledged messages of a batch are not.
        """
        self._core.negative_acknowledge(message)

    def redeliver_unacknowledged_messages(self) -> None:
        """Requests immediate redelivery of all unacknowledged messages of this consumer."""
        self._io.call(self._core.redeliver_unacknowledged())

    def seek(self, messageid: MessageId | int) -> None:
        """Moves the subscription, for all consumers, to a message id or to a publish time in ms.

        `start_message_id_inclusive` decides whether the message of that id is delivered. On a
        partitioned topic an id moves only its partition.
        """
        self._io.call(self._core.seek(messageid))

    def has_message_available(self) -> bool:
        """Returns whether the topic's last message is after the last one received here.

        An estimate if consumers share the subscription or nothing was received yet. (Not in
        Pulsar's Python client.)
        """
        return self._core.has_message_now() or self._io.call(self._core.is_behind())

    def get_last_message_id(self) -> MessageId:
        """Returns the topic's last message id, in the view that this consumer reads; -1:-1 if it is
        empty.

        Raises NotAllowed on a partitioned topic, as Pulsar's client does.
        """
        return self._io.call(self._core.last_message_id())

    def unsubscribe(self) -> None:
        """Deletes the subscription and closes this consumer.

        Raises SubscriptionBusy if others are connected; this consumer is closed all the same.
        """
        self._io.call(self._unsubscribe())

    async def _unsubscribe(self) -> None:
        self._forget(self)
        self.resume_message_listener()
        try:
            await self._core.unsubscribe()
        finally:
            self._end_listener()

    def close(self) -> None:
        """Waits until all acknowledgements are durable, at most 5 s, and closes. Idempotent."""
        self._io.call(self._close())
