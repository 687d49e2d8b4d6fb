"""Reads a partition's folder: the segments that Kafka would find when it loads it.

A broker that crashed during a cleaning leaves unfinished files. Kafka's loader removes and renames
them; this module emulates the result. Nothing in the folder is written.

1. Files ending in `.deleted` are ignored.
2. `.cleaned` files are incomplete and ignored; so are `.swap` files at or above the lowest of their
   base offsets.
3. A remaining `.swap` file replaces the segments in its range of offsets.
4. A segment whose offsets exceed its base offset by more than 2^31 - 1, as old versions wrote them,
   is split, as Kafka's cleaner splits it.

Segments are verified as they are read. A torn tail of the last one, which a crash leaves, is
skipped (`TornTail` describes it); damage elsewhere is a Corruption, with the file and the offset.

    >>> import tempfile
    >>> from ledgerfold.storage.kafka.records import KafkaRecord, build_batch
    >>> folder = Path(tempfile.mkdtemp())
    >>> batch = build_batch([KafkaRecord(7, 1000, b"k", b"v")], base_offset=7)
    >>> _ = (folder / "00000000000000000007.log").write_bytes(batch + batch[:20])
    >>> [segment] = segments_of(folder)
    >>> reading = SegmentReading(segment, is_last=True)
    >>> [each.header.base_offset for each in reading], reading.torn.size_bytes
    ([7], 20)

Bounds: one batch at a time, of at most BATCH_BYTES_MAX; a few hundred bytes for each segment.

Source: LogLoader.load, LogSegment.recover, UnifiedLog.splitOverflowedSegment, LogFileUtils of Kafka
4.1.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

from ledgerfold.storage.entry import ENTRY_BYTES_MAX
from ledgerfold.storage.errors import Corruption, InvalidRequest, KafkaError, KafkaErrorKind
from ledgerfold.storage.kafka.batch import (
    BATCH_HEADER_BYTES,
    MAGIC,
    BatchHeader,
    check_batch,
    read_batch_header,
)
from ledgerfold.storage.kafka.transaction_index import AbortedTransaction, read_aborted

# An entry of a ledger also has a header.
BATCH_BYTES_MAX = ENTRY_BYTES_MAX - 1024
_BUFFER_BYTES = 1024 * 1024
# Relative to a segment's base: its indexes store 32 bits.
_OFFSETS_MAX = 2**31 - 1
# <base offset>.<kind>, and the suffix of a cleaning or a deletion.
_NAME = re.compile(r"(\d{1,20})\.(log|index|timeindex|txnindex)(\.cleaned|\.swap|\.deleted)?")
_PARTITION_FOLDER = re.compile(r"(.+)-(\d+)")
# The position of the magic byte, in every format.
_MAGIC_AT = 16


class SegmentFile(NamedTuple):
    """A segment. `path`: the file of its batches, under any name; `start`: their first byte.

    `txn_index`: its transaction index, if there is one.
    """

    base_offset: int
    path: Path
    size_bytes: int
    modified_ms: int
    start: int = 0
    txn_index: Path | None = None


class Batch(NamedTuple):
    header: BatchHeader
    data: bytes


class TornTail(NamedTuple):
    """The unfinished last append to a log."""

    path: Path
    offset: int
    size_bytes: int
    why: str


def partition_of(folder: Path) -> tuple[str, int]:
    """Returns the topic and partition that a folder's name denotes; partition 0 if it has no
    number.

    >>> partition_of(Path("/data/user-events-12")), partition_of(Path("prices"))
    (('user-events', 12), ('prices', 0))
    """
    match = _PARTITION_FOLDER.fullmatch(folder.resolve().name)
    return (match[1], int(match[2])) if match else (folder.resolve().name, 0)


def log_file_name(base_offset: int, kind: str = "log") -> str:
    """Returns the name of a segment's file.

    >>> log_file_name(7), log_file_name(7, "timeindex")
    ('00000000000000000007.log', '00000000000000000007.timeindex')
    """
    return f"{base_offset:020}.{kind}"


def segments_of(folder: Path) -> Sequence[SegmentFile]:
    """Returns the segments by offset. Raises InvalidRequest if empty, Corruption, OSError."""
    named = [(each, match) for each in folder.iterdir() if (match := _NAME.fullmatch(each.name))]
    by_suffix: dict[str, list[tuple[int, str, Path]]] = {"": [], ".cleaned": [], ".swap": []}
    for path, match in named:
        if path.is_file() and (match[3] or "") in by_suffix:
            by_suffix[match[3] or ""].append((int(match[1]), match[2], path))
    unfinished = min((base for base, _, _ in by_suffix[".cleaned"]), default=None)
    swaps = {
        base: path
        for base, kind, path in by_suffix[".swap"]
        if kind == "log" and (unfinished is None or base < unfinished)
    }
    logs = {base: path for base, kind, path in by_suffix[""] if kind == "log"}
    if swaps:
        low, high = min(swaps), max(_next_offset(base, path) for base, path in swaps.items())
        logs = {base: path for base, path in logs.items() if not low <= base < high} | swaps
    if not logs:
        raise InvalidRequest(
            f"{folder} holds no segment of a Kafka partition: name the folder of one, for example "
            "DIR/orders-0."
        )
    files = [_segment_file(base, logs[base]) for base in sorted(logs)]
    ends = [*(each.base_offset for each in files[1:]), None]
    return [
        piece for segment, end in zip(files, ends, strict=True) for piece in _pieces(segment, end)
    ]


def _pieces(segment: SegmentFile, next_base: int | None) -> list[SegmentFile]:
    """Splits a segment into pieces that each begin at their first batch, if it must be."""
    base = segment.base_offset
    if next_base is not None and next_base - 1 - base <= _OFFSETS_MAX:
        return [segment]
    if not any(header.last_offset - base > _OFFSETS_MAX for header, _ in _headers(segment)):
        return [segment]
    begin = list[tuple[int, int]]()
    for header, at in _headers(segment):
        if not begin or header.last_offset - begin[-1][0] > _OFFSETS_MAX:
            begin.append((header.base_offset, at))
    ends = [*(at for _, at in begin[1:]), segment.size_bytes]
    return [
        segment._replace(base_offset=base, start=at, size_bytes=end - at)
        for (base, at), end in zip(begin, ends, strict=True)
    ]


def _headers(segment: SegmentFile) -> Iterator[tuple[BatchHeader, int]]:
    """Yields the headers of its batches, each with its first byte, up to the first invalid one."""
    at = 0
    with segment.path.open("rb", 0) as file:
        while len(head := file.read(BATCH_HEADER_BYTES)) == BATCH_HEADER_BYTES:
            header = read_batch_header(head)
            fits = BATCH_HEADER_BYTES <= header.size_bytes <= segment.size_bytes - at
            if header.magic != MAGIC or not fits:
                return
            yield header, at
            at += header.size_bytes
            file.seek(at)


def aborted_of(segment: SegmentFile, end_offset: int) -> list[AbortedTransaction] | None:
    """Returns the index entries of markers before that offset; None if it is unreadable."""
    if segment.txn_index is None:
        return []
    return read_aborted(segment.txn_index.read_bytes(), segment.base_offset, end_offset)


def _segment_file(base_offset: int, path: Path) -> SegmentFile:
    status = path.stat()
    modified_ms = status.st_mtime_ns // 1_000_000
    # Any suffix after the kind.
    index = path.with_name(path.name.replace(".log", ".txnindex", 1))
    return SegmentFile(
        base_offset,
        path,
        status.st_size,
        modified_ms,
        txn_index=index if index.is_file() else None,
    )


def _next_offset(base_offset: int, path: Path) -> int:
    """Returns the offset after the last batch of a segment that a cleaning finished."""
    following = base_offset
    for batch in SegmentReading(_segment_file(base_offset, path), is_last=False):
        following = batch.header.next_offset
    return following


class SegmentReading:
    """Iterates over a segment's batches, each verified. `torn`: the skipped tail, set afterwards.

    `is_last`: in the log. Raises Corruption; KafkaError (UNSUPPORTED_FOR_MESSAGE_FORMAT) for
    messages of magic 0 or 1; OSError.
    """

    def __init__(self, segment: SegmentFile, *, is_last: bool) -> None:
        self._segment, self._is_last = segment, is_last
        self._end_byte = segment.start + segment.size_bytes
        self.torn: TornTail | None = None

    def __iter__(self) -> Iterator[Batch]:
        following = self._segment.base_offset
        at = self._segment.start
        with self._segment.path.open("rb", _BUFFER_BYTES) as file:
            file.seek(at)
            while at < self._end_byte:
                batch = self._batch(file, at)
                if batch is None:
                    return
                if batch.header.base_offset < following:
                    expected = f"an offset from {following} on"
                    raise self._wrong(at, expected, str(batch.header.base_offset))
                yield batch
                following = batch.header.next_offset
                at += len(batch.data)

    def _batch(self, file: BinaryIO, at: int) -> Batch | None:
        """Returns the next batch; None if the log ends here."""
        remaining = self._end_byte - at
        head = file.read(min(BATCH_HEADER_BYTES, remaining))
        self._check_magic(head, at)
        if len(head) < BATCH_HEADER_BYTES:
            return self._end(
                at, f"the {BATCH_HEADER_BYTES} bytes of a batch's header", str(remaining)
            )
        size_bytes = read_batch_header(head).size_bytes
        if size_bytes > remaining:
            return self._end(at, f"a batch of {size_bytes} bytes", f"{remaining} bytes to the end")
        if size_bytes > BATCH_BYTES_MAX:
            raise KafkaError(
                KafkaErrorKind.MESSAGE_TOO_LARGE,
                f"{self._segment.path} holds a batch of {size_bytes} bytes at byte {at}; the "
                f"maximum is {BATCH_BYTES_MAX}.",
            )
        if size_bytes < BATCH_HEADER_BYTES:
            if self._is_last and not any(head) and self._is_zero(file):
                return self._end(at, "a batch", "zeros to the end")
            raise self._wrong(at, "a batch", f"a size of {size_bytes}")
        data = head + file.read(size_bytes - BATCH_HEADER_BYTES)
        try:
            return Batch(check_batch(data), data)
        except KafkaError as error:
            if size_bytes == remaining:
                return self._end(at, "a whole batch", str(error))
            raise self._wrong(at, "an undamaged batch", str(error)) from error

    def _check_magic(self, head: bytes, at: int) -> None:
        if len(head) > _MAGIC_AT and any(head) and (magic := head[_MAGIC_AT]) < MAGIC:
            raise KafkaError(
                KafkaErrorKind.UNSUPPORTED_FOR_MESSAGE_FORMAT,
                f"{self._segment.path} holds a message of magic {magic} at byte {at}: only record "
                f"batches of magic {MAGIC} are read. Brokers write them since Kafka 0.11, unless "
                "log.message.format.version is older. Let Kafka rewrite the topic first.",
            )

    def _end(self, at: int, expected: str, found: str) -> Batch | None:
        """Records a torn tail and returns None."""
        if not self._is_last:
            raise self._wrong(at, expected, found)
        size_bytes = self._end_byte - at
        why = f"expected {expected}, found {found}"
        self.torn = TornTail(self._segment.path, at, size_bytes, why)
        return None

    def _wrong(self, at: int, expected: str, found: str) -> Corruption:
        return Corruption(self._segment.path.name, at, expected, found)

    @staticmethod
    def _is_zero(file: BinaryIO) -> bool:
        while piece := file.read(_BUFFER_BYTES):
            if any(piece):
                return False
        return True
