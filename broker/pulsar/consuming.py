"""Consumers and readers: SUBSCRIBE, FLOW, ACK, REDELIVER, SEEK and their ends.

A reader of Pulsar is a consumer with an Exclusive subscription that is not durable.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from weakref import WeakKeyDictionary

from ledgerfold.broker.common.shielding import run_to_completion
from ledgerfold.broker.pulsar.acknowledging import acknowledge_entries, named_positions
from ledgerfold.broker.pulsar.batch_acks import BatchAcks
from ledgerfold.broker.pulsar.consumer_options import options_of, start_at, start_of
from ledgerfold.broker.pulsar.delivery import AnySubscription, AttachedConsumer
from ledgerfold.broker.pulsar.errors import error_answer, text_of
from ledgerfold.broker.pulsar.frames import message_id
from ledgerfold.broker.pulsar.link import Link, properties_of
from ledgerfold.broker.pulsar.lookups import NO_TRANSACTIONS, known_topic
from ledgerfold.broker.pulsar.schemas import check_consumer, takes_any
from ledgerfold.broker.subscriptions.consumer import Consumer, ConsumerOptions
from ledgerfold.broker.subscriptions.dispatcher import SubscriptionType
from ledgerfold.broker.subscriptions.lifecycle import (
    connect_consumer,
    delete_subscription,
    remove_abandoned,
    seek_subscription,
)
from ledgerfold.broker.subscriptions.subscription import Subscription
from ledgerfold.broker.topics.broker import PulsarTopic
from ledgerfold.broker.topics.non_persistent_topic import IS_NON_PERSISTENT, NonPersistentTopic
from ledgerfold.broker.topics.topic import Topic
from ledgerfold.storage.codec import last_batch_index
from ledgerfold.storage.errors import (
    LedgerfoldError,
    Moved,
    NotAllowed,
    SubscriptionBusy,
    Unavailable,
)
from ledgerfold.storage.partition_names import partition_index
from ledgerfold.v1 import pulsar_pb2
from ledgerfold.v1.data_pb2 import StartPosition
from ledgerfold.v1.pulsar_pb2 import BaseCommand, CommandAck, CommandSubscribe

_PERMITS_MAX = 2**31
_log = logging.getLogger(__name__)

# The partly acknowledged batches of all subscriptions.
AllBatchAcks = WeakKeyDictionary[AnySubscription, BatchAcks]


class Consuming:
    """The consumers of one connection. `end_silent`: closes that of another address, if silent."""

    def __init__(
        self, link: Link, acks: AllBatchAcks, end_silent: Callable[[str], Awaitable[bool]]
    ) -> None:
        self._link, self._acks, self._end_silent = link, acks, end_silent
        self._consumers: dict[int, AttachedConsumer] = {}
        # Subscriptions of readers, kept for the consumers that a seek has disconnected.
        self._topics_of_seeks: dict[Subscription, Topic] = {}
        # A mark for each id that is being connected: CLOSE_CONSUMER removes it, and the id may be
        # opened again before the first attempt notices.
        self._opening: dict[int, object] = {}

    # Opening and closing

    async def open(self, request: BaseCommand) -> None:
        """Connects a consumer. Raises the reason for a refusal."""
        opening = request.subscribe
        known = self._consumers.get(opening.consumer_id)
        if opening.consumer_id in self._opening:
            raise Unavailable("The consumer is being connected; try again.")
        if known is not None and not known.is_detached:
            # The client reconnects it, and has not noticed the end of the connection.
            known.raise_epoch(opening)
            self._link.succeed(opening.request_id)
            return
        mark = self._opening[opening.consumer_id] = object()
        try:
            await self._open(opening, mark)
        finally:
            if self._opening.get(opening.consumer_id) is mark:
                del self._opening[opening.consumer_id]

    async def _open(self, opening: CommandSubscribe, mark: object) -> None:
        broker = self._link.broker
        options = options_of(opening, on_ring=broker.settings.hashes_consistently)
        name = known_topic(broker, opening.topic)
        topic = await broker.pulsar_topic(name, create=opening.force_topic_creation)
        await check_consumer(self._link, topic, opening)
        with ExitStack() as resources:
            resources.enter_context(broker.outgoing.stream())
            try:
                subscription, consumer = await self._attach(topic, opening, options)
            except SubscriptionBusy:
                if not await self._end_holder(topic, opening.subscription, options):
                    raise
                subscription, consumer = await self._attach(topic, opening, options)
            attached = AttachedConsumer(
                opening.consumer_id,
                self._link,
                topic,
                subscription,
                consumer,
                self._acks_of(subscription),
                resources.pop_all(),
            )
        if self._link.is_closed or self._opening.get(opening.consumer_id) is not mark:
            attached.detach()
            return
        consumer.peer = self._link.peer(opening.metadata)
        consumer.takes_any_schema = takes_any(opening)
        self._consumers[attached.id] = attached
        if isinstance(subscription, Subscription):
            self._topics_of_seeks.pop(subscription, None)
        attached.permitted_by(self._link)
        attached.raise_epoch(opening)
        self._link.succeed(opening.request_id)
        attached.start()

    async def _attach(
        self, topic: PulsarTopic, opening: CommandSubscribe, options: ConsumerOptions
    ) -> tuple[AnySubscription, Consumer]:
        """Connects a consumer to its subscription, which is created if needed."""
        if isinstance(topic, NonPersistentTopic):
            return topic.attach(opening.subscription, options)
        now_ms = self._link.broker.clock_ms()
        name, start = opening.subscription, start_of(opening, now_ms)
        properties = properties_of(opening.subscription_properties)
        return await connect_consumer(
            topic, name, start, options, created_ms=now_ms, properties=properties
        )

    async def _end_holder(self, topic: PulsarTopic, name: str, options: ConsumerOptions) -> bool:
        """Ends the consumer of an Exclusive subscription if its client is gone."""
        held = topic.subscriptions.get(name)
        exclusive = SubscriptionType.EXCLUSIVE
        if held is None or not (held.type is options.type is exclusive) or not held.consumers:
            return False
        address = held.consumers[0].peer.address
        return address != self._link.address and await self._end_silent(address)

    def _acks_of(self, subscription: AnySubscription) -> BatchAcks:
        acks, incarnation = self._acks.get(subscription), subscription.incarnation
        if acks is None or acks.incarnation != incarnation:
            # A seek, by a consumer or an administrator, revokes acknowledgements.
            acks = self._acks[subscription] = BatchAcks(incarnation)
        return acks

    async def close(self, request: BaseCommand) -> None:
        closing = request.close_consumer
        self._opening.pop(closing.consumer_id, None)
        attached = self._consumers.pop(closing.consumer_id, None)
        await self._detach(attached)
        if attached is not None and attached.stored is not None:
            self._release(attached.stored[1])
        self._link.succeed(closing.request_id)

    def _release(self, subscription: Subscription) -> None:
        """Removes a reader's subscription that a seek has kept for it."""
        topic = self._topics_of_seeks.pop(subscription, None)
        if topic is not None:
            _drop(topic, subscription)

    async def unsubscribe(self, request: BaseCommand) -> None:
        """Deletes the subscription. Raises SubscriptionBusy; answers other errors itself."""
        requested = request.unsubscribe
        attached = self._connected(requested.consumer_id)
        subscription = attached.subscription
        if len(subscription.consumers) > 1 and not requested.force:
            why = "other consumers are connected; close them first."
            raise SubscriptionBusy(attached.topic.name, subscription.name, why)
        attached.is_leaving = True
        try:
            if isinstance(attached.topic, NonPersistentTopic):
                attached.topic.delete_subscription(subscription.name, force=True)
            else:
                deleting = delete_subscription(attached.topic, subscription.name, force=True)
                await run_to_completion(deleting)
        except LedgerfoldError as error:
            # The subscription remains, without this consumer. NOTE: the Java client reconnects it
            # only if the error has arrived before.
            self._link.send(error_answer(requested.request_id, error))
            attached.notify_closed()
            return
        finally:
            self._consumers.pop(requested.consumer_id, None)
            await self._detach(attached)
        self._link.succeed(requested.request_id)

    async def _detach(self, attached: AttachedConsumer | None) -> None:
        if attached is not None:
            attached.detach()
            if attached.delivering is not None:
                attached.delivering.cancel()
                await asyncio.wait((attached.delivering,))

    def closed(self) -> None:
        """Disconnects all consumers: the connection is lost."""
        self._opening.clear()
        for attached in self._consumers.values():
            attached.detach()
        self._consumers.clear()
        for subscription in tuple(self._topics_of_seeks):
            self._release(subscription)

    def look_for_ends(self) -> None:
        """Notifies consumers of topics that were terminated meanwhile."""
        for attached in self._consumers.values():
            if not attached.is_detached and attached.topic.is_terminated:
                attached.notify_end()

    def _connected(self, consumer_id: int) -> AttachedConsumer:
        attached = self._consumers.get(consumer_id)
        if attached is None:
            raise Moved("The consumer is not connected; try again.")
        return attached

    # Requests of a connected consumer; those of another are late, and have no effect

    async def flow(self, request: BaseCommand) -> None:
        attached = self._consumers.get(request.flow.consumer_id)
        if attached is None:
            return
        consumer = attached.consumer
        permits = min(request.flow.message_permits, _PERMITS_MAX - consumer.state.permits)
        consumer.traffic.last_flow_ms = self._link.broker.clock_ms()
        attached.subscription.add_permits(consumer, max(0, permits))
        attached.ready()

    async def redeliver(self, request: BaseCommand) -> None:
        requested = request.redeliver
        attached = self._consumers.get(requested.consumer_id)
        if attached is not None:
            attached.raise_epoch(requested)
            positions = await named_positions(requested.message_ids, attached.subscription)
            attached.subscription.redeliver(attached.consumer, positions)

    async def acknowledge(self, request: BaseCommand) -> None:
        ack = request.ack
        attached = self._consumers.get(ack.consumer_id)
        if attached is None:
            return
        try:
            if ack.HasField("txnid_least_bits") or ack.HasField("txnid_most_bits"):
                raise NotAllowed(NO_TRANSACTIONS)
            if ack.HasField("validation_error"):
                _log.warning("Consumer %s could not read a message", attached.consumer.name)
            await self._acknowledge(ack, attached)
        except LedgerfoldError as error:
            _log.info("An acknowledgement of %s: %s", attached.consumer.name, error)
            if ack.HasField("request_id"):
                answer = pulsar_pb2.CommandAckResponse(
                    consumer_id=ack.consumer_id,
                    request_id=ack.request_id,
                    error=pulsar_pb2.NOT_ALLOWED,
                    message=text_of(error),
                )
                self._link.send(answer)

    async def _acknowledge(self, ack: CommandAck, attached: AttachedConsumer) -> None:
        subscription, consumer = attached.subscription, attached.consumer
        if attached.stored is not None:
            await acknowledge_entries(ack, attached, *attached.stored)
        consumer.traffic.last_acked_ms = self._link.broker.clock_ms()
        attached.notify_end()
        if ack.HasField("request_id"):
            # 0 means none in the broker, but is a valid id of a client (AttachedConsumer._send).
            subscription.acknowledge(consumer, (), request_id=ack.request_id + 1)

    # Positions

    async def seek(self, request: BaseCommand) -> None:
        """Moves the cursor. The client is notified of the end of its consumer first, as it expects.

        Raises InvalidRequest, SubscriptionBusy, StorageError, Moved.
        """
        requested = request.seek
        attached = self._connected(requested.consumer_id)
        start = start_at(requested)
        if attached.stored is None:
            # As in Pulsar: there is no position to move to.
            self._link.succeed(requested.request_id)
            return
        topic, subscription = attached.stored
        if not subscription.is_durable:
            self._topics_of_seeks[subscription] = topic
        await run_to_completion(self._move(topic, subscription, start))
        if attached.delivering is not None:
            await asyncio.wait((attached.delivering,))
        self._link.succeed(requested.request_id)

    async def _move(self, topic: Topic, subscription: Subscription, start: StartPosition) -> None:
        try:
            await seek_subscription(topic, subscription.name, start)
        finally:
            if subscription not in self._topics_of_seeks:
                # Its reader was closed, or its connection lost, while the move kept it.
                _drop(topic, subscription)

    async def last_message_id(self, request: BaseCommand) -> None:
        requested = request.get_last_message_id
        attached = self._connected(requested.consumer_id)
        if attached.stored is None:
            raise NotAllowed(IS_NON_PERSISTENT.format(attached.topic.name))
        (topic, subscription), consumer = attached.stored, attached.consumer
        entry = await topic.log.search.last_entry(consumer.read_compacted)
        partition = partition_index(topic.name)
        last = message_id(-1, -1, partition)
        if entry is not None:
            last = message_id(*entry.header.position, partition)
            index = last_batch_index(entry.data, entry.header)
            if index >= 0:
                last.batch_index = index
        answer = pulsar_pb2.CommandGetLastMessageIdResponse(
            request_id=requested.request_id,
            last_message_id=last,
            consumer_mark_delete_position=message_id(*subscription.mark_delete),
        )
        self._link.send(answer)

    async def stats(self, request: BaseCommand) -> None:
        requested = request.consumer_stats
        attached = self._consumers.get(requested.consumer_id)
        answer = pulsar_pb2.CommandConsumerStatsResponse(request_id=requested.request_id)
        if attached is None:
            answer.error_code = pulsar_pb2.CONSUMER_NOT_FOUND
            answer.error_message = "The consumer is not connected."
        else:
            consumer, subscription = attached.consumer, attached.subscription
            answer.consumer_name = consumer.name
            answer.available_permits = max(0, consumer.state.permits)
            answer.unacked_messages = consumer.state.unacked_messages
            answer.address, answer.type = self._link.address, str(subscription.type)
            answer.msg_backlog = subscription.backlog_entries()
        self._link.send(answer)


def _drop(topic: Topic, subscription: Subscription) -> None:
    subscription.is_kept = False
    remove_abandoned(topic, subscription)
