"""A ledger reader: raw or compacted, open or closed. Damage is an error, never a gap.

Entries are found by id: the segment by binary search over the records, the entry in it by skipping
from header to header, from the nearest known offset. The reader knows the offset of every
INDEX_EVERY-th entry that it has read, and the ends of the last few reads, so a sequential read is
one pread.

Dead messages of a compacted ledger are omitted: entries without a live message are skipped, others
are served with a mask of their live rows (storage/deletion_vector.py, storage/served_entry.py).

Bounds: in an indexed range, at most INDEX_EVERY entries are skipped; NEXT_MAX ends of reads are
cached per ledger; an index costs two numbers for each INDEX_EVERY entries.
"""

from __future__ import annotations

import functools
import threading
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator
from operator import itemgetter

from ledgerfold.storage.deletion_vector import DeletionVector, VectorCache, place_of
from ledgerfold.storage.entry import (
    EARLIEST,
    HEADER_BYTES,
    Buffer,
    EntryHeader,
    Position,
    has_header,
    read_header,
    verify_sections,
)
from ledgerfold.storage.entry_check import read_entry
from ledgerfold.storage.errors import Corruption, IncompatibleFormat, MissingFile
from ledgerfold.storage.key_scan import scan_keys
from ledgerfold.storage.open_files import ReadFile
from ledgerfold.storage.segment import (
    live_entries,
    live_messages,
    live_position,
    record_position,
    shifted,
)
from ledgerfold.storage.served_entry import live_header, with_live_rows
from ledgerfold.storage.stored_entries import StoredEntry, read_run
from ledgerfold.v1.records_pb2 import LEDGER_KIND_COMPACTED, LedgerRecord, SegmentRecord

INDEX_EVERY = 32
# The bytes of dead entries that a read that must not wait may pass.
_PASSED_BYTES_MAX = 256 * 1024
NEXT_MAX = 64
# The size of one read in a scan of headers: several headers if entries are small, otherwise one.
_HOP_BYTES = 4096
# ReadFile.pread, blocking or not.
Pread = Callable[[int, int], Buffer]


class _Index:
    """The offsets of some entries of one segment, in order. Threads may share it."""

    def __init__(self) -> None:
        # One list of pairs: with two lists, threads could see them in different states.
        self._known: list[tuple[Position, int]] = []
        self._lock = threading.Lock()

    def at_or_before(self, position: Position) -> int:
        at = bisect_right(self._known, position, key=itemgetter(0))
        return self._known[at - 1][1] if at else 0

    def add(self, position: Position, offset: int) -> None:
        with self._lock:
            if not self._known or position > self._known[-1][0]:
                self._known.append((position, offset))


class LedgerReader:
    """A reader of one ledger, created by LedgerStore.open_reader(). Threads may share it."""

    def __init__(
        self,
        record: Callable[[], LedgerRecord],
        open_file: Callable[[str], ReadFile],
        scratch: bytearray,
        vectors: VectorCache,
    ) -> None:
        self._record = record
        self._open_file = open_file
        self._vectors = vectors
        self._scratch = scratch
        self._is_compacted = record().kind == LEDGER_KIND_COMPACTED
        self._indexes: dict[str, _Index] = {}
        self._next: OrderedDict[Position, tuple[str, int]] = OrderedDict()

    @property
    def record(self) -> LedgerRecord:
        """The record of the durable part, which is never modified."""
        return self._record()

    @property
    def first(self) -> Position | None:
        segments = self._segments()
        return live_position(segments[0], last=False) if segments else None

    @property
    def last(self) -> Position | None:
        """The last durable entry."""
        segments = self._segments()
        return live_position(segments[-1], last=True) if segments else None

    @property
    def entries(self) -> int:
        return sum(map(live_entries, self.record.segments))

    @property
    def messages(self) -> int:
        return sum(map(live_messages, self.record.segments))

    @property
    def garbage_bytes(self) -> int:
        """The dead part of its size."""
        return sum(segment.dead.bytes for segment in self.record.segments)

    @property
    def size_bytes(self) -> int:
        """The size of its segments, with their dead messages."""
        return sum(segment.size_bytes for segment in self.record.segments)

    def _segments(self) -> list[SegmentRecord]:
        return [segment for segment in self.record.segments if segment.entries]

    def read(
        self, start: Position, *, bytes_max: int, end: Position, wait: bool = True
    ) -> list[StoredEntry]:
        """Returns entries p with start <= p <= end, in order: at least one if any exists.

        Stops after about `bytes_max`, and before damage: then the next read raises Corruption, or
        MissingFile. Without `wait` it never reads from the disk, and raises BlockingIOError if the
        first entry is not in memory; only one thread at a time may read so, among all readers of
        the store.
        """
        entries: list[StoredEntry] = []
        segments = self._segments()
        at = bisect_left(segments, start, key=lambda each: record_position(each, last=True))
        for segment in segments[at:]:
            if record_position(segment, last=False) > end:
                break
            try:
                bytes_max -= self._read_segment(segment, start, end, bytes_max, entries, wait)
            except (BlockingIOError, Corruption, IncompatibleFormat, MissingFile):
                if entries:
                    break
                raise
            # NOTE: a read may end before the segment does, with bytes to spare, if the next entry
            # does not fit in them; then the next segment must not be read yet.
            is_whole = entries and entries[-1].header.position >= live_position(segment, last=True)
            if entries and (bytes_max <= 0 or not is_whole):
                break
        return entries

    def _read_segment(
        self,
        segment: SegmentRecord,
        start: Position,
        end: Position,
        bytes_max: int,
        entries: list[StoredEntry],
        wait: bool,
    ) -> int:
        """Appends to `entries`. Returns the size of what it appended, in bytes."""
        path, taken, passed = segment.path, 0, 0
        last = record_position(segment, last=True)
        end = min(end, last)
        vector = self._vectors.of(segment, wait)
        file = self._open_file(path)
        pread = file.pread if wait else functools.partial(self._pread_cached, file)
        offset = self._offset_of(segment, pread, start)
        expected = max(start, record_position(segment, last=False))
        begun = offset
        while True:
            # The file may be longer: the bytes after it are being written, or were never
            # acknowledged.
            size_bytes = max(min(bytes_max, segment.size_bytes - offset), HEADER_BYTES)
            block, base = pread(size_bytes, offset), offset
            if vector is None:
                run, size = read_run(block, expected, end, is_dense=not self._is_compacted)
                if run:
                    self._check_position(segment, offset, run[0].header.position, expected)
                    entries += run
                    taken, offset, passed = taken + size, offset + size, passed + len(run)
                    expected = run[-1].header.position.next
                    if expected > end:
                        break
            at = offset - base
            for header, data in self._entries(
                pread, path, block, at, base, end, bool(entries), vector
            ):
                position = header.position
                self._check_position(segment, offset, position, expected)
                if data is not None:
                    entries.append(_served(header, data, offset, vector, path))
                    taken += len(entries[-1].data)
                offset += header.size_bytes
                passed += 1
                expected = position.next
                if position >= end:
                    break
            # Another block of dead entries may follow.
            if vector is None or taken or offset == base or expected > end:
                break
            if not wait and offset - begun > _PASSED_BYTES_MAX:
                # Many of them would block the event loop.
                raise BlockingIOError
        # A compacted ledger may have no entry between two others.
        is_there = expected <= end and (not self._is_compacted or end == last)
        if is_there and not entries:
            raise Corruption(path, offset, f"entry {expected}", "no such entry")
        if passed:
            self._remember(expected, path, offset)
        return taken

    def _pread_cached(self, file: ReadFile, size: int, offset: int) -> memoryview:
        """Returns a view that is valid until the next call. Raises BlockingIOError."""
        view = memoryview(self._scratch if size <= len(self._scratch) else bytearray(size))[:size]
        if not file.pread_cached(view, offset):
            raise BlockingIOError
        return view

    def _entries(
        self,
        pread: Pread,
        path: str,
        block: Buffer,
        at: int,
        offset: int,
        end: Position,
        some: bool,
        vector: DeletionVector | None,
    ) -> Iterator[tuple[EntryHeader, bytes | None]]:
        """Yields the whole entries from `at` on in a block read at `offset`; reads once more for a
        large first one. For an entry without a live message, yields only the header.
        """
        view = memoryview(block)
        while at + HEADER_BYTES <= len(view) or has_header(view, at):
            entry = read_entry(view, at)
            if entry is not None:
                header, data = entry
                if header[5:7] > end:
                    return
                is_dead = vector is not None and _is_dead(vector, header, offset + at, path)
                yield header, None if is_dead else data
                at += len(data)
                continue
            header = _header(view, at, offset, path)
            if header.position > end:
                return
            size = header.size_bytes
            if vector is not None and _is_dead(vector, header, offset + at, path):
                yield header, None
                at += size
                continue
            if at + size > len(view):
                if at or some:
                    return
                view = memoryview(pread(size, offset))
            data = bytes(view[at : at + size])
            try:
                verify_sections(data, header, 0, path)
            except Corruption as error:
                raise shifted(error, offset + at) from error
            yield header, data
            at += size

    def _check_position(
        self, segment: SegmentRecord, offset: int, position: Position, expected: Position
    ) -> None:
        if self._is_compacted:
            good = expected <= position <= record_position(segment, last=True)
            good = good and (offset > 0 or position == record_position(segment, last=False))
        else:
            good = position == expected
        if not good:
            raise Corruption(segment.path, offset, f"entry {expected}", f"entry {position}")

    def _offset_of(self, segment: SegmentRecord, pread: Pread, start: Position) -> int:
        """Returns the offset of the first entry at or after `start`, which the segment holds."""
        if start <= record_position(segment, last=False):
            return 0
        known = self._next.get(start)
        if known is not None and known[0] == segment.path:
            return known[1]
        index = self._indexes.setdefault(segment.path, _Index())
        offset = index.at_or_before(start)
        last = record_position(segment, last=True)
        for hops, (header, at) in enumerate(self._hop(pread, segment.path, offset)):
            if header.position >= start:
                return at
            if header.position >= last:
                break
            if hops and hops % INDEX_EVERY == 0:
                index.add(header.position, at)
        raise Corruption(segment.path, offset, f"entry {start}", "no such entry")

    def _hop(self, pread: Pread, path: str, offset: int) -> Iterator[tuple[EntryHeader, int]]:
        block: Buffer = b""
        base = offset
        while True:
            at = offset - base
            if at + HEADER_BYTES > len(block) and not has_header(block, at):
                block, base, at = pread(_HOP_BYTES, offset), offset, 0
                if not has_header(block, 0):
                    return
            header = _header(block, at, base, path)
            yield header, offset
            offset += header.size_bytes

    def _remember(self, position: Position, path: str, offset: int) -> None:
        self._next[position] = (path, offset)
        while len(self._next) > NEXT_MAX:
            try:
                self._next.popitem(last=False)
            except KeyError:
                return

    def keys(self, segment: SegmentRecord) -> Iterator[tuple[EntryHeader, memoryview]]:
        """Yields headers and key sections of a segment (scan_keys), as of the time of its record.

        A header says which rows are live; entries without live rows are omitted. Raises Corruption,
        MissingFile.
        """
        keys = scan_keys(self._open_file(segment.path).pread, segment)
        vector = self._vectors.of(segment)
        return keys if vector is None else _live_keys(keys, vector, segment.path)

    def last_entry(self) -> StoredEntry | None:
        """Returns the last durable entry."""
        last = self.last
        if last is None:
            return None
        return self.read(last, bytes_max=1, end=last)[0]

    def position_at_time(self, publish_time_ms: int, start: Position = EARLIEST) -> Position | None:
        """Finds the first durable entry from `start` on that was published at or after
        `publish_time_ms`.
        """
        for segment in self._segments():
            end = record_position(segment, last=True)
            if end < start or segment.publish_time_max_ms < publish_time_ms:
                continue
            vector = self._vectors.of(segment)
            pread = self._open_file(segment.path).pread
            offset = self._offset_of(segment, pread, start)
            for header, at in self._hop(pread, segment.path, offset):
                if header.publish_time_ms >= publish_time_ms:
                    is_dead = vector is not None and _is_dead(vector, header, at, segment.path)
                    if not is_dead:
                        return header.position
                if header.position >= end:
                    break
        return None


def _is_dead(vector: DeletionVector, header: EntryHeader, offset: int, path: str) -> bool:
    index = place_of(vector, header, offset, path)
    return index is not None and vector.is_whole(index)


def _served(
    header: EntryHeader, data: bytes, offset: int, vector: DeletionVector | None, path: str
) -> StoredEntry:
    index = None if vector is None else place_of(vector, header, offset, path)
    if vector is None or index is None:
        return StoredEntry(header, data)
    return StoredEntry(*with_live_rows(header, data, vector.live_rows(index)))


def _live_keys(
    entries: Iterator[tuple[EntryHeader, memoryview]], vector: DeletionVector, path: str
) -> Iterator[tuple[EntryHeader, memoryview]]:
    offset = 0
    for header, keys in entries:
        index = place_of(vector, header, offset, path)
        offset += header.size_bytes
        if index is None:
            yield header, keys
        elif not vector.is_whole(index):
            yield live_header(header, vector.live_rows(index)), keys


def _header(block: Buffer, at: int, base: int, path: str) -> EntryHeader:
    try:
        return read_header(block, at, path)
    except Corruption as error:
        raise shifted(error, base) from error
