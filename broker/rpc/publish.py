"""The Publish stream of DataService.

Requests and responses are raw bytes; entries are sliced out of a frame, checked, stamped and queued
without being decoded. Each write has as many receipts as are durable by then, RECEIPTS_MAX at most.

However many entries a frame holds, others have their turn after every SLICE_ENTRIES of them, and
the first bad one ends the stream: nothing of what follows it is looked at.
"""

from __future__ import annotations

import asyncio
import secrets

from ledgerfold.broker.ground.names import persistent_topic
from ledgerfold.broker.rpc.stream import Context, Requests, exchange, peer_of
from ledgerfold.broker.topics.broker import Broker
from ledgerfold.broker.topics.producer import Producer
from ledgerfold.broker.wire.frames import entries_of, is_bulk
from ledgerfold.storage.errors import InvalidRequest
from ledgerfold.v1 import data_pb2

# About a millisecond's work.
SLICE_ENTRIES = 100
REQUESTS = Requests(data_pb2.PublishRequest, 64 * 1024, "`open` comes alone, entries follow it.")


async def publish(broker: Broker, context: Context) -> None:
    """Requests are serialized PublishRequest messages; so are the responses."""
    opening = await REQUESTS.opening(context)
    if opening is None:
        return
    name = persistent_topic(opening.topic, "published to")
    topic = await broker.topic(name, to_write=True)
    producer_name = opening.producer_name or f"ledgerfold-{secrets.token_hex(4)}"
    producer = await topic.attach_producer(producer_name)
    producer.peer = peer_of(context, broker.clock_ms())
    try:
        await exchange(
            context,
            producer,
            lambda frame: take(frame, producer),
            _deliver(broker, context, producer),
        )
    finally:
        producer.detach()


async def _deliver(broker: Broker, context: Context, producer: Producer) -> None:
    ready = data_pb2.PublishReady(
        producer_name=producer.name,
        last_sequence_id=producer.record.last_sequence_id,
        entry_bytes_max=broker.settings.entry_bytes_max,
    )
    await context.write(data_pb2.PublishResponse(ready=ready).SerializeToString())
    while receipts := await producer.receipts():
        response = data_pb2.PublishResponse()
        add = response.receipts.add
        for each in receipts:
            ledger_id, entry_id = each.position
            add(sequence_id=each.sequence_id, ledger_id=ledger_id, entry_id=entry_id)
        await context.write(response.SerializeToString())


async def take(frame: bytes, producer: Producer) -> None:
    """Returns when the next frame may be read. Raises InvalidRequest, and what appending raises."""
    if not is_bulk(frame):
        raise InvalidRequest("After `open` a Publish stream takes `entries` only.")
    for count, entry in enumerate(entries_of(frame), 1):
        producer.append(entry)
        if not count % SLICE_ENTRIES:
            await asyncio.sleep(0)
            await producer.has_room()
    await producer.has_room()
