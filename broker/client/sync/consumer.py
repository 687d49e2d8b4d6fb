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

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass

from ledgerfold.broker.client.core.client_core import AnyConsumer, Forget
from ledgerfold.broker.client.core.opened import BaseConsumer
from ledgerfold.broker.client.messages.configs import ConsumerConfig
from ledgerfold.broker.client.messages.message import Message
from ledgerfold.broker.client.messages.message_id import MessageId
from ledgerfold.broker.client.streams.closing import Closing
from ledgerfold.broker.client.streams.inbox import deadline_after
from ledgerfold.broker.client.sync.io_thread import IoThread
from ledgerfold.storage.errors import LedgerfoldError, NotAllowed

_log = logging.getLogger(__name__)
MessageListener = Callable[["Consumer", Message], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class ListeningConsumerConfig(ConsumerConfig):
    """The arguments of `Client.subscribe` (see there)."""

    message_listener: MessageListener | None = None


class Consumer(BaseConsumer, Closing):
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
        self._listener = message_listener
        self._has_listener = message_listener is not None
        self._may_listen = threading.Event()
        self._may_listen.set()
        if message_listener is not None:
            name = f"ledgerfold-listener-{core.consumer_name}"
            threading.Thread(target=self._listen, name=name, daemon=True).start()

    def receive(self, timeout_millis: int | None = None) -> Message:
        """Returns the next message; waits for one, without limit if no timeout is given.

        Raises Timeout, AlreadyClosed, Corruption; NotAllowed if there is a message listener.
        """
        if self._has_listener:
            raise NotAllowed("This consumer has a message listener, which gets its messages.")
        return self._receive(timeout_millis)

    def _receive(self, timeout_millis: int | None = None) -> Message:
        deadline_s = deadline_after(timeout_millis)
        while (message := self._core.poll()) is None:
            self._core.inbox.wait(deadline_s)
        return message

    def _listen(self) -> None:
        assert self._listener is not None
        while True:
            self._may_listen.wait()
            try:
                message = self._receive()
            except LedgerfoldError as error:
                _log.info("The message listener ends: %s", error)
                return
            try:
                self._listener(self, message)
            except Exception:  # user code: its failure must not affect the next message
                _log.exception("The message listener failed on %s.", message.message_id())

    def pause_message_listener(self) -> None:
        """Pauses the listener; one more message may still be passed to it."""
        self._may_listen.clear()

    def resume_message_listener(self) -> None:
        self._may_listen.set()

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
        self._may_listen.set()
        await self._core.unsubscribe()

    def close(self) -> None:
        """Waits until all acknowledgements are durable, at most 5 s, and closes. Idempotent."""
        self._io.call(self._close())

    async def _close(self) -> None:
        self._may_listen.set()
        await super()._close()
