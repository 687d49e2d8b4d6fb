"""One process owns a data directory.

The lock is an flock on DATA/lock, so it goes with its process however that ends. The file says who
holds it: for people, and for the error of the second one.
"""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path
from types import TracebackType

from storage.errors import DirectoryLocked, DiskFailure
from storage.names import lock_path


class DirectoryLock:
    """A context manager. Raises DirectoryLocked, which names the owner, and DiskFailure."""

    def __init__(self, data_dir: Path, version: str) -> None:
        self._data_dir = data_dir
        self._version = version
        self._descriptor = -1

    def __enter__(self) -> DirectoryLock:
        path = lock_path(self._data_dir)
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = _describe(os.pread(self._descriptor, 4096, 0))
            self._close()
            raise DirectoryLocked(str(self._data_dir), owner) from None
        owner = json.dumps({"pid": os.getpid(), "version": self._version}) + "\n"
        try:
            # In this order: on a full disk, what the file has is what there is.
            os.pwrite(self._descriptor, owner.encode(), 0)
            os.ftruncate(self._descriptor, len(owner))
        except OSError as error:
            self._close()
            raise DiskFailure(str(path), "Writing the lock", error) from error
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._close()

    def _close(self) -> None:
        os.close(self._descriptor)
        self._descriptor = -1


def _describe(content: bytes) -> str:
    try:
        owner = json.loads(content)
        return f"process {owner['pid']} (ledgerfold {owner['version']})"
    except (ValueError, KeyError, TypeError):
        return "another process"
