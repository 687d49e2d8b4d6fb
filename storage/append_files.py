"""Append-only files, of which a bounded number is open at a time.

A topic keeps its open segment for hours and writes to it rarely. With a descriptor for each, the
process would reach its limit at about a thousand topics. Here the least recently used file is
closed, and reopened before its next write. Rules:

1. A file with unsynced bytes is synced before it is closed: after that, no caller would learn of a
   writeback error.
2. A write or sync that fails, including the sync of rule 1, disables that file permanently, and no
   other.
3. A file that is in use is not closed: with more threads than the bound, each thread may hold one.

    >>> from ledgerfold.storage.files import REAL
    >>> file = AppendFiles(REAL, open_max=256).create(folder / "0.log")
    >>> file.write([b"an entry"])
    >>> file.sync()
    >>> file.size_bytes
    8
    >>> file.close()

Bounds: `open_max` descriptors; fewer if the process has no more.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ledgerfold.storage.entry import Buffer
from ledgerfold.storage.errors import DiskFailure
from ledgerfold.storage.files import Files
from ledgerfold.storage.open_files import AppendFile


class AppendFiles:
    """A pool of append-only files. One per store; threads may share it."""

    def __init__(self, files: Files, open_max: int) -> None:
        self._files, self._open_max = files, open_max
        # Least recently used first.
        self._open: OrderedDict[_KeptFile, None] = OrderedDict()
        self._lock = threading.Lock()

    def create(self, path: Path) -> AppendFile:
        """Creates a file. Raises DiskFailure, also if the file exists."""
        file = _KeptFile(self, path)
        with file.lock:
            file.file = self._opened(lambda: self._files.create(path))
            self.used(file)
        return file

    def reopen(self, path: Path, size_bytes: int) -> AppendFile:
        return self._opened(lambda: self._files.open_append(path, size_bytes))

    def _opened(self, opening: Callable[[], AppendFile]) -> AppendFile:
        try:
            return opening()
        except DiskFailure as error:
            if not error.is_short_of_descriptors or not self.close_idle(0):
                raise
        return opening()

    def used(self, file: _KeptFile) -> None:
        """Marks `file`, which is open, as most recently used. The caller holds its lock."""
        with self._lock:
            self._open[file] = None
            self._open.move_to_end(file)
        self.close_idle(self._open_max)

    def closed(self, file: _KeptFile) -> None:
        with self._lock:
            self._open.pop(file, None)

    def close_idle(self, kept_max: int) -> int:
        """Closes idle files until `kept_max` are open. Returns the number of files closed."""
        count = 0
        while (idle := self._take_idle(kept_max)) is not None:
            try:
                idle.suspend()
            finally:
                idle.lock.release()
            count += 1
        return count

    def _take_idle(self, kept_max: int) -> _KeptFile | None:
        """Removes the least recently used idle file from the list; its lock is held on return."""
        with self._lock:
            if len(self._open) > kept_max:
                for file in self._open:
                    if file.lock.acquire(blocking=False):
                        del self._open[file]
                        return file
        return None


class _KeptFile:
    """An AppendFile that may be closed between uses. Callers hold `lock` to use or close it."""

    def __init__(self, owner: AppendFiles, path: Path) -> None:
        self._owner, self._path = owner, path
        self.lock = threading.Lock()
        self.file: AppendFile | None = None
        self._size_bytes = 0
        self._is_synced = True
        self._failure: DiskFailure | None = None

    @property
    def path(self) -> str:
        return str(self._path)

    @property
    def size_bytes(self) -> int:
        return self._size_bytes

    def write(self, buffers: Sequence[Buffer]) -> None:
        with self._in_use() as file:
            self._is_synced = False
            file.write(buffers)
            self._size_bytes = file.size_bytes

    def sync(self) -> None:
        with self._in_use() as file:
            file.sync()
            self._is_synced = True

    @contextmanager
    def _in_use(self) -> Iterator[AppendFile]:
        with self.lock:
            if self._failure is not None:
                raise self._failure
            try:
                if self.file is None:
                    self.file = self._owner.reopen(self._path, self._size_bytes)
                self._owner.used(self)
                yield self.file
            except DiskFailure as error:
                self._failure = error
                raise

    def suspend(self) -> None:
        """Closes the file until its next use, which raises any failure. The caller holds `lock`."""
        file, self.file = self.file, None
        if file is None:
            return
        try:
            if not self._is_synced and self._failure is None:
                file.sync()
                self._is_synced = True
        except DiskFailure as error:
            self._failure = error
        finally:
            file.close()

    def close(self) -> None:
        with self.lock:
            file, self.file = self.file, None
            self._owner.closed(self)
            if file is not None:
                file.close()
