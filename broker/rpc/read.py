"""The Read stream and GetLastMessageId of DataService."""

from __future__ import annotations

from collections import deque

from ledgerfold.broker.common.given_names import check_name
from ledgerfold.broker.common.names import full_topic
from ledgerfold.broker.rpc.stream import Context, Requests, exchange, peer_of
from ledgerfold.broker.topics.broker import Broker
from ledgerfold.broker.topics.client_schemas import check_consumer
from ledgerfold.broker.topics.kafka_reader import KafkaReader, KafkaReaderOptions
from ledgerfold.broker.topics.kafka_topic import KafkaTopic
from ledgerfold.broker.topics.non_persistent_reader import NonPersistentReader
from ledgerfold.broker.topics.non_persistent_topic import IS_NON_PERSISTENT, NonPersistentTopic
from ledgerfold.broker.topics.reader import Reader, ReaderOptions
from ledgerfold.broker.topics.stream_reader import Checked, Entries, Notice, Sought, Step
from ledgerfold.broker.topics.topic import Topic
from ledgerfold.broker.wire.frames import encode_entries
from ledgerfold.storage.codec import check_readable, last_batch_index
from ledgerfold.storage.errors import InvalidRequest, NotAllowed
from ledgerfold.storage.partition_names import partition_index
from ledgerfold.v1 import data_pb2
from ledgerfold.v1.records_pb2 import MessageId

AnyReader = Reader | KafkaReader | NonPersistentReader
REQUESTS = Requests(data_pb2.ReadRequest, 64 * 1024, "Its fields need less.")


async def read(broker: Broker, context: Context) -> None:
    """Serves a stream of serialized ReadRequest and ReadResponse messages."""
    opening = await REQUESTS.opening(context)
    if opening is None:
        return
    reader = await _open(broker, opening)
    reader.peer = peer_of(context, broker.clock_ms())
    try:
        if opening.permits:
            reader.add_permits(opening.permits)
        await exchange(
            context,
            reader,
            lambda frame: _take(frame, reader),
            _deliver(context, reader, opening),
            reader.share,
        )
    finally:
        reader.detach()


async def _open(broker: Broker, opening: data_pb2.ReadOpen) -> AnyReader:
    topic = await broker.any_topic(full_topic(opening.topic))
    name, start = opening.reader_name, opening.start
    if name:
        check_name("A reader", name)
    options = ReaderOptions(opening.read_compacted, opening.is_raw, name, opening.subscription)
    if opening.HasField("schema") and not isinstance(topic, KafkaTopic):
        await check_consumer(broker.schemas, topic, opening.schema)
    if isinstance(topic, Topic):
        return await topic.open_reader(start, options)
    if isinstance(topic, NonPersistentTopic):
        return topic.open_reader(options)
    if opening.read_compacted:
        raise NotAllowed(
            f"{topic.name} is a Kafka topic: it has no separate compacted view, "
            "because cleaned records are removed for every reader. Read it as it is."
        )
    return await topic.open_reader(start, KafkaReaderOptions(opening.read_committed, name))


async def _deliver(context: Context, reader: AnyReader, opening: data_pb2.ReadOpen) -> None:
    ready = data_pb2.ReadReady(reader_name=reader.name, permits=opening.permits)
    if isinstance(reader, KafkaReader):
        ready.codec = data_pb2.ENTRY_CODEC_KAFKA
        ready.first_offset = reader.first_offset
    await context.write(data_pb2.ReadResponse(ready=ready).SerializeToString())
    while (frames := _frames(await reader.take(), opening.reads_pulsar_entries)) is not None:
        while frames:
            # Only gRPC holds it during the write.
            await context.write(frames.popleft())


def _frames(steps: list[Step] | None, reads_pulsar_entries: bool) -> deque[bytes] | None:
    """Encodes the steps; None at the end. Keeping the entries would hold their memory twice.

    Raises IncompatibleFormat for an entry that the client cannot read.
    """
    if not reads_pulsar_entries:
        for step in steps or ():
            if isinstance(step, Entries):
                check_readable(entry.data for entry in step.entries)
    return None if steps is None else deque(map(_frame, steps))


def _frame(step: Step) -> bytes:
    match step:
        case Entries(entries):
            return encode_entries([entry.data for entry in entries])
        case Checked(check_ids, True):
            response = data_pb2.ReadResponse(more_check_ids=check_ids)
        case Checked(check_ids):
            response = data_pb2.ReadResponse(end_of_data_check_ids=check_ids)
        case Sought(seek_id, first_offset):
            response = data_pb2.ReadResponse(seek_id=seek_id, first_offset=first_offset)
        case Notice.IS_RAW:
            response = data_pb2.ReadResponse(is_raw=True)
        case Notice.END_OF_TOPIC:
            response = data_pb2.ReadResponse(end_of_topic=True)
    return response.SerializeToString()


async def _take(frame: bytes, reader: AnyReader) -> None:
    request = REQUESTS.parse(frame)
    step = request.WhichOneof("step")
    if step == "permits":
        reader.add_permits(request.permits)
    elif step == "check_id":
        reader.check(request.check_id)
    elif step == "seek":
        reader.seek(request.seek.start, request.seek.seek_id)
    else:
        raise InvalidRequest(
            "After `open`, a Read stream accepts only `permits`, `check_id` and `seek`."
        )


async def get_last_message_id(
    broker: Broker, request: data_pb2.GetLastMessageIdRequest
) -> data_pb2.GetLastMessageIdResponse:
    """Returns the last id of the view."""
    topic = await broker.any_topic(full_topic(request.topic), create=False)
    last = MessageId(ledger_id=-1, entry_id=-1, batch_index=-1, partition=-1)
    if isinstance(topic, NonPersistentTopic):
        raise NotAllowed(IS_NON_PERSISTENT.format(topic.name))
    if isinstance(topic, KafkaTopic):
        offset = topic.last_offset
        if offset >= 0:
            last.ledger_id, last.entry_id = 0, offset
            last.partition = partition_index(topic.name)
        return data_pb2.GetLastMessageIdResponse(message_id=last, codec=data_pb2.ENTRY_CODEC_KAFKA)
    entry = await topic.log.search.last_entry(request.read_compacted)
    if entry is not None:
        last.ledger_id, last.entry_id = entry.header.position
        last.partition = partition_index(topic.name)
        last.batch_index = last_batch_index(entry.data, entry.header)
    return data_pb2.GetLastMessageIdResponse(message_id=last)
