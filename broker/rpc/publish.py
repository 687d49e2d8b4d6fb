"""The Publish stream of DataService.

Requests and responses are raw bytes; entries are sliced out of a frame, checked, stamped and queued
without being decoded. One task reads, this one writes the receipts, each write as many as are
durable by then, RECEIPTS_MAX at most.

However many entries a frame holds, others have their turn after every SLICE_ENTRIES of them, and
the first bad one ends the stream: nothing of what follows it is looked at.
"""

from __future__ import annotations

import asyncio
import secrets
from typing import TYPE_CHECKING, Any, cast

import grpc
from google.protobuf.message import DecodeError

from ledgerfold.broker.ground.names import persistent_topic
from ledgerfold.broker.ground.traffic import Peer
from ledgerfold.broker.topics.producer import Producer
from ledgerfold.broker.wire.errors import rpc_errors
from ledgerfold.broker.wire.frames import entries_of, is_bulk
from ledgerfold.storage.errors import InvalidRequest, LedgerfoldError
from ledgerfold.v1 import data_pb2

if TYPE_CHECKING:
    from ledgerfold.broker.topics.broker import Broker

Context = grpc.aio.ServicerContext[Any, Any]
# What read() gives at the end of a stream; the stubs do not know it.
EOF = cast(Any, grpc.aio).EOF
# About a millisecond's work.
SLICE_ENTRIES = 100
# An `open` is names.
OPEN_BYTES_MAX = 64 * 1024


@rpc_errors
async def publish(broker: Broker, request_iterator: Any, context: Context) -> None:
    """Requests are serialized PublishRequest messages; so are the responses."""
    opening = await _opening(context)
    if opening is None:
        return
    name = persistent_topic(opening.topic, "published to")
    topic = await broker.topic(name, to_write=True)
    producer_name = opening.producer_name or f"ledgerfold-{secrets.token_hex(4)}"
    producer = await topic.attach_producer(producer_name)
    producer.peer = Peer(context.peer(), broker.clock_ms())
    receiver = asyncio.create_task(_receive(context, producer))
    try:
        ready = data_pb2.PublishReady(
            producer_name=producer_name,
            last_sequence_id=producer.record.last_sequence_id,
            entry_bytes_max=broker.settings.entry_bytes_max,
        )
        await context.write(data_pb2.PublishResponse(ready=ready).SerializeToString())
        while receipts := await producer.receipts():
            await context.write(data_pb2.PublishResponse(receipts=receipts).SerializeToString())
    finally:
        producer.detach()
        receiver.cancel()
        await asyncio.gather(receiver, return_exceptions=True)


async def _opening(context: Context) -> data_pb2.PublishOpen | None:
    frame = await context.read()
    if frame is EOF:
        return None
    if len(frame) > OPEN_BYTES_MAX:
        raise InvalidRequest(
            f"A first request of {len(frame)} bytes: it is `open`, of {OPEN_BYTES_MAX} at most."
        )
    try:
        request = data_pb2.PublishRequest.FromString(frame)
    except DecodeError as error:
        raise InvalidRequest(
            "The first request of a Publish stream is no PublishRequest."
        ) from error
    if request.WhichOneof("step") != "open":
        raise InvalidRequest("The first request of a Publish stream is `open`.")
    return request.open


async def _receive(context: Context, producer: Producer) -> None:
    try:
        while (frame := await context.read()) is not EOF:
            if not is_bulk(frame):
                raise InvalidRequest("After `open` a Publish stream takes `entries` only.")
            await _append(frame, producer)
        producer.finish()
    except LedgerfoldError as error:
        producer.end(error)
    except asyncio.CancelledError:
        producer.finish()
        raise


async def _append(frame: bytes, producer: Producer) -> None:
    """Returns when the next frame may be read."""
    for count, entry in enumerate(entries_of(frame), 1):
        producer.append(entry)
        if not count % SLICE_ENTRIES:
            await asyncio.sleep(0)
            await producer.has_room()
    await producer.has_room()
