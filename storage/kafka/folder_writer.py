"""Writes a partition's folder that Kafka can open: segments with indexes, epochs and topic id.

The folder is written under a temporary name, synced and renamed: it exists completely or not at
all. The temporary folder is locked, so that no other writer removes or mixes its files; one that a
killed writer left is written again.

* Indexes get their entries as Kafka's do (storage/kafka/indexes.py). Offsets are relative to the
  base.
* The transaction index exists only if the segment holds an abort marker.
* One producer snapshot is written, at the log's end. Kafka loads producers from it, or, without a
  clean shutdown recorded next to the folder, from it and later batches.

    >>> import tempfile
    >>> from ledgerfold.storage.kafka.records import KafkaRecord, build_batch
    >>> folder = Path(tempfile.mkdtemp()) / "t-0"
    >>> with FolderWriter(folder, topic_id=UUID(int=7)) as writer:
    ...     writer.begin_segment(7)
    ...     writer.append(build_batch([KafkaRecord(7, 1000, b"k", b"v")], base_offset=7))
    ...     writer.end_segment(modified_ms=5000)
    >>> sorted(each.name for each in folder.iterdir())[:2]
    ['00000000000000000007.index', '00000000000000000007.log']

Source: LogSegment.append, OffsetIndex, TimeIndex, AbortedTxn, ProducerStateManager.writeSnapshot,
LeaderEpochCheckpointFile, PartitionMetadataFile of Kafka 4.1.
"""

from __future__ import annotations

import base64
import os
import shutil
import struct
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import NamedTuple
from uuid import UUID

from ledgerfold.storage.entry import crc32c
from ledgerfold.storage.errors import InvalidRequest
from ledgerfold.storage.files import REAL, write_file
from ledgerfold.storage.kafka.batch import read_batch_header
from ledgerfold.storage.kafka.folder import log_file_name
from ledgerfold.storage.kafka.indexes import IndexGrowth
from ledgerfold.storage.kafka.transaction_index import AbortedTransaction, aborted_bytes
from ledgerfold.storage.lock import locked_folder
from ledgerfold.storage.open_files import AppendFile

EPOCH_FILE, METADATA_FILE = "leader-epoch-checkpoint", "partition.metadata"
_BUFFER_BYTES = 1024 * 1024
_OFFSET_ENTRY, _TIME_ENTRY = struct.Struct(">ii"), struct.Struct(">qi")
# Version and checksum of the rest; the number of producers; the fields of each Producer.
_SNAPSHOT_HEAD, _COUNT = struct.Struct(">hI"), struct.Struct(">i")
_PRODUCER = struct.Struct(">qhiqiqiq")
_SNAPSHOT_VERSION = 1


class Producer(NamedTuple):
    """An entry of a snapshot: the state of a producer. -1 is unknown."""

    producer_id: int
    epoch: int
    last_sequence: int
    last_data_offset: int
    last_offset_delta: int
    last_timestamp_ms: int
    coordinator_epoch: int
    transaction_first_offset: int


class FolderWriter:
    """A writer, used as a context manager: an exception deletes everything that was written.

    Call `begin_segment`, append its batches, then `end_segment`, and so on. Raises DiskFailure.
    """

    def __init__(self, folder: Path, *, topic_id: UUID, index_interval_bytes: int = 4096) -> None:
        self._folder, self._topic_id = folder, topic_id
        self._temporary = folder.with_name(f".{folder.name}.exporting")
        self._interval_bytes = index_interval_bytes
        self._segment: _Segment | None = None
        self._epochs: list[tuple[int, int]] = []
        self._first_base = -1
        self._lock = ExitStack()

    def __enter__(self) -> FolderWriter:
        """Raises InvalidRequest if the folder exists, or another writer is at work on it."""
        self._check_new()
        with ExitStack() as lock:
            self._temporary.mkdir(parents=True, exist_ok=True)
            try:
                is_ours = lock.enter_context(locked_folder(self._temporary, waits=False))
            except FileNotFoundError:
                # Another writer has just ended.
                is_ours = False
            if not is_ours:
                raise InvalidRequest(f"Another export writes {self._folder}: name a new folder.")
            lock.callback(shutil.rmtree, self._temporary, ignore_errors=True)
            # It may have been renamed since the check.
            self._check_new()
            # An export that was killed may have left files.
            for each in self._temporary.iterdir():
                each.unlink()
            self._lock = lock.pop_all()
        return self

    def _check_new(self) -> None:
        if self._folder.exists():
            raise InvalidRequest(f"{self._folder} exists already: name a new folder.")

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # The temporary folder is removed unless it was renamed: it must not keep a disk full.
        with self._lock:
            if error is None:
                self._finish()
            elif self._segment is not None:
                self._segment.log.close()

    def _finish(self) -> None:
        epochs = "".join(f"{epoch} {offset}\n" for epoch, offset in self._epochs)
        self._write(EPOCH_FILE, f"0\n{len(self._epochs)}\n{epochs}".encode())
        self._write(METADATA_FILE, f"version: 0\ntopic_id: {id_text(self._topic_id)}".encode())
        REAL.sync_dir(self._temporary)
        REAL.replace(self._temporary, self._folder)
        REAL.sync_dir(self._folder.parent)

    def begin_segment(self, base_offset: int) -> None:
        log = REAL.create(self._temporary / log_file_name(base_offset))
        self._segment = _Segment(base_offset, log, self._interval_bytes)
        if self._first_base < 0:
            self._first_base = base_offset

    def append(self, batch: bytes) -> None:
        assert self._segment is not None
        header = read_batch_header(batch)
        if header.leader_epoch > (self._epochs[-1][0] if self._epochs else -1):
            # A cleaning may have removed the first epoch's first batch.
            start = header.base_offset if self._epochs else self._first_base
            self._epochs.append((header.leader_epoch, start))
        self._segment.append(batch)

    def end_segment(self, *, modified_ms: int, aborted: Iterable[AbortedTransaction] = ()) -> None:
        """Finishes a segment. `modified_ms`: of the files, if known (above 0)."""
        segment, self._segment = self._segment, None
        assert segment is not None
        segment.end()
        base = segment.base_offset
        self._write(log_file_name(base, "index"), bytes(segment.offset_index))
        self._write(log_file_name(base, "timeindex"), bytes(segment.time_index))
        if index := aborted_bytes(aborted):
            self._write(log_file_name(base, "txnindex"), index)
        if modified_ms > 0:
            for kind in ("log", "index", "timeindex"):
                times = modified_ms * 1_000_000, modified_ms * 1_000_000
                os.utime(self._temporary / log_file_name(base, kind), ns=times)

    def write_snapshot(self, producers: Iterable[Producer], end_offset: int) -> None:
        """Writes the snapshot of producers at the log's end."""
        entries = [_PRODUCER.pack(*each) for each in producers]
        body = _COUNT.pack(len(entries)) + b"".join(entries)
        head = _SNAPSHOT_HEAD.pack(_SNAPSHOT_VERSION, crc32c(body))
        self._write(log_file_name(end_offset, "snapshot"), head + body)

    def _write(self, name: str, data: bytes) -> None:
        write_file(self._temporary / name, [data])


class _Segment:
    """A segment in progress. Batches are buffered."""

    def __init__(self, base_offset: int, log: AppendFile, interval_bytes: int) -> None:
        self.base_offset, self.log = base_offset, log
        self._growth = IndexGrowth(index_interval_bytes=interval_bytes)
        self.offset_index, self.time_index = bytearray(), bytearray()
        self._buffer = bytearray()
        self._at = 0

    def append(self, batch: bytes) -> None:
        header = read_batch_header(batch)
        self._growth.add_batch(header.last_offset, len(batch), header.max_timestamp_ms)
        if self._growth.offset_index_bytes > len(self.offset_index):
            relative = header.last_offset - self.base_offset
            self.offset_index += _OFFSET_ENTRY.pack(relative, self._at)
        self._index_time()
        self._at += len(batch)
        self._buffer += batch
        if len(self._buffer) >= _BUFFER_BYTES:
            self._flush()

    def end(self) -> None:
        self._growth.end()
        self._index_time()
        self._flush()
        self.log.sync()
        self.log.close()

    def _flush(self) -> None:
        self.log.write([bytes(self._buffer)])
        self._buffer.clear()

    def _index_time(self) -> None:
        if self._growth.time_index_bytes > len(self.time_index):
            relative = self._growth.max_timestamp_offset - self.base_offset
            self.time_index += _TIME_ENTRY.pack(self._growth.last_time_entry_ms, relative)


def id_text(topic_id: UUID) -> str:
    """Formats a topic id as Kafka does.

    >>> id_text(UUID(int=7))
    'AAAAAAAAAAAAAAAAAAAABw'
    """
    return base64.urlsafe_b64encode(topic_id.bytes).decode().rstrip("=")
