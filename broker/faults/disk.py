"""A disk that a fault rule makes full: replacements of the store's files and of its key-value
store.

The calls that fail are those that fail on the simulator's full disk (tests/simulation/disk.py):
writes, new files and folders, copies, and writes to the metadata. As on a real full disk, a file
whose write has failed is not used any more (storage/files.py), reads continue, and no space is
free. The compactor's worker, which is another process, has its own view of the disk.

While a deletion uses the disk reserve (storage/reserve.py), writes succeed. The real disk has room,
so the reserve keeps its space.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from ledgerfold.broker.faults.faults import Faults
from ledgerfold.storage.entry import Buffer
from ledgerfold.storage.errors import DiskFailure
from ledgerfold.storage.files import Files
from ledgerfold.storage.key_value import KeyValueStore
from ledgerfold.storage.names import RESERVE
from ledgerfold.storage.open_files import AppendFile, RealAppendFile


class FaultyAppendFile(RealAppendFile):
    """A file whose writes fail on a full disk."""

    def __init__(
        self, faults: Faults, path: Path, flags: int, on_sync: Callable[[float], object] | None
    ) -> None:
        super().__init__(path, flags, on_sync)
        self._faults = faults

    def _write_some(self, buffers: list[Buffer]) -> None:
        self._faults.check_disk()
        super()._write_some(buffers)


class FaultyFiles(Files):
    """The files of a broker that allows faults. `on_sync`: see Files."""

    def __init__(self, faults: Faults, on_sync: Callable[[float], object] | None = None) -> None:
        super().__init__(on_sync)
        self._faults = faults

    def _append_file(self, path: Path, flags: int) -> RealAppendFile:
        return FaultyAppendFile(self._faults, path, flags, self._on_sync)

    def create(self, path: Path) -> AppendFile:
        _check_disk(self._faults, path, "Creating a file")
        return super().create(path)

    def make_dir(self, path: Path) -> None:
        if not path.is_dir():
            _check_disk(self._faults, path, "Creating a folder")
        super().make_dir(path)

    def copy(self, source: Path, target: Path) -> None:
        _check_disk(self._faults, target, "A copy")
        super().copy(source, target)

    def free_bytes(self, path: Path) -> int:
        return 0 if self._faults.is_disk_full else super().free_bytes(path)

    def truncate(self, path: Path, size_bytes: int) -> None:
        if not (path.name == RESERVE and self._faults.is_disk_full):
            super().truncate(path, size_bytes)


class FaultyKeyValue:
    """The metadata's store of a broker that allows faults."""

    def __init__(self, faults: Faults, pairs: KeyValueStore, path: Path) -> None:
        self._faults, self._pairs, self._path = faults, pairs, path
        self.get, self.scan, self.last, self.close = pairs.get, pairs.scan, pairs.last, pairs.close

    def write(self, puts: Mapping[bytes, bytes], deletes: Iterable[bytes]) -> None:
        _check_disk(self._faults, self._path, "A write", may_be_durable=False)
        self._pairs.write(puts, deletes)


def _check_disk(faults: Faults, path: Path, operation: str, *, may_be_durable: bool = True) -> None:
    try:
        faults.check_disk()
    except OSError as error:
        raise DiskFailure(str(path), operation, error, may_be_durable=may_be_durable) from error
