"""The lock that gives one process ownership of a data directory, and a lock on any folder.

The lock is an flock on DATA/lock, so it ends with its process in every case. The file names its
holder: for people, and for the error that a second process raises. Once the owner has recovered the
directory, the file also records the machine's boot id (Linux only): the next owner compares it with
the current one, to know whether unsynced writes may be lost.

While a process holds the lock, the files it creates are accessible to its user only
(storage/owner_only.py).

Processes that only read a directory, while no broker uses it, share the lock (ReadLock): no broker
starts meanwhile. They write nothing, not even to the file.

The lock of a folder is an flock on the folder itself.

>>> import tempfile
>>> folder = Path(tempfile.mkdtemp())
>>> with locked_folder(folder):
...     with locked_folder(folder, waits=False) as is_held:
...         is_held
False
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

from ledgerfold.storage.errors import DirectoryLocked, DiskFailure
from ledgerfold.storage.names import lock_path
from ledgerfold.storage.owner_only import OTHERS, refuse_link

_READ_OTHERWISE = (
    "Read it through its broker (--url; in Python, url=), or read a snapshot of it, which never "
    "changes; or stop that process."
)
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class DirectoryLock:
    """A context manager that holds the lock. Raises DirectoryLocked with the owner, DiskFailure,
    InvalidRequest if the lock is a link.

    `is_same_boot`: the machine has not stopped since the last owner recovered the directory.
    """

    def __init__(self, data_dir: Path, version: str) -> None:
        self._data_dir = data_dir
        self._version = version
        self._descriptor = self._umask = -1
        self._boot_id = _boot_id()
        self.is_same_boot = False

    def __enter__(self) -> DirectoryLock:
        path = lock_path(self._data_dir)
        refuse_link(path)
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        self._descriptor = os.open(path, flags, 0o600)
        self._umask = os.umask(OTHERS)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = self._owner()
            self._close()
            raise DirectoryLocked(str(self._data_dir), owner) from None
        self.is_same_boot = _is_of_boot(_read(self._descriptor), self._boot_id)
        try:
            # The file must not name this boot before the directory is recovered.
            self._write(self._boot_id if self.is_same_boot else None)
        except DiskFailure:
            self._close()
            raise
        return self

    def _owner(self) -> str:
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return _describe(_read(self._descriptor))
        return "processes that read it (ledgerfold.frames)"

    def record_boot(self) -> None:
        """Records that the directory is recovered under this boot. Raises DiskFailure."""
        self._write(self._boot_id)

    def _write(self, boot_id: str | None) -> None:
        owner = {"pid": os.getpid(), "version": self._version}
        content = json.dumps({**owner, "boot_id": boot_id} if boot_id else owner) + "\n"
        try:
            # In this order: on a full disk, only existing bytes can be overwritten.
            os.pwrite(self._descriptor, content.encode(), 0)
            os.ftruncate(self._descriptor, len(content))
        except OSError as error:
            path = str(lock_path(self._data_dir))
            raise DiskFailure(path, "Writing the lock", error) from error

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._close()

    def _close(self) -> None:
        os.umask(self._umask)
        os.close(self._descriptor)
        self._descriptor = -1


class ReadLock:
    """A context manager that shares the lock with other readers. Raises DirectoryLocked.

    A directory without a lock file, such as a copy, is not locked. `is_same_boot`: as
    DirectoryLock's. `advice`: the remedy if the directory is in use.
    """

    def __init__(self, data_dir: Path, advice: str = _READ_OTHERWISE) -> None:
        self._data_dir, self._advice, self._descriptor = data_dir, advice, -1
        self.is_same_boot = False

    def __enter__(self) -> ReadLock:
        try:
            path = lock_path(self._data_dir)
            self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return self
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = _describe(_read(self._descriptor))
            self.__exit__()
            raise DirectoryLocked(str(self._data_dir), owner, self._advice) from None
        self.is_same_boot = _is_of_boot(_read(self._descriptor), _boot_id())
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def _read(descriptor: int) -> dict[str, object]:
    try:
        owner = json.loads(os.pread(descriptor, 4096, 0))
    except ValueError:
        return {}
    return owner if isinstance(owner, dict) else {}


def _is_of_boot(owner: dict[str, object], boot_id: str | None) -> bool:
    return bool(boot_id) and owner.get("boot_id") == boot_id


def _describe(owner: dict[str, object]) -> str:
    if not {"pid", "version"} <= owner.keys():
        return "another process"
    return f"process {owner['pid']} (ledgerfold {owner['version']})"


def _boot_id() -> str | None:
    try:
        return _BOOT_ID.read_text().strip() or None
    except OSError:
        return None


@contextmanager
def locked_folder(folder: Path, *, waits: bool = True) -> Iterator[bool]:
    """Holds the lock of a folder in the block, and yields True. Raises OSError.

    `waits` False: yields False if another one holds the lock, or the folder was removed meanwhile.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if waits else fcntl.LOCK_NB))
        except BlockingIOError:
            yield False
        else:
            yield waits or _is_there(descriptor, folder)
    finally:
        os.close(descriptor)


def _is_there(descriptor: int, folder: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(folder))
    except FileNotFoundError:
        return False
