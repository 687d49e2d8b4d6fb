"""Room on the disk that is kept for what frees space.

To delete is to write: a record first, so that a crash finds what was to go. On a disk that is full
nothing could be deleted any more. So a file holds a little of it, and goes when a deletion needs
its room; when there is room again it is made anew.

    reserve.keep()
    with reserve.lent():
        ...delete...
    reserve.renew()

Bounds: RESERVE_BYTES, what RocksDB may write when it is opened again after a write that failed: a
table of its write buffer, and a log. Made only where twice as much is free.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator
from pathlib import Path

from ledgerfold.storage.errors import DiskFailure
from ledgerfold.storage.files import Files

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
        return self._is_kept and self._files.exists(self._path)

    @property
    def is_lent(self) -> bool:
        return self._borrowers > 0

    def keep(self) -> None:
        """From now on, where there is room."""
        self._is_kept = True
        self.renew()

    def renew(self) -> None:
        """Makes it again, if it is gone and there is room."""
        if not self._is_kept or self.is_lent:
            return
        try:
            if self._is_whole() or self._files.free_bytes(self._path.parent) < 2 * RESERVE_BYTES:
                return
            self._files.remove(self._path)
            file = self._files.create(self._path)
            try:
                # Of nothing that a file system could make smaller.
                for _ in range(RESERVE_BYTES // _WRITTEN_AT_ONCE):
                    file.write([os.urandom(_WRITTEN_AT_ONCE)])
            finally:
                file.close()
        except DiskFailure as error:
            _log.warning("No room is kept for deletions: %s", error)

    def _is_whole(self) -> bool:
        return self.is_there and self._files.size(self._path) == RESERVE_BYTES

    @contextlib.contextmanager
    def lent(self) -> Iterator[None]:
        """Its room is free inside. Several may share it. renew() afterwards."""
        self._borrowers += 1
        try:
            self._files.remove(self._path)
            yield
        finally:
            self._borrowers -= 1
