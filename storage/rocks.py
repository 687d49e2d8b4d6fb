"""The KeyValueStore on RocksDB, with recovery from failed writes.

After a failed write RocksDB rejects all others until it is reopened, even if the disk has recovered
(facebook/rocksdb#11643, #12998). So the next write reopens it, but not more than once in RETRY_S
unless space was freed. If that fails, as it does on a full disk, the store is opened read-only:
RocksDB writes at a start, but reading needs no space.

The caller of a failed write continues with the state before it. But RocksDB's log may contain the
write when it is reopened. Then reads do not show it, and it is undone before the next write. (After
a crash it may become visible, as a whole.) Reads do not show unsynced writes either.

RocksDB's log may end with a write that a power loss has torn: everything from there on was never
acknowledged and is ignored. A process that dies tears no complete write; so if the machine has not
restarted since, a bad record is damage, and the store is not opened.

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
from ledgerfold.storage.shared_lock import SharedLock

RETRY_S = 1.0
_OPEN_FILES_MAX = 128
_WRITE_BUFFER_BYTES = 4 * 1024 * 1024
# RocksDB's messages if a write reached its log not at all or in part: a partial record is ignored.
_NOT_WRITTEN = ("While appending to file", "Writer has previous error")
_NO_SPACE = "No space left on device"
_log = logging.getLogger(__name__)


def pairs_in(database: Any, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yields the pairs of a RocksDB database. Raises Exception, as the binding does."""
    # NOTE: imported here so that what only reads segments does not load RocksDB.
    from rocksdict import ReadOptions

    options = ReadOptions()
    # Whoever lists all records keeps what it needs: a second copy of them would stay in memory.
    options.fill_cache(False)
    cursor = database.iter(options)
    cursor.seek(prefix)
    while cursor.valid() and (key := bytes(cursor.key())).startswith(prefix):
        yield key, bytes(cursor.value())
        cursor.next()
    # An unreadable block ends the iteration without an error.
    cursor.status()


class RocksKeyValue:
    """A KeyValueStore in a folder. Threads may share it."""

    def __init__(
        self,
        path: Path,
        *,
        is_same_boot: bool = False,
        files: Files = REAL,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """Opens the store. `is_same_boot`: the machine has not stopped since the store was last
        written.

        Raises Corruption, DiskFailure.
        """
        from rocksdict import WriteBatch, WriteOptions

        self._folder, self._path = path, str(path)
        self._files, self._clock_s = files, clock_s
        self._batch = WriteBatch
        self._options = WriteOptions()
        self._access = SharedLock()
        # NOTE: held during disk access. RocksDB serializes writes anyway; and a failure must be
        # known before the next write is tried.
        self._writing = threading.Lock()
        self._failure: DiskFailure | None = None
        self._is_closed = False
        # The keys that a pending or failed write may have changed, with their previous values. This
        # is never modified, but replaced. Readers check it after RocksDB: a write that RocksDB has,
        # and that is no longer here, is synced.
        self._doubtful: Mapping[bytes, bytes | None] = {}
        self._retry_at_s = 0.0
        self._free_at_failure = 0
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
        with self._access.shared():
            value = self._get(key)
            return self._doubtful.get(key, value)

    def _get(self, key: bytes) -> bytes | None:
        with self._typed_errors("A metadata read"):
            value = self._db.get(key)
        return None if value is None else bytes(value)

    def scan(self, prefix: bytes) -> list[tuple[bytes, bytes]]:
        with self._access.shared():
            with self._typed_errors("A metadata read"):
                pairs = dict(pairs_in(self._db, prefix))
            for key, value in self._doubtful.items():
                if value is None:
                    pairs.pop(key, None)
                elif key.startswith(prefix):
                    pairs[key] = value
        return sorted(pairs.items())

    def last(self, prefix: bytes) -> tuple[bytes, bytes] | None:
        with self._access.shared():
            pair = self._last(prefix)
            is_doubtful = any(key.startswith(prefix) for key in self._doubtful)
        if is_doubtful:
            # The last pair before the write may differ from the one found.
            return next(reversed(self.scan(prefix)), None)
        return pair

    def _last(self, prefix: bytes) -> tuple[bytes, bytes] | None:
        # Keys are UTF-8, so the last byte is not the greatest.
        end = prefix[:-1] + bytes([prefix[-1] + 1])
        with self._typed_errors("A metadata read"):
            cursor = self._db.iter()
            cursor.seek_for_prev(end)
            if cursor.valid() and bytes(cursor.key()) == end:
                cursor.prev()
            pair = (bytes(cursor.key()), bytes(cursor.value())) if cursor.valid() else None
            cursor.status()
        return pair if pair is not None and pair[0].startswith(prefix) else None

    def write(self, puts: Mapping[bytes, bytes], deletes: Iterable[bytes]) -> None:
        deletes = tuple(deletes)
        if self._failure is not None:
            self._reopen()
        with self._access.shared(), self._writing:
            if self._failure is not None:
                # A write has failed since the check: nothing is written before the store is
                # reopened.
                raise self._failure
            self._doubtful = {key: self._get(key) for key in (*puts, *deletes)}
            remains_uncertain = False
            try:
                self._write(puts, deletes)
            except DiskFailure as error:
                self._failure, remains_uncertain = error, error.may_be_durable
                raise
            finally:
                if not remains_uncertain:
                    self._doubtful = {}

    def _write(self, puts: Mapping[bytes, bytes], deletes: Iterable[bytes]) -> None:
        batch = self._batch(raw_mode=True)
        for key in deletes:
            batch.delete(key)
        for key, value in puts.items():
            batch.put(key, value)
        with self._typed_errors("A metadata write"):
            self._db.write(batch, self._options)
        # NOTE: separately. A synced write holds the GIL until the disk is done: the event loop
        # would stop, whichever thread writes.
        with self._typed_errors("A metadata sync", is_written=True):
            self._db.flush_wal(True)

    def _reopen(self) -> None:
        """Reopens the store after a failed write. Raises DiskFailure if it is too early, or fails
        again.
        """
        with self._access.exclusive():
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
                self._undo()
            except DiskFailure as error:
                self._failure = error
                self._close()
                self._db = self._open(is_read_only=True)
                raise error
            self._failure = None
            _log.warning("The metadata in %s can be written again.", self._path)

    def _undo(self) -> None:
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
            # rocksdict raises plain Exception for all RocksDB errors.
            text = str(error)
            if text.startswith("Corruption"):
                raise Corruption(self._path, 0, "an undamaged RocksDB store", text) from error
            cause = OSError(errno.ENOSPC if _NO_SPACE in text else 0, text)
            may_be_durable = is_written or not any(words in text for words in _NOT_WRITTEN)
            raise DiskFailure(
                self._path, operation, cause, may_be_durable=may_be_durable
            ) from error

    def close(self) -> None:
        """Waits for pending reads and writes, and closes the store."""
        with self._access.exclusive():
            self._is_closed = True
            self._close()

    def _close(self) -> None:
        try:
            self._db.close()
        except Exception as error:
            # Cleanup failed. The log holds everything that was written.
            _log.info("Closing the metadata in %s: %s", self._path, error)
