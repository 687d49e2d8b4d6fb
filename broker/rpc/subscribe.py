"""The Subscribe stream, Seek and Unsubscribe of DataService.

Each write waits until gRPC has accepted it, so that a slow client holds back only its own queue
(broker/subscriptions/consumer.py). When the stream ends, for any reason, the consumer is detached,
and its unacknowledged entries are redelivered.

Bounds: a request has at most REQUEST_BYTES_MAX; other tasks run after every SLICE_POSITIONS of its
positions. A response has at most FRAME_BYTES_MAX.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence

from ledgerfold.broker.common.given_names import check_name, check_properties
from ledgerfold.broker.common.names import COMPACTION_CURSOR, full_topic, persistent_topic
from ledgerfold.broker.common.shielding import runs_to_completion
from ledgerfold.broker.common.traffic import Traffic
from ledgerfold.broker.rpc.stream import Context, Requests, exchange, peer_of
from ledgerfold.broker.subscriptions.consumer import Consumer, ConsumerOptions, Output
from ledgerfold.broker.subscriptions.dispatcher import HashRange, SubscriptionType
from ledgerfold.broker.subscriptions.key_owners import KeySharedPolicy
from ledgerfold.broker.subscriptions.lifecycle import (
    connect_consumer,
    delete_subscription,
    remove_abandoned,
    seek_subscription,
)
from ledgerfold.broker.subscriptions.non_persistent import NonPersistentSubscription
from ledgerfold.broker.subscriptions.subscription import Subscription
from ledgerfold.broker.topics.broker import Broker, PulsarTopic
from ledgerfold.broker.topics.client_schemas import check_consumer
from ledgerfold.broker.topics.non_persistent_topic import NonPersistentTopic
from ledgerfold.broker.topics.operations import disable_compaction
from ledgerfold.broker.topics.partitions import on_each
from ledgerfold.broker.wire.frames import encode_deliveries
from ledgerfold.storage.codec import check_readable
from ledgerfold.storage.entry import Position
from ledgerfold.storage.errors import InvalidRequest, NotAllowed
from ledgerfold.v1 import data_pb2
from ledgerfold.v1.records_pb2 import Position as PositionRecord

REQUEST_BYTES_MAX = 2 * 1024 * 1024
REQUESTS = Requests(data_pb2.SubscribeRequest, REQUEST_BYTES_MAX, "Send fewer positions in each.")
# About a millisecond's work.
SLICE_POSITIONS = 200
_REQUEST_IDS_PER_FRAME_MAX = 10_000
AnySubscription = Subscription | NonPersistentSubscription

_TYPES = {
    # As in Pulsar: the default type is Exclusive.
    data_pb2.SUBSCRIPTION_TYPE_UNSPECIFIED: SubscriptionType.EXCLUSIVE,
    data_pb2.SUBSCRIPTION_TYPE_EXCLUSIVE: SubscriptionType.EXCLUSIVE,
    data_pb2.SUBSCRIPTION_TYPE_SHARED: SubscriptionType.SHARED,
    data_pb2.SUBSCRIPTION_TYPE_FAILOVER: SubscriptionType.FAILOVER,
    data_pb2.SUBSCRIPTION_TYPE_KEY_SHARED: SubscriptionType.KEY_SHARED,
}


async def subscribe(broker: Broker, context: Context) -> None:
    """Serves a stream of serialized SubscribeRequest and SubscribeResponse messages."""
    opening = await REQUESTS.opening(context)
    if opening is None:
        return
    options = _options(opening, on_ring=broker.settings.hashes_consistently)
    options.check()
    topic = await broker.pulsar_topic(full_topic(opening.topic))
    if opening.HasField("schema"):
        await check_consumer(broker.schemas, topic, opening.schema)
    subscription, consumer = await _attach(topic, opening, options, broker.clock_ms())
    consumer.peer = peer_of(context, broker.clock_ms(), opening.properties)

    async def take(frame: bytes) -> None:
        await _handle(REQUESTS.parse(frame), subscription, consumer, broker.clock_ms)

    async def deliver() -> None:
        ready = data_pb2.SubscribeReady(
            consumer_name=consumer.name,
            incarnation=subscription.incarnation,
            permits=opening.permits,
        )
        await context.write(data_pb2.SubscribeResponse(ready=ready).SerializeToString())
        while (frames := await next_frames()) is not None:
            while frames:
                # Only gRPC holds it during the write.
                await context.write(frames.popleft())

    async def next_frames() -> deque[bytes] | None:
        output = await consumer.take()
        if output is None:
            return None
        if output.deliveries:
            consumer.traffic.last_sent_ms = broker.clock_ms()
            topic.count_out(_traffic(output))
        if not opening.reads_pulsar_entries:
            check_readable(each.entry for each in output.deliveries)
        return deque(_frames(output))

    try:
        if opening.permits:
            consumer.traffic.last_flow_ms = broker.clock_ms()
            subscription.add_permits(consumer, opening.permits)
        await exchange(context, consumer, take, deliver(), consumer.share)
    finally:
        subscription.detach(consumer)
        consumer.share.close()
        if not isinstance(topic, NonPersistentTopic) and isinstance(subscription, Subscription):
            remove_abandoned(topic, subscription)


@runs_to_completion
async def seek(broker: Broker, request: data_pb2.SeekRequest) -> data_pb2.SeekResponse:
    """Moves a cursor; returns when that is durable. Consumers are disconnected first."""
    topic = await broker.topic(persistent_topic(request.topic), create=False)
    subscription = await seek_subscription(topic, request.subscription, request.start)
    return data_pb2.SeekResponse(incarnation=subscription.cursor.incarnation)


@runs_to_completion
async def unsubscribe(broker: Broker, request: data_pb2.UnsubscribeRequest) -> None:
    """Deletes a cursor, or one on each partition; returns when that is durable.

    Deleting `__compaction` disables compaction.
    """
    names = broker.partitions.names(full_topic(request.topic))
    await on_each(names, lambda name: _unsubscribe(broker, name, request))


async def _unsubscribe(broker: Broker, name: str, request: data_pb2.UnsubscribeRequest) -> None:
    topic = await broker.pulsar_topic(name, create=False)
    if isinstance(topic, NonPersistentTopic):
        topic.delete_subscription(request.subscription, force=request.force)
    elif request.subscription == COMPACTION_CURSOR:
        await disable_compaction(broker, name)
    else:
        await delete_subscription(topic, request.subscription, force=request.force)


def _options(opening: data_pb2.SubscribeOpen, *, on_ring: bool) -> ConsumerOptions:
    type_ = _TYPES.get(opening.type)
    if type_ is None:
        raise InvalidRequest(f"Unknown subscription type {opening.type}.")
    if opening.subscription == COMPACTION_CURSOR:
        raise NotAllowed(f"{COMPACTION_CURSOR} is reserved for compaction: it has no consumers.")
    if opening.durable and not opening.subscription:
        raise InvalidRequest("A durable subscription needs a name.")
    name = opening.consumer_name or secrets.token_hex(5)
    check_name("A consumer", name)
    check_properties("a consumer", opening.properties)
    return ConsumerOptions(
        type=type_,
        durable=opening.durable,
        read_compacted=opening.read_compacted,
        name=name,
        priority=opening.priority,
        key_shared=_key_shared(opening.key_shared, on_ring=on_ring),
    )


def _key_shared(requested: data_pb2.KeyShared, *, on_ring: bool) -> KeySharedPolicy:
    ranges = tuple(HashRange(each.first, each.last) for each in requested.hash_ranges)
    named = ranges if requested.sticky else ()
    return KeySharedPolicy(requested.sticky, named, requested.allow_out_of_order, on_ring)


async def _attach(
    topic: PulsarTopic, opening: data_pb2.SubscribeOpen, options: ConsumerOptions, now_ms: int
) -> tuple[AnySubscription, Consumer]:
    name = opening.subscription or f"reader-{secrets.token_hex(5)}"
    if isinstance(topic, NonPersistentTopic):
        return topic.attach(name, options)
    return await connect_consumer(
        topic,
        name,
        opening.start,
        options,
        created_ms=now_ms,
        properties=opening.subscription_properties,
    )


def _traffic(output: Output) -> Traffic:
    return Traffic(
        messages=sum(each.messages for each in output.deliveries),
        entries=len(output.deliveries),
        bytes=sum(len(each.entry) for each in output.deliveries),
    )


async def _handle(
    request: data_pb2.SubscribeRequest,
    subscription: AnySubscription,
    consumer: Consumer,
    clock_ms: Callable[[], int],
) -> None:
    step = request.WhichOneof("step")
    if step == "permits":
        consumer.traffic.last_flow_ms = clock_ms()
        subscription.add_permits(consumer, request.permits)
    elif step == "ack":
        await _acknowledge(request.ack, subscription, consumer)
        consumer.traffic.last_acked_ms = clock_ms()
    elif step == "redeliver":
        named = set[Position]()
        async for positions in _slices(request.redeliver.positions):
            named.update(positions)
        subscription.redeliver(consumer, named)
    else:
        raise InvalidRequest(
            "A Subscribe stream is opened only once, and a request cannot be empty."
        )


async def _acknowledge(
    ack: data_pb2.Ack, subscription: AnySubscription, consumer: Consumer
) -> None:
    """Acknowledges the positions, with one answer for all."""
    if ack.cumulative:
        subscription.acknowledge(
            consumer,
            _positions(ack.positions[:2]),
            cumulative=True,
            request_id=ack.request_id,
        )
        return
    async for positions in _slices(ack.positions):
        subscription.acknowledge(consumer, positions)
    if ack.request_id:
        subscription.acknowledge(consumer, (), request_id=ack.request_id)


async def _slices(positions: Sequence[PositionRecord]) -> AsyncIterator[list[Position]]:
    for start in range(0, len(positions), SLICE_POSITIONS):
        if start:
            await asyncio.sleep(0)
        yield _positions(positions[start : start + SLICE_POSITIONS])


def _positions(positions: Iterable[PositionRecord]) -> list[Position]:
    return [Position(each.ledger_id, each.entry_id) for each in positions]


def _frames(output: Output) -> Iterator[bytes]:
    if output.active is not None:
        yield data_pb2.SubscribeResponse(active=output.active).SerializeToString()
    request_ids = output.acked_request_ids
    for start in range(0, len(request_ids), _REQUEST_IDS_PER_FRAME_MAX):
        acked = data_pb2.SubscribeResponse(
            acked_request_ids=request_ids[start : start + _REQUEST_IDS_PER_FRAME_MAX]
        )
        yield acked.SerializeToString()
    yield from encode_deliveries((each.entry, each.redelivery_count) for each in output.deliveries)
