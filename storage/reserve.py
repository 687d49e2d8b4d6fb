"""Room on the disk that is kept for what frees space.

To delete is to write: a record first, so that a crash finds what was to go. On a disk that is full
nothing could be deleted any more. So a file holds a little of it, and is empty while a deletion, or
a start, needs its room. What is left of that is taken back behind it, before a publisher has it: or
the next one had none. What is missing then is taken as soon as there is room again.

    reserve.keep()
    with reserve.lent():
        ...delete...
    reserve.renew()

Bounds: RESERVE_BYTES, what RocksDB may write when it is opened again after a write that failed: a
table of its write buffer, and a log. Where there is no such file one is made only where twice as
much is free.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator
from pathlib import Path

from ledgerfold.storage.errors import DiskFailure
from ledgerfold.storage.files import AppendFile, Files

RESERVE_BYTES = 8 * 1024 * 1024
_WRITTEN_AT_ONCE = 64 * 1024
_log = logging.getLogger(__name__)


class Reserve:
    """One per data directory; for one thread. There is none until `keep` is called."""

    def __init__(self, path: Path, files: Files) -> None:
        self._path, self._files = path, files
        self._is_kept = False
        self._borrowers = 0

    @property
    def is_there(self) -> bool:
        """Or some of it."""
        return self._is_kept and self._files.exists(self._path) and self._size_bytes > 0

    @property
    def is_lent(self) -> bool:
        return self._borrowers > 0

    def keep(self) -> None:
        """From now on, where there is room."""
        self._is_kept = True
        self.renew()

    def renew(self) -> None:
        """Makes it whole again, as far as there is room."""
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
                # Of nothing that a file system could make smaller.
                while missing > 0:
                    file.write([os.urandom(min(missing, _WRITTEN_AT_ONCE))])
                    missing -= _WRITTEN_AT_ONCE
            finally:
                file.close()
        except DiskFailure as error:
            _log.warning("Less room is kept for deletions than is needed: %s", error)

    def _opened(self) -> AppendFile:
        return self._files.open_append(self._path, self._size_bytes)

    @property
    def _size_bytes(self) -> int:
        return self._files.size(self._path)

    @contextlib.contextmanager
    def lent(self) -> Iterator[None]:
        """Its room is free inside. Several may share it. renew() afterwards."""
        self._borrowers += 1
        try:
            self.empty()
            yield
        finally:
            self._borrowers -= 1

    def empty(self) -> None:
        """Its room is free now; the file says that it is to be taken back."""
        if self._files.exists(self._path):
            self._files.truncate(self._path, 0)
