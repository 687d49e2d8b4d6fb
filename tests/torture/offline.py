"""Returns the defects of a data directory without a broker.

Opened as a broker opens it at its start. After a clean stop there is nothing to recover, no damage,
and no file but those that records name and the copies of torn tails.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ledgerfold.storage.deletion_vector import load_vector
from ledgerfold.storage.errors import StorageError
from ledgerfold.storage.files import REAL
from ledgerfold.storage.ledger import LedgerStore
from ledgerfold.storage.metadata import MetadataStore
from ledgerfold.storage.names import LABEL, TORN_SUFFIX, ledgers_dir, metadata_dir
from ledgerfold.storage.rocks import RocksKeyValue
from ledgerfold.storage.segment import file_names, tally_segment
from ledgerfold.v1.records_pb2 import LedgerRecord


def check_directory(data_dir: Path) -> list[str]:
    """In words; nothing when all is well."""
    metadata = MetadataStore(RocksKeyValue(metadata_dir(data_dir)))
    try:
        wrong = [f"no record names {path}" for path in _orphans(data_dir, metadata)]
        wrong += [f"no topic has ledger {each}" for each in _unowned(metadata)]
        store = LedgerStore(data_dir, metadata, clock_ms=lambda: 0)
        report = store.recover()
        wrong += [f"ledger {each}: {error}" for each, error in report.damaged.items()]
        wrong += [f"a torn tail after a clean stop: {each}" for each in report.torn]
        for record in metadata.ledgers():
            wrong += _damage(record, store.ledgers_dir)
    finally:
        metadata.close()
    return wrong


def _orphans(data_dir: Path, metadata: MetadataStore) -> list[str]:
    named = {path for each in metadata.ledgers() for path in file_names(each)}
    root = ledgers_dir(data_dir)
    found = {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}
    return sorted(path for path in found - named if not path.endswith((TORN_SUFFIX, LABEL)))


def _unowned(metadata: MetadataStore) -> list[int]:
    owned = {each for topic in metadata.topics() for each in topic.ledger_ids}
    owned |= {topic.compacted.ledger_id for topic in metadata.topics()}
    segments = [each for topic in metadata.topics() for each in topic.kafka.segments]
    owned |= {each for segment in segments for each in segment.ledger_ids}
    return sorted({record.ledger_id for record in metadata.ledgers()} - owned)


def _damage(record: LedgerRecord, root: Path) -> Iterator[str]:
    """Every header is read, and its checksum made."""
    for segment in record.segments:
        try:
            found = tally_segment(root / segment.path, segment)
            # Entries say nothing about the files beside them.
            if segment.HasField("key_index"):
                found.key_index.CopyFrom(segment.key_index)
            if segment.HasField("dead"):
                load_vector(root, segment, REAL)
                found.dead.CopyFrom(segment.dead)
            if found != segment:
                yield f"{segment.path} is not what its record says"
        except StorageError as error:
            yield str(error)
