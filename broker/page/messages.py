"""Publishing and reading single messages from the page; only with `serve --ui-writes`.

Bounds: a value of VALUE_CHARACTERS_MAX characters is published, as one message; a page shows the
first kilobyte of MESSAGES_SHOWN messages, and reads at most READ_BYTES_MAX for them.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from typing import Any
from urllib.parse import urlencode

from ledgerfold.broker.http.answers import Refusal
from ledgerfold.broker.kafka.producers.producer import Origin
from ledgerfold.broker.page.page_request import PageRequest, message_id_in, topic_path
from ledgerfold.broker.page.rendering import Page, Redirect, shown_bytes
from ledgerfold.broker.rpc.existing import recorded_name
from ledgerfold.broker.topics.broker import Broker
from ledgerfold.broker.topics.kafka_reader import KafkaReaderOptions
from ledgerfold.broker.topics.kafka_topic import KafkaTopic
from ledgerfold.broker.topics.reader import ReaderOptions
from ledgerfold.broker.topics.stream_reader import Checked, Entries, Notice, StreamReader
from ledgerfold.broker.topics.topic import Topic
from ledgerfold.storage.codec import decode
from ledgerfold.storage.decoded import StoredMessage
from ledgerfold.storage.entry import Codec, EntryHeader, Position
from ledgerfold.storage.errors import LedgerfoldError, NotAllowed
from ledgerfold.storage.kafka.batch import read_batch_header
from ledgerfold.storage.kafka.records import KafkaRecord, build_batch
from ledgerfold.storage.ledger import StoredEntry
from ledgerfold.storage.message_ids import id_text, parsed_id
from ledgerfold.storage.native import NativeBatchBuilder
from ledgerfold.storage.partition_names import partition_index
from ledgerfold.storage.served_entry import read_served_header
from ledgerfold.v1.data_pb2 import StartPosition

MESSAGES_SHOWN = 50
READ_BYTES_MAX = 8 * 1024 * 1024
VALUE_CHARACTERS_MAX = 64 * 1024
KEY_CHARACTERS_MAX = 8 * 1024
VIEWS = {"raw": "The raw log", "compacted": "The compacted view"}


class MessagesPage:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    async def show(self, request: PageRequest) -> Page:
        """Reads from `from` on: a message id, or the earliest message."""
        name = recorded_name(self._broker, request.topic)
        topic = await self._broker.any_topic(name, create=False)
        view, begin = request.text("view", "raw"), request.text("from").strip()
        if view not in VIEWS:
            raise Refusal(400, "The parameter view must be raw or compacted.")
        values: dict[str, Any] = {
            "topic": request.topic,
            "view": view,
            "views": VIEWS,
            "begin": begin,
            "messages": [],
            "more_from": "",
            "published": request.text("published"),
            "is_kafka": isinstance(topic, KafkaTopic),
        }
        if isinstance(topic, Topic | KafkaTopic):
            reader = await _reader(topic, _start(begin), read_compacted=view == "compacted")
            try:
                entries, has_more = await _read(reader)
            finally:
                reader.detach()
            first_offset = reader.first_offset
            at = partition_index(name)
            values |= await self._broker.in_thread(
                lambda: _shown(entries, at, first_offset, begin, has_more=has_more)
            )
        return Page("messages.html", f"Messages: {request.topic}", values)

    async def publish(self, request: PageRequest) -> Redirect:
        """Publishes one message, and shows it."""
        name = recorded_name(self._broker, request.topic)
        key, value = request.text("key"), request.text("value")
        if len(value) > VALUE_CHARACTERS_MAX or len(key) > KEY_CHARACTERS_MAX:
            raise Refusal(
                413,
                f"On this page, a value has at most {VALUE_CHARACTERS_MAX:,} characters, and a key "
                f"{KEY_CHARACTERS_MAX:,}.",
            )
        # Browsers send line ends of a form as CR LF.
        data = value.replace("\r\n", "\n").encode()
        is_tombstone = request.text("tombstone") == "on"
        if is_tombstone and not key:
            raise Refusal(400, "A tombstone deletes a key: name one.")
        topic = await self._broker.any_topic(name, create=False, to_write=True)
        of = key.encode() if key else None
        if isinstance(topic, KafkaTopic):
            record = KafkaRecord(0, self._broker.clock_ms(), of, None if is_tombstone else data)
            (appended,) = await topic.append_batches(build_batch([record]), Origin.CLIENT)
            position = Position(0, appended.first_offset)
        elif isinstance(topic, Topic):
            # As for any producer without a schema.
            self._broker.schemas.without(name)
            position = await _publish(topic, of, b"" if is_tombstone else data)
        else:
            raise NotAllowed(f"{name} is not persistent: it has no stored messages to show.")
        at = id_text(*position, partition_index(name))
        query = urlencode({"from": at, "published": at})
        return Redirect(f"{topic_path(request.topic)}/messages?{query}")


async def _publish(topic: Topic, key: bytes | None, value: bytes) -> Position:
    producer = await topic.attach_producer(f"page-{secrets.token_hex(4)}")
    try:
        builder = NativeBatchBuilder(producer.name)
        builder.add(value, key)
        entry = builder.build(sequence_id=0, publish_time_ms=topic.clock.now_ms(), plain=True)
        producer.append_all([memoryview(entry)])
        producer.finish()
        receipts = await producer.receipts()
        assert receipts, "an entry without a receipt"
        return receipts[0].position
    finally:
        producer.detach()


def _start(text: str) -> StartPosition:
    """Raises Refusal."""
    if text in ("", "earliest"):
        return StartPosition(earliest=True)
    return StartPosition(message_id=message_id_in(text), inclusive=True)


async def _reader(
    topic: Topic | KafkaTopic, start: StartPosition, *, read_compacted: bool
) -> StreamReader[Any]:
    if isinstance(topic, KafkaTopic):
        return await topic.open_reader(start, KafkaReaderOptions())
    return await topic.open_reader(start, ReaderOptions(read_compacted=read_compacted))


async def _read(reader: StreamReader[Any]) -> tuple[list[StoredEntry], bool]:
    """Returns about MESSAGES_SHOWN messages, and whether there may be more."""
    page_entries, messages, size_bytes = list[StoredEntry](), 0, 0
    async with aclosing(_entries(reader)) as entries:
        async for entry in entries:
            if messages >= MESSAGES_SHOWN or size_bytes >= READ_BYTES_MAX:
                return page_entries, True
            page_entries.append(entry)
            messages += entry.header.message_count
            size_bytes += len(entry.data)
    return page_entries, False


async def _entries(reader: StreamReader[Any]) -> AsyncGenerator[StoredEntry, None]:
    while True:
        reader.check(1)
        for step in await reader.take() or [Notice.END_OF_TOPIC]:
            if isinstance(step, Entries):
                for entry in step.entries:
                    yield entry
            elif step is Notice.END_OF_TOPIC or (isinstance(step, Checked) and not step.has_more):
                return


def _shown(
    entries: list[StoredEntry], partition: int, first_offset: int, begin: str, *, has_more: bool
) -> dict[str, Any]:
    """Decodes the entries, in a thread: the messages of the page, and where the next one begins."""
    rows, more_from = list[dict[str, Any]](), ""
    least = _begin_of(begin, first_offset)
    for entry in entries:
        for row in shown_messages(entry, partition):
            if row["at"] < least:
                continue
            if len(rows) == MESSAGES_SHOWN:
                return {"messages": rows, "more_from": row["id"]}
            rows.append(row)
    if has_more and rows:
        ledger_id, entry_id, _ = rows[-1]["at"]
        more_from = id_text(ledger_id, entry_id + 1, partition)
    return {"messages": rows, "more_from": more_from}


def _begin_of(begin: str, first_offset: int) -> tuple[int, int, int]:
    """Returns the first (ledger, entry, index) to show."""
    if first_offset:
        return 0, first_offset, -1
    parsed = parsed_id(begin)
    return (-1, -1, -1) if parsed is None else (parsed[0], parsed[1], parsed[3])


def shown_messages(entry: StoredEntry, partition: int) -> Iterator[dict[str, Any]]:
    """Yields the messages of an entry; one row with the reason for what cannot be opened."""
    header = read_served_header(entry.data)
    try:
        decoded = decode(entry.data, header)
        base_offset = None
        if header.codec == Codec.KAFKA:
            base_offset = read_batch_header(entry.data[header.header_bytes :]).base_offset
        for message in decoded.messages():
            at = (*header.position, message.batch_index)
            if base_offset is not None:
                at = (0, base_offset + message.batch_index, -1)
            yield _row(header, message, at, partition)
    except LedgerfoldError as error:
        at = (*header.position, -1)
        yield {"at": at, "id": id_text(*header.position, partition), "why_not": str(error)}


def _row(
    header: EntryHeader, message: StoredMessage, at: tuple[int, int, int], partition: int
) -> dict[str, Any]:
    return {
        "at": at,
        "id": id_text(at[0], at[1], partition, at[2]),
        "why_not": "",
        "key": None if message.key is None else shown_bytes(message.key),
        "value": shown_bytes(message.value),
        "is_base64": message.key_is_base64,
        "is_tombstone": message.is_tombstone,
        "properties": message.properties,
        "publish_ms": header.publish_time_ms,
        "event_ms": message.event_time_ms,
    }
