"""A topic's log in memory, for tests of subscriptions: raw ledgers, and a compacted view if wanted.

>>> async def example() -> None:
...     log = MemoryLog()
...     log.publish("a=1", "b=1 b=2", "=keyless")  # the second one is of two messages
...     log.roll()  # the next entry begins a new ledger
...     log.compact(Position(0, 0))  # only that entry is left up to here
...     print(log.views.horizon, log.positions.last())
>>> asyncio.run(example())
0:2 1:-1
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from ledgerfold.broker.log.backlog import LedgerSums
from ledgerfold.broker.log.reads import ReadResult
from ledgerfold.broker.log.view import RAW, View
from ledgerfold.storage.entry import EARLIEST, Position, read_header, stamp
from ledgerfold.storage.ledger import StoredEntry
from ledgerfold.storage.native import NativeBatchBuilder
from ledgerfold.v1.data_pb2 import StartPosition
from ledgerfold.v1.records_pb2 import LedgerRecord, SegmentRecord
from ledgerfold.v1.records_pb2 import Position as PositionRecord


def ledger_of(ledger_id: int, entries: int, size_bytes: int) -> LedgerRecord:
    """The record of a ledger with one segment."""
    last = PositionRecord(ledger_id=ledger_id, entry_id=entries - 1)
    segment = SegmentRecord(entries=entries, size_bytes=size_bytes, last=last)
    return LedgerRecord(ledger_id=ledger_id, segments=[segment])


class MemoryLog:
    """A log with all parts (broker/log/log.py) that subscriptions use."""

    def __init__(self) -> None:
        self.ledgers = self.positions = self.reads = self.search = self.state = self.views = self
        self.raw: list[StoredEntry] = []
        self.current = RAW
        self._compacted: dict[View, list[StoredEntry]] = {RAW: []}
        self.ids = [0]
        self.published: Position | None = None
        self.now_ms = 1
        self.read_at: list[Position] = []
        self.error: Exception | None = None
        self.closed: Exception | None = None
        self._changed = asyncio.Condition()
        # Reads wait until it is set: a test may change things during one.
        self.gate = asyncio.Event()
        self.gate.set()

    @property
    def horizon(self) -> Position | None:
        return self.current.horizon

    def publish(self, *entries: str) -> list[Position]:
        return [self._append(text) for text in entries]

    def _append(self, text: str) -> Position:
        builder = NativeBatchBuilder("p")
        for message in text.split():
            key, _, value = message.partition("=")
            builder.add(value.encode(), key=key.encode() or None)
        frame = builder.build(sequence_id=0, publish_time_ms=self.now_ms)
        position = self.next_position(self.last())
        data = stamp(frame, *position, append_time_ms=1, producer_number=1)
        self.raw.append(StoredEntry(read_header(data), data))
        self.published = position
        self.wake()
        return position

    def wake(self) -> None:
        asyncio.get_running_loop().create_task(self._notify())

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    def roll(self) -> None:
        self.ids.append(self.ids[-1] + 1)

    def compact(self, *survivors: Position) -> None:
        before = self._compacted[self.current]
        everything = {each.header.position: each for each in [*before, *self.raw]}
        self.current = View(None, self.raw[-1].header.position)
        self._compacted[self.current] = [everything[each] for each in survivors]
        self.wake()

    def trim(self, *, ledgers_before: int) -> None:
        self.ids = [each for each in self.ids if each >= ledgers_before]
        self.raw = [each for each in self.raw if each.header.ledger_id >= ledgers_before]

    async def read(self, position: Position, *, view: View, bytes_max: int) -> ReadResult:
        self.read_at.append(position)
        await self.gate.wait()
        await asyncio.sleep(0)
        if self.error is not None:
            raise self.error
        if view.horizon is not None and position <= view.horizon:
            found = _page(self._compacted[view], position, bytes_max)
            if found:
                return ReadResult(found, found[-1].header.position.next)
            return ReadResult([], self.next_position(view.horizon))
        found = _page(self.raw, position, bytes_max)
        return ReadResult(found, found[-1].header.position.next if found else position)

    async def wait_beyond(self, position: Position) -> None:
        async with self._changed:
            await self._changed.wait_for(lambda: self._has_more(position))

    def _has_more(self, position: Position) -> bool:
        return any(each.header.position >= position for each in self.raw)

    def last(self) -> Position:
        newest = Position(self.ids[-1], -1)
        return max(newest, self.raw[-1].header.position) if self.raw else newest

    def last_published(self) -> Position:
        return self.published or self.last()

    def next_position(self, position: Position) -> Position:
        following = position.next
        later = [each for each in self.ids if each > position.ledger_id]
        if not later or any(each.header.position == following for each in self.raw):
            return following
        return Position(later[0], 0)

    def previous(self, position: Position) -> Position:
        return Position(position.ledger_id, position.entry_id - 1)

    def entries_between(self, after: Position, through: Position) -> int:
        return sum(after < each.header.position <= through for each in self.raw)

    def sums(self) -> LedgerSums:
        def of(ledger_id: int) -> LedgerRecord:
            entries = [each for each in self.raw if each.header.ledger_id == ledger_id]
            return ledger_of(ledger_id, len(entries), sum(len(each.data) for each in entries))

        return LedgerSums(map(of, self.ids))

    def last_in(self, ledger_id: int) -> Position | None:
        own = [each.header.position for each in self.raw]
        return max((each for each in own if each.ledger_id == ledger_id), default=None)

    def is_deleted(self, position: Position) -> bool:
        return position.ledger_id not in self.ids

    async def resolve_start(
        self, start: StartPosition, read_compacted: bool
    ) -> tuple[Position, bool]:
        at = start.WhichOneof("at")
        if at == "earliest":
            return EARLIEST, True
        if at == "message_id":
            named = Position(start.message_id.ledger_id, start.message_id.entry_id)
            return (named if start.inclusive else named.next), True
        if at == "publish_time_ms":
            compacted = self._compacted[self.current] if read_compacted else []
            for each in [*compacted, *self.raw]:
                if each.header.publish_time_ms >= start.publish_time_ms:
                    return each.header.position, True
        return self.next_position(self.last()), True


def _page(entries: Iterable[StoredEntry], position: Position, bytes_max: int) -> list[StoredEntry]:
    page: list[StoredEntry] = []
    for entry in entries:
        if entry.header.position >= position:
            page.append(entry)
            bytes_max -= len(entry.data)
            if bytes_max <= 0:
                break
    return page
