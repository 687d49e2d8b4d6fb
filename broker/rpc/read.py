"""The Read stream and GetLastMessageId of DataService.

A reader is a position in a view and nothing that outlives its stream. What it asks (permits,
checks, seeks) is taken in by one task; the other delivers. Whether there is more is answered by the
same loop that delivers: either entries go first, or there is none.

What was read ahead of the permits is of a view. When a run puts another one in its place, and the
reader does not keep the one it began with (broker/subscriptions/route.py), it is dropped and read
again.

Bounds: READ_BYTES_MAX of entries are held between the log and the stream.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from typing import TYPE_CHECKING, Any, cast

import grpc
from google.protobuf.message import DecodeError

from ledgerfold.broker.ground.names import partition_index, persistent_topic
from ledgerfold.broker.ground.traffic import Peer, Traffic
from ledgerfold.broker.log.view import RAW
from ledgerfold.broker.stats.subscription import describe_reader, describe_reader_cursor
from ledgerfold.broker.subscriptions.route import Route, StoredEntry
from ledgerfold.broker.wire.errors import rpc_errors
from ledgerfold.broker.wire.frames import encode_read
from ledgerfold.storage.codec import last_batch_index
from ledgerfold.storage.entry import EARLIEST, Position
from ledgerfold.storage.errors import InvalidRequest
from ledgerfold.v1 import data_pb2
from ledgerfold.v1.records_pb2 import MessageId

if TYPE_CHECKING:
    from ledgerfold.broker.topics.broker import Broker
    from ledgerfold.broker.topics.topic import Topic

Context = grpc.aio.ServicerContext[Any, Any]
# What read() gives at the end of a stream; the stubs do not know it.
EOF = cast(Any, grpc.aio).EOF
READ_BYTES_MAX = 1024 * 1024


@rpc_errors
async def read(broker: Broker, request_iterator: Any, context: Context) -> None:
    """Requests are serialized ReadRequest messages; responses are serialized ReadResponse."""
    opening = await _next(context)
    if opening is None:
        return
    if opening.WhichOneof("step") != "open":
        raise InvalidRequest("The first request of a Read stream is `open`.")
    topic = await broker.topic(persistent_topic(opening.open.topic, "read"))
    peer = Peer(context.peer(), broker.clock_ms())
    stream = ReadStream(topic, opening.open, context, peer)
    await stream.start(opening.open)
    topic.readers.add(stream)
    topic.log.on_closed.add(stream.wake)
    receiver = asyncio.create_task(stream.receive())
    try:
        await stream.deliver()
    finally:
        topic.readers.discard(stream)
        stream.close()
        topic.log.on_closed.discard(stream.wake)
        receiver.cancel()
        await asyncio.gather(receiver, return_exceptions=True)


async def _next(context: Context) -> data_pb2.ReadRequest | None:
    frame = await context.read()
    if frame is EOF:
        return None
    try:
        return data_pb2.ReadRequest.FromString(frame)
    except DecodeError as error:
        raise InvalidRequest("A request of a Read stream is no ReadRequest.") from error


class ReadStream:
    """One reader's stream."""

    def __init__(
        self, topic: Topic, opening: data_pb2.ReadOpen, context: Context, peer: Peer
    ) -> None:
        # Pulsar's readers have a subscription of such a name.
        self.subscription = f"reader-{secrets.token_hex(5)}"
        self.name = opening.reader_name or self.subscription
        self.peer, self.traffic = peer, Traffic()
        self.read_compacted = opening.read_compacted
        self.permits = 0
        self._topic, self.log = topic, topic.log
        self._route = self._new_route(is_raw=opening.is_raw)
        # After a seek by time that looked at raw ledgers only: what lies before it is passed over.
        self._raw_from = EARLIEST
        self._context = context
        # Of what is sent next; behind it lies what was read ahead, which is of `_buffer_view`.
        self._position = Position(-1, -1)
        self._checks: list[int] = []
        self._seek: data_pb2.ReadSeek | None = None
        self._buffered: deque[StoredEntry] = deque()
        self._buffer_view, self._behind_buffer = RAW, Position(-1, -1)
        self._asked = asyncio.Event()
        self._is_finished = False
        # The client was told that no more will ever come.
        self._has_told_end = False
        self._error: Exception | None = None

    async def start(self, opening: data_pb2.ReadOpen) -> None:
        await self._move(opening.start)
        await self._write(data_pb2.ReadResponse(ready=data_pb2.ReadReady(reader_name=self.name)))

    async def _write(self, response: data_pb2.ReadResponse) -> None:
        await self._context.write(response.SerializeToString())

    @property
    def held_position(self) -> Position | None:
        """The first raw entry that trimming must leave to it though a run has overtaken it."""
        return self._route.held_position(self._position, self.log.horizon)

    @property
    def read_position(self) -> Position:
        """Of the entry that is sent next."""
        return self._position

    def stats(self) -> dict[str, Any]:
        """With the field names of a subscription in Pulsar's `topics stats`."""
        return describe_reader(self)

    def internal_stats(self) -> dict[str, Any]:
        """With the field names of a cursor in Pulsar's `topics stats-internal`."""
        return describe_reader_cursor(self)

    async def receive(self) -> None:
        """Takes in what the client asks, until it sends no more."""
        try:
            while (request := await _next(self._context)) is not None:
                step = request.WhichOneof("step")
                if step == "permits":
                    self.permits += request.permits
                elif step == "check_id":
                    self._checks.append(request.check_id)
                elif step == "seek":
                    self._seek = request.seek
                else:
                    raise InvalidRequest("After `open` comes `permits`, `check_id` or `seek`.")
                self._asked.set()
            self._is_finished = True
        except Exception as error:
            self._error = error
        finally:
            self._asked.set()

    def close(self) -> None:
        """Nothing is held for it any more."""
        self._route.close()

    def wake(self) -> None:
        """Something happened that the delivery must look at."""
        self._asked.set()

    async def deliver(self) -> None:
        """Sends entries while there are permits, until the client is finished."""
        while not self._is_finished:
            error = self._error or self.log.closed
            if error is not None:
                raise error
            self._asked.clear()
            if self._seek is not None:
                await self._do_seek()
            elif self.permits > 0 or self._checks:
                await self._send_some()
            else:
                await self._asked.wait()

    async def _do_seek(self) -> None:
        seek, self._seek = self._seek, None
        assert seek is not None
        self._buffered.clear()
        self._route.close()
        self._has_told_end = False
        self._route = self._new_route()
        await self._move(seek.start)
        await self._write(data_pb2.ReadResponse(seek_id=seek.seek_id))

    def _new_route(self, *, is_raw: bool = False) -> Route:
        return Route(self._topic.emulation(), read_compacted=self.read_compacted, is_raw=is_raw)

    async def _move(self, start: data_pb2.StartPosition) -> None:
        """To a start position, by the rule of the profile (docs/PROFILES.md, rule 8.11)."""
        self._raw_from = EARLIEST
        is_exact = self._topic.emulation().seek_by_time_reads_view
        if start.WhichOneof("at") != "publish_time_ms" or is_exact or not self.read_compacted:
            self._position, _ = await self.log.resolve_start(start, self.read_compacted)
        else:
            self._raw_from, _ = await self.log.resolve_start(start, False)
            self._position = EARLIEST if self.log.horizon is not None else self._raw_from

    async def _send_some(self) -> None:
        # Checks that were there before the read are answered by what it finds.
        checks, self._checks = self._checks, []
        if self._buffered and self._route.view(self._position, self.log) is not self._buffer_view:
            self._buffered.clear()
        if not self._buffered and not await self._fill():
            if self.log.is_terminated and not self._has_told_end:
                self._has_told_end = True
                await self._write(data_pb2.ReadResponse(end_of_topic=True))
            if checks:
                await self._write(data_pb2.ReadResponse(end_of_data_check_ids=checks))
            else:
                await self._wait_for_more()
            return
        chunk = self._take()
        self._count(chunk)
        is_raw = self._move_on(len(chunk))
        await self._context.write(encode_read([entry.data for entry in chunk]))
        if is_raw:
            await self._write(data_pb2.ReadResponse(is_raw=True))
        if checks:
            await self._write(data_pb2.ReadResponse(more_check_ids=checks))

    async def _fill(self) -> bool:
        """Reads on until there is an entry; False at the end of the log."""
        while True:
            view = self._route.view(self._position, self.log)
            if view.horizon is None or self._position > view.horizon:
                self._position = max(self._position, self._raw_from)
            result, self._buffer_view = await self._route.read(
                self._position, self.log, bytes_max=READ_BYTES_MAX
            )
            self._behind_buffer = result.next_position
            if result.entries:
                self._buffered.extend(result.entries)
                return True
            is_over = result.next_position == self._position
            if self._move_on(0):
                await self._write(data_pb2.ReadResponse(is_raw=True))
            if is_over:
                return False

    def _move_on(self, count: int) -> bool:
        """Behind `count` entries that go out; whether the reader has passed the horizon by that."""
        was_raw = self._route.is_raw
        buffered = self._buffered
        self._position = buffered[0].header.position if buffered else self._behind_buffer
        self._route.delivered(self._buffer_view, count, self._position)
        return self._route.is_raw and not was_raw

    def _take(self) -> list[StoredEntry]:
        """What the permits allow, at least one entry: a check stands for one."""
        chunk: list[StoredEntry] = []
        while self._buffered and (self.permits > 0 or not chunk):
            entry = self._buffered.popleft()
            self.permits -= entry.header.message_count
            chunk.append(entry)
        return chunk

    def _count(self, chunk: list[StoredEntry]) -> None:
        sent = Traffic(
            messages=sum(entry.header.message_count for entry in chunk),
            entries=len(chunk),
            bytes=sum(len(entry.data) for entry in chunk),
            last_sent_ms=self._topic.clock.now_ms(),
        )
        self.traffic = self.traffic.plus(sent)
        self._topic.count_out(sent)

    async def _wait_for_more(self) -> None:
        waits = {
            asyncio.ensure_future(self._asked.wait()),
            asyncio.ensure_future(self.log.wait_beyond(self._position)),
        }
        done, pending = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for each in pending:
            each.cancel()
        await asyncio.gather(*pending, return_exceptions=True)
        for each in done:
            each.result()


@rpc_errors
async def get_last_message_id(
    broker: Broker, request: data_pb2.GetLastMessageIdRequest, context: Context
) -> data_pb2.GetLastMessageIdResponse:
    """The last id of the view (reference section 14)."""
    topic = await broker.topic(persistent_topic(request.topic, "read"), create=False)
    entry = await topic.log.last_entry(request.read_compacted)
    last = MessageId(ledger_id=-1, entry_id=-1, batch_index=-1, partition=-1)
    if entry is not None:
        last.ledger_id, last.entry_id = entry.header.position
        last.partition = partition_index(topic.name)
        last.batch_index = last_batch_index(entry.data, entry.header)
    return data_pb2.GetLastMessageIdResponse(message_id=last)
