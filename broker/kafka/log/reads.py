"""Reads a Kafka log by offset, through cleaned and raw ledgers.

A read at a missing offset returns the next batch (docs/KAFKA.md, "Produce and read"). Segments that
a cleaning replaces, or retention deletes, during a read do not fail it: the offset is looked up
again in the present segments. Only durable batches are read.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ledgerfold.broker.kafka.log.segments import LiveSegment, Part, Segments
from ledgerfold.broker.log.files import LogFiles
from ledgerfold.broker.log.raw_ledgers import RawLedgers
from ledgerfold.broker.log.state import LogState
from ledgerfold.storage.entry import LATEST, EntryHeader, Position
from ledgerfold.storage.errors import MissingFile
from ledgerfold.storage.kafka.batch import BatchHeader, read_batch_header
from ledgerfold.storage.ledger import LedgerReader, StoredEntry


class StoredBatch(NamedTuple):
    """An entry and the header of its batch."""

    entry: StoredEntry
    header: BatchHeader


class Place(NamedTuple):
    """The position of the next batch, for a reader that continues at `offset`."""

    offset: int
    position: Position
    ledger_id: int


class KafkaRead(NamedTuple):
    """Batches, the offset after them, and its place if known.

    Without batches there is nothing at or after the requested offset yet.
    """

    batches: Sequence[StoredBatch]
    next_offset: int
    location: Place | None


class KafkaReads:
    """Reads on the event loop; data that is not in memory is read on a thread."""

    def __init__(
        self, segments: Segments, ledgers: RawLedgers, files: LogFiles, state: LogState
    ) -> None:
        self._segments, self._ledgers = segments, ledgers
        self._files, self._state = files, state

    async def read(
        self, offset: int, *, end: int, bytes_max: int, location: Place | None = None
    ) -> KafkaRead:
        """Reads batches that end at or after `offset` and before `end`, about `bytes_max` of them.

        `location`: the place that an earlier read returned for that offset. Raises Moved when the
        topic was unloaded, Corruption, MissingFile.
        """
        while offset < end:
            if self._state.closed is not None:
                raise self._state.closed
            segment = self._segments.floor(offset)
            at = segment.part_at(offset)
            if segment.parts:
                part = segment.parts[at]
                try:
                    with self._files.moved_if_closed():
                        entries = await self._read_part(segment, part, offset, bytes_max, location)
                except MissingFile:
                    if self._segments.holds(part.ledger_id):
                        raise
                    location = None
                    continue
                batches = _before(entries, end)
                if entries:
                    return _result(batches, part.ledger_id, offset)
                if not self._segments.holds(part.ledger_id):
                    # Its replacement may reach further.
                    continue
            following = self._start_after(segment, at)
            if following is None:
                break
            offset, location = max(offset, following), None
        return KafkaRead((), offset, None)

    def _start_after(self, segment: LiveSegment, at: int) -> int | None:
        """Returns the first offset that may be in the part after that one."""
        if at + 1 < len(segment.parts):
            return segment.parts[at + 1].base_offset
        return self._segments.next_base(self._segments.index(segment.base_offset))

    async def _read_part(
        self, segment: LiveSegment, part: Part, offset: int, bytes_max: int, location: Place | None
    ) -> list[StoredEntry]:
        reader = self.reader(segment, part)
        if (
            location is not None
            and location.offset == offset
            and location.ledger_id == part.ledger_id
        ):
            start: Position | None = location.position
        elif segment.is_cleaned:
            # Entries of cleaned ledgers have the position (0, last offset of the batch).
            start = Position(0, offset)
        elif offset <= part.base_offset:
            start = Position(part.ledger_id, 0)
        else:
            find = functools.partial(first_reaching, reader, part.ledger_id, offset)
            start = await self._files.in_thread(find)
        if start is None:
            return []
        return await self._files.read(reader, start, bytes_max, LATEST)

    def reader(self, segment: LiveSegment, part: Part) -> LedgerReader:
        """Opens a part's ledger. Raises MissingFile, Moved."""
        closed = None if segment.is_cleaned else self._ledgers.closed_record(part.ledger_id)
        return self._files.open_reader(part.ledger_id, closed)


def _before(entries: Sequence[StoredEntry], end: int) -> list[StoredBatch]:
    batches = list[StoredBatch]()
    for entry in entries:
        header = read_batch_header(entry.data, entry.header.header_bytes)
        if header.last_offset >= end:
            break
        batches.append(StoredBatch(entry, header))
    return batches


def _result(batches: list[StoredBatch], ledger_id: int, offset: int) -> KafkaRead:
    if not batches:
        return KafkaRead((), offset, None)
    last = batches[-1]
    following = last.header.next_offset
    return KafkaRead(
        batches, following, Place(following, last.entry.header.position.next, ledger_id)
    )


def first_reaching(reader: LedgerReader, ledger_id: int, offset: int) -> Position | None:
    """Returns the first entry of a raw ledger that ends at or after `offset`; None if there is
    none.

    A binary search, as offsets rise with entry ids: a few reads, on a thread.
    """
    last = reader.last
    if last is None:
        return None
    low, high = 0, last.entry_id + 1
    while low < high:
        middle = (low + high) // 2
        # An entry that a repair gave up is missing; the read returns the next one.
        entry = reader.read(Position(ledger_id, middle), bytes_max=1, end=last)[0]
        if read_batch_header(entry.data, entry.header.header_bytes).last_offset < offset:
            low = entry.header.entry_id + 1
        else:
            high = middle
    return Position(ledger_id, low) if low <= last.entry_id else None


def headers_of(reader: LedgerReader) -> Iterator[tuple[EntryHeader, BatchHeader]]:
    """Yields the headers of a ledger's batches, in order. Raises Corruption, MissingFile."""
    for segment in reader.record.segments:
        if segment.entries:
            for entry, keys in reader.keys(segment):
                yield entry, read_batch_header(keys)


def whole_batch(reader: LedgerReader, position: Position) -> bytes:
    """Reads a whole batch. Raises Corruption, MissingFile."""
    entries = reader.read(position, bytes_max=1, end=position)
    if not entries:
        raise MissingFile(str(position), "a ledger's segment")
    (entry,) = entries
    return entry.data[entry.header.header_bytes :]
