"""A disk that forgets: Files and a key-value store for tests of durability.

It keeps two states: what programs see, and what a power failure would leave now. A file's bytes
become durable when it is synced; a name (a new file, a rename, a removal, a folder) becomes durable
when its folder is synced. crash() makes the second state the first. A metadata write is one atomic,
synced step, as RocksDB promises.

Every call that changes something is counted, and one of them can be made to go wrong:

    files.fail_at(n) the n-th call from now raises DiskFailure, with no effect or half of it;
    files.crash_at(n) the n-th call from now takes effect, then Crash is raised; files.during = f
    calls f("sync /disk/..") within each call, as a concurrent task

What survives of the unsynced end of a file is the `tail` argument of crash(): nothing, the front
half, the back half, zeros.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from ledgerfold.storage.entry import Buffer
from ledgerfold.storage.errors import DiskFailure
from ledgerfold.storage.files import Files
from ledgerfold.storage.key_value import MemoryKeyValue

Tail = Callable[[bytes], bytes]


def nothing(tail: bytes) -> bytes:
    """No unsynced byte survives."""
    return b""


def front_half(tail: bytes) -> bytes:
    """A torn write."""
    return tail[: (len(tail) + 1) // 2]


def back_half(tail: bytes) -> bytes:
    """Later blocks reached the disk, earlier ones did not."""
    return bytes(len(tail) // 2) + tail[len(tail) // 2 :]


def zeros(tail: bytes) -> bytes:
    """The file's new size survives, its new content does not."""
    return bytes(len(tail))


def everything(tail: bytes) -> bytes:
    """A process that died on a machine that did not."""
    return tail


TAILS = (nothing, front_half, back_half, zeros, everything)


class Crash(BaseException):
    """The machine went away. Not an Exception: nothing may handle it."""


def _below(path: str, folder: str) -> str | None:
    """Returns the path relative to that folder; None if it is elsewhere.

    >>> _below("/disk/data/1", "/disk"), _below("/disk", "/disk"), _below("/disks/1", "/disk")
    ('data/1', None, None)
    """
    return path[len(folder) + 1 :] if path.startswith(folder + "/") else None


def _folder_of(path: str) -> str:
    return path.rpartition("/")[0]


class _Node:
    """A file's content, or a folder when `data` is None."""

    def __init__(self, data: bytearray | None) -> None:
        self.data = data
        self.durable = b""

    @property
    def content(self) -> bytearray:
        if self.data is None:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        return self.data


class LossyFiles(Files):
    """Files in memory below `root`, which exists from the beginning."""

    def __init__(self, root: Path) -> None:
        super().__init__()
        self._root = str(root)
        # By path, as strings: hundreds of thousands of them are compared in a test.
        self._seen: dict[str, _Node] = {self._root: _Node(None)}
        self._durable: dict[str, _Node] = dict(self._seen)
        self.calls: list[str] = []
        self.during: Callable[[str], None] = lambda call: None
        self._fail_at = self._crash_at = -1
        # Crash was raised; the caller may have swallowed it.
        self.has_crashed = False
        self._error = errno.EIO
        self._short = False
        self.free = 1 << 40
        # Nothing is in memory: reads wait for the disk.
        self.is_cold = False

    # -- making things go wrong --------------------------------------------------------------

    def fail_at(self, number: int, *, error: int = errno.EIO, short: bool = False) -> None:
        """Counted from 1. `short`: if the call is a write, half of it takes place."""
        self._fail_at, self._error, self._short = len(self.calls) + number, error, short

    def crash_at(self, number: int) -> None:
        """Counted from 1."""
        self._crash_at = len(self.calls) + number

    def crash(self, tail: Tail = nothing) -> None:
        """Drops what was not synced, and disarms armed failures."""
        self._fail_at = self._crash_at = -1
        self.has_crashed = False
        self._seen = {
            path: node for path, node in self._durable.items() if self._is_reachable(path)
        }
        self._durable = dict(self._seen)
        for node in self._seen.values():
            if node.data is not None:
                node.durable += tail(bytes(node.data[len(node.durable) :]))
                node.data = bytearray(node.durable)

    def _is_reachable(self, path: str) -> bool:
        return all(each in self._durable for each in self._below_root(path))

    def _below_root(self, path: str) -> Iterator[str]:
        """`path` and the folders above it, outermost first, without the root."""
        below = _below(path, self._root)
        if below is not None:
            parts = below.split("/")
            for count in range(1, len(parts) + 1):
                yield "/".join((self._root, *parts[:count]))

    @contextmanager
    def step(
        self, operation: str, path: Path, half: Callable[[], None] | None = None
    ) -> Iterator[None]:
        """Around the effect of one counted call."""
        self.calls.append(f"{operation} {path}")
        number = len(self.calls)
        self.during(self.calls[-1])
        if number == self._fail_at:
            if self._short and half is not None:
                half()
            cause = OSError(self._error, os.strerror(self._error))
            raise DiskFailure(str(path), operation, cause)
        yield
        if number == self._crash_at:
            self.has_crashed = True
            raise Crash(self.calls[-1])

    # -- looking -----------------------------------------------------------------------------

    def _node(self, path: Path) -> _Node:
        try:
            return self._seen[str(path)]
        except KeyError:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path)) from None

    def free_bytes(self, path: Path) -> int:
        return self.free

    def exists(self, path: Path) -> bool:
        return str(path) in self._seen

    def size(self, path: Path) -> int:
        return len(self._node(path).content)

    def listdir(self, path: Path) -> list[str]:
        self._node(path)
        folder = str(path)
        return sorted(each[len(folder) + 1 :] for each in self._seen if _folder_of(each) == folder)

    def open_read(self, path: Path) -> LossyReadFile:
        return LossyReadFile(self, self._node(path))

    @contextmanager
    def map(self, path: Path) -> Iterator[Buffer]:
        yield memoryview(bytes(self._node(path).content))

    # -- changing ----------------------------------------------------------------------------

    def create(self, path: Path) -> LossyAppendFile:
        with self.step("create", path):
            self._node(path.parent)
            if str(path) in self._seen:
                cause = FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
                raise DiskFailure(str(path), "create", cause)
            node = self._seen[str(path)] = _Node(bytearray())
            return LossyAppendFile(self, path, node)

    def open_append(self, path: Path, size_bytes: int) -> LossyAppendFile:
        with self.step("open_append", path):
            node = self._seen.get(str(path))
            if node is None or len(node.content) != size_bytes:
                raise DiskFailure(str(path), "open_append", OSError(0, "not as it was left"))
            return LossyAppendFile(self, path, node)

    def make_dir(self, path: Path) -> None:
        with self.step("make_dir", path):
            for each in self._below_root(str(path)):
                self._seen.setdefault(each, _Node(None))

    def sync_dir(self, path: Path) -> None:
        with self.step("sync_dir", path):
            self._node(path)
            folder = str(path)
            for each in list(self._durable):
                below = _below(each, folder)
                if below and f"{folder}/{below.partition('/')[0]}" not in self._seen:
                    del self._durable[each]
            for each, node in self._seen.items():
                if _folder_of(each) == folder:
                    self._durable[each] = node

    def replace(self, source: Path, target: Path) -> None:
        with self.step("replace", target):
            self._seen[str(target)] = self._node(source)
            del self._seen[str(source)]
            # For a folder: until its parent is synced, a crash shows the old name.
            for each in list(self._seen):
                if below := _below(each, str(source)):
                    self._seen[f"{target}/{below}"] = self._seen.pop(each)
            for each in list(self._durable):
                if below := _below(each, str(source)):
                    self._durable[f"{target}/{below}"] = self._durable[each]

    def link(self, source: Path, target: Path) -> None:
        with self.step("link", target):
            self._seen[str(target)] = self._node(source)

    def is_same(self, path: Path, other: Path) -> bool:
        node = self._seen.get(str(path))
        return node is not None and node is self._seen.get(str(other))

    def remove(self, path: Path) -> None:
        with self.step("remove", path):
            self._seen.pop(str(path), None)

    def remove_dir(self, path: Path) -> None:
        with self.step("remove_dir", path):
            for each in list(self._seen):
                if each == str(path) or _below(each, str(path)):
                    del self._seen[each]

    def truncate(self, path: Path, size_bytes: int) -> None:
        with self.step("truncate", path):
            node = self._node(path)
            del node.content[size_bytes:]
            node.durable = bytes(node.content)

    def rewrite(self, path: Path, offset: int) -> None:
        with self.step("rewrite", path):
            self._node(path).durable = bytes(self._node(path).content)

    def overwrite(self, path: Path, offset: int, data: bytes, *, sync: bool) -> None:
        """One that does not sync is no counted call: nothing depends on it."""
        if not sync:
            self._node(path).content[offset : offset + len(data)] = data
            return
        with self.step("overwrite", path):
            node = self._node(path)
            node.content[offset : offset + len(data)] = data
            node.durable = bytes(node.content)

    def copy(self, source: Path, target: Path) -> None:
        with self.step("copy", target):
            copied = _Node(bytearray(self._node(source).content))
            copied.durable = bytes(copied.content)
            self._seen[str(target)] = copied

    # -- damaging, as if the disk had done it -------------------------------------------------

    def damage(self, path: Path, change: Callable[[bytes], bytes]) -> None:
        node = self._node(path)
        node.data = bytearray(change(bytes(node.content)))
        node.durable = bytes(node.data)


class LossyAppendFile:
    """An AppendFile that is broken after its first failure, as the real one is."""

    def __init__(self, files: LossyFiles, path: Path, node: _Node) -> None:
        self._files, self._path, self._node = files, path, node
        self._is_broken = False

    @property
    def path(self) -> str:
        return str(self._path)

    @property
    def size_bytes(self) -> int:
        return len(self._node.content)

    def write(self, buffers: Sequence[Buffer]) -> None:
        data = b"".join(buffers)
        node = self._node
        with self._step("write", lambda: node.content.extend(data[: len(data) // 2])):
            node.content.extend(data)

    def sync(self) -> None:
        with self._step("sync"):
            self._node.durable = bytes(self._node.content)

    @contextmanager
    def _step(self, operation: str, half: Callable[[], None] | None = None) -> Iterator[None]:
        if self._is_broken:
            raise DiskFailure(self.path, operation, OSError(errno.EIO, "broken before"))
        try:
            with self._files.step(operation, self._path, half):
                yield
        except DiskFailure:
            self._is_broken = True
            raise

    def close(self) -> None:
        """Closes the file without making anything durable."""


class LossyReadFile:
    """Every other read of cached data misses the cache; on a cold disk, every read."""

    def __init__(self, files: LossyFiles, node: _Node) -> None:
        self._files, self._node = files, node
        self._is_cached = False

    @property
    def size_bytes(self) -> int:
        return len(self._node.content)

    def pread(self, size: int, offset: int) -> bytes:
        return bytes(self._node.content[offset : offset + size])

    def pread_cached(self, buffer: memoryview, offset: int) -> bool:
        self._is_cached = not self._is_cached
        found = self.pread(len(buffer), offset)
        if self._files.is_cold or not self._is_cached or len(found) < len(buffer):
            return False
        buffer[:] = found
        return True

    def close(self) -> None:
        """Does nothing."""


class CountedKeyValue(MemoryKeyValue):
    """A store whose writes are counted among the calls of `files`."""

    def __init__(self, files: LossyFiles) -> None:
        super().__init__()
        self._files = files

    def write(self, puts: Mapping[bytes, bytes], deletes: Iterable[bytes]) -> None:
        with self._files.step("write", Path("metadata")):
            super().write(puts, deletes)
