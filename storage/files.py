"""The file system interface: the one module that opens, renames and deletes files.

Rules:

1. A new file is durable once it and its folder are synced; a rename, once the folder is.
2. A file whose write or sync has failed is not used again (storage/open_files.py).
3. Tests replace REAL with a double that loses unsynced writes.
"""

from __future__ import annotations

import errno
import mmap
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from ledgerfold.storage.entry import Buffer
from ledgerfold.storage.errors import DiskFailure
from ledgerfold.storage.names import ASIDE_SUFFIX
from ledgerfold.storage.open_files import AppendFile, ReadFile, RealAppendFile, RealReadFile

# Another thread may still create files in a folder while it is being removed.
_REMOVAL_TRIES = 3
# A file system that has no links, or no more of this file.
_NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV}
# The bytes read and written at once.
_REWRITE_BYTES = 1024 * 1024


@contextmanager
def _disk(path: str, operation: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        raise DiskFailure(path, operation, error) from error


def _raise_unless_gone(function: object, path: str, info: tuple[Any, BaseException, Any]) -> None:
    if not isinstance(info[1], FileNotFoundError):
        raise info[1]


class Files:
    """The file system operations that storage uses.

    `on_sync` gets the seconds of each successful sync of a file that is being written, in the
    syncing thread. Syncs of folders and metadata are not timed. `attempt` distinguishes tasks that
    may write the same file at the same time.

    >>> Files(attempt=7).temporary_path(Path("12/00000000000000000000.log")).name
    '00000000000000000000.log.7.tmp'
    """

    attempt = 0

    def __init__(
        self, on_sync: Callable[[float], object] | None = None, *, attempt: int = 0
    ) -> None:
        self._on_sync, self.attempt = on_sync, attempt

    def temporary_path(self, path: Path) -> Path:
        """Returns the path under which a file is written before it gets its name."""
        attempt = f".{self.attempt}" if self.attempt else ""
        return path.with_name(f"{path.name}{attempt}{ASIDE_SUFFIX}")

    def create(self, path: Path) -> AppendFile:
        """Creates a file. Raises DiskFailure, also if the file exists."""
        with _disk(str(path), "Creating a file"):
            return self._append_file(path, os.O_CREAT | os.O_EXCL)

    def open_append(self, path: Path, size_bytes: int) -> AppendFile:
        """Opens a file for appending. Raises DiskFailure, also if it is not `size_bytes` long."""
        try:
            file = self._append_file(path, 0)
        except OSError as error:
            raise DiskFailure(str(path), "Opening a file", error) from error
        if file.size_bytes != size_bytes:
            file.close()
            cause = OSError(0, f"it has {file.size_bytes} bytes instead of {size_bytes}")
            raise DiskFailure(str(path), "Opening a file", cause)
        return file

    def _append_file(self, path: Path, flags: int) -> RealAppendFile:
        return RealAppendFile(path, flags, self._on_sync)

    def open_read(self, path: Path) -> ReadFile:
        """Opens a file for reading. Raises FileNotFoundError, DiskFailure."""
        with _disk(str(path), "Opening a file"):
            return RealReadFile(path)

    @contextmanager
    def map(self, path: Path) -> Iterator[Buffer]:
        """Maps a whole, non-empty file for reading. Raises FileNotFoundError."""
        with (
            open(path, "rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped,
            memoryview(mapped) as view,
        ):
            yield view

    def free_bytes(self, path: Path) -> int:
        """Returns the free space on the file system of `path`."""
        with _disk(str(path), "Reading the free space"):
            return shutil.disk_usage(path).free

    def exists(self, path: Path) -> bool:
        return path.exists()

    def size(self, path: Path) -> int:
        with _disk(str(path), "Reading a file's size"):
            return path.stat().st_size

    def listdir(self, path: Path) -> list[str]:
        with _disk(str(path), "Listing a folder"):
            return sorted(os.listdir(path))

    def make_dir(self, path: Path) -> None:
        """Creates a folder and its parents, if missing."""
        with _disk(str(path), "Creating a folder"):
            path.mkdir(parents=True, exist_ok=True)

    def sync_dir(self, path: Path) -> None:
        with _disk(str(path), "Syncing a folder"):
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def replace(self, source: Path, target: Path) -> None:
        with _disk(str(target), "A rename"):
            os.replace(source, target)

    def link(self, source: Path, target: Path) -> None:
        """Gives a file that never changes a second name, which replaces an existing one.

        A file system without links gets a copy, which is durable except for the folder's entry.
        """
        temporary = self.temporary_path(target)
        self.remove(temporary)
        with _disk(str(target), "A link"):
            try:
                os.link(source, temporary)
            except OSError as error:
                if error.errno not in _NO_LINKS:
                    raise
                self.copy(source, temporary)
        self.replace(temporary, target)
        # A rename changes nothing if both are names of the same file already.
        self.remove(temporary)

    def is_same(self, path: Path, other: Path) -> bool:
        """Returns whether both are names of one existing file."""
        with _disk(str(path), "Reading a file's state"):
            return path.exists() and other.exists() and os.path.samefile(path, other)

    def remove(self, path: Path) -> None:
        """Removes a file, if it exists."""
        with _disk(str(path), "A removal"):
            path.unlink(missing_ok=True)

    def remove_dir(self, path: Path) -> None:
        """Removes a folder with its contents, if it exists; it may disappear meanwhile.

        Raises DiskFailure, also if files are still being created in it.
        """
        with _disk(str(path), "A removal"):
            for tries_left in reversed(range(_REMOVAL_TRIES)):
                try:
                    shutil.rmtree(path, onerror=_raise_unless_gone)
                    return
                except OSError as error:
                    if error.errno != errno.ENOTEMPTY or not tries_left:
                        raise

    def truncate(self, path: Path, size_bytes: int) -> None:
        """Truncates a file durably."""
        with _disk(str(path), "A truncation"), open(path, "r+b") as file:
            file.truncate(size_bytes)
            os.fsync(file.fileno())

    def rewrite(self, path: Path, offset: int) -> None:
        """Makes the file's visible bytes from `offset` on durable, by writing them again.

        A sync alone is not enough: after a failed sync, the system may show bytes that it never
        wrote.
        """
        with _disk(str(path), "A write"), open(path, "r+b", buffering=0) as file:
            descriptor = file.fileno()
            while data := os.pread(descriptor, _REWRITE_BYTES, offset):
                offset += os.pwrite(descriptor, data, offset)
            os.fsync(descriptor)

    def overwrite(self, path: Path, offset: int, data: bytes, *, sync: bool) -> None:
        """Overwrites bytes of an existing file; without `sync`, a power loss may undo it."""
        with _disk(str(path), "A write"), open(path, "r+b", buffering=0) as file:
            os.pwrite(file.fileno(), data, offset)
            if sync:
                os.fdatasync(file.fileno())

    def copy(self, source: Path, target: Path) -> None:
        """Copies a file durably, except for the folder's entry. A failed copy leaves no file."""
        with _disk(str(target), "A copy"):
            try:
                shutil.copyfile(source, target)
                with open(target, "r+b") as file:
                    os.fsync(file.fileno())
            except OSError:
                target.unlink(missing_ok=True)
                raise


REAL = Files()


def size_if_any(path: Path, files: Files) -> int | None:
    """Returns the size of a file; None if there is none. Raises DiskFailure."""
    return files.size(path) if files.exists(path) else None


def write_file(path: Path, blocks: Iterable[Buffer], files: Files = REAL) -> None:
    """Creates a file with these contents and syncs it. Raises DiskFailure."""
    with closing(files.create(path)) as file:
        for block in blocks:
            file.write([block])
        file.sync()


def replace_file(path: Path, blocks: Iterable[Buffer], files: Files = REAL) -> None:
    """Creates or replaces a file durably, by a rename. Raises DiskFailure."""
    temporary = files.temporary_path(path)
    files.remove(temporary)
    write_file(temporary, blocks, files)
    files.replace(temporary, path)
    files.sync_dir(path.parent)


def make_durable_dir(path: Path, files: Files = REAL) -> None:
    """Creates a folder and its parents durably. Raises DiskFailure.

    An existing folder is synced, too: the process that created it may have died before it synced
    the parent.
    """
    missing = []
    while not files.exists(path):
        missing.append(path)
        path = path.parent
    if files.exists(path.parent):
        try:
            files.sync_dir(path.parent)
        except DiskFailure as error:
            # A process that may not read the parent has not created the folder.
            if error.cause.errno not in (errno.EACCES, errno.EPERM):
                raise
    for each in reversed(missing):
        files.make_dir(each)
        files.sync_dir(each.parent)
