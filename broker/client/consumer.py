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

Acknowledgements are sent without waiting, as in Pulsar. They are kept until the broker says that
they are durable, and sent again after a lost connection; what was received and not acknowledged
comes again then. `close` waits until they are durable.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from ledgerfold.broker.client.connection import full_topic_name
from ledgerfold.broker.client.consumer_core import ConsumerCore
from ledgerfold.broker.client.forks import belongs_to_this_process
from ledgerfold.broker.client.inbox import deadline_after
from ledgerfold.broker.client.io_thread import IoThread
from ledgerfold.broker.client.message import Message
from ledgerfold.broker.client.message_id import MessageId
from ledgerfold.broker.client.partitioned_consumer import PartitionedConsumerCore
from ledgerfold.storage.errors import LedgerfoldError, NotAllowed

_log = logging.getLogger(__name__)
MessageListener = Callable[["Consumer", Message], object]


class Consumer:
    """Receives a subscription's messages (`pulsar.Consumer`). May be used by several threads."""

    def __init__(
        self,
        core: ConsumerCore | PartitionedConsumerCore,
        io: IoThread,
        on_close: Callable[[object], None],
        message_listener: MessageListener | None = None,
    ) -> None:
        self._core = core
        self._io = io
        self._on_close = on_close
        self._listener = message_listener
        self._has_listener = message_listener is not None
        self._may_listen = threading.Event()
        self._may_listen.set()
        belongs_to_this_process(self)
        if message_listener is not None:
            name = f"ledgerfold-listener-{core.consumer_name}"
            threading.Thread(target=self._listen, name=name, daemon=True).start()

    def topic(self) -> str:
        """The full name."""
        return full_topic_name(self._core.config.topic)

    def subscription_name(self) -> str:
        return self._core.config.subscription_name

    def consumer_name(self) -> str:
        """As given, or as the broker chose it."""
        return self._core.consumer_name

    def is_connected(self) -> bool:
        return self._core.is_connected

    def receive(self, timeout_millis: int | None = None) -> Message:
        """The next message; waits for one, without end when no timeout is given.

        Raises Timeout, AlreadyClosed, Corruption; NotAllowed when there is a message listener.
        """
        if self._has_listener:
            raise NotAllowed("This consumer's messages go to its message listener.")
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
            except Exception:  # a person's code: the next message is none of its business
                _log.exception("The message listener failed on %s.", message.message_id())

    def pause_message_listener(self) -> None:
        """Holds the listener back; one message that it waits for may still reach it."""
        self._may_listen.clear()

    def resume_message_listener(self) -> None:
        self._may_listen.set()

    def acknowledge(self, message: Message | MessageId) -> None:
        """The message is done with. Its entry is, for the broker, once all its messages are."""
        self._core.acknowledge(message)

    def acknowledge_cumulative(self, message: Message | MessageId) -> None:
        """The message and all before it are done with.

        Raises NotAllowed on a Shared or KeyShared subscription.
        """
        self._core.acknowledge_cumulative(message)

    def negative_acknowledge(self, message: Message | MessageId) -> None:
        """Deliver the message's entry again, after `negative_ack_redelivery_delay_ms`.

        On an Exclusive or Failover subscription everything without an acknowledgement comes again,
        in order, as in Pulsar. Acknowledged messages of a batch do not.
        """
        self._core.negative_acknowledge(message)

    def redeliver_unacknowledged_messages(self) -> None:
        """Delivers again, now, all that this consumer was given and has not acknowledged."""
        self._io.call(self._core.redeliver_unacknowledged())

    def seek(self, messageid: MessageId | int) -> None:
        """Moves the subscription to a message id, or to a publish time in ms; for all consumers.

        Whether the message of that id itself comes says `start_message_id_inclusive`. On a
        partitioned topic an id moves its partition alone.
        """
        self._io.call(self._core.seek(messageid))

    def has_message_available(self) -> bool:
        """Whether the topic's last message lies behind the last one that was received here.

        An estimate where others share the subscription or nothing was received yet. (Not in
        Pulsar's Python client.)
        """
        return self._core.has_message_now() or self._io.call(self._core.is_behind())

    def get_last_message_id(self) -> MessageId:
        """Of the topic, in the view that this consumer reads; -1:-1 when it is empty.

        Raises NotAllowed on a partitioned topic, as Pulsar's client does: it has several.
        """
        return self._io.call(self._core.last_message_id())

    def unsubscribe(self) -> None:
        """Deletes the subscription and closes this consumer.

        Raises SubscriptionBusy when others are connected; this consumer is closed all the same.
        """
        self._on_close(self)
        self._may_listen.set()
        self._io.call(self._core.unsubscribe())

    def close(self) -> None:
        """Waits until all acknowledgements are durable, 5 s at most. Closing twice is fine."""
        self._on_close(self)
        self._may_listen.set()
        self._io.call(self._core.close())

    def __enter__(self) -> Consumer:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()
