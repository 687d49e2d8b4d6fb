"""The Publish stream of DataService.

Requests and responses are raw bytes; entries are sliced out of a frame, checked, stamped and queued
without being decoded. Each response has all receipts that are durable by then, at most
RECEIPTS_MAX.

Other tasks run after every SLICE_ENTRIES entries of a frame, and the first bad entry ends the
stream: nothing after it is read. A refused batch of a Kafka topic does not end the stream: its
receipt has the reason.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterator
from itertools import islice

from ledgerfold.broker.common.given_names import check_name
from ledgerfold.broker.common.names import full_topic
from ledgerfold.broker.faults.faults import looked_up
from ledgerfold.broker.rpc.stream import Context, Requests, exchange, peer_of
from ledgerfold.broker.topics.access import AccessMode, Claim
from ledgerfold.broker.topics.broker import AnyTopic, Broker, PulsarTopic
from ledgerfold.broker.topics.client_schemas import version_of_producer
from ledgerfold.broker.topics.kafka_producer import KafkaProducer
from ledgerfold.broker.topics.kafka_topic import KafkaTopic
from ledgerfold.broker.topics.non_persistent_producer import NonPersistentProducer
from ledgerfold.broker.topics.producer import Producer
from ledgerfold.broker.topics.receipts import Receipt
from ledgerfold.broker.wire.frames import entries_of, is_bulk
from ledgerfold.storage.entry import Buffer
from ledgerfold.storage.error_codec import encode_error
from ledgerfold.storage.errors import InvalidRequest, Moved, NotAllowed
from ledgerfold.v1 import data_pb2

# About a millisecond's work.
SLICE_ENTRIES = 100
_MODES = tuple(AccessMode)
AnyProducer = Producer | KafkaProducer | NonPersistentProducer
REQUESTS = Requests(data_pb2.PublishRequest, 64 * 1024, "`open` is sent alone, before the entries.")


async def publish(broker: Broker, context: Context) -> None:
    """Serves a stream of serialized PublishRequest and PublishResponse messages."""
    opening = await REQUESTS.opening(context)
    if opening is None:
        return
    name = full_topic(opening.topic)
    # Opening the stream is the lookup: a producer needs no other call before.
    await looked_up(broker.faults, name)
    topic = await broker.any_topic(name, to_write=True)
    schema_version = await _schema_version(broker, topic, opening)
    producer = await _attach(topic, opening, context)
    producer.peer = peer_of(context, broker.clock_ms())
    try:
        await exchange(
            context,
            producer,
            lambda frame: take(frame, producer),
            _deliver(context, producer, _ready(broker, producer, schema_version)),
        )
    finally:
        producer.detach()


async def _attach(topic: AnyTopic, opening: data_pb2.PublishOpen, context: Context) -> AnyProducer:
    name = opening.producer_name or f"ledgerfold-{secrets.token_hex(4)}"
    check_name("A producer", name)
    if not 0 <= opening.access_mode < len(_MODES):
        raise InvalidRequest(f"Unknown access mode {opening.access_mode}.")
    mode = _MODES[opening.access_mode]
    if isinstance(topic, KafkaTopic):
        if mode is not AccessMode.SHARED:
            raise NotAllowed(f"{topic.name} is a Kafka topic, which has no access modes: omit it.")
        return topic.attach_producer(name)
    epoch = opening.topic_epoch if opening.HasField("topic_epoch") else None
    _replace(topic, name, mode, epoch)
    producer = await _attach_in_turn(topic, name, mode, epoch, context)
    if isinstance(producer, NonPersistentProducer):
        return producer
    producer.combines_receipts = opening.combines_receipts
    return producer


def _replace(topic: PulsarTopic, name: str, mode: AccessMode, epoch: int | None) -> None:
    """Disconnects the previous stream of an exclusive producer, which may not have ended yet."""
    old = topic.producers.get(name)
    if old is None or epoch is None or epoch != old.topic_epoch:
        return
    # Only an exclusive producer knows its epoch; any producer may know a shared one's.
    if AccessMode.SHARED in (mode, old.claim.mode):
        return
    old.end(Moved("The producer has connected again."))
    old.detach()


async def _attach_in_turn(
    topic: PulsarTopic, name: str, mode: AccessMode, epoch: int | None, context: Context
) -> Producer | NonPersistentProducer:
    """Connects a producer, and notifies its client if it has to wait."""
    queued = asyncio.Event()
    claim = Claim(mode, epoch, queued.set)

    async def attach() -> Producer | NonPersistentProducer:
        return await topic.attach_producer(name, claim)

    if mode is not AccessMode.WAIT_FOR_EXCLUSIVE:
        return await attach()
    attaching = asyncio.create_task(attach())
    waiting = asyncio.create_task(queued.wait())
    try:
        await asyncio.wait((attaching, waiting), return_when=asyncio.FIRST_COMPLETED)
        if not attaching.done():
            await context.write(data_pb2.PublishResponse(is_queued=True).SerializeToString())
        return await attaching
    except BaseException:
        attaching.cancel()
        (outcome,) = await asyncio.gather(attaching, return_exceptions=True)
        if isinstance(outcome, (Producer, NonPersistentProducer)):
            outcome.detach()
        raise
    finally:
        waiting.cancel()


async def _schema_version(broker: Broker, topic: AnyTopic, opening: data_pb2.PublishOpen) -> bytes:
    has_schema = opening.HasField("schema") and not isinstance(topic, KafkaTopic)
    definition = opening.schema if has_schema else None
    return await version_of_producer(broker.schemas, topic.name, definition)


def _ready(broker: Broker, producer: AnyProducer, schema_version: bytes) -> data_pb2.PublishReady:
    ready = data_pb2.PublishReady(
        producer_name=producer.name,
        last_sequence_id=-1,
        schema_version=schema_version,
        entry_bytes_max=broker.settings.entry_bytes_max,
    )
    if not isinstance(producer, KafkaProducer):
        if isinstance(producer, Producer):
            ready.last_sequence_id = producer.record.last_sequence_id
        if producer.topic_epoch is not None:
            ready.topic_epoch = producer.topic_epoch
        return ready
    config = producer.config
    ready.codec = data_pb2.ENTRY_CODEC_KAFKA
    ready.kafka.batch_bytes_max = config.max_message_bytes
    ready.kafka.needs_keys = config.is_compacted
    return ready


async def _deliver(context: Context, producer: AnyProducer, ready: data_pb2.PublishReady) -> None:
    await context.write(data_pb2.PublishResponse(ready=ready).SerializeToString())
    while receipts := await producer.receipts():
        response = data_pb2.PublishResponse()
        add = response.receipts.add
        for each in receipts:
            ledger_id, entry_id = each.position
            added = add(sequence_id=each.sequence_id, ledger_id=ledger_id, entry_id=entry_id)
            if each.entries > 1:
                added.entries = each.entries
            if each.refusal is not None:
                added.refusal.CopyFrom(_refusal(each))
        await context.write(response.SerializeToString())


def _refusal(receipt: Receipt) -> data_pb2.Refusal:
    assert receipt.refusal is not None
    reason, message, attributes = encode_error(receipt.refusal)
    return data_pb2.Refusal(reason=reason, message=message, attributes=attributes)


async def take(frame: bytes, producer: AnyProducer) -> None:
    """Appends the entries of a frame and returns when the next frame may be read.

    Raises InvalidRequest, and what appending raises.
    """
    if not is_bulk(frame):
        raise InvalidRequest("After `open`, a Publish stream accepts only `entries`.")
    entries = entries_of(frame)
    while _take_slice(entries, producer) == SLICE_ENTRIES:
        await asyncio.sleep(0)
        await producer.has_room()
    await producer.has_room()


def _take_slice(entries: Iterator[Buffer], producer: AnyProducer) -> int:
    """Appends the next entries, up to SLICE_ENTRIES. Returns their number."""
    taken: list[Buffer] = []
    try:
        taken.extend(islice(entries, SLICE_ENTRIES))
    finally:
        # Also the entries before an invalid field.
        producer.append_all(taken)
    return len(taken)
