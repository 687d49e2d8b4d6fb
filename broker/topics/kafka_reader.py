"""A connected reader of a Kafka topic: an offset, and what it may see from there.

What is sent is what Kafka's consumer hands on: no markers, no batches without records, and under
`read_committed` nothing of aborted transactions, nor anything at or behind the last stable offset.
An explicit offset that the log does not have is refused, as a fetch is (OFFSET_OUT_OF_RANGE), also
when retention overtakes a reader; the log's end is one that it has.

Bounds: READ_BYTES_MAX of batches are held between the log and the stream, and of all streams what
broker/ground/outgoing.py says. What was read ahead is dropped where others need the room.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from dataclasses import dataclass
from typing import Protocol

from ledgerfold.broker.ground.clock import Clock
from ledgerfold.broker.ground.outgoing import READ_LEAST, Outgoing
from ledgerfold.broker.ground.traffic import Peer, Traffic
from ledgerfold.broker.kafka.log import KafkaLog
from ledgerfold.broker.kafka.partition import Partition
from ledgerfold.broker.kafka.reads import Place, StoredBatch
from ledgerfold.broker.topics.reader import (
    CHECKS_MAX,
    READ_BYTES_MAX,
    Checked,
    Entries,
    Sought,
    Step,
)
from ledgerfold.storage.errors import LedgerfoldError, Overloaded
from ledgerfold.v1.data_pb2 import StartPosition


class KafkaReadTopic(Protocol):
    """What a reader needs of its topic (broker/topics/kafka_topic.py)."""

    @property
    def clock(self) -> Clock: ...
    @property
    def log(self) -> KafkaLog: ...
    @property
    def partition(self) -> Partition: ...
    @property
    def readers(self) -> set[KafkaReader]: ...
    @property
    def outgoing(self) -> Outgoing: ...
    async def resolve_start(self, start: StartPosition, read_committed: bool) -> int: ...
    def count_out(self, sent: Traffic) -> None: ...


@dataclass(frozen=True)
class KafkaReaderOptions:
    read_committed: bool = False
    # Stats show it; "": a name is made up.
    name: str = ""


async def open_kafka_reader(
    topic: KafkaReadTopic, start: StartPosition, options: KafkaReaderOptions
) -> KafkaReader:
    """Connected until it is detached. Raises OffsetOutOfRange, and what the log raises."""
    reader = KafkaReader(topic, options)
    await reader.move(start)
    topic.readers.add(reader)
    topic.log.state.on_closed.add(reader.wake)
    topic.partition.on_visible.add(reader.wake)
    return reader


class KafkaReader:
    """Belongs to one stream. Made by open_kafka_reader."""

    def __init__(self, topic: KafkaReadTopic, options: KafkaReaderOptions) -> None:
        self.name = options.name or f"reader-{secrets.token_hex(5)}"
        # Who opened the stream says it.
        self.peer = Peer()
        self.traffic = Traffic()
        self.permits = 0
        self.read_committed = options.read_committed
        # Records before it, of the first batch that is given, are not the reader's.
        self.first_offset = 0
        self._topic = topic
        # Behind what was given, and behind what was read ahead.
        self.offset = self._ahead = 0
        self._place: Place | None = None
        self._buffered: deque[StoredBatch] = deque()
        # What of `share` is for those, and for what is being sent.
        self._ahead_bytes = self._given_bytes = 0
        self.share = topic.outgoing.share(self._shed)
        self._checks: list[int] = []
        self._seek: tuple[StartPosition, int] | None = None
        self._asked = asyncio.Event()
        self._is_finished = False
        self._error: LedgerfoldError | None = None

    # What the client asks

    def add_permits(self, messages: int) -> None:
        self.permits += messages
        self._asked.set()

    def check(self, check_id: int) -> None:
        """Whether there is more: take() answers."""
        if len(self._checks) >= CHECKS_MAX:
            self.end(Overloaded(f"{CHECKS_MAX} questions for more wait for their answer."))
            return
        self._checks.append(check_id)
        self._asked.set()

    def seek(self, start: StartPosition, seek_id: int) -> None:
        """take() tells when it has moved. One that did not come to its turn is forgotten."""
        self._seek = start, seek_id
        self._asked.set()

    def finish(self) -> None:
        """The client has nothing more to say: it is leaving."""
        self._is_finished = True
        self._asked.set()

    def end(self, error: LedgerfoldError) -> None:
        """The stream is to end with `error`."""
        self._error = self._error or error
        self._asked.set()

    def wake(self) -> None:
        """To look again."""
        self._asked.set()

    def detach(self) -> None:
        self.share.close()
        self._topic.readers.discard(self)
        self._topic.log.state.on_closed.discard(self.wake)
        self._topic.partition.on_visible.discard(self.wake)

    # What it is given

    async def take(self) -> list[Step] | None:
        """What to tell the client next, in order: waits for it. None: the stream is to end.

        What it gave before has been sent then. Raises what it was ended with, what closed the log,
        OffsetOutOfRange, what the log raises.
        """
        self.share.sent()
        self._given_bytes = 0
        while not self._is_finished:
            self.share.hold(self._ahead_bytes)
            error = self._error or self._topic.log.state.closed
            if error is not None:
                raise error
            # What becomes visible from here on wakes it, also while it reads.
            self._asked.clear()
            if self._seek is not None:
                return [await self._do_seek(*self._seek)]
            if self.permits > 0 or self._checks:
                if not (self._buffered or await self._has_room()):
                    continue
                steps = await self._next_steps()
                if steps:
                    self.share.sending()
                    return steps
                self.share.hold(0)
            await self._asked.wait()
        return None

    async def _has_room(self) -> bool:
        """For what is read next; False: there is something else to do before."""
        self._ahead_bytes = 0
        return await self.share.reserve_or(READ_BYTES_MAX, self._asked)

    def _shed(self) -> None:
        """Others need the room: what was read ahead is read again when it is asked for."""
        if self._buffered:
            self._buffered.clear()
            self._ahead, self._place = self.offset, None
        self._ahead_bytes = 0
        self.share.hold(self._given_bytes)

    async def _do_seek(self, start: StartPosition, seek_id: int) -> Step:
        self._seek = None
        await self.move(start)
        return Sought(seek_id, self.first_offset)

    async def move(self, start: StartPosition) -> None:
        """To a start position. Raises OffsetOutOfRange."""
        offset = await self._topic.resolve_start(start, self.read_committed)
        self._buffered.clear()
        self._ahead_bytes = 0
        self.first_offset = self.offset = self._ahead = offset
        self._place = None

    async def _next_steps(self) -> list[Step]:
        # Checks that were there before the read are answered by what it finds.
        checks, self._checks = self._checks, []
        if not self._buffered:
            await self._fill()
        chunk = self._next_chunk()
        steps = list[Step]()
        if chunk:
            self._count(chunk)
            steps.append(Entries([each.entry for each in chunk]))
            self.offset = chunk[-1].header.next_offset
        if checks:
            steps.append(Checked(checks, has_more=bool(chunk)))
        return steps

    async def _fill(self) -> None:
        """Reads on until there is a batch to give, or no more."""
        topic = self._topic
        while not self._buffered:
            topic.partition.check_in_range(self._ahead)
            upto = topic.partition.visible_end(self.read_committed)
            aborted_in = topic.log.segments.since(self._ahead) if self.read_committed else None
            bytes_max = max(self.share.held, READ_LEAST)
            read = await topic.log.reads.read(
                self._ahead, upto=upto, bytes_max=bytes_max, place=self._place
            )
            self._place = read.place
            if not read.batches:
                break
            self._ahead = read.next_offset
            self._buffered.extend(topic.partition.visible(read.batches, aborted_in))
            self._ahead_bytes = bytes_max
            if not self._buffered:
                self.offset = self._ahead

    def _next_chunk(self) -> list[StoredBatch]:
        """Of what was read ahead: as the permits allow, but a batch. A check stands for one."""
        chunk: list[StoredBatch] = []
        while self._buffered and (self.permits > 0 or not chunk):
            batch = self._buffered.popleft()
            self.permits -= batch.header.record_count
            chunk.append(batch)
        return chunk

    def _count(self, chunk: list[StoredBatch]) -> None:
        sent = Traffic(
            messages=sum(each.header.record_count for each in chunk),
            entries=len(chunk),
            bytes=sum(each.header.size_bytes for each in chunk),
            last_sent_ms=self._topic.clock.now_ms(),
        )
        self.traffic = self.traffic.plus(sent)
        self._topic.count_out(sent)
        # Roughly: never less than there is.
        self._ahead_bytes = max(0, self._ahead_bytes - sent.bytes) if self._buffered else 0
        self._given_bytes = sent.bytes
        self.share.hold(self._ahead_bytes + sent.bytes)
