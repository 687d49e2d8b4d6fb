"""Open files: what is appended to, and what is read. storage/files.py opens them.

After a failed write or sync, a file rejects every later operation (DiskFailure): earlier writes may
be lost, and nothing is retried.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = Path(folder.name) / "0.log"
    >>> file = RealAppendFile(path, os.O_CREAT | os.O_EXCL)
    >>> file.write([b"entry ", b"entry"])
    >>> file.sync()
    >>> RealReadFile(path).pread(100, 6)
    b'entry'
    >>> file.close()
    >>> folder.cleanup()
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from ledgerfold.storage.entry import Buffer
from ledgerfold.storage.errors import DiskFailure

# Linux takes at most 1024 buffers in one writev.
_BUFFERS_MAX = 1024
# Linux begins to write pages that are said not to be needed any more. It keeps them in memory, but
# drops those that it has written already. Elsewhere a sync writes all of them.
_WRITE_BACK = getattr(os, "POSIX_FADV_DONTNEED", -1) if sys.platform == "linux" else -1
WRITE_BACK_BYTES = 4 * 1024 * 1024
# Linux only; elsewhere no read is known to be served from memory.
_CACHED_ONLY = getattr(os, "RWF_NOWAIT", -1)


class AppendFile(Protocol):
    """An append-only file."""

    @property
    def path(self) -> str: ...

    @property
    def size_bytes(self) -> int: ...

    def write(self, buffers: Sequence[Buffer]) -> None:
        """Writes all buffers. Raises DiskFailure, and then on every later call."""
        ...

    def sync(self) -> None:
        """Calls fdatasync. Raises DiskFailure, and then on every later call."""
        ...

    def close(self) -> None: ...


class ReadFile(Protocol):
    @property
    def size_bytes(self) -> int: ...

    def pread(self, size: int, offset: int) -> bytes:
        """Reads `size` bytes; fewer only at the end of the file. Raises DiskFailure."""
        ...

    def pread_cached(self, buffer: memoryview, offset: int) -> bool:
        """Fills `buffer` if the page cache holds all of it; never reads from the disk."""
        ...

    def close(self) -> None: ...


class _Descriptor:
    """A file descriptor that is closed once. -1: none is open."""

    _descriptor = -1

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __del__(self) -> None:
        self.close()


class RealAppendFile(_Descriptor):
    """An AppendFile on a file descriptor."""

    def __init__(
        self, path: Path, flags: int, on_sync: Callable[[float], object] | None = None
    ) -> None:
        self.path, self._on_sync = str(path), on_sync
        self._failure: DiskFailure | None = None
        self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | flags, 0o644)
        # A file that was created just now is empty.
        is_new = bool(flags & os.O_EXCL)
        self.size_bytes = 0 if is_new else os.fstat(self._descriptor).st_size
        self._written_back = self.size_bytes

    def write(self, buffers: Sequence[Buffer]) -> None:
        self._check()
        try:
            for start in range(0, len(buffers), _BUFFERS_MAX):
                self._write_some(list(buffers[start : start + _BUFFERS_MAX]))
        except OSError as error:
            raise self._failed("A write", error) from error
        if self.size_bytes - self._written_back >= WRITE_BACK_BYTES:
            self._write_back()

    def _write_some(self, buffers: list[Buffer]) -> None:
        size_bytes = sum(map(len, buffers))
        written = os.writev(self._descriptor, buffers)
        self.size_bytes += written
        while written < size_bytes:
            # A short write, as on a nearly full disk: writing the rest fails with the reason.
            rest = b"".join(buffers)[written:]
            count = os.write(self._descriptor, rest)
            self.size_bytes += count
            written += count

    def _write_back(self) -> None:
        """Makes the system begin to write new bytes to the disk; a sync then waits for the rest.

        A sync of a large file would delay all other syncs of the disk, such as those of publishes.
        """
        start, self._written_back = self._written_back, self.size_bytes
        if _WRITE_BACK < 0:
            return
        # A hint, which not every file system takes. A sync reports the errors of these writes.
        with suppress(OSError):
            os.posix_fadvise(self._descriptor, start, self.size_bytes - start, _WRITE_BACK)

    def sync(self) -> None:
        self._check()
        try:
            began, size_bytes = time.perf_counter(), self.size_bytes
            os.fdatasync(self._descriptor)
            # Another thread may have written more meanwhile.
            self._written_back = size_bytes
        except OSError as error:
            raise self._failed("A sync", error) from error
        if self._on_sync is not None:
            self._on_sync(time.perf_counter() - began)

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _failed(self, operation: str, error: OSError) -> DiskFailure:
        self._failure = DiskFailure(self.path, operation, error)
        return self._failure


class RealReadFile(_Descriptor):
    """A ReadFile on a file descriptor; threads may share it."""

    def __init__(self, path: Path) -> None:
        self._path = str(path)
        self._descriptor = os.open(path, os.O_RDONLY)

    @property
    def size_bytes(self) -> int:
        return os.fstat(self._descriptor).st_size

    def pread(self, size: int, offset: int) -> bytes:
        try:
            data = os.pread(self._descriptor, size, offset)
            while 0 < len(data) < size:
                more = os.pread(self._descriptor, size - len(data), offset + len(data))
                if not more:
                    break
                data += more
        except OSError as error:
            raise DiskFailure(self._path, "A read", error) from error
        return data

    def pread_cached(self, buffer: memoryview, offset: int) -> bool:
        try:
            return os.preadv(self._descriptor, [buffer], offset, _CACHED_ONLY) == len(buffer)
        except OSError:
            # The usual EAGAIN, but also a file system without support for cached reads, or a real
            # error: a blocking read distinguishes them.
            return False
