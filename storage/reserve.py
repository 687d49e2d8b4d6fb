"""Disk space that is reserved for operations that free space.

A deletion writes, too: first a record, so that after a crash it can continue. Without a reserve,
nothing could be deleted on a full disk. So a file occupies some space, and is emptied while a
deletion, or a start, needs the space. Afterwards, the file is filled again before a publisher can
use the space: otherwise the next deletion would have none. If the disk has too little space, the
rest is reserved later, as soon as space is free.

    reserve.keep()
    with reserve.lent():
        ...delete...
    reserve.renew()

Bounds: RESERVE_BYTES, the size that RocksDB may write when it is opened again after a failed write:
a table of its write buffer, and a log. A missing file is created only if twice as much is free.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator
from pathlib import Path

from ledgerfold.storage.errors import DiskFailure
from ledgerfold.storage.files import Files
from ledgerfold.storage.open_files import AppendFile

RESERVE_BYTES = 8 * 1024 * 1024
_WRITTEN_AT_ONCE = 64 * 1024
_log = logging.getLogger(__name__)


class Reserve:
    """The reserve of a data directory; for one thread. Empty until `keep` is called."""

    def __init__(self, path: Path, files: Files) -> None:
        self._path, self._files = path, files
        self._is_kept = False
        self._borrowers = 0

    @property
    def is_there(self) -> bool:
        """True if any of the reserve is on the disk."""
        return self._is_kept and self._files.exists(self._path) and self._size_bytes > 0

    @property
    def is_lent(self) -> bool:
        return self._borrowers > 0

    def keep(self) -> None:
        """Creates the reserve, and maintains it from now on, if the disk has room."""
        self._is_kept = True
        self.renew()

    def renew(self) -> None:
        """Restores the reserve to its full size, as far as the disk has room."""
        if not self._is_kept or self.is_lent:
            return
        try:
            is_new = not self._files.exists(self._path)
            missing = RESERVE_BYTES - (0 if is_new else self._size_bytes)
            least_free = 2 * RESERVE_BYTES if is_new else _WRITTEN_AT_ONCE
            if missing <= 0 or self._files.free_bytes(self._path.parent) < least_free:
                return
            file = self._files.create(self._path) if is_new else self._opened()
            try:
                # Random bytes: a file system cannot compress them.
                while missing > 0:
                    file.write([os.urandom(min(missing, _WRITTEN_AT_ONCE))])
                    missing -= _WRITTEN_AT_ONCE
            finally:
                file.close()
        except DiskFailure as error:
            _log.warning("The disk space reserved for deletions is too small: %s", error)

    def _opened(self) -> AppendFile:
        return self._files.open_append(self._path, self._size_bytes)

    @property
    def _size_bytes(self) -> int:
        return self._files.size(self._path)

    @contextlib.contextmanager
    def lent(self) -> Iterator[None]:
        """Frees the reserve's space inside the block. Blocks may nest. Call renew() afterwards."""
        self._borrowers += 1
        try:
            self.empty()
            yield
        finally:
            self._borrowers -= 1

    def empty(self) -> None:
        """Frees the reserve's space; the empty file records that it must be restored."""
        if self._files.exists(self._path):
            self._files.truncate(self._path, 0)
