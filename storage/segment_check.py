"""A check of a segment file, intact or damaged: extents of good entries, and the damage
(segment_findings.py).

Unlike a reader, which stops at damage, the check continues after it: a good header gives the length
of its entry; after a bad one, the next good header is searched for byte by byte. Nothing is
changed.

Rules:

1. An entry is good if all its bytes are intact, and its id is above that of the entry before it. In
   a raw ledger it also belongs to this ledger, at or above the number in its file's name and below
   the next file's.
2. In a raw ledger an extent's ids rise by one; in a compacted one, by any number.
3. Damage at the end of an unsealed segment is a torn tail if recovery would cut it (torn_tail.py).
4. Unreadable pages of the disk count as zeros.
5. A deletion vector that is missing, damaged, or lists other entries than the segment has is damage
   of the segment (`vector`): its dead messages are unknown.

Bounds: BLOCK_BYTES and one entry in memory; an Extent and a Damage for each damaged place.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from ledgerfold.storage.deletion_vector import DeadTally, load_vector, place_of, read_vector
from ledgerfold.storage.entry import (
    LATEST,
    Codec,
    EntryHeader,
    Position,
    read_header,
    verify_sections,
)
from ledgerfold.storage.errors import Corruption, DiskFailure, IncompatibleFormat, MissingFile
from ledgerfold.storage.file_window import Window
from ledgerfold.storage.files import Files
from ledgerfold.storage.kafka.batch import BATCH_HEADER_BYTES, read_batch_header
from ledgerfold.storage.kafka.span import Span
from ledgerfold.storage.names import deletion_vector_path
from ledgerfold.storage.open_files import ReadFile
from ledgerfold.storage.segment import SegmentTally, shifted
from ledgerfold.storage.segment_findings import (
    Damage,
    Extent,
    Origin,
    ProducerSeen,
    SegmentCheck,
)
from ledgerfold.storage.torn_tail import may_be_torn, proves, reaches_beyond
from ledgerfold.v1.records_pb2 import SegmentRecord

BLOCK_BYTES = 1024 * 1024
_PAGE_BYTES = 4096
# An upper bound of the size of a header of any version.
_HEADER_ROOM = 256
# Bytes 4 to 6 of a header: any version, a codec, a compression. Few other bytes match.
_LIKE_A_HEADER = re.compile(rb"(?=[\x01-\xff][\x01\x02][\x00-\x04])", re.DOTALL)
_VERSION_AT = 4


class Bounds(NamedTuple):
    """The bounds of a segment's entries p: after < p < before. `ledger_id` -1: any, in a compacted
    ledger.

    `is_same_boot`: the machine has not stopped since the file was written.
    """

    after: Position
    before: Position = LATEST
    ledger_id: int = -1
    is_same_boot: bool = False


def check_segment(path: Path, segment: SegmentRecord, bounds: Bounds, files: Files) -> SegmentCheck:
    """Checks a segment. Raises DiskFailure only if the file cannot be opened."""
    try:
        opened = files.open_read(path)
    except FileNotFoundError:
        return SegmentCheck(segment)
    with closing(opened) as file:
        scan = _Scan(file, segment, bounds)
        scan.load_vector(path.parent.parent, files)
        return scan.run()


class _Scan:
    def __init__(self, file: ReadFile, segment: SegmentRecord, bounds: Bounds) -> None:
        self._file, self._window = file, Window(self._pread, file.size_bytes)
        self._segment, self._bounds, self._last = segment, bounds, bounds.after
        # Includes bytes after the recorded end: a killed repair may have left them to cut.
        self._end = file.size_bytes
        self._result = SegmentCheck(segment, self._end)
        self._tally: SegmentTally | None = None
        # Damage that no later good header has proved to be acknowledged so far.
        self._unproven: deque[Damage] = deque()

    def load_vector(self, ledgers_dir: Path, files: Files) -> None:
        result, segment = self._result, self._segment
        beside = ledgers_dir / deletion_vector_path(segment.path)
        try:
            if segment.HasField("dead"):
                result.vector = load_vector(ledgers_dir, segment, files)
            elif not segment.sealed and files.exists(beside):
                # The record is lost.
                result.vector = read_vector(beside, files)
        except IncompatibleFormat as error:
            result.newer = error
        except Corruption as error:
            self._bad_vector(error.expected, error.found)
        except (MissingFile, DiskFailure) as error:
            self._bad_vector("a deletion vector", error.message)

    def _bad_vector(self, expected: str, found: str) -> None:
        self._result.vector = None
        self._result.damages.append(Damage("vector", 0, expected, found, self._last.next))

    def run(self) -> SegmentCheck:
        offset = 0
        try:
            while offset < self._end:
                offset = self._step(offset)
        except IncompatibleFormat as error:
            self._result.newer = error
        if self._segment.sealed:
            self._compare()
        elif self._result.newer is None:
            self._cut_torn()
        return self._result

    def _cut_torn(self) -> None:
        while self._unproven and not self._may_be_torn(self._unproven[0]):
            self._unproven.popleft()
        for damage in self._unproven:
            damage.is_torn = True
        if self._unproven:
            end = self._unproven[0].offset
            self._result.extents = [each for each in self._result.extents if each.offset < end]

    def _may_be_torn(self, damage: Damage) -> bool:
        return may_be_torn(
            is_same_boot=self._bounds.is_same_boot, reaches_beyond=damage.reaches_beyond
        )

    def _step(self, offset: int) -> int:
        """Checks the entry at `offset`. Returns the next offset. Raises IncompatibleFormat."""
        try:
            header = self._header(offset)
        except Corruption as error:
            self._bad("entry", offset, error.expected, error.found)
            self._result.damages[-1].reaches_beyond = self._reaches_beyond(offset)
            return self._search(offset + 1)
        self._meet(header)
        if offset + header.size_bytes > self._end:
            remaining = f"{self._end - offset} bytes"
            self._bad("entry", offset, f"{header.size_bytes} bytes of entry", remaining, header)
            self._result.damages[-1].reaches_beyond = True
            return self._search(offset + 1)
        end = offset + header.size_bytes
        if not self._is_in_order(header.position):
            self._bad("order", offset, f"an entry above {self._last}", str(header.position))
            return end
        try:
            block, at = self._block(offset, header.size_bytes)
            verify_sections(block, header, at, self._segment.path)
        except Corruption as error:
            error = shifted(error, offset - at)
            self._bad("entry", error.offset, error.expected, error.found, header)
            return end
        self._good(header, offset)
        return end

    def _header(self, offset: int) -> EntryHeader:
        return read_header(*self._block(offset, _HEADER_ROOM), self._segment.path)

    def _reaches_beyond(self, offset: int) -> bool:
        return reaches_beyond(*self._block(offset, _HEADER_ROOM), self._end - offset)

    def _block(self, offset: int, size: int) -> tuple[memoryview, int]:
        """Returns a block and the index of `offset` in it, with at least `size` bytes if they
        exist.
        """
        at = self._window.index(offset, min(size, self._end - offset), BLOCK_BYTES)
        return self._window.view, at

    def _pread(self, size: int, offset: int) -> bytes:
        try:
            return self._file.pread(size, offset)
        except DiskFailure:
            return b"".join(self._pages(size, offset))

    def _pages(self, size: int, offset: int) -> Iterator[bytes]:
        end = offset + size
        while offset < end:
            size_bytes = min(_PAGE_BYTES - offset % _PAGE_BYTES, end - offset)
            try:
                yield self._file.pread(size_bytes, offset)
            except DiskFailure:
                yield bytes(size_bytes)
            offset += size_bytes

    def _is_in_order(self, position: Position) -> bool:
        in_ledger = self._bounds.ledger_id in (-1, position.ledger_id)
        return in_ledger and self._last < position < self._bounds.before

    def _meet(self, header: EntryHeader) -> None:
        """Removes the unproven damage that this good header proves to be acknowledged."""
        while self._unproven and header.position > (bad := self._unproven[0].entry):
            if not proves(header, bad.entry_id):
                break
            self._unproven.popleft()

    def _good(self, header: EntryHeader, offset: int) -> None:
        is_raw = self._bounds.ledger_id >= 0
        if is_raw and header.position != self._last.next:
            if self._tally is not None or not self._result.damages:
                expected = f"entry {self._last.next}"
                self._bad("order", offset, expected, f"entry {header.position}")
                self._meet(header)
            self._tally = None
        if self._tally is None:
            self._tally = SegmentTally(self._segment.path)
            self._tally.record.sealed = True
            self._result.extents.append(
                Extent(offset, self._tally.record, Span(), DeadTally(), Origin())
            )
        origin = self._result.extents[-1].origin
        if header.ledger_id != self._last.ledger_id or self._tally.record.entries == 0:
            origin.ledger_ids.add(header.ledger_id)
        self._tally.add_stored([header])
        self._add_dead(header, offset)
        seen = origin.producers.get(header.producer_number)
        if seen is None or header.sequence_id > seen.sequence_id:
            origin.producers[header.producer_number] = ProducerSeen(header.sequence_id, offset)
        origin.has_pulsar_entries |= header.codec == Codec.PULSAR
        if header.codec == Codec.KAFKA and header.key_bytes == BATCH_HEADER_BYTES:
            block, at = self._block(offset, header.size_bytes)
            batch = read_batch_header(block, at + header.header_bytes)
            self._result.extents[-1].span.add(batch)
        self._last = header.position

    def _add_dead(self, header: EntryHeader, offset: int) -> None:
        vector = self._result.vector
        if vector is None:
            return
        try:
            index = place_of(vector, header, offset, self._segment.path)
        except Corruption as error:
            self._bad_vector(error.expected, error.found)
            return
        dead = [] if index is None else vector.dead_rows(index)
        self._result.extents[-1].dead.add(header, dead)

    def _bad(
        self,
        kind: str,
        offset: int,
        expected: str,
        found: str,
        header: EntryHeader | None = None,
    ) -> None:
        messages = None if header is None else header.message_count
        damage = Damage(kind, offset, expected, found, self._last.next, messages)
        if header is not None and self._is_in_order(header.position):
            # The loss ends with this entry: the next one is expected after it.
            damage.entry = self._last = header.position
        self._result.damages.append(damage)
        self._unproven.append(damage)
        self._tally = None

    def _search(self, offset: int) -> int:
        """Returns the offset of the next good header in order, or the end."""
        while offset < self._end:
            block, at = self._block(offset, _HEADER_ROOM)
            base, intact_through = offset - at, len(block) - _HEADER_ROOM
            is_last = base + len(block) >= self._end
            for match in _LIKE_A_HEADER.finditer(block, at + _VERSION_AT):
                start = match.start() - _VERSION_AT
                if base + start >= self._end or (start > intact_through and not is_last):
                    break
                if self._is_header(base + start):
                    return base + start
            if is_last:
                break
            offset = base + max(intact_through, at) + 1
        return self._end

    def _is_header(self, offset: int) -> bool:
        try:
            return self._is_in_order(self._header(offset).position)
        except Corruption:
            return False

    def _compare(self) -> None:
        """Compares a sealed file with its record."""
        segment, result = self._segment, self._result
        size = result.size_bytes or 0
        if result.newer is not None:
            return
        if size != segment.size_bytes:
            at = min(size, segment.size_bytes)
            self._bad("file", at, f"{segment.size_bytes} bytes", f"{size} bytes")
        elif not result.damages:
            computed = result.extents[0].record if result.extents else SegmentRecord()
            if segment.HasField("key_index"):
                # The entries do not describe the index; an intact segment keeps it.
                computed.key_index.CopyFrom(segment.key_index)
            if segment.HasField("dead") and result.extents:
                computed.dead.CopyFrom(result.extents[0].dead.finish()[1])
            if computed != segment:
                self._bad("sums", 0, describe(segment), describe(computed))


def describe(segment: SegmentRecord) -> str:
    """Describes the differences that two records of one file may have."""
    return (
        f"{segment.entries} entries, {segment.messages} messages, {segment.key_bytes} bytes of "
        f"keys, {segment.first.ledger_id}:{segment.first.entry_id} to "
        f"{segment.last.ledger_id}:{segment.last.entry_id}, published from "
        f"{segment.publish_time_min_ms} to {segment.publish_time_max_ms} and stored until "
        f"{segment.append_time_max_ms}, {segment.dead.messages} messages dead in "
        f"{segment.dead.bytes} bytes, checksum {segment.checksum:08x}"
    )
