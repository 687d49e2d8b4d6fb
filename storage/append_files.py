"""The files that are being appended to, of which only so many are open at a time.

A topic keeps its open segment for hours and writes to it now and then: a descriptor for each would
run out at about a thousand topics. Here the file that was used longest ago is closed, and opened
again when it is next written to. Rules:

1. A file that holds unsynced bytes is synced before it is closed: an error of writing them back
   could be told to nobody afterwards.
2. A failed write or sync, also one of rule 1, ends that file for ever, and no other.
3. A file that is in use is not closed: with more threads than the bound there is one for each.

    >>> from ledgerfold.storage.files import REAL
    >>> file = AppendFiles(REAL, open_max=256).create(folder / "0.log")
    >>> file.write([b"an entry"])
    >>> file.sync()
    >>> file.size_bytes
    8
    >>> file.close()

Bounds: `open_max` descriptors; fewer when the process has no more to give.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ledgerfold.storage.entry import Buffer
from ledgerfold.storage.errors import DiskFailure
from ledgerfold.storage.files import AppendFile, Files


class AppendFiles:
    """One per store; threads may share it."""

    def __init__(self, files: Files, open_max: int) -> None:
        self._files, self._open_max = files, open_max
        # By last use, longest ago first.
        self._open: OrderedDict[_KeptFile, None] = OrderedDict()
        self._lock = threading.Lock()

    def create(self, path: Path) -> AppendFile:
        """A new file. Raises DiskFailure, also when there is one."""
        kept = _KeptFile(self, path)
        with kept.lock:
            kept.file = self._opened(lambda: self._files.create(path))
            self.used(kept)
        return kept

    def reopen(self, path: Path, size_bytes: int) -> AppendFile:
        return self._opened(lambda: self._files.open_append(path, size_bytes))

    def _opened(self, opening: Callable[[], AppendFile]) -> AppendFile:
        try:
            return opening()
        except DiskFailure as error:
            if not error.is_short_of_descriptors or not self.close_idle(0):
                raise
        return opening()

    def used(self, kept: _KeptFile) -> None:
        """`kept` is open; its lock is held."""
        with self._lock:
            self._open[kept] = None
            self._open.move_to_end(kept)
        self.close_idle(self._open_max)

    def closed(self, kept: _KeptFile) -> None:
        with self._lock:
            self._open.pop(kept, None)

    def close_idle(self, kept_max: int) -> int:
        """Closes files that nobody uses until `kept_max` are open; how many it closed."""
        count = 0
        while (idle := self._take_idle(kept_max)) is not None:
            try:
                idle.let_go()
            finally:
                idle.lock.release()
            count += 1
        return count

    def _take_idle(self, kept_max: int) -> _KeptFile | None:
        """The one used longest ago, out of the list, with its lock held."""
        with self._lock:
            if len(self._open) > kept_max:
                for kept in self._open:
                    if kept.lock.acquire(blocking=False):
                        del self._open[kept]
                        return kept
        return None


class _KeptFile:
    """An AppendFile that is open or not. `lock` is held while it is used, opened or closed."""

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

    def let_go(self) -> None:
        """Closes it for a while. A failure is told to the next who uses it. Holding the lock."""
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
