"""A connected producer: appends in order, refuses duplicates, gives receipts when durable.

Receipts come back in the order of the entries. A duplicate's receipt waits until everything
appended before it is durable: the original may still be on its way.

Bounds: what a producer has in flight, duplicates among it, stays under IN_FLIGHT_BYTES_MAX plus an
entry and what is appended at once (broker/rpc/publish.py); above it the stream is not read on,
which holds the client back.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import NamedTuple, Protocol

from ledgerfold.broker.ground.clock import Clock, ManualClock
from ledgerfold.broker.ground.traffic import Peer
from ledgerfold.broker.log.log import TopicLog
from ledgerfold.broker.topics.deduplication import Deduplication
from ledgerfold.storage.entry import EntryHeader, Position, check_entry
from ledgerfold.storage.errors import InvalidRequest, LedgerfoldError
from ledgerfold.v1.records_pb2 import ProducerRecord

IN_FLIGHT_BYTES_MAX = 8 * 1024 * 1024
# Given at once: about a millisecond's work, and a message that any client takes.
RECEIPTS_MAX = 1000
_DUPLICATE = Position(-1, -1)


class PublishTopic(Protocol):
    """What a producer needs of its topic (broker/topics/topic.py)."""

    @property
    def log(self) -> TopicLog: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def deduplication(self) -> Deduplication: ...
    @property
    def entry_bytes_max(self) -> int: ...
    def count_in(self, header: EntryHeader) -> None: ...
    def detach_producer(self, producer: Producer) -> None: ...


class Receipt(NamedTuple):
    """Of one entry, and what it waits for. `position`: nowhere, for a duplicate."""

    position: Position
    sequence_id: int
    size_bytes: int
    # Durable from here on; None: nothing was ever appended to wait for.
    durable_at: Position | None


class Producer:
    """Belongs to one stream."""

    def __init__(self, topic: PublishTopic, name: str, record: ProducerRecord) -> None:
        self.topic = topic
        self.name = name
        self.record = record
        # Who opened the stream says it.
        self.peer = Peer()
        self._waiting: deque[Receipt] = deque()
        self._in_flight_bytes = 0
        self._changed = asyncio.Event()
        self._room = asyncio.Event()
        self._error: LedgerfoldError | None = None
        self._is_finished = False
        # On emulated time the producer's own clock means nothing.
        self._emulated_time = topic.clock if isinstance(topic.clock, ManualClock) else None
        self._entry_bytes_max = topic.entry_bytes_max
        self._tail, self._log_state = topic.log.tail, topic.log.state
        self._log_state.on_durable.add(self._changed.set)

    def append(self, entry: memoryview) -> None:
        """One entry as it came. Raises InvalidRequest, and what made the log fail."""
        if self._error is not None:
            raise self._error
        header = check_entry(entry, self._entry_bytes_max)
        topic, record = self.topic, self.record
        if header.sequence_id < 0:
            raise InvalidRequest(f"Sequence id {header.sequence_id}: 0 is the least.")
        if header.sequence_id <= record.last_sequence_id:
            # The original may still be on its way, from a connection that is gone.
            self._wait(_DUPLICATE, header.sequence_id, header.size_bytes, self._tail.last_appended)
            return
        if self._emulated_time is not None:
            header = header._replace(publish_time_ms=self._emulated_time.now_ms())
        position = self._tail.append(header, entry, record.number)
        topic.deduplication.appended(record, header.sequence_id)
        topic.count_in(header)
        self._wait(position, header.sequence_id, header.size_bytes, position)

    def _wait(
        self, position: Position, sequence_id: int, size_bytes: int, durable_at: Position | None
    ) -> None:
        self._waiting.append(Receipt(position, sequence_id, size_bytes, durable_at))
        self._in_flight_bytes += size_bytes
        if position == _DUPLICATE:
            self._changed.set()

    async def has_room(self) -> None:
        """Returns when the next frame may be read."""
        while self._in_flight_bytes >= IN_FLIGHT_BYTES_MAX and self._error is None:
            self._room.clear()
            await self._room.wait()

    async def receipts(self) -> list[Receipt]:
        """The next ones, 1 to RECEIPTS_MAX; none when the stream is finished and all were given.

        Raises what ended the producer or made the log fail.
        """
        while True:
            ready = self._take_durable()
            if ready:
                return ready
            error = self._error or self._log_state.failure
            if error is not None:
                self.end(error)
                raise error
            if self._is_finished and not self._waiting:
                return []
            self._changed.clear()
            await self._changed.wait()

    def _take_durable(self) -> list[Receipt]:
        durable, ready = self._log_state.last_durable, list[Receipt]()
        while self._waiting and len(ready) < RECEIPTS_MAX:
            waiting = self._waiting[0]
            if waiting.durable_at is not None and (durable is None or waiting.durable_at > durable):
                break
            self._waiting.popleft()
            self._in_flight_bytes -= waiting.size_bytes
            ready.append(waiting)
        if ready:
            self._room.set()
        return ready

    def finish(self) -> None:
        """The client sends no more: receipts() ends once all are given."""
        self._is_finished = True
        self._changed.set()

    def end(self, error: LedgerfoldError) -> None:
        """Ends the stream with `error`."""
        self._error = self._error or error
        self._room.set()
        self._changed.set()

    def detach(self) -> None:
        self._log_state.on_durable.discard(self._changed.set)
        self.topic.detach_producer(self)
