"""The seam to the file system: the one module that opens, writes, syncs, renames and deletes.

Rules:
1. A new file is durable when it and its folder are synced; a rename when the folder is.
2. A write or sync that failed may have lost what was written before it: the file refuses everything
   from then on (DiskFailure). Nothing is retried.
3. Tests put a double in place of REAL that forgets what was not synced.
"""

from __future__ import annotations

import errno
import mmap
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Protocol

from ledgerfold.storage.entry import Buffer
from ledgerfold.storage.errors import DiskFailure

# A folder that somebody else still writes to is not empty when it should be.
_REMOVAL_TRIES = 3
# Linux takes at most 1024 buffers in one writev.
_BUFFERS_MAX = 1024
# Read and written at once.
_REWRITE_BYTES = 1024 * 1024
# Linux; elsewhere no read is known to be in memory.
_CACHED_ONLY = getattr(os, "RWF_NOWAIT", -1)


class AppendFile(Protocol):
    """A file that only grows."""

    @property
    def path(self) -> str: ...

    @property
    def size_bytes(self) -> int: ...

    def write(self, buffers: Sequence[Buffer]) -> None:
        """All of it. Raises DiskFailure, and always from then on."""
        ...

    def sync(self) -> None:
        """fdatasync. Raises DiskFailure, and always from then on."""
        ...

    def close(self) -> None: ...


class ReadFile(Protocol):
    @property
    def size_bytes(self) -> int: ...

    def pread(self, size: int, offset: int) -> bytes:
        """Fewer bytes than `size` only at the end of the file. Raises DiskFailure."""
        ...

    def pread_cached(self, buffer: memoryview, offset: int) -> bool:
        """Fills `buffer` if the system has all of it in memory; never goes to the disk."""
        ...

    def close(self) -> None: ...


class Files(Protocol):
    """What storage asks of a file system."""

    def create(self, path: Path) -> AppendFile:
        """A new file. Raises DiskFailure, also when there is one."""
        ...

    def open_append(self, path: Path, size_bytes: int) -> AppendFile:
        """A file of that very size, to go on with. Raises DiskFailure, also when it is not so."""
        ...

    def open_read(self, path: Path) -> ReadFile:
        """Raises FileNotFoundError, DiskFailure."""
        ...

    def map(self, path: Path) -> AbstractContextManager[Buffer]:
        """A whole file, not empty, mapped for reading. Raises FileNotFoundError."""
        ...

    def free_bytes(self, path: Path) -> int:
        """How much there is room for on the file system of `path`."""
        ...

    def exists(self, path: Path) -> bool: ...
    def size(self, path: Path) -> int: ...
    def listdir(self, path: Path) -> list[str]: ...
    def make_dir(self, path: Path) -> None:
        """With its parents; fine when it is there."""
        ...

    def sync_dir(self, path: Path) -> None: ...
    def replace(self, source: Path, target: Path) -> None: ...
    def remove(self, path: Path) -> None:
        """Fine when it is gone."""
        ...

    def remove_dir(self, path: Path) -> None:
        """With all that is in it; fine when it is gone, or goes meanwhile.

        Raises DiskFailure, also when files go on to be put into it.
        """
        ...

    def truncate(self, path: Path, size_bytes: int) -> None:
        """Durably."""
        ...

    def rewrite(self, path: Path, offset: int) -> None:
        """Makes durable what the file shows from `offset` on, by writing it once more.

        A sync alone would not do: after one that failed, the system may show what it never wrote.
        """
        ...

    def overwrite(self, path: Path, offset: int, data: bytes, *, sync: bool) -> None:
        """Writes into a file that is there; without `sync` a power loss may undo it."""
        ...

    def copy(self, source: Path, target: Path) -> None:
        """Durably, but for the folder's entry. A copy that failed leaves nothing."""
        ...


@contextmanager
def _disk(path: str, operation: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        raise DiskFailure(path, operation, error) from error


class RealAppendFile:
    """An AppendFile on a descriptor."""

    def __init__(self, path: Path, flags: int) -> None:
        self._descriptor = -1
        self.path = str(path)
        self._failure: DiskFailure | None = None
        self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | flags, 0o644)
        self.size_bytes = os.fstat(self._descriptor).st_size

    def write(self, buffers: Sequence[Buffer]) -> None:
        self._check()
        try:
            for start in range(0, len(buffers), _BUFFERS_MAX):
                self._write_some(list(buffers[start : start + _BUFFERS_MAX]))
        except OSError as error:
            raise self._failed("A write", error) from error

    def _write_some(self, buffers: list[Buffer]) -> None:
        wanted = sum(map(len, buffers))
        written = os.writev(self._descriptor, buffers)
        self.size_bytes += written
        while written < wanted:
            # A short write, on a nearly full disk for one: the rest, which fails with the reason.
            rest = b"".join(buffers)[written:]
            count = os.write(self._descriptor, rest)
            self.size_bytes += count
            written += count

    def sync(self) -> None:
        self._check()
        try:
            os.fdatasync(self._descriptor)
        except OSError as error:
            raise self._failed("A sync", error) from error

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _failed(self, operation: str, error: OSError) -> DiskFailure:
        self._failure = DiskFailure(self.path, operation, error)
        return self._failure

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __del__(self) -> None:
        self.close()


def _raise_unless_gone(function: object, path: str, info: tuple[Any, BaseException, Any]) -> None:
    if not isinstance(info[1], FileNotFoundError):
        raise info[1]


class RealReadFile:
    """A ReadFile on a descriptor; threads may share it."""

    def __init__(self, path: Path) -> None:
        self._descriptor = -1
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
            # The usual EAGAIN, but also a file system that knows no such reads, or a true error: a
            # read that may wait tells them apart.
            return False

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __del__(self) -> None:
        self.close()


class RealFiles:
    """Files on the operating system's file system."""

    def create(self, path: Path) -> AppendFile:
        with _disk(str(path), "Creating a file"):
            return RealAppendFile(path, os.O_CREAT | os.O_EXCL)

    def open_append(self, path: Path, size_bytes: int) -> AppendFile:
        try:
            file = RealAppendFile(path, 0)
        except OSError as error:
            raise DiskFailure(str(path), "Opening a file", error) from error
        if file.size_bytes != size_bytes:
            file.close()
            cause = OSError(0, f"it has {file.size_bytes} bytes, and had {size_bytes}")
            raise DiskFailure(str(path), "Opening a file", cause)
        return file

    def open_read(self, path: Path) -> RealReadFile:
        with _disk(str(path), "Opening a file"):
            return RealReadFile(path)

    @contextmanager
    def map(self, path: Path) -> Iterator[Buffer]:
        with (
            open(path, "rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped,
            memoryview(mapped) as view,
        ):
            yield view

    def free_bytes(self, path: Path) -> int:
        with _disk(str(path), "A look at the disk"):
            return shutil.disk_usage(path).free

    def exists(self, path: Path) -> bool:
        return path.exists()

    def size(self, path: Path) -> int:
        with _disk(str(path), "A look at a file"):
            return path.stat().st_size

    def listdir(self, path: Path) -> list[str]:
        with _disk(str(path), "A look into a folder"):
            return sorted(os.listdir(path))

    def make_dir(self, path: Path) -> None:
        with _disk(str(path), "Creating a folder"):
            path.mkdir(parents=True, exist_ok=True)

    def sync_dir(self, path: Path) -> None:
        with _disk(str(path), "A folder's sync"):
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def replace(self, source: Path, target: Path) -> None:
        with _disk(str(target), "A rename"):
            os.replace(source, target)

    def remove(self, path: Path) -> None:
        with _disk(str(path), "A removal"):
            path.unlink(missing_ok=True)

    def remove_dir(self, path: Path) -> None:
        with _disk(str(path), "A removal"):
            for tries_left in reversed(range(_REMOVAL_TRIES)):
                try:
                    shutil.rmtree(path, onerror=_raise_unless_gone)
                    return
                except OSError as error:
                    if error.errno != errno.ENOTEMPTY or not tries_left:
                        raise

    def truncate(self, path: Path, size_bytes: int) -> None:
        with _disk(str(path), "A truncation"), open(path, "r+b") as file:
            file.truncate(size_bytes)
            os.fsync(file.fileno())

    def rewrite(self, path: Path, offset: int) -> None:
        with _disk(str(path), "A write"), open(path, "r+b", buffering=0) as file:
            descriptor = file.fileno()
            while data := os.pread(descriptor, _REWRITE_BYTES, offset):
                offset += os.pwrite(descriptor, data, offset)
            os.fsync(descriptor)

    def overwrite(self, path: Path, offset: int, data: bytes, *, sync: bool) -> None:
        with _disk(str(path), "A write"):
            descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
            try:
                os.pwrite(descriptor, data, offset)
                if sync:
                    os.fdatasync(descriptor)
            finally:
                os.close(descriptor)

    def copy(self, source: Path, target: Path) -> None:
        with _disk(str(target), "A copy"):
            try:
                shutil.copyfile(source, target)
                with open(target, "r+b") as file:
                    os.fsync(file.fileno())
            except OSError:
                target.unlink(missing_ok=True)
                raise


REAL: Files = RealFiles()


def make_durable_dir(path: Path, files: Files = REAL) -> None:
    """A folder with its parents, each of them durable. Raises DiskFailure.

    One that is there may be what a process made that died before it synced the parent.
    """
    missing = []
    while not files.exists(path):
        missing.append(path)
        path = path.parent
    if files.exists(path.parent):
        try:
            files.sync_dir(path.parent)
        except DiskFailure as error:
            # Whoever may not even look into the parent has not made the folder.
            if error.cause.errno not in (errno.EACCES, errno.EPERM):
                raise
    for each in reversed(missing):
        files.make_dir(each)
        files.sync_dir(each.parent)
