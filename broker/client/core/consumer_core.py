"""The part of a consumer that both APIs share, except waiting.

`poll` and the acknowledging methods are thread-safe; the coroutines run on the event loop. Source
of the rules: Pulsar's ConsumerImpl, NegativeAcksTracker and UnAckedMessageTracker.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence

from ledgerfold.broker.client.core.dead_letters import DeadLetters
from ledgerfold.broker.client.core.partition_set import Core
from ledgerfold.broker.client.messages.configs import ConsumerConfig
from ledgerfold.broker.client.messages.message import Message, ReceivedEntry
from ledgerfold.broker.client.messages.message_id import MessageId
from ledgerfold.broker.client.messages.start import SOUGHT, start_of
from ledgerfold.broker.client.streams.connection import Connection, full_topic_name
from ledgerfold.broker.client.streams.inbox import Delivery, Inbox
from ledgerfold.broker.client.streams.receiver import FirstMessage, Receiver, opened_entry
from ledgerfold.broker.client.streams.subscribe_stream import SubscribeStream
from ledgerfold.broker.client.streams.tracker import BatchAcknowledgements, DelayedPositions
from ledgerfold.broker.common.names import is_non_persistent, persistent_topic
from ledgerfold.storage.entry import Position
from ledgerfold.storage.errors import InvalidRequest, NotAllowed
from ledgerfold.v1 import data_pb2


class ConsumerCore(Core):
    """The stream, receiver and acknowledgement state of one consumer. Create it on the event
    loop.
    """

    def __init__(self, connection: Connection, topic: str, config: ConsumerConfig) -> None:
        """`config.topic` is ignored: it may be that of several consumers."""
        self.config = config
        self.topic = full_topic_name(topic)
        # Messages of other topics have no ids here, and nobody waits for their acknowledgements.
        self._is_stored = not is_non_persistent(self.topic)
        self._connection = connection
        self.inbox = Inbox()
        self.stream = SubscribeStream(
            connection,
            config.opening(self.topic),
            self.inbox,
            queue_size=config.receiver_queue_size,
            on_disconnect=self._on_disconnect,
            on_moved=self._forget_all,
            diverted=self._is_dead,
        )
        self._dead_letters: DeadLetters | None = None
        # As in Pulsar, ordered subscriptions have no dead letters: they redeliver everything, in
        # order.
        if config.dead_letter_policy is not None and config.is_shared:
            self._dead_letters = DeadLetters(
                connection,
                config.dead_letter_policy,
                self.topic,
                config.subscription_name,
                self,
                self.stream.return_permits,
            )
        self._receiver = Receiver(
            self.stream,
            self.topic,
            config.receiver_queue_size,
            self._rows_to_deliver,
            config.schema,
        )
        # NOTE: re-entrant, because poll reaches _rows_to_deliver through the receiver.
        self._lock = threading.RLock()
        self._acknowledgements = BatchAcknowledgements()
        self._negative = DelayedPositions(config.negative_ack_redelivery_delay_ms)
        # Empty without a timeout.
        self._unacked = DelayedPositions(config.unacked_messages_timeout_ms or 0)
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due_ms: int | None = None
        self._last_received = MessageId.earliest
        # One seek at a time: each disconnects the stream.
        self._moving = asyncio.Lock()

    @classmethod
    async def open(cls, connection: Connection, topic: str, config: ConsumerConfig) -> ConsumerCore:
        """Subscribes. Raises SubscriptionBusy and the broker's other errors."""
        core = cls(connection, topic, config)
        await core.stream.open()
        return core

    @property
    def consumer_name(self) -> str:
        return self.stream.consumer_name

    @property
    def is_connected(self) -> bool:
        return self.stream.is_connected

    # Receiving.

    def poll(self) -> Message | None:
        """Returns the next message, or None if none has been received."""
        with self._lock:
            message = self._receiver.poll()
            if message is None:
                if not self.config.receiver_queue_size:
                    self.stream.fetch()
                return None
            self._last_received = message.message_id()
            if self.config.unacked_messages_timeout_ms and self._is_stored:
                self._unacked.add(self._last_received.position, self._now_ms())
                self._set_timer()
        self.inbox.pass_on()
        return message

    def has_message_now(self) -> bool:
        with self._lock:
            return self._receiver.has_row()

    def _rows_to_deliver(self, entry: ReceivedEntry, rows: Sequence[int]) -> Sequence[int]:
        """Returns the rows of an entry to deliver. Called through `poll`, with the lock held."""
        if (entry.header.is_plain and rows) or not self._is_stored:
            return rows
        position, batch = entry.header.position, entry.batch
        indexes = [batch.batch_index(row) for row in rows]
        to_deliver = self._acknowledgements.opened(position, indexes) if rows else ()
        if not to_deliver:
            # All messages that are wanted precede the seek target: without this, the entry would
            # stay unacknowledged.
            self.stream.acknowledge(position)
            return ()
        if len(to_deliver) == len(rows):
            return rows
        unacknowledged = set(to_deliver)
        return [row for row, index in zip(rows, indexes, strict=True) if index in unacknowledged]

    # Dead letters: these run on the event loop.

    def _is_dead(self, delivery: Delivery) -> bool:
        if self._dead_letters is None or not self._dead_letters.is_dead(delivery):
            return False
        self._dead_letters.add(delivery)
        return True

    def unacknowledged(self, delivery: Delivery) -> Sequence[Message]:
        """Returns the messages of a delivered entry that are not acknowledged."""
        entry = opened_entry(delivery, self.topic)
        with self._lock:
            rows = self._rows_to_deliver(entry, range(entry.batch.rows))
        return [Message((entry, row)) for row in rows]

    def buried(self, delivery: Delivery) -> None:
        """Acknowledges an entry whose messages are in the dead letter topic."""
        position = delivery.header.position
        with self._lock:
            self._acknowledgements.discard(position)
            self.stream.acknowledge(position)

    def not_buried(self, delivery: Delivery) -> None:
        with self._lock:
            self._negative.add(delivery.header.position, self._now_ms())
            self._set_timer()

    # Acknowledging.

    def acknowledge(self, message: Message | MessageId) -> None:
        message_id = id_of(message)
        self.stream.raise_ended()
        if not self._is_stored:
            return
        with self._lock:
            position = message_id.position
            if self._acknowledgements.acknowledge(position, message_id.batch_index()):
                self._negative.discard(position)
                self._unacked.discard(position)
                self.stream.acknowledge(position)

    def acknowledge_cumulative(self, message: Message | MessageId) -> None:
        if self.config.is_shared:
            raise NotAllowed(
                "Shared and KeyShared subscriptions do not support cumulative acknowledgement."
            )
        message_id = id_of(message)
        self.stream.raise_ended()
        if not self._is_stored:
            return
        with self._lock:
            through = self._acknowledgements.acknowledge_cumulative(
                message_id.position, message_id.batch_index()
            )
            if through is not None:
                self._negative.discard_through(through)
                self._unacked.discard_through(through)
                self.stream.acknowledge_cumulative(through)

    def negative_acknowledge(self, message: Message | MessageId) -> None:
        self.stream.raise_ended()
        position = id_of(message).position
        if not self._is_stored:
            return
        with self._lock:
            self._negative.add(position, self._now_ms())
            self._unacked.discard(position)
            self._set_timer()

    # Redelivery.

    def _now_ms(self) -> int:
        return int(self.stream.loop.time() * 1000)

    def _set_timer(self) -> None:
        """Starts the timer for the next due entry. Called with the lock held."""
        waiting = (self._negative.next_due_ms, self._unacked.next_due_ms)
        due_ms = min((due for due in waiting if due is not None), default=None)
        if due_ms is not None and (self._timer_due_ms is None or due_ms < self._timer_due_ms):
            self._timer_due_ms = due_ms
            self.stream.loop.call_soon_threadsafe(self._start_timer, due_ms)

    def _start_timer(self, due_ms: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        # One ms late: `_now_ms` rounds down.
        self._timer = self.stream.loop.call_at((due_ms + 1) / 1000, self._on_timer)

    def _on_timer(self) -> None:
        with self._lock:
            self._timer = self._timer_due_ms = None
            now_ms = self._now_ms()
            due = self._negative.take_due(now_ms) + self._unacked.take_due(now_ms)
            if due and self.stream.error is None:
                self._redeliver(due)
            self._set_timer()

    def _redeliver(self, positions: Sequence[Position]) -> None:
        if self.config.is_shared:
            self.stream.redeliver(positions)
        else:
            # An ordered subscription is redelivered from the first unacknowledged message.
            self._redeliver_all()

    def _redeliver_all(self) -> None:
        self._forget_timers()
        self.stream.redeliver_all()

    def _forget_timers(self) -> None:
        self._negative.clear()
        self._unacked.clear()

    async def redeliver_unacknowledged(self) -> None:
        self.stream.raise_ended()
        with self._lock:
            self._redeliver_all()

    def _on_disconnect(self) -> None:
        if self._dead_letters is not None:
            self._dead_letters.forget()
        with self._lock:
            self._forget_timers()
            if self.config.is_shared:
                # Other consumers may receive and acknowledge the messages of this one.
                self._acknowledgements.clear()

    # Seek, queries, close.

    async def seek(self, place: MessageId | int) -> None:
        """Seeks on the broker; this consumer is disconnected meanwhile. Raises NotAllowed for a
        non-persistent topic.
        """
        self.stream.raise_ended()
        persistent_topic(self.topic, SOUGHT)
        async with self._moving:
            await self._seek(place)

    async def _seek(self, place: MessageId | int) -> None:
        config = self.config
        inclusive = config.start_message_id_inclusive
        if inclusive:
            place = await self._connection.without_latest(
                self.topic, place, config.is_read_compacted
            )
        request = data_pb2.SeekRequest(
            topic=self.topic,
            subscription=config.subscription_name,
            start=start_of(place, inclusive=inclusive),
        )
        await self.stream.pause()
        try:
            answer = await self._connection.call(request)
            self.stream.moved(answer.incarnation)
            if isinstance(place, MessageId):
                self._receiver.first = FirstMessage(place, inclusive=inclusive)
        finally:
            self.stream.resume()

    def _forget_all(self) -> None:
        """Resets all state after a seek by any consumer."""
        if self._dead_letters is not None:
            self._dead_letters.forget()
        with self._lock:
            self._forget_timers()
            self._acknowledgements.clear()
            self._receiver.forget()
            self._receiver.first = None
            self._last_received = MessageId.earliest

    async def last_message_id(self) -> MessageId:
        self.stream.raise_ended()
        return await self._connection.last_message_id(self.topic, self.config.is_read_compacted)

    async def is_behind(self) -> bool:
        """Returns whether the topic's last message is after the last one received."""
        return is_after(await self.last_message_id(), self._last_received)

    async def unsubscribe(self) -> None:
        self.stream.raise_ended()
        await self.close()
        request = data_pb2.UnsubscribeRequest(
            topic=self.topic, subscription=self.config.subscription_name
        )
        await self._connection.call(request)

    async def shut_down(self) -> None:
        """Closes at once: unconfirmed acknowledgements may be lost."""
        if self._dead_letters is not None:
            await self._dead_letters.close(grace_s=0)
        await self.stream.close(grace_s=0)

    async def close(self) -> None:
        if self._dead_letters is not None:
            await self._dead_letters.close()
        await self.stream.close()
        # Queued messages are no longer received.
        self.inbox.clear()


def is_after(last: MessageId, received: MessageId) -> bool:
    """Returns whether the topic's last message is after the last one received.

    A batch that cannot be opened is received as one message, without an index; the broker reports
    the index of its last message.
    """
    if received.batch_index() < 0:
        return last.position > received.position
    return last > received


def id_of(message: Message | MessageId) -> MessageId:
    """Returns the id of the message that is to be acknowledged. Raises InvalidRequest."""
    if isinstance(message, Message):
        return message.message_id()
    if isinstance(message, MessageId):
        # An id that is out of range would fail all later acknowledgements of its frame.
        message.to_record()
        return message
    raise InvalidRequest(f"Expected a message or a message id, not {type(message).__name__}.")
