"""The export of all data of a topic: the contents of its archive (storage/topic_archive.py).

Every entry is read before the first block is written: an archive of damaged entries could not be
imported. Key indexes, which are derived data, are left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from google.protobuf.message import Message

from ledgerfold.frames.directory import FilePart, Piece, Stored, is_snapshot, opened
from ledgerfold.storage.entry import EARLIEST, LATEST
from ledgerfold.storage.errors import MissingFile
from ledgerfold.storage.files import REAL
from ledgerfold.storage.names import LABEL, deletion_vector_path, ledgers_dir
from ledgerfold.storage.records import (
    DELETION_VECTORS,
    PULSAR_ENTRIES,
    SCHEMAS,
    encode_record,
    key_of,
)
from ledgerfold.storage.snapshot_folder import flat
from ledgerfold.storage.topic_archive import ArchivedFile, archive_blocks, check_is_ours
from ledgerfold.v1.records_pb2 import LedgerRecord, SnapshotRecords, TopicRecord


@contextmanager
def archive_of(folder: Path, topic: str, now_ms: int) -> Iterator[Iterator[bytes]]:
    """Yields the blocks of an archive of a topic, or of a partitioned topic with its partitions.

    `folder`: a data directory, which is held meanwhile, or a snapshot. Raises TopicNotFound,
    InvalidRequest (a Kafka topic), DirectoryLocked, Corruption, MissingFile, FileNotFoundError.
    """
    with opened(folder) as stored:
        yield _blocks(stored, topic, now_ms)


def _blocks(stored: Stored, topic: str, now_ms: int) -> Iterator[bytes]:
    metadata = stored.metadata
    topics = stored.topics(topic)
    blocks = list[Message](metadata.schemas(topic))
    partitioned = metadata.partitioned_topic(topic)
    if partitioned is not None:
        blocks.append(partitioned)
    ledgers = list[LedgerRecord]()
    for each in topics:
        check_is_ours(each)
        blocks += [each, *metadata.cursors(each.name), *metadata.producers(each.name)]
        blocks += metadata.runs(each.name)
        ledgers += [_without_indexes(stored.ledger(ledger_id)) for ledger_id in _ids(each)]
    _check_readable(stored.folder, ledgers)
    records = SnapshotRecords(name=topic, created_ms=now_ms)
    for record in (*blocks, *ledgers):
        records.pairs.add(key=key_of(record), value=encode_record(record))
    features = _features(stored, topic, ledgers)
    return archive_blocks(records, features, _files(stored.folder, ledgers), REAL)


def _ids(topic: TopicRecord) -> list[int]:
    has_view = topic.HasField("compacted") and topic.compacted.ledger_id >= 0
    return [*topic.ledger_ids, *([topic.compacted.ledger_id] if has_view else [])]


def _without_indexes(record: LedgerRecord) -> LedgerRecord:
    for segment in record.segments:
        segment.ClearField("key_index")
        segment.sealed = True
    return record


def _check_readable(folder: Path, ledgers: list[LedgerRecord]) -> None:
    pieces = tuple(Piece(each.SerializeToString(), EARLIEST, LATEST) for each in ledgers)
    for _ in FilePart(folder, -1, pieces).entries():
        """Every entry is verified as it is read."""


def _features(stored: Stored, topic: str, ledgers: list[LedgerRecord]) -> list[str]:
    store = stored.metadata.store()
    features = []
    if any(segment.HasField("dead") for record in ledgers for segment in record.segments):
        features.append(DELETION_VECTORS)
    if stored.metadata.schemas(topic):
        features.append(SCHEMAS)
    # A snapshot does not say.
    if store is None or PULSAR_ENTRIES in store.features:
        features.append(PULSAR_ENTRIES)
    return features


def _files(folder: Path, ledgers: list[LedgerRecord]) -> Iterator[ArchivedFile]:
    for record in ledgers:
        for segment in record.segments:
            yield _file(folder, segment.path, segment.size_bytes)
            if segment.HasField("dead"):
                yield _file(folder, deletion_vector_path(segment.path), segment.dead.size_bytes)
        label = f"{record.ledger_id}/{LABEL}"
        if record.segments and _place(folder, label).exists():
            yield _file(folder, label, None)


def _place(folder: Path, relative: str) -> Path:
    return folder / flat(relative) if is_snapshot(folder) else ledgers_dir(folder) / relative


def _file(folder: Path, relative: str, size_bytes: int | None) -> ArchivedFile:
    path = _place(folder, relative)
    if not path.exists():
        raise MissingFile(str(path), "a ledger's record")
    size_bytes = path.stat().st_size if size_bytes is None else size_bytes
    return ArchivedFile(relative, path, size_bytes)
