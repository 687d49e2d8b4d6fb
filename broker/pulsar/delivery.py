"""A connected consumer of a link, and the task that sends its messages.

If the broker ends a consumer (a seek, an unload), it closes the consumer at its client, which
reconnects it. After damage this takes a second, because the consumer would find the damage again.
"""

from __future__ import annotations

import asyncio
import logging
import re
from contextlib import ExitStack

from ledgerfold.broker.common.traffic import Traffic
from ledgerfold.broker.pulsar.batch_acks import BatchAcks
from ledgerfold.broker.pulsar.entries import to_served
from ledgerfold.broker.pulsar.frames import NO_REQUEST, command, encode_with_payload, message_id
from ledgerfold.broker.pulsar.from_native import PulsarEntry, words_of
from ledgerfold.broker.pulsar.link import THREAD_BYTES, THREAD_MESSAGES, Link
from ledgerfold.broker.security.guard import Target
from ledgerfold.broker.security.needs import Need
from ledgerfold.broker.subscriptions.consumer import Consumer, Delivery, Output
from ledgerfold.broker.subscriptions.lifecycle import remove_abandoned
from ledgerfold.broker.subscriptions.non_persistent import NonPersistentSubscription
from ledgerfold.broker.subscriptions.subscription import Subscription
from ledgerfold.broker.topics.broker import PulsarTopic
from ledgerfold.broker.topics.topic import Topic
from ledgerfold.storage.errors import InvalidRequest, LedgerfoldError, Moved
from ledgerfold.storage.partition_names import partition_index
from ledgerfold.v1 import pulsar_pb2
from ledgerfold.v1.pulsar_pb2 import CommandRedeliver, CommandSubscribe

# About a millisecond's work: then other tasks run.
_SLICE_MESSAGES = 500
_AFTER_DAMAGE_S = 1.0
# After this time, a client can be notified of changes even if it has not requested messages.
_READY_S = 1.0
# Clients that return the permits of messages that are acknowledged already: the C++ client, on
# which the Python and Node clients are built, the Go client since 0.12.1, and the Rust client,
# which counts all messages of a batch. In doubt, such messages are free: too many permits do no
# harm, but without any the delivery stops.
_RETURNS_PERMITS = re.compile(
    r"Pulsar-CPP|pulsar-rs-v|Pulsar-Go-v(0\.12\.[1-9]|0\.1[3-9]|0\.[2-9]\d|[1-9])"
)
_log = logging.getLogger(__name__)
AnySubscription = Subscription | NonPersistentSubscription


class AttachedConsumer:
    """A consumer of a connection. `acks`: those of its subscription."""

    def __init__(
        self,
        id_: int,
        link: Link,
        topic: PulsarTopic,
        subscription: AnySubscription,
        consumer: Consumer,
        acks: BatchAcks,
        resources: ExitStack,
    ) -> None:
        self.id, self.topic = id_, topic
        self.subscription, self.consumer, self.acks = subscription, consumer, acks
        self._link, self._resources = link, resources
        self._partition = partition_index(topic.name)
        # The client requested the end: it is not notified.
        self.is_leaving = self.is_detached = False
        self.delivering: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._has_notified_end = self._is_ready = False
        # A change of which the client is not notified yet.
        self._active: bool | None = None
        self._epoch: int | None = None

    @property
    def stored(self) -> tuple[Topic, Subscription] | None:
        """The topic and the subscription; None if the topic is not persistent."""
        if isinstance(self.topic, Topic) and isinstance(self.subscription, Subscription):
            return self.topic, self.subscription
        return None

    def raise_epoch(self, request: CommandSubscribe | CommandRedeliver) -> None:
        """Stamps the request's epoch on all messages that are not taken yet.

        After a redelivery, the client drops messages of an earlier epoch, which were in flight.
        As in Pulsar, only the ordered types of stored topics have epochs.
        """
        type_ = self.subscription.type
        is_ordered = self.stored is not None and type_ is not None and type_.is_ordered
        if is_ordered and request.HasField("consumer_epoch"):
            self._epoch = max(self._epoch or 0, request.consumer_epoch)

    def permitted_by(self, link: Link) -> None:
        """Ends it when its client loses the permission; the client gets the reason when it
        reconnects."""
        target = Target.topic_named(self.topic.name)

        def end(error: LedgerfoldError) -> None:
            self.consumer.end(Moved(str(error)))

        self._resources.enter_context(link.use(Need.CONSUME, target, end))

    def start(self) -> None:
        self.delivering = self._link.spawn(self._deliver())
        self._timer = asyncio.get_running_loop().call_later(_READY_S, self.ready)
        # A client that does not read, while others need the room.
        self.consumer.share.on_overrun(self._link.abort)
        self.notify_end()

    def ready(self) -> None:
        """Notifies the client whether it is active: it has requested messages, or a second has
        passed.

        NOTE: the Go client ignores notifications directly after the answer to SUBSCRIBE.
        """
        self._is_ready = True
        if self._active is not None and not self.is_detached:
            change = pulsar_pb2.CommandActiveConsumerChange(
                consumer_id=self.id, is_active=self._active
            )
            self._link.send(change)
        self._active = None

    def notify_end(self) -> None:
        """Notifies the client, once, that a terminated topic has no more messages for it."""
        is_over = self.topic.is_terminated and not self.subscription.backlog_entries()
        if is_over and not (self._has_notified_end or self.is_detached):
            self._has_notified_end = True
            end = pulsar_pb2.CommandReachedEndOfTopic(consumer_id=self.id)
            self._link.send(end)

    def notify_closed(self) -> None:
        """Closes the consumer at its client, which reconnects it."""
        closing = pulsar_pb2.CommandCloseConsumer(consumer_id=self.id, request_id=NO_REQUEST)
        self._link.send(closing)

    def detach(self) -> None:
        """Disconnects it from its subscription. Idempotent."""
        if self.is_detached:
            return
        self.is_detached = self.is_leaving = True
        if self._timer is not None:
            self._timer.cancel()
        self.subscription.detach(self.consumer)
        self.consumer.share.close()
        self._resources.close()
        if self.stored is not None:
            remove_abandoned(*self.stored)

    # Internals

    async def _deliver(self) -> None:
        try:
            while (output := await self.consumer.take()) is not None:
                await self._send(output)
        except Moved:
            pass
        except LedgerfoldError as error:
            if not self.is_leaving:
                _log.warning("Consumer %s of %s: %s", self.consumer.name, self.topic.name, error)
                await asyncio.sleep(_AFTER_DAMAGE_S)
        finally:
            is_leaving = self.is_leaving
            self.detach()
        if not is_leaving:
            self.notify_closed()

    async def _send(self, output: Output) -> None:
        if output.active is not None:
            self._active = output.active
            if self._is_ready:
                self.ready()
        for request_id in output.acked_request_ids:
            # As in Consuming.acknowledge: 0 is an id of a client.
            answer = pulsar_pb2.CommandAckResponse(consumer_id=self.id, request_id=request_id - 1)
            self._link.send(answer)
        if output.deliveries:
            await self._send_entries(output.deliveries)

    async def _send_entries(self, deliveries: list[Delivery]) -> None:
        # A redelivery may raise it while these are sent.
        epoch = self._epoch
        frames, messages, size_bytes = list[bytes](), 0, 0
        for delivery in deliveries:
            messages += delivery.messages
            frames.append(await self._frame(delivery, epoch))
            size_bytes += len(delivery.entry)
            if messages >= _SLICE_MESSAGES:
                self._count(messages, len(frames), size_bytes)
                await self._link.deliver(frames)
                frames, messages, size_bytes = [], 0, 0
                await asyncio.sleep(0)
        if frames:
            self._count(messages, len(frames), size_bytes)
            await self._link.deliver(frames)

    def _count(self, messages: int, entries: int, size_bytes: int) -> None:
        self.consumer.traffic.last_sent_ms = self._link.broker.clock_ms()
        self.topic.count_out(Traffic(messages=messages, entries=entries, bytes=size_bytes))

    async def _frame(self, delivery: Delivery, epoch: int | None) -> bytes:
        try:
            if len(delivery.entry) < THREAD_BYTES and delivery.messages < THREAD_MESSAGES:
                entry = to_served(delivery.entry)
            else:
                entry = await asyncio.to_thread(to_served, delivery.entry)
        except InvalidRequest as error:
            raise LedgerfoldError(f"Entry {delivery.position} does not decode: {error}") from error
        sent = pulsar_pb2.CommandMessage(
            consumer_id=self.id, message_id=message_id(*delivery.position, self._partition)
        )
        if delivery.redelivery_count:
            sent.redelivery_count = delivery.redelivery_count
        if epoch is not None:
            sent.consumer_epoch = epoch
        live = self._live(delivery, entry)
        if live is not None:
            sent.ack_set.extend(words_of(live & (1 << entry.batch_size) - 1, entry.batch_size))
        return encode_with_payload(command(sent), entry.metadata, entry.payload)

    def _live(self, delivery: Delivery, entry: PulsarEntry) -> int | None:
        """Returns the bits of the messages that the client gets; None: all.

        As in Pulsar, acknowledged messages cost no permits: Java's client does not return them.
        Other clients do, and would get more and more permits: they cost some there.
        """
        left = self.acks.remaining(delivery.position)
        if left is None or not entry.batch_size:
            return entry.live
        live = left & ((1 << entry.batch_size) - 1 if entry.live is None else entry.live)
        if not _RETURNS_PERMITS.match(self._link.client_version):
            acknowledged = delivery.messages - live.bit_count()
            self.subscription.add_permits(self.consumer, max(0, acknowledged))
        return live
