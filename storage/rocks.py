"""The KeyValueStore of a real broker: RocksDB, and its way back from a write that failed.

After a failed write RocksDB refuses all others until it is opened again, whatever has become of the
disk meanwhile (facebook/rocksdb#11643, #12998). So the next write opens it again, but not more than
once in RETRY_S unless space was freed. Where that fails, as it does on a full disk, it is opened
for reading only: RocksDB writes at a start, reading needs no room.

A caller who was told that a write failed goes on from what was there before. Such a write may yet
be found in RocksDB's log when it is opened again: then it is taken back before anything else is
written, and reads do not show it until then. (After a crash it may show, whole.) Nor do they show
a write that is not synced yet.

RocksDB's log may end with a write that a power loss has torn: what comes from there on was never
acknowledged and is passed over. A process that dies tears nothing that it has written whole; so
where the machine has not been restarted since, a bad record is damage, and the store is not opened.

    >>> pairs = RocksKeyValue(folder / "metadata")
    >>> pairs.write({b"key": b"value"}, ())
    >>> pairs.get(b"key")
    b'value'
    >>> pairs.close()
"""

from __future__ import annotations

import errno
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ledgerfold.storage.errors import Corruption, DiskFailure
from ledgerfold.storage.files import REAL, Files

RETRY_S = 1.0
_OPEN_FILES_MAX = 128
_WRITE_BUFFER_BYTES = 4 * 1024 * 1024
# RocksDB's words when nothing, or not all, of a write reached its log: half a record is none.
_NOT_WRITTEN = ("While appending to file", "Writer has previous error")
_NO_SPACE = "No space left on device"
_log = logging.getLogger(__name__)


class _Door:
    """Lets in many at a time, or one alone, who may be at the disk: others need what he opens."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._inside = 0

    @contextmanager
    def shared(self) -> Iterator[None]:
        with self._changed:
            self._inside += 1
        try:
            yield
        finally:
            with self._changed:
                self._inside -= 1
                self._changed.notify_all()

    @contextmanager
    def alone(self) -> Iterator[None]:
        with self._changed:
            while self._inside:
                self._changed.wait()
            # Nobody comes in as long as this is held.
            yield


class RocksKeyValue:
    """A KeyValueStore in a folder; threads may share it."""

    def __init__(
        self,
        path: Path,
        *,
        is_same_boot: bool = False,
        files: Files = REAL,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """`is_same_boot`: the machine has been up since the store was last written.

        Raises Corruption, DiskFailure.
        """
        # NOTE: imported here so that what only reads segments does not load RocksDB.
        from rocksdict import WriteBatch, WriteOptions

        self._folder, self._path = path, str(path)
        self._files, self._clock_s = files, clock_s
        self._batch = WriteBatch
        self._options = WriteOptions()
        self._door = _Door()
        # NOTE: held at the disk. RocksDB lets in one write at a time anyway; and one that failed
        # must be known before the next is tried.
        self._writing = threading.Lock()
        self._failure: DiskFailure | None = None
        self._is_closed = False
        # What a write under way, or a failed one, may have changed: keys, and their values before.
        # Never changed, but replaced. Looked at after RocksDB: what that has and this has not any
        # more is synced.
        self._doubtful: Mapping[bytes, bytes | None] = {}
        self._retry_at_s = 0.0
        self._free_at_failure = 0
        path.parent.mkdir(parents=True, exist_ok=True)
        self._db = self._open(is_strict=is_same_boot)

    def _open(self, *, is_read_only: bool = False, is_strict: bool = False) -> Any:
        from rocksdict import AccessType, DBRecoveryMode, Options, Rdict

        options = Options(raw_mode=True)
        if is_strict:
            options.set_wal_recovery_mode(DBRecoveryMode.tolerate_corrupted_tail_records())
        options.create_if_missing(True)
        options.set_write_buffer_size(_WRITE_BUFFER_BYTES)
        options.set_max_background_jobs(2)
        options.set_max_open_files(_OPEN_FILES_MAX)
        options.set_keep_log_file_num(2)
        options.set_max_log_file_size(1024 * 1024)
        access = AccessType.read_only() if is_read_only else AccessType.read_write()
        with self._typed_errors("Opening the metadata"):
            return Rdict(self._path, options, access_type=access)

    def get(self, key: bytes) -> bytes | None:
        with self._door.shared():
            value = self._get(key)
            return self._doubtful.get(key, value)

    def _get(self, key: bytes) -> bytes | None:
        with self._typed_errors("A metadata read"):
            value = self._db.get(key)
        return None if value is None else bytes(value)

    def scan(self, prefix: bytes) -> list[tuple[bytes, bytes]]:
        with self._door.shared():
            pairs = dict(self._scan(prefix))
            for key, value in self._doubtful.items():
                if value is None:
                    pairs.pop(key, None)
                elif key.startswith(prefix):
                    pairs[key] = value
        return sorted(pairs.items())

    def _scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        with self._typed_errors("A metadata read"):
            cursor = self._db.iter()
            cursor.seek(prefix)
            while cursor.valid() and (key := bytes(cursor.key())).startswith(prefix):
                yield key, bytes(cursor.value())
                cursor.next()
            # A block that cannot be read ends the iteration without a word.
            cursor.status()

    def write(self, puts: Mapping[bytes, bytes], deletes: Iterable[bytes]) -> None:
        deletes = tuple(deletes)
        if self._failure is not None:
            self._open_again()
        with self._door.shared(), self._writing:
            if self._failure is not None:
                # Since it was looked at: nothing is written before it was opened again.
                raise self._failure
            self._doubtful = {key: self._get(key) for key in (*puts, *deletes)}
            stays_doubtful = False
            try:
                self._write(puts, deletes)
            except DiskFailure as error:
                self._failure, stays_doubtful = error, error.may_be_durable
                raise
            finally:
                if not stays_doubtful:
                    self._doubtful = {}

    def _write(self, puts: Mapping[bytes, bytes], deletes: Iterable[bytes]) -> None:
        batch = self._batch(raw_mode=True)
        for key in deletes:
            batch.delete(key)
        for key, value in puts.items():
            batch.put(key, value)
        with self._typed_errors("A metadata write"):
            self._db.write(batch, self._options)
        # NOTE: apart. A synced write holds the interpreter until the disk is done: the event loop
        # would stand still, whichever thread writes.
        with self._typed_errors("A metadata sync", is_written=True):
            self._db.flush_wal(True)

    def _open_again(self) -> None:
        """After a failed write. Raises DiskFailure when it is too early, or of no use."""
        with self._door.alone():
            if self._failure is None:
                return
            if self._is_closed:
                raise self._failure
            now_s, free = self._clock_s(), self._files.free_bytes(self._folder)
            if now_s < self._retry_at_s and free <= self._free_at_failure:
                raise self._failure
            self._retry_at_s, self._free_at_failure = now_s + RETRY_S, free
            self._close()
            try:
                self._db = self._open()
                self._take_back()
            except DiskFailure as error:
                self._failure = error
                self._close()
                self._db = self._open(is_read_only=True)
                raise error
            self._failure = None
            _log.warning("The metadata in %s can be written again.", self._path)

    def _take_back(self) -> None:
        before = self._doubtful
        if any(self._get(key) != value for key, value in before.items()):
            puts = {key: value for key, value in before.items() if value is not None}
            self._write(puts, before.keys() - puts.keys())
        self._doubtful = {}

    @contextmanager
    def _typed_errors(self, operation: str, *, is_written: bool = False) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            # rocksdict raises plain Exception for whatever RocksDB reports.
            text = str(error)
            if text.startswith("Corruption"):
                raise Corruption(self._path, 0, "an undamaged RocksDB store", text) from error
            cause = OSError(errno.ENOSPC if _NO_SPACE in text else 0, text)
            may_be_durable = is_written or not any(words in text for words in _NOT_WRITTEN)
            raise DiskFailure(
                self._path, operation, cause, may_be_durable=may_be_durable
            ) from error

    def close(self) -> None:
        """Waits for reads and writes on their way."""
        with self._door.alone():
            self._is_closed = True
            self._close()

    def _close(self) -> None:
        try:
            self._db.close()
        except Exception as error:
            # It could not tidy up. What was written is in its log.
            _log.info("Closing the metadata in %s: %s", self._path, error)
