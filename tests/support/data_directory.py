"""A data directory on the disk, as a broker leaves it when it is stopped or killed.

>>> made = DataDirectory(folder)
>>> add(made.ledger(), "a1", "b1")
>>> made.stop()
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ledgerfold.storage.entry import read_header
from ledgerfold.storage.ledger import LedgerStore, LedgerWriter, StoreSettings
from ledgerfold.storage.lock import DirectoryLock
from ledgerfold.storage.metadata import MetadataStore
from ledgerfold.storage.names import metadata_dir
from ledgerfold.storage.native import NativeBatchBuilder
from ledgerfold.storage.rocks import RocksKeyValue
from ledgerfold.v1.records_pb2 import TopicRecord

TOPIC = "persistent://public/default/t"
# Two entries fill a segment.
SETTINGS = StoreSettings(segment_bytes_max=300, ledger_entries_max=100)


class DataDirectory:
    """A data directory, as a broker writes it. `stop` leaves it as a killed broker does."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = DirectoryLock(path, "test")
        self._lock.__enter__()
        self.pairs = RocksKeyValue(metadata_dir(path))
        self.metadata = MetadataStore(self.pairs)
        self.store = LedgerStore(path, self.metadata, settings=SETTINGS, clock_ms=lambda: 1)
        self.store.recover()
        self._lock.record_boot()

    def stop(self) -> None:
        self.metadata.close()
        self._lock.__exit__(None, None, None)

    def ledger(self, topic: str = TOPIC) -> LedgerWriter:
        """Adds a raw ledger to a topic."""
        record = self.metadata.topic(topic) or TopicRecord(name=topic)
        with self.metadata.batch() as batch:
            writer = self.store.create_ledger(topic, batch)
            record.ledger_ids.append(writer.ledger_id)
            batch.put(record)
        return writer

    def edit(self, **fields: Any) -> None:
        record = self.metadata.topic(TOPIC)
        assert record is not None
        record.MergeFrom(TopicRecord(**fields))
        with self.metadata.batch() as batch:
            batch.put(record)


def add(writer: LedgerWriter, *values: str, time_ms: int = 1) -> None:
    for value in values:
        builder = NativeBatchBuilder("p")
        builder.add(value.encode(), key=value[:1].encode())
        put(writer, builder.build(sequence_id=0, publish_time_ms=time_ms))
    writer.flush()


def put(writer: LedgerWriter, frame: bytes) -> None:
    header = read_header(frame)
    writer.append(header, (memoryview(frame)[header.header_bytes :],), 1, 1)
