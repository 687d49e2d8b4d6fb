"""Reads a topic of a running broker, by the stream of a reader.

The raw ledgers are read up to the last message at the time of the plan, in ranges of positions; a
Kafka log in ranges of offsets. The compacted view is one part, which is read until it has caught up
with the topic: a compaction may replace the view during the read, and what it removes then has a
newer message, which must be in the read, too.

Bounds: MESSAGES_AHEAD messages that were received and not read yet, at most twice as many for
entries of many messages.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Self

from google.protobuf.message import Message

from ledgerfold.broker.client.administration.kafka_pages import whole_description
from ledgerfold.broker.client.messages.configs import ReaderConfig
from ledgerfold.broker.client.messages.message_id import MessageId
from ledgerfold.broker.client.messages.start import start_at
from ledgerfold.broker.client.streams.connection import ClientSettings, Connection
from ledgerfold.broker.client.streams.inbox import AnyDelivery, DeliveredRun, Inbox
from ledgerfold.broker.client.streams.read_stream import ReadStream
from ledgerfold.broker.client.sync.io_thread import IoThread
from ledgerfold.frames.parts import PART_BYTES, Span, before, divided, narrowed
from ledgerfold.frames.query import Query
from ledgerfold.storage.entry import EARLIEST, LATEST, Position, read_header, verify_sections
from ledgerfold.storage.errors import NotAllowed
from ledgerfold.storage.kafka.batch import read_batch_header
from ledgerfold.storage.partition_names import partition_index, partition_name
from ledgerfold.storage.stored_entries import StoredEntry
from ledgerfold.v1 import admin_pb2, data_pb2, kafka_pb2

MESSAGES_AHEAD = 4000


@dataclass(frozen=True)
class RemotePart:
    """A part of a broker's topic: positions from `start` to `end`, both inclusive; `end` None: up
    to the end of the topic.
    """

    url: str
    topic: str
    partition: int
    start: Position
    end: Position | None
    compacted: bool = False
    read_committed: bool = False
    offsets: tuple[int, int] | None = None
    credentials: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)

    @property
    def last(self) -> Position:
        """The end of a part that has one; on a Kafka topic (0, offset)."""
        if self.offsets is not None:
            return Position(0, self.offsets[1] - 1)
        assert self.end is not None
        return self.end

    def entries(self) -> Iterator[Sequence[StoredEntry]]:
        with Remote(self.url, self.credentials) as remote, remote.stream(self) as stream:
            for entries in stream.deliveries():
                kept, is_over = self._within(entries)
                if kept:
                    yield kept
                if is_over:
                    return

    def _within(self, entries: Sequence[StoredEntry]) -> tuple[Sequence[StoredEntry], bool]:
        """Returns the entries of the part, and whether the next part follows."""
        if self.offsets is not None:
            last = entries[-1]
            next_offset = read_batch_header(last.data, last.header.header_bytes).next_offset
            return entries, next_offset >= self.offsets[1]
        if self.end is None or entries[-1].header.position < self.end:
            return entries, False
        return [each for each in entries if each.header.position <= self.end], True


class Remote:
    """A connection to a broker, for the duration of a `with` block."""

    def __init__(self, url: str, credentials: Mapping[str, Any]) -> None:
        self._url, self._credentials, self._io = url, credentials, IoThread.shared()
        self._connection: Connection

    def __enter__(self) -> Self:
        self._connection = self._io.call(self._connect())
        return self

    async def _connect(self) -> Connection:
        return Connection(ClientSettings(self._url, **self._credentials))

    def __exit__(self, *exc_info: object) -> None:
        self._io.call(self._connection.close())

    def call(self, request: Message) -> Any:
        """Makes a unary call, with retries. Raises the broker's errors, Unavailable, Timeout."""
        return self._io.call(self._connection.call(request))

    def stream(self, part: RemotePart) -> _Stream:
        return _Stream(self._io, self._connection, part)

    def topics(self, name: str) -> list[str]:
        """Returns the topic, or its partitions."""
        count = int(self.call(data_pb2.GetPartitionsRequest(topic=name)).partitions)
        return [partition_name(name, index) for index in range(count)] if count else [name]

    def last(self, topic: str, *, compacted: bool = False) -> data_pb2.GetLastMessageIdResponse:
        """Returns the id of the last message, and the codec. Raises TopicNotFound."""
        request = data_pb2.GetLastMessageIdRequest(topic=topic, read_compacted=compacted)
        response: data_pb2.GetLastMessageIdResponse = self.call(request)
        return response

    def last_positions(self, query: Query) -> dict[str, Position]:
        """Returns the last message of each partition."""
        found = dict[str, Position]()
        for topic in self.topics(query.topic):
            last = self.last(topic)
            position = Position(last.message_id.ledger_id, last.message_id.entry_id)
            if last.codec == data_pb2.ENTRY_CODEC_KAFKA:
                log = self.call(kafka_pb2.DescribeLogRequest(topic=topic, lists_max=1))
                position = Position(0, _visible_end(log, query) - 1)
            found[topic] = position
        return found

    def parts(self, query: Query, part_bytes: int | None = None) -> list[RemotePart]:
        """Returns the parts of a read, of about `part_bytes`. Raises as `call`, and NotAllowed."""
        topics, part_bytes = self.topics(query.topic), part_bytes or PART_BYTES
        return [part for topic in topics for part in self._parts_of(topic, query, part_bytes)]

    def _parts_of(self, topic: str, query: Query, part_bytes: int) -> Iterator[RemotePart]:
        last = self.last(topic, compacted=query.compacted)
        if last.codec == data_pb2.ENTRY_CODEC_KAFKA:
            yield from self._kafka_parts(topic, query, part_bytes)
            return
        if query.read_committed:
            raise NotAllowed(f"{topic} is not a Kafka topic: it has no transactions.")
        end = Position(last.message_id.ledger_id, last.message_id.entry_id)
        if query.compacted:
            until = None if query.end == LATEST else before(query.end)
            if end >= query.start:
                yield self._part(topic, query.start, until, compacted=True)
            return
        end = min(end, before(query.end))
        if query.start <= end:
            stats = self.call(admin_pb2.GetTopicInternalStatsRequest(topic=topic))
            spans = [
                Span(Position(each["ledgerId"], 0), each["entries"], each["size"])
                for each in json.loads(stats.json)["ledgers"]
            ]
            for low, high in divided(spans, query.start, end, part_bytes):
                yield self._part(topic, low, high)

    def _part(self, topic: str, start: Position, end: Position | None, **others: Any) -> RemotePart:
        index, credentials = partition_index(topic), self._credentials
        return RemotePart(self._url, topic, index, start, end, credentials=credentials, **others)

    def _kafka_parts(self, topic: str, query: Query, part_bytes: int) -> Iterator[RemotePart]:
        query.check_log(topic)
        log = whole_description(self.call, kafka_pb2.DescribeLogRequest(topic=topic))
        first, end = narrowed(query, log.log_start_offset, _visible_end(log, query))
        if first >= end:
            return
        bases = [*(each.base_offset for each in log.segments), log.high_watermark]
        spans = [
            Span(Position(0, base), behind - base, each.size_bytes)
            for (base, behind), each in zip(pairwise(bases), log.segments, strict=True)
        ]
        for low, high in divided(spans, Position(0, first), Position(0, end - 1), part_bytes):
            offsets = (low.entry_id, high.entry_id + 1)
            committed = query.read_committed
            yield self._part(topic, low, None, read_committed=committed, offsets=offsets)


def _visible_end(log: kafka_pb2.DescribeLogResponse, query: Query) -> int:
    return log.last_stable_offset if query.read_committed else log.high_watermark


class _Stream:
    """The stream of a reader, read by a thread."""

    def __init__(self, io: IoThread, connection: Connection, part: RemotePart) -> None:
        self._io, self._inbox = io, Inbox()
        start = MessageId.earliest
        if part.start > EARLIEST:
            start = MessageId(-1, *part.start)
        config = ReaderConfig(
            part.topic,
            start,
            receiver_queue_size=MESSAGES_AHEAD,
            is_read_compacted=part.compacted,
            isolation="read_committed" if part.read_committed else "read_uncommitted",
        )
        at = start_at(start, inclusive=True)
        self._stream = io.call(self._create_stream(connection, config, at))

    async def _create_stream(
        self, connection: Connection, config: ReaderConfig, start: data_pb2.StartPosition
    ) -> ReadStream:
        return ReadStream(connection, config, start, self._inbox)

    def __enter__(self) -> Self:
        self._io.call(self._stream.open())
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._io.call(self._stream.close())

    def deliveries(self) -> Iterator[Sequence[StoredEntry]]:
        """Yields what arrives, verified, up to the end of the topic."""
        while True:
            taken = self._inbox.take()
            if taken is None:
                if not self._io.call(self._stream.check()):
                    return
                self._inbox.wait(None)
                continue
            self._stream.return_permits(taken[1].messages)
            yield _verified(taken[1])


def _verified(delivery: AnyDelivery) -> Sequence[StoredEntry]:
    if isinstance(delivery, DeliveredRun):
        return [StoredEntry(read_header(each), each) for each in delivery.rows.entries]
    header, data = delivery.header, bytes(delivery.data)
    verify_sections(data, header, 0, f"entry {header.position}")
    return [StoredEntry(header, data)]
