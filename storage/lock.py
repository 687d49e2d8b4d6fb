"""One process owns a data directory.

The lock is an flock on DATA/lock, so it goes with its process however that ends. The file says who
holds it: for people, and for the error of the second one. Once the owner has recovered the
directory the file also says under which boot of the machine (Linux tells): the next owner then
knows whether what was written and never synced can have been lost.

While a process holds it, whatever that creates is its user's alone (storage/owner_only.py).
"""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path
from types import TracebackType

from ledgerfold.storage.errors import DirectoryLocked, DiskFailure
from ledgerfold.storage.names import lock_path
from ledgerfold.storage.owner_only import OTHERS

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class DirectoryLock:
    """A context manager. Raises DirectoryLocked, which names the owner, and DiskFailure.

    `is_same_boot`: the machine did not stop since the last owner recovered the directory.
    """

    def __init__(self, data_dir: Path, version: str) -> None:
        self._data_dir = data_dir
        self._version = version
        self._descriptor = self._umask = -1
        self._boot_id = _boot_id()
        self.is_same_boot = False

    def __enter__(self) -> DirectoryLock:
        path = lock_path(self._data_dir)
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._umask = os.umask(OTHERS)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = _describe(self._read())
            self._close()
            raise DirectoryLocked(str(self._data_dir), owner) from None
        self.is_same_boot = bool(self._boot_id) and self._read().get("boot_id") == self._boot_id
        try:
            # A boot that is not recovered from yet must not be taken for one that is.
            self._write(self._boot_id if self.is_same_boot else None)
        except DiskFailure:
            self._close()
            raise
        return self

    def record_boot(self) -> None:
        """Call it when the directory is recovered. Raises DiskFailure."""
        self._write(self._boot_id)

    def _read(self) -> dict[str, object]:
        try:
            owner = json.loads(os.pread(self._descriptor, 4096, 0))
        except ValueError:
            return {}
        return owner if isinstance(owner, dict) else {}

    def _write(self, boot_id: str | None) -> None:
        owner = {"pid": os.getpid(), "version": self._version}
        content = json.dumps({**owner, "boot_id": boot_id} if boot_id else owner) + "\n"
        try:
            # In this order: on a full disk, what the file has is what there is.
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


def _describe(owner: dict[str, object]) -> str:
    if not {"pid", "version"} <= owner.keys():
        return "another process"
    return f"process {owner['pid']} (ledgerfold {owner['version']})"


def _boot_id() -> str | None:
    try:
        return _BOOT_ID.read_text().strip() or None
    except OSError:
        return None
