"""The ledgers of a data directory: creates, opens, adopts and deletes them.

A ledger's record is written before anything that needs it, and its files are deleted before its
record: after a crash, recovery (storage/recovery.py) sees a complete ledger or one to remove.

    >>> from ledgerfold.storage.key_value import MemoryKeyValue
    >>> metadata = MetadataStore(MemoryKeyValue())
    >>> store = LedgerStore(folder, metadata, settings=StoreSettings(), clock_ms=lambda: 1_000)
    >>> report = store.recover()
    >>> with metadata.batch() as batch:
    ...     writer = store.create_ledger("persistent://public/default/t", batch)
    >>> writer.ledger_id
    1

Bounds: OPEN_FILES_MAX descriptors for reading, OPEN_WRITERS_MAX for writing; READERS_MAX readers,
with the offsets that they cache.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from ledgerfold.storage import recovery
from ledgerfold.storage.append_files import AppendFiles
from ledgerfold.storage.compacted import check_output
from ledgerfold.storage.deletion_vector import VectorCache
from ledgerfold.storage.entry import ENTRY_BYTES_MAX, EntryHeader
from ledgerfold.storage.errors import (
    DiskFailure,
    MetadataLost,
    MissingFile,
    StorageError,
)
from ledgerfold.storage.files import REAL, Files, make_durable_dir
from ledgerfold.storage.label import label_of, write_label
from ledgerfold.storage.lru_cache import LruCache
from ledgerfold.storage.metadata import MetadataBatch, MetadataStore
from ledgerfold.storage.names import ASIDE_SUFFIX, ledgers_dir, reserve_path
from ledgerfold.storage.open_files import ReadFile
from ledgerfold.storage.reader import LedgerReader
from ledgerfold.storage.recovery_report import RecoveryReport
from ledgerfold.storage.removal import delete_ledgers, delete_left
from ledgerfold.storage.reserve import Reserve
from ledgerfold.storage.segment import scan_segment
from ledgerfold.storage.settings import StoreSettings
from ledgerfold.storage.shared_sync import SharedSync
from ledgerfold.storage.stored_entries import StoredEntry
from ledgerfold.storage.writer import LedgerWriter
from ledgerfold.v1.records_pb2 import (
    LEDGER_KIND_COMPACTED,
    LEDGER_KIND_RAW,
    LEDGER_STATE_CLOSED,
    LEDGER_STATE_DELETING,
    LEDGER_STATE_OPEN,
    KafkaSegment,
    LedgerRecord,
    LedgerState,
    RunRecord,
    SegmentRecord,
)

__all__ = ["LedgerReader", "LedgerStore", "LedgerWriter", "StoreSettings", "StoredEntry"]

OPEN_FILES_MAX = 256
OPEN_WRITERS_MAX = 256
READERS_MAX = 1024
SCRATCH_BYTES = 1024 * 1024
# The free space that a full disk needs before a writer is created: room for any entry.
ROOM_BYTES = ENTRY_BYTES_MAX


class LedgerStore:
    """The ledger store, one per data directory. Threads may share it, except as LedgerWriter
    states.

    One thread at a time changes a topic's ledgers; any thread may read meanwhile.
    """

    def __init__(
        self,
        data_dir: Path,
        metadata: MetadataStore,
        *,
        files: Files = REAL,
        settings: StoreSettings | None = None,
        clock_ms: Callable[[], int],
    ) -> None:
        self.ledgers_dir = ledgers_dir(data_dir)
        self.settings = settings or StoreSettings()
        self.reserve = Reserve(reserve_path(data_dir), files)
        self._metadata = metadata
        self.files = self._files = files
        self._appending = AppendFiles(files, OPEN_WRITERS_MAX)
        self._folders = SharedSync(self.ledgers_dir, files)
        self._clock_ms = clock_ms
        # NOTE: these three need no lock: each access reads or changes one key, atomically.
        self._writers: dict[int, LedgerWriter] = {}
        # Open ledgers that recovery found damaged and left unchanged: their readable part.
        self._damaged: dict[int, LedgerRecord] = {}
        self._damage: dict[int, StorageError] = {}
        self._unrecorded: dict[str, MetadataLost] = {}
        self._readers = LruCache[int, LedgerReader](READERS_MAX)
        self._open_files = LruCache[str, ReadFile](OPEN_FILES_MAX)
        self._vectors = VectorCache(self.ledgers_dir, files)
        # The buffer of non-blocking reads: allocating memory costs more than copying from this.
        self._scratch = bytearray(SCRATCH_BYTES)
        # Folders whose removal failed. The thread that takes a folder out of here retries its
        # removal.
        self._undeleted: set[int] = set()
        self._left_lock = threading.Lock()
        make_durable_dir(self.ledgers_dir, files)

    def recover(self, *, is_same_boot: bool = False) -> RecoveryReport:
        """Recovers all ledgers, before any other use. See storage/recovery.py.

        `is_same_boot`: the machine has not stopped since the last process wrote here.
        """
        report = recovery.recover_all(
            self.ledgers_dir, self._metadata, self._files, self._clock_ms(), is_same_boot
        )
        self._damaged = dict(report.damaged_records)
        self._damage = dict(report.damaged)
        self._undeleted = set(report.undeleted)
        self._unrecorded = {
            topic: MetadataLost(topic, ids) for topic, ids in report.unrecorded.items()
        }
        return report

    @property
    def unrecorded(self) -> Mapping[str, MetadataLost]:
        """The topics whose records the metadata have lost. Nearly always empty."""
        return self._unrecorded

    def damaged_ids(self) -> Collection[int]:
        """Returns the damaged ledgers. Nearly always empty."""
        return tuple(self._damage)

    def damage_of(self, ledger_id: int) -> StorageError | None:
        """Returns the damage that recovery found in a ledger, until the ledger is deleted."""
        return self._damage.get(ledger_id)

    def recover_ledgers(self, ledger_ids: Iterable[int]) -> None:
        """Closes the ledgers among these that still have a writer, at their last durable entry.

        Called after a writer has failed: entries queued after a failed flush must not be written,
        in any of the ledgers. Raises DiskFailure.
        """
        for ledger_id in ledger_ids:
            writer = self._writers.get(ledger_id)
            if writer is not None:
                durable = writer.abandon()
                recovery.close_at_durable(
                    durable, self.ledgers_dir, self._metadata, self._files, self._clock_ms()
                )
                self._forget(ledger_id)

    def drop_writer(self, ledger_id: int) -> None:
        """Discards the writer of a ledger whose creation failed, with its pending entries."""
        writer = self._writers.pop(ledger_id, None)
        if writer is not None:
            writer.abandon()

    def has_room(self) -> bool:
        """Returns whether the disk has room, or the reserve is released for a deletion."""
        return self.reserve.is_lent or self._files.free_bytes(self.ledgers_dir) >= ROOM_BYTES

    def free_ledger_id(self) -> int | None:
        """Returns an id for create_ledger that needs no disk; None if there is none."""
        return self._metadata.free_ledger_id()

    def create_ledger(
        self, topic: str, batch: MetadataBatch | None = None, ledger_id: int | None = None
    ) -> LedgerWriter:
        """Creates a raw ledger. Its record is added to `batch`; the first flush creates its files.

        Without a batch, the caller makes its record durable before the first flush. `ledger_id`:
        from free_ledger_id(); without it, an id may have to wait for the disk.
        """
        writer = self._create(topic, LEDGER_STATE_OPEN, ledger_id)
        if batch is not None:
            batch.put(writer.record)
        return writer

    def create_unfinished(self, topic: str) -> LedgerWriter:
        """Creates a raw ledger that a start deletes, unless it is finished.

        The caller completes it with finish() and puts its record in a batch, or calls
        delete_files().
        """
        return self._create(topic, LEDGER_STATE_DELETING)

    def _create(self, topic: str, state: LedgerState, ledger_id: int | None = None) -> LedgerWriter:
        if ledger_id is None:
            ledger_id = self._metadata.allocate_ledger_id()
        record = LedgerRecord(
            ledger_id=ledger_id,
            kind=LEDGER_KIND_RAW,
            state=state,
            topic=topic,
            created_ms=self._clock_ms(),
            being_made=state == LEDGER_STATE_DELETING,
        )
        writer = LedgerWriter(
            record,
            self.ledgers_dir,
            self._metadata,
            self._files,
            self._appending,
            self._folders,
            self.settings,
            self._clock_ms,
            self._on_closed,
        )
        self._writers[record.ledger_id] = writer
        return writer

    def _on_closed(self, ledger_id: int) -> None:
        self._writers.pop(ledger_id, None)

    def record(self, ledger_id: int) -> LedgerRecord:
        """Returns the record of the ledger's durable part; final once the ledger is closed.

        Callers must not change it. Raises MissingFile if the ledger does not exist.
        """
        writer = self._writers.get(ledger_id)
        if writer is not None:
            return writer.record
        record = self._damaged.get(ledger_id) or self._metadata.ledger(ledger_id)
        if record is None:
            raise MissingFile(str(self.ledger_dir(ledger_id)), "a topic's record")
        return record

    def open_reader(self, ledger_id: int, closed: LedgerRecord | None = None) -> LedgerReader:
        """Returns the ledger's shared reader. Damage is reported when the damaged part is read.

        `closed`: the record of a closed ledger, if the caller has it: then nothing is read to
        create the reader. Raises MissingFile if the ledger does not exist.
        """
        return self._readers.get(ledger_id, lambda: self._make_reader(ledger_id, closed))

    def missing_of(self, ledger_id: int) -> StorageError | None:
        """Returns the error for a closed ledger's missing record, or missing or truncated file."""
        record = self._metadata.ledger(ledger_id)
        if record is None:
            return MissingFile(str(self.ledger_dir(ledger_id)), "a topic's record")
        return recovery.check_files(record, self.ledgers_dir, self._files)

    def _make_reader(self, ledger_id: int, closed: LedgerRecord | None) -> LedgerReader:
        writer = self._writers.get(ledger_id)
        if writer is not None:
            return self._reader_of(lambda: writer.record)
        record = closed or self.record(ledger_id)
        return self._reader_of(lambda: record)

    def _reader_of(self, record: Callable[[], LedgerRecord]) -> LedgerReader:
        return LedgerReader(record, self._open_file, self._scratch, self._vectors)

    def _open_file(self, relative: str) -> ReadFile:
        """Opens a file. It is closed once it leaves the cache and no read uses it."""
        return self._open_files.get(relative, lambda: self._open_uncached(relative))

    def _open_uncached(self, relative: str) -> ReadFile:
        path = self.ledgers_dir / relative
        try:
            return self._files.open_read(path)
        except FileNotFoundError as error:
            raise MissingFile(str(path), "a ledger's record") from error

    def headers(self, segment: SegmentRecord) -> Iterator[EntryHeader]:
        """Yields the headers of a sealed segment, in order. Raises Corruption, MissingFile."""
        for header, _ in scan_segment(self.ledgers_dir / segment.path, segment, self._files):
            yield header

    def ledger_dir(self, ledger_id: int) -> Path:
        return self.ledgers_dir / str(ledger_id)

    def verify_compacted(
        self,
        ledger_id: int,
        topic: str,
        segments: Sequence[SegmentRecord],
        previous: Sequence[SegmentRecord] = (),
    ) -> LedgerRecord:
        """Verifies a compacted ledger's files against `segments`. Returns its record.

        `previous`: segments that are verified already; a link to one of them is not read again.

        Raises CompactionFailed if a segment is not in the ledger's folder, Corruption, MissingFile,
        EntryTooLarge.
        """
        check_output(ledger_id, segments, previous, self.ledgers_dir, self._files)
        now_ms = self._clock_ms()
        return LedgerRecord(
            ledger_id=ledger_id,
            kind=LEDGER_KIND_COMPACTED,
            state=LEDGER_STATE_CLOSED,
            topic=topic,
            segments=segments,
            created_ms=now_ms,
            closed_ms=now_ms,
        )

    def need_feature(self, feature: str) -> None:
        """Makes builds that do not know `feature` refuse the directory. Raises DiskFailure."""
        self._metadata.need_feature(feature)

    def label_compacted(
        self,
        record: LedgerRecord,
        *,
        run: RunRecord | None = None,
        segment: KafkaSegment | None = None,
    ) -> None:
        """Labels a verified compacted ledger, before the given run or segment publishes it.

        Removes the unfinished files that killed or slower attempts at its tasks have left. An empty
        ledger has no folder and needs no label. Raises DiskFailure.
        """
        if not record.segments:
            return
        folder = self.ledger_dir(record.ledger_id)
        for name in self._files.listdir(folder):
            if name.endswith(ASIDE_SUFFIX):
                self._files.remove(folder / name)
        partitions = self._metadata.siblings(record.topic)
        label = label_of(record, partitions=partitions, run=run, segment=segment)
        write_label(folder, label, self._files)
        self._files.sync_dir(folder)

    def mark_deleting(self, ledger_id: int, batch: MetadataBatch) -> None:
        """Marks the ledger as being deleted, in `batch`. Its files stay until delete_files()."""
        record = self._metadata.ledger(ledger_id)
        if record is not None:
            record.state = LEDGER_STATE_DELETING
            batch.put(record)

    def delete_files(self, ledger_id: int) -> None:
        """Deletes one ledger as delete_all_files() does."""
        self.delete_all_files((ledger_id,))

    def delete_all_files(self, ledger_ids: Collection[int]) -> None:
        """Deletes files and records of ledgers, and what earlier calls have left.

        Raises DiskFailure if some of the ledgers stay: the next call, or a start, tries again.
        """
        for ledger_id in ledger_ids:
            if (writer := self._writers.get(ledger_id)) is not None:
                writer.abandon()
        failed = {*ledger_ids}
        with self._left_lock:
            remaining, self._undeleted = self._undeleted - failed, set()
        try:
            self._delete(ledger_ids)
            failed.clear()
        except DiskFailure:
            if len(failed) > 1:
                # One that cannot be removed does not keep the others.
                failed = delete_left(failed, self.ledgers_dir, self._metadata, self._files)
            if failed:
                raise
        finally:
            # Not earlier: a concurrent reader would put it into the cache again.
            for ledger_id in ledger_ids:
                self._forget(ledger_id)
            failed |= delete_left(remaining, self.ledgers_dir, self._metadata, self._files)
            with self._left_lock:
                self._undeleted |= failed

    def _delete(self, ledger_ids: Collection[int]) -> None:
        try:
            delete_ledgers(ledger_ids, self.ledgers_dir, self._metadata, self._files)
        except DiskFailure as error:
            if not error.is_short_of_descriptors:
                raise
            self._close_idle_files()
            delete_ledgers(ledger_ids, self.ledgers_dir, self._metadata, self._files)

    def restored(self) -> None:
        """Forgets all damage and open files: a restore has brought back what was missing."""
        self._damaged, self._damage = {}, {}
        self._close_idle_files()

    def _close_idle_files(self) -> None:
        """Closes all open files that are not in use; they are reopened when needed."""
        self._appending.close_idle(0)
        self._open_files.forget(lambda _: True)

    def _forget(self, ledger_id: int) -> None:
        self._writers.pop(ledger_id, None)
        self._damaged.pop(ledger_id, None)
        self._damage.pop(ledger_id, None)
        # Later lookups do not find the ledger in the caches.
        self._readers.forget(lambda each: each == ledger_id)
        self._open_files.forget(lambda relative: relative.startswith(f"{ledger_id}/"))
        self._vectors.forget(f"{ledger_id}/")
