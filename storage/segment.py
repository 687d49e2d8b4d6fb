"""Segment files, which contain only concatenated entry records (docs/FORMATS.md, "Segment").

A raw ledger's segments hold its own consecutive entries; a compacted ledger's hold entries of
several raw ledgers under their original, strictly rising ids. A SegmentRecord has a segment's
totals, which are final when the segment is sealed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from copy import deepcopy
from itertools import islice
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import NamedTuple

import google_crc32c

from ledgerfold.storage.crash_points import reach
from ledgerfold.storage.entry import (
    ENTRY_BYTES_MAX,
    FORMAT_VERSION,
    HEADER_BYTES,
    Buffer,
    Codec,
    EntryHeader,
    Position,
    position_of,
    read_header,
)
from ledgerfold.storage.errors import Corruption, EntryTooLarge, MissingFile
from ledgerfold.storage.files import REAL, Files, size_if_any
from ledgerfold.storage.names import (
    deletion_vector_path,
    key_index_path,
    segment_path,
)
from ledgerfold.storage.open_files import AppendFile
from ledgerfold.v1.records_pb2 import LedgerRecord, SegmentRecord

# Adding single entries costs as much as reading them: the record is a protobuf message.
_TALLIED_AT_ONCE = 1024
# The size of a message with a key of 16 bytes in a native key section.
_HIDDEN_KEY_BYTES = 25
# The assumed maximum compression ratio of such keys: a batch may declare any number of messages.
_HIDDEN_RATIO_MAX = 64


# Getters that run no Python code for each header.
_VERSION, _CODEC, _PUBLISH_TIME, _MESSAGES, _KEY_BYTES, _VALUE_BYTES = (
    itemgetter(EntryHeader._fields.index(name))
    for name in (
        *("version", "codec", "publish_time_ms", "message_count", "key_bytes", "value_bytes"),
    )
)


def _hidden_key_bytes(headers: Sequence[EntryHeader]) -> int:
    """Returns an estimate of the keys that are in value sections: those of Pulsar batches."""
    if Codec.PULSAR not in {*map(_CODEC, headers)}:
        return 0
    batches = (each for each in headers if each.codec == Codec.PULSAR and not each.is_plain)
    return sum(
        min(_HIDDEN_KEY_BYTES * each.message_count, _HIDDEN_RATIO_MAX * each.value_bytes)
        for each in batches
    )


def size_of(headers: Sequence[EntryHeader]) -> int:
    """Returns the size of the entries, headers included."""
    if {*map(_VERSION, headers)} <= {FORMAT_VERSION}:
        sections: int = sum(map(_KEY_BYTES, headers)) + sum(map(_VALUE_BYTES, headers))
        return len(headers) * HEADER_BYTES + sections
    return sum(header.size_bytes for header in headers)


class Totals(NamedTuple):
    """The totals of one or more entries, for a SegmentRecord.

    `crcs`: the first four bytes of each stored header.
    """

    entries: int
    messages: int
    size_bytes: int
    key_bytes: int
    first: Position
    last: Position
    publish_time_min_ms: int
    publish_time_max_ms: int
    append_time_max_ms: int
    crcs: bytes


class SegmentTally:
    """A tally that adds entries up to a SegmentRecord."""

    def __init__(self, path: str) -> None:
        self.record = SegmentRecord(path=path)

    def add(
        self,
        headers: Sequence[EntryHeader],
        first: Position,
        last: Position,
        append_time_max_ms: int,
        crcs: bytes,
    ) -> None:
        """Adds one or more entries at the end, from `first` to `last`.

        `headers` need not be stamped; `crcs` are the first four bytes of each stored one.
        """
        times = list(map(_PUBLISH_TIME, headers))
        self.add_totals(
            Totals(
                entries=len(headers),
                messages=sum(map(_MESSAGES, headers)),
                size_bytes=size_of(headers),
                key_bytes=sum(map(_KEY_BYTES, headers)) + _hidden_key_bytes(headers),
                first=first,
                last=last,
                publish_time_min_ms=min(times),
                publish_time_max_ms=max(times),
                append_time_max_ms=append_time_max_ms,
                crcs=crcs,
            )
        )

    def add_totals(self, totals: Totals) -> None:
        """Adds entries at the end whose totals are known."""
        record = self.record
        if not record.entries:
            record.first.ledger_id, record.first.entry_id = totals.first
            record.publish_time_min_ms = totals.publish_time_min_ms
        record.last.ledger_id, record.last.entry_id = totals.last
        record.entries += totals.entries
        record.messages += totals.messages
        record.size_bytes += totals.size_bytes
        record.key_bytes += totals.key_bytes
        record.publish_time_min_ms = min(record.publish_time_min_ms, totals.publish_time_min_ms)
        record.publish_time_max_ms = max(record.publish_time_max_ms, totals.publish_time_max_ms)
        record.append_time_max_ms = max(record.append_time_max_ms, totals.append_time_max_ms)
        record.checksum = google_crc32c.extend(record.checksum, totals.crcs)

    def add_stored(self, headers: Sequence[EntryHeader]) -> None:
        """Adds entries at the end by their stored headers, of which there may be none."""
        if headers:
            append_time_max_ms = max(header.append_time_ms for header in headers)
            crcs = b"".join(header.crc.to_bytes(4, "little") for header in headers)
            first, last = headers[0].position, headers[-1].position
            self.add(headers, first, last, append_time_max_ms, crcs)


def shifted(error: Corruption, base: int) -> Corruption:
    """Returns the same error with an offset in the file, instead of one in a block that was read at
    `base`.
    """
    return Corruption(error.path, error.offset + base, error.expected, error.found)


def record_position(record: SegmentRecord, last: bool) -> Position:
    return position_of(record.last if last else record.first)


def live_position(record: SegmentRecord, last: bool) -> Position:
    """Returns the position of a segment's first or last entry that has a live message."""
    if not record.HasField("dead"):
        return record_position(record, last)
    return position_of(record.dead.last if last else record.dead.first)


def live_messages(record: SegmentRecord) -> int:
    return record.messages - record.dead.messages


def live_entries(record: SegmentRecord) -> int:
    """Returns the number of entries that have a live message."""
    return record.entries - record.dead.entries


def with_segments(record: LedgerRecord, segments: Iterable[SegmentRecord]) -> LedgerRecord:
    """Returns a copy of a ledger's record that has these segments."""
    changed = deepcopy(record)
    del changed.segments[:]
    changed.segments.extend(segments)
    return changed


def file_names(ledger: LedgerRecord) -> set[str]:
    """Returns the paths of a ledger's files, relative to the ledgers folder, without its label."""
    paths = {segment.path for segment in ledger.segments}
    for segment in ledger.segments:
        if segment.HasField("key_index"):
            paths.add(key_index_path(segment.path))
        if segment.HasField("dead"):
            paths.add(deletion_vector_path(segment.path))
    return paths


def segments_sealed(ledger: LedgerRecord, after: Position) -> list[SegmentRecord]:
    """Returns the sealed segments that hold entries above `after`, in order."""
    return [
        segment
        for segment in ledger.segments
        if segment.sealed and segment.entries and record_position(segment, last=True) > after
    ]


def scan_segment(
    path: Path, record: SegmentRecord, files: Files = REAL
) -> Iterator[tuple[EntryHeader, int]]:
    """Yields the verified headers of a segment with their offsets. Ignores the sections.

    In an unsealed segment, stops at the recorded end: its file may be longer. Raises Corruption if
    a header is damaged, ids do not rise, or the file does not match the record; MissingFile.
    """
    size_bytes = files.size(path) if files.exists(path) else -1
    is_longer = size_bytes > record.size_bytes
    if size_bytes < record.size_bytes or (is_longer and record.sealed):
        raise MissingFile(str(path), "a segment record")
    if record.size_bytes:
        with files.map(path) as view:
            yield from scan_headers(view, str(path), record.size_bytes)


def scan_headers(buffer: Buffer, path: str, size_bytes: int) -> Iterator[tuple[EntryHeader, int]]:
    """Yields each header with its offset, skipping the sections. Raises Corruption."""
    offset, last = 0, (-1, -1)
    with memoryview(buffer) as view:
        while offset < size_bytes:
            header = read_header(view, offset, path)
            position, end = header[5:7], offset + header.size_bytes
            if position <= last:
                above = str(Position(*last))
                raise Corruption(path, offset, f"an entry above {above}", str(header.position))
            if end > size_bytes:
                remaining = f"{size_bytes - offset}"
                raise Corruption(path, offset, f"{header.size_bytes} bytes of entry", remaining)
            last = position
            yield header, offset
            offset = end


def tally_segment(path: Path, record: SegmentRecord, files: Files = REAL) -> SegmentRecord:
    """Returns the record that the contents of a sealed file yield.

    Raises Corruption, MissingFile, EntryTooLarge (no reader could receive that entry).
    """
    tally = SegmentTally(record.path)
    headers = (header for header, _ in scan_segment(path, record, files))
    while some := list(islice(headers, _TALLIED_AT_ONCE)):
        largest = max(some, key=attrgetter("size_bytes"))
        if largest.size_bytes > ENTRY_BYTES_MAX:
            at = str(largest.position)
            raise EntryTooLarge(str(path), at, largest.size_bytes, ENTRY_BYTES_MAX)
        tally.add_stored(some)
    tally.record.sealed = True
    return tally.record


def link_segment(
    ledgers_dir: Path,
    record: SegmentRecord,
    ledger_id: int,
    index: int,
    files: Files = REAL,
    *,
    keeps_vector: bool = True,
) -> SegmentRecord:
    """Makes a sealed segment and the files beside it part of another ledger, too, as links.

    Returns the segment's record in that ledger, without a key index that is missing or of another
    size, and without a deletion vector unless `keeps_vector`. The caller syncs the ledger's folder,
    which must exist. Raises MissingFile, DiskFailure.
    """
    linked = deepcopy(record)
    linked.path = segment_path(ledger_id, index)
    _link(ledgers_dir, record.path, linked.path, files)
    if not keeps_vector:
        linked.ClearField("dead")
    elif record.HasField("dead"):
        beside, target = deletion_vector_path(record.path), deletion_vector_path(linked.path)
        _link(ledgers_dir, beside, target, files)
    source = ledgers_dir / key_index_path(record.path)
    if size_if_any(source, files) == record.key_index.size_bytes:
        files.link(source, ledgers_dir / key_index_path(linked.path))
    else:
        linked.ClearField("key_index")
    return linked


def _link(ledgers_dir: Path, path: str, target: str, files: Files) -> None:
    source = ledgers_dir / path
    if not files.exists(source):
        raise MissingFile(str(source), "a segment record")
    files.link(source, ledgers_dir / target)


class SegmentWriter:
    """A writer of one segment of a compacted ledger: to a temporary file, renamed when durable.

    The ledger's folder must exist and is not created here: after a failed run has removed it, it
    must not reappear.
    """

    def __init__(self, ledgers_dir: Path, ledger_id: int, index: int, files: Files = REAL) -> None:
        self._files = files
        self._tally = SegmentTally(segment_path(ledger_id, index))
        self._path = ledgers_dir / self._tally.record.path
        self._temporary = files.temporary_path(self._path)
        # A worker may have died while it wrote a file of that name.
        files.remove(self._temporary)
        self._file: AppendFile = files.create(self._temporary)

    @property
    def size_bytes(self) -> int:
        return self._tally.record.size_bytes

    def append(self, header: EntryHeader, entry: Buffer) -> None:
        """Appends a whole entry with its header, which has its final id."""
        self.append_many([header], [entry])

    def append_many(self, headers: list[EntryHeader], buffers: list[Buffer]) -> None:
        """Appends the entries of `headers`, whose concatenation `buffers` hold, split anywhere."""
        self._file.write(buffers)
        self._tally.add_stored(headers)

    def append_totalled(self, totals: Totals, buffers: Sequence[Buffer]) -> None:
        """Appends entries whose headers are not decoded, only totalled."""
        self._file.write(buffers)
        self._tally.add_totals(totals)

    def seal(self) -> SegmentRecord:
        """Syncs the file, renames it and syncs the folder.

        If another attempt at the same task was first, its file stays: it has the same contents, and
        the ledger may be published already.
        """
        self._file.sync()
        self._file.close()
        reach("worker.segment-written")
        if self._files.exists(self._path):
            self._files.remove(self._temporary)
        else:
            self._files.replace(self._temporary, self._path)
        self._files.sync_dir(self._path.parent)
        reach("worker.segment-renamed")
        self._tally.record.sealed = True
        return self._tally.record

    def abandon(self) -> None:
        """Removes the unfinished file."""
        self._file.close()
        self._files.remove(self._temporary)
