"""Reads a data directory that no broker serves, or a snapshot, without a broker.

Nothing is written. An open ledger of a broker that was killed is read as a start would close it: a
torn tail is left out, damage is an error (storage/recovery.py).

* **A data directory** is locked while it is read, together with other readers: a broker that serves
  it refuses the read, and does not start before its end. Without the lock, a compaction could
  delete data that the read has not reached yet.
* **A snapshot** never changes while it exists, even if a broker serves its directory.

Bounds: the records of the store in memory; READ_BYTES of entries at a time, or one entry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from ledgerfold.frames.parts import PART_BYTES, Part, before, narrowed
from ledgerfold.frames.query import Query
from ledgerfold.storage.deletion_vector import VectorCache
from ledgerfold.storage.entry import EARLIEST, LATEST, Buffer, Position
from ledgerfold.storage.errors import MetadataLost, MissingFile, TopicNotFound
from ledgerfold.storage.files import REAL, Files
from ledgerfold.storage.kafka.batch import read_batch_header
from ledgerfold.storage.key_value import MemoryKeyValue
from ledgerfold.storage.lock import ReadLock
from ledgerfold.storage.losses import load_mark, name_topics, signs_of_loss
from ledgerfold.storage.lru_cache import LruCache
from ledgerfold.storage.metadata import MetadataStore
from ledgerfold.storage.names import (
    SNAPSHOT_RECORDS,
    ledgers_dir,
    metadata_dir,
    parse_ledger_dir,
)
from ledgerfold.storage.open_files import ReadFile
from ledgerfold.storage.partition_names import partition_index, partition_name
from ledgerfold.storage.reader import LedgerReader
from ledgerfold.storage.recovery import recovered
from ledgerfold.storage.recovery_report import RecoveryReport
from ledgerfold.storage.repair_manifest import split_by_unfinished
from ledgerfold.storage.rocks_reading import read_pairs
from ledgerfold.storage.segment import record_position, with_segments
from ledgerfold.storage.snapshot_folder import flat, read_records
from ledgerfold.storage.stored_entries import StoredEntry
from ledgerfold.storage.unnamed import unnamed_files
from ledgerfold.v1.records_pb2 import (
    LEDGER_STATE_DELETING,
    LEDGER_STATE_OPEN,
    LedgerRecord,
    SegmentRecord,
    TopicRecord,
)

READ_BYTES = 4 * 1024 * 1024
_OPEN_FILES_MAX = 16


class Piece(NamedTuple):
    """Some segments of one ledger: its LedgerRecord, encoded, and the range that is read."""

    record: bytes
    start: Position
    end: Position


@dataclass(frozen=True)
class FilePart:
    """A part of a directory, or of a snapshot."""

    folder: Path
    partition: int
    pieces: tuple[Piece, ...]
    offsets: tuple[int, int] | None = None

    def entries(self) -> Iterator[Sequence[StoredEntry]]:
        with held(self.folder):
            root, files = place_of(self.folder)
            vectors = VectorCache(root, files)
            opened = LruCache[str, ReadFile](_OPEN_FILES_MAX)

            def open_file(relative: str) -> ReadFile:
                return opened.get(relative, lambda: _opened(root / relative, files))

            for piece in self.pieces:
                yield from _entries_of(piece, open_file, vectors)


def _entries_of(
    piece: Piece, open_file: Callable[[str], ReadFile], vectors: VectorCache
) -> Iterator[Sequence[StoredEntry]]:
    record = LedgerRecord.FromString(piece.record)
    reader = LedgerReader(lambda: record, open_file, bytearray(), vectors)
    position, last = piece.start, reader.last
    end = piece.end if last is None else min(piece.end, last)
    while last is not None and position <= end:
        entries = reader.read(position, bytes_max=READ_BYTES, end=end)
        if not entries:
            return
        yield entries
        position = entries[-1].header.position.next


def _opened(path: Path, files: Files) -> ReadFile:
    try:
        return files.open_read(path)
    except FileNotFoundError as error:
        raise MissingFile(str(path), "a ledger's record") from error


# -- the two kinds of folder -------------------------------------------------------------------


def is_snapshot(folder: Path) -> bool:
    return (folder / SNAPSHOT_RECORDS).is_file()


def held(folder: Path) -> AbstractContextManager[object]:
    """Returns what keeps the folder unchanged while it is read. Raises DirectoryLocked."""
    return nullcontext() if is_snapshot(folder) else ReadLock(folder)


@contextmanager
def opened(folder: Path) -> Iterator[Stored]:
    """Yields the records of a folder, which does not change meanwhile. Raises as held(), Stored."""
    with held(folder) as lock:
        yield Stored(folder, is_same_boot=isinstance(lock, ReadLock) and lock.is_same_boot)


def place_of(folder: Path) -> tuple[Path, Files]:
    """Returns where the paths of segments begin, and how files are read there."""
    if is_snapshot(folder):
        return folder, SnapshotFiles(folder)
    return ledgers_dir(folder), UnchangedFiles()


class SnapshotFiles(Files):
    """The files of a snapshot, by their paths in the ledgers folder."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder

    def _place(self, path: Path) -> Path:
        return self._folder / flat(str(path.relative_to(self._folder)))

    def exists(self, path: Path) -> bool:
        return super().exists(self._place(path))

    def size(self, path: Path) -> int:
        return super().size(self._place(path))

    def open_read(self, path: Path) -> ReadFile:
        return super().open_read(self._place(path))

    @contextmanager
    def map(self, path: Path) -> Iterator[Buffer]:
        with super().map(self._place(path)) as view:
            yield view


class UnchangedFiles(Files):
    """Files that a recovery does not change: its result omits what it would truncate."""

    def free_bytes(self, path: Path) -> int:
        """Returns more than any copy would need: this file system makes none."""
        return 2**63 - 1

    def copy(self, source: Path, target: Path) -> None:
        """Does nothing: no copy of a torn tail is needed."""

    def truncate(self, path: Path, size_bytes: int) -> None:
        """Does nothing: the record has the size."""

    def rewrite(self, path: Path, offset: int) -> None:
        """Does nothing: it would make entries durable."""

    def sync_dir(self, path: Path) -> None:
        """Does nothing."""


# -- what is read ------------------------------------------------------------------------------


class Stored:
    """The records of a directory, which the caller holds, or of a snapshot.

    Raises FileNotFoundError, Corruption, IncompatibleFormat, DiskFailure.
    """

    def __init__(self, folder: Path, *, is_same_boot: bool = False) -> None:
        self.folder, self._is_same_boot = folder, is_same_boot
        pairs = MemoryKeyValue()
        if is_snapshot(folder):
            for pair in read_records(folder, REAL).pairs:
                pairs.write({pair.key: pair.value}, ())
        else:
            if not metadata_dir(folder).is_dir():
                raise FileNotFoundError(2, "neither a data directory nor a snapshot", str(folder))
            stored = read_pairs(metadata_dir(folder))
            if stored.damage is not None and not stored.is_tail:
                raise stored.damage
            pairs = stored.pairs
        self.metadata = MetadataStore(pairs)

    def topics(self, name: str) -> list[TopicRecord]:
        """Returns the topic, or its partitions. Raises TopicNotFound, MetadataLost."""
        partitioned = self.metadata.partitioned_topic(name)
        names = [name]
        if partitioned is not None:
            names = [partition_name(name, index) for index in range(partitioned.partitions)]
        records = [self.metadata.topic(each) for each in names]
        topics = [each for each in records if each is not None]
        if len(topics) < len(names):
            raise TopicNotFound(name, f"{self.folder} has no topic of that name.")
        self._check_losses(names)
        return topics

    def _check_losses(self, names: Sequence[str]) -> None:
        """Raises MetadataLost for a topic with entries that no record describes."""
        root = ledgers_dir(self.folder)
        if is_snapshot(self.folder) or not root.is_dir():
            return
        ledgers = {record.ledger_id: record for record in self.metadata.ledgers()}
        unnamed = unnamed_files(root, ledgers, REAL, split_by_unfinished(self.folder, REAL))
        highest_id = max(map(int, filter(parse_ledger_dir, REAL.listdir(root))), default=0)
        mark = load_mark(self.folder, REAL)
        marked = None if mark is None else mark.highest
        store = self.metadata.store()
        signs = signs_of_loss(unnamed, highest_id, store, marked, self.metadata.writes)
        if signs or (store is not None and store.is_incomplete):
            report = RecoveryReport()
            name_topics(root, ledgers, self.metadata.topic_names(), REAL, report)
            for name in names:
                if name in report.unrecorded:
                    raise MetadataLost(name, report.unrecorded[name])

    def ledger(self, ledger_id: int) -> LedgerRecord:
        """Returns a ledger's record, an open one's as a start would close it.

        The record of a damaged one extends to the damage, whose read raises it.
        """
        record = self.metadata.ledger(ledger_id)
        if record is None or record.state == LEDGER_STATE_DELETING:
            raise MissingFile(str(ledgers_dir(self.folder) / str(ledger_id)), "a topic's record")
        if record.state == LEDGER_STATE_OPEN:
            report = RecoveryReport(is_same_boot=self._is_same_boot)
            root, files = place_of(self.folder)
            record, _ = recovered(record, root, files, record.created_ms, report)
        return record

    def last_positions(self, query: Query) -> dict[str, Position]:
        """Returns the last entry of each partition; of a Kafka topic, its last offset."""
        return {topic.name: self._last(topic) for topic in self.topics(query.topic)}

    def _last(self, topic: TopicRecord) -> Position:
        is_kafka = topic.HasField("kafka")
        cleaned = [each for segment in topic.kafka.segments for each in segment.ledger_ids]
        for ledger_id in [*reversed(topic.ledger_ids), *reversed(cleaned)]:
            segments = self.ledger(ledger_id).segments
            if not segments:
                continue
            last = record_position(segments[-1], last=True)
            if not is_kafka:
                return last
            record = with_segments(LedgerRecord(), [segments[-1]])
            piece = Piece(record.SerializeToString(), last, last)
            (entries,) = FilePart(self.folder, -1, (piece,)).entries()
            header, data = entries[-1]
            last_offset = read_batch_header(data, header.header_bytes).last_offset
            return Position(0, min(last_offset, offsets_of(topic)[1] - 1))
        return EARLIEST

    def parts(self, query: Query) -> list[Part]:
        """Returns the parts of a read. Raises TopicNotFound, NotAllowed, StorageError."""
        parts = list[Part]()
        for topic in self.topics(query.topic):
            is_kafka = topic.HasField("kafka")
            if is_kafka:
                query.check_log(topic.name)
            pieces = self._kafka_pieces(topic, query) if is_kafka else self._pieces(topic, query)
            offsets = narrowed(query, *offsets_of(topic)) if is_kafka else None
            parts += [
                FilePart(self.folder, partition_index(topic.name), tuple(group), offsets)
                for group in grouped(list(pieces))
            ]
        return parts

    def _pieces(self, topic: TopicRecord, query: Query) -> Iterator[Piece]:
        start = EARLIEST
        has_view = topic.HasField("compacted") and not topic.HasField("truncated_upto")
        if query.compacted and has_view:
            is_moved = topic.HasField("compaction_moved_to")
            horizon = topic.compaction_moved_to if is_moved else topic.compacted.horizon
            start = Position(horizon.ledger_id, horizon.entry_id).next
            floor = Position(topic.retention_floor.ledger_id, topic.retention_floor.entry_id)
            first = floor if topic.HasField("retention_floor") else EARLIEST
            if topic.compacted.ledger_id >= 0:
                yield from _cut(self.ledger(topic.compacted.ledger_id), first, query)
        for ledger_id in topic.ledger_ids:
            if ledger_id >= start.ledger_id:
                yield from _cut(self.ledger(ledger_id), start, query)

    def _kafka_pieces(self, topic: TopicRecord, query: Query) -> Iterator[Piece]:
        log = topic.kafka
        first, behind = narrowed(query, *offsets_of(topic))
        bounds = [*(each.base_offset for each in log.segments), LATEST.entry_id]
        everything = replace(query, start=EARLIEST, end=LATEST)
        unlisted = list(topic.ledger_ids)
        for segment, (base, end) in zip(log.segments, pairwise(bounds), strict=True):
            unlisted = [each for each in unlisted if each not in segment.ledger_ids]
            if base < behind and end > first:
                for ledger_id in segment.ledger_ids:
                    yield from _cut(self.ledger(ledger_id), EARLIEST, everything)
        # A broker was killed before it listed their segments.
        for ledger_id in unlisted:
            yield from _cut(self.ledger(ledger_id), EARLIEST, everything)


def offsets_of(topic: TopicRecord) -> tuple[int, int]:
    """Returns the range of offsets that readers of a Kafka topic see, as far as its record says."""
    end = topic.kafka.truncated_to if topic.kafka.HasField("truncated_to") else LATEST.entry_id
    return topic.kafka.log_start_offset, end


def _cut(record: LedgerRecord, start: Position, query: Query) -> Iterator[Piece]:
    """Yields a piece for each segment that may have rows of the read, from `start` on."""
    low, high = max(start, query.start), before(query.end)
    for segment in record.segments:
        is_before = segment.publish_time_max_ms < query.start_ms
        if not segment.entries or is_before or segment.publish_time_min_ms >= query.end_ms:
            continue
        first, last = (record_position(segment, last=last) for last in (False, True))
        if first <= high and last >= low:
            yield Piece(with_segments(record, [segment]).SerializeToString(), low, high)


def size_of(piece: Piece) -> int:
    segments: Sequence[SegmentRecord] = LedgerRecord.FromString(piece.record).segments
    return sum(each.size_bytes for each in segments)


def grouped(pieces: list[Piece]) -> Iterator[list[Piece]]:
    """Groups neighbouring pieces up to PART_BYTES, or one larger piece."""
    group, remaining = list[Piece](), PART_BYTES
    for piece in pieces:
        size_bytes = size_of(piece)
        if group and size_bytes > remaining:
            yield group
            group, remaining = [], PART_BYTES
        group.append(piece)
        remaining -= size_bytes
    if group:
        yield group
