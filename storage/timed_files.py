"""A file system that times every sync of a file that is being written.

    >>> seconds: list[float] = []
    >>> file = TimedFiles(seconds.append).create(folder / "0.log")
    >>> file.write([b"an entry"])
    >>> file.sync()
    >>> file.close()
    >>> len(seconds)
    1

Appends wait for these syncs. Syncs of folders and metadata are not timed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from ledgerfold.storage.entry import Buffer
from ledgerfold.storage.files import AppendFile, RealFiles


class TimedFiles(RealFiles):
    """The real file system. `on_sync` gets the seconds of each successful sync, in the syncing
    thread.
    """

    def __init__(self, on_sync: Callable[[float], None]) -> None:
        self._on_sync = on_sync

    def create(self, path: Path) -> AppendFile:
        return _TimedAppendFile(super().create(path), self._on_sync)

    def open_append(self, path: Path, size_bytes: int) -> AppendFile:
        return _TimedAppendFile(super().open_append(path, size_bytes), self._on_sync)


class _TimedAppendFile:
    def __init__(self, file: AppendFile, on_sync: Callable[[float], None]) -> None:
        self._file, self._on_sync = file, on_sync

    @property
    def path(self) -> str:
        return self._file.path

    @property
    def size_bytes(self) -> int:
        return self._file.size_bytes

    def write(self, buffers: Sequence[Buffer]) -> None:
        self._file.write(buffers)

    def sync(self) -> None:
        began = time.perf_counter()
        self._file.sync()
        self._on_sync(time.perf_counter() - began)

    def close(self) -> None:
        self._file.close()
