"""The file system as one process sees it: storage.files.Files on the simulated disk.

Each call that changes something, or reaches the disk, passes the baton on before and after its
effect, may fail by the disk's faults, and raises Crash once the process is dead. Errors are those
of storage/files.py: FileNotFoundError unchanged, every other OSError as DiskFailure.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ledgerfold.storage.entry import Buffer
from ledgerfold.storage.errors import DiskFailure
from ledgerfold.storage.files import Files
from tests.simulation.disk import FREE_BYTES, Disk, File, Folder, joined, os_error, typed_errors
from tests.simulation.jobs import Crash, Process

_CACHED_SHARE = 0.5


class SimFiles(Files):
    def __init__(
        self, disk: Disk, process: Process, reach: Callable[[str], None] = lambda moment: None
    ) -> None:
        """`reach`: called before each call."""
        super().__init__()
        self._disk, self._process, self._reach = disk, process, reach

    @contextmanager
    def call(
        self, operation: str, path: Path, half: Callable[[], None] | None = None
    ) -> Iterator[None]:
        """Surrounds the effect."""
        self._reach(operation)
        self._disk.jobs.switch(self._process)
        self._disk.jobs.reach(self._process, operation)
        with typed_errors(path, operation):
            error = self._disk.fault(operation, path)
            if error is not None:
                if half is not None:
                    half()
                raise error
            yield
        self._disk.jobs.switch(self._process)

    # Queries

    def free_bytes(self, path: Path) -> int:
        return 0 if self._disk.is_full else FREE_BYTES

    def exists(self, path: Path) -> bool:
        self._check()
        return self._disk.find(path) is not None

    def size(self, path: Path) -> int:
        self._check()
        return len(self._disk.file(path).data)

    def listdir(self, path: Path) -> list[str]:
        with self.call("listdir", path):
            return sorted(self._disk.folder(path).names)

    def open_read(self, path: Path) -> SimReadFile:
        with self.call("open_read", path):
            return SimReadFile(self, path, self._disk.file(path))

    @contextmanager
    def map(self, path: Path) -> Iterator[Buffer]:
        with self.call("map", path):
            content = bytes(self._disk.file(path).data)
        yield memoryview(content)

    def _check(self) -> None:
        if self._process.is_dead:
            raise Crash(self._process.name)

    # Changes

    def create(self, path: Path) -> SimAppendFile:
        with self.call("create", path):
            folder, file = self._disk.folder(path.parent), File()
            if path.name in folder.names:
                raise os_error(errno.EEXIST)
            folder.change(lambda names: names.__setitem__(path.name, file))
        return SimAppendFile(self, self._disk, path, file)

    def open_append(self, path: Path, size_bytes: int) -> SimAppendFile:
        with self.call("open_append", path):
            node = self._disk.find(path)
            if not isinstance(node, File) or len(node.data) != size_bytes:
                raise OSError(0, "it is not as it was left")
            return SimAppendFile(self, self._disk, path, node)

    def rewrite(self, path: Path, offset: int) -> None:
        def half() -> None:
            self._disk.file(path).touch(offset)
            self._disk.file(path).fail_to_sync(self._disk.random)

        with self.call("rewrite", path, half):
            self._disk.file(path).touch(offset)
            self._disk.file(path).sync()

    def make_dir(self, path: Path) -> None:
        with self.call("make_dir", path):
            folder = self._disk.root
            for name in path.relative_to("/disk").parts:
                found = folder.names.get(name)
                if not isinstance(found, Folder):
                    found = _add_folder(folder, name)
                folder = found

    def sync_dir(self, path: Path) -> None:
        with self.call("sync_dir", path):
            self._disk.folder(path).sync()

    def replace(self, source: Path, target: Path) -> None:
        with self.call("replace", target):
            folder = self._disk.folder(source.parent)
            node = self._disk.find(source)
            if node is None:
                raise FileNotFoundError(errno.ENOENT, "no such file", str(source))

            def move(names: dict[str, File | Folder]) -> None:
                names.pop(source.name, None)
                names[target.name] = node

            folder.change(move)

    def link(self, source: Path, target: Path) -> None:
        with self.call("link", target):
            file = self._disk.file(source)
            self._disk.folder(target.parent).change(lambda names: names.update({target.name: file}))

    def is_same(self, path: Path, other: Path) -> bool:
        self._check()
        node = self._disk.find(path)
        return node is not None and node is self._disk.find(other)

    def remove(self, path: Path) -> None:
        with self.call("remove", path):
            folder = self._disk.find(path.parent)
            if isinstance(folder, Folder) and path.name in folder.names:
                folder.change(lambda names: names.pop(path.name, None))

    def remove_dir(self, path: Path) -> None:
        """Removes as shutil.rmtree: name by name, with other tasks in between. Files that they
        remove are ignored, too (storage/files.py): a late worker removes its folder while a start
        does.
        """
        with self.call("remove_dir", path):
            node = self._disk.find(path)
            names = sorted(node.names) if isinstance(node, Folder) else []
        if not isinstance(node, Folder):
            return
        for name in names:
            with self.call("remove", path / name):
                if name in node.names:
                    _remove_name(node, name)
        with self.call("remove_dir", path):
            parent = self._disk.folder(path.parent)
            if parent.names.get(path.name) is not node:
                return
            if node.names:
                raise os_error(errno.ENOTEMPTY)
            _remove_name(parent, path.name)

    def truncate(self, path: Path, size_bytes: int) -> None:
        with self.call("truncate", path):
            self._disk.file(path).truncate(size_bytes)

    def overwrite(self, path: Path, offset: int, data: bytes, *, sync: bool) -> None:
        file = self._disk.file(path)
        if not sync:
            # Into the system's memory: no wait.
            self._check()
            file.overwrite(offset, data)
            return

        def half() -> None:
            file.overwrite(offset, data)
            file.fail_to_sync(self._disk.random)

        with self.call("overwrite", path, half):
            file.overwrite(offset, data)
            file.sync()

    def copy(self, source: Path, target: Path) -> None:
        with self.call("copy", target):
            copied = File()
            copied.write(bytes(self._disk.file(source).data))
            copied.sync()
            folder = self._disk.folder(target.parent)
            folder.change(lambda names: names.__setitem__(target.name, copied))


def _add_folder(folder: Folder, name: str) -> Folder:
    made = Folder()
    folder.change(lambda names: names.__setitem__(name, made))
    return made


def _remove_name(folder: Folder, name: str) -> None:
    folder.change(lambda names: names.pop(name, None))


class SimAppendFile:
    """An append file that is broken after its first failure, as the real one."""

    def __init__(self, files: SimFiles, disk: Disk, path: Path, file: File) -> None:
        self._files, self._disk, self._path, self._file = files, disk, path, file
        self._failure: DiskFailure | None = None

    @property
    def path(self) -> str:
        return str(self._path)

    @property
    def size_bytes(self) -> int:
        return len(self._file.data)

    def write(self, buffers: Sequence[Buffer]) -> None:
        data = joined(buffers)

        def half() -> None:
            self._file.write(data[: self._disk.random.randrange(len(data) + 1)])

        with self._or_broken(), self._files.call("write", self._path, half):
            self._file.write(data)

    def sync(self) -> None:
        def half() -> None:
            self._file.fail_to_sync(self._disk.random)

        with self._or_broken(), self._files.call("sync", self._path, half):
            self._file.sync()

    @contextmanager
    def _or_broken(self) -> Iterator[None]:
        if self._failure is not None:
            raise self._failure
        try:
            yield
        except DiskFailure as error:
            self._failure = error
            raise

    def close(self) -> None:
        """Makes nothing durable."""


class SimReadFile:
    """Sometimes the requested data are in memory."""

    def __init__(self, files: SimFiles, path: Path, file: File) -> None:
        self._files, self._path, self._file = files, path, file

    @property
    def size_bytes(self) -> int:
        return len(self._file.data)

    def pread(self, size: int, offset: int) -> bytes:
        with self._files.call("read", self._path):
            return bytes(self._file.data[offset : offset + size])

    def pread_cached(self, buffer: memoryview, offset: int) -> bool:
        if self._files._disk.random.random() < _CACHED_SHARE:
            return False
        found = self._file.data[offset : offset + len(buffer)]
        if len(found) < len(buffer):
            return False
        buffer[:] = found
        return True

    def close(self) -> None:
        """Does nothing."""
