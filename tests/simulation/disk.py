"""A disk that writes pages back in any order, loses, tears, fails, is slow, and flips bits.

What is modelled:

* A file has content that processes see and content on the disk, page by page (PAGE_BYTES). After a
  power loss each unsynced page is present, missing, or torn; the file's size is any between the
  two. A synced page is present.
* Names: the changes of a folder since its last sync happen in order; a power loss keeps a prefix of
  them.
* kill -9 keeps all written data.
* A sync that fails may drop pages: they stay readable until a power loss and never reach the disk
  with later syncs (as on Linux), unless they are written again.
* Calls that fail with an errno, half done if that is possible; calls that take long; a full disk.

Not modelled: reads that return old pages while the machine is up; a disk that reports a sync that
it did not perform.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from ledgerfold.storage.entry import Buffer
from ledgerfold.storage.errors import DiskFailure
from tests.simulation.jobs import Jobs

PAGE_BYTES = 64
FREE_BYTES = 1 << 40
ROOT = Path("/disk")
DATA = ROOT / "data"


def os_error(number: int) -> OSError:
    return OSError(number, os.strerror(number))


class File:
    """A file: its content as seen, and on the disk. `dirty`: pages that differ, by number."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.durable = bytearray()
        self.dirty: set[int] = set()
        # Pages that a failed sync dropped: visible, and never written back.
        self.lost: set[int] = set()
        # The parts that the oracle has read.
        self.parsed: Any = None

    def write(self, data: bytes) -> None:
        first = len(self.data) // PAGE_BYTES
        self.data += data
        pages = range(first, (len(self.data) + PAGE_BYTES - 1) // PAGE_BYTES)
        self.dirty.update(pages)
        self.lost.difference_update(pages)

    def overwrite(self, offset: int, data: bytes) -> None:
        self.data[offset : offset + len(data)] = data
        pages = range(offset // PAGE_BYTES, -(-(offset + len(data)) // PAGE_BYTES))
        self.dirty.update(pages)
        self.lost.difference_update(pages)

    def sync(self) -> None:
        for page in self.dirty:
            self._write_back(page, self._page(self.data, page))
        self.dirty.clear()

    def touch(self, offset: int) -> None:
        """Writes the bytes from there on again, unchanged."""
        pages = range(offset // PAGE_BYTES, -(-len(self.data) // PAGE_BYTES))
        self.dirty.update(pages)
        self.lost.difference_update(pages)

    def fail_to_sync(self, random: Random) -> None:
        for page in sorted(self.dirty):
            fate = random.randrange(3)
            if fate == 0:
                self._write_back(page, self._page(self.data, page))
            elif fate == 1:
                self.lost.add(page)
                self.dirty.discard(page)

    def truncate(self, size_bytes: int) -> None:
        self.parsed = None
        del self.data[size_bytes:]
        del self.durable[size_bytes:]
        self.dirty = {page for page in self.dirty if page * PAGE_BYTES < size_bytes}
        self.lost = {page for page in self.lost if page * PAGE_BYTES < size_bytes}
        self.sync()

    def lose_power(self, random: Random, *, in_order: bool) -> None:
        """`in_order`: a later page survives only if all earlier ones do."""
        # None, all, or each page separately: 1 lost, 2 present, 3 torn.
        style = random.choice((1, 2, 3, 3))
        is_over = False
        for page in sorted(self.dirty):
            fate = random.choice((1, 2, 3)) if style == 3 else style
            if in_order and is_over:
                fate = 1
            new = self._page(self.data, page)
            if fate == 2:
                self._write_back(page, new)
            elif fate == 3:
                cut = random.randrange(len(new) + 1)
                old = self._page(self.durable, page)
                self._write_back(page, new[:cut] + old[cut:].ljust(len(new) - cut, b"\0"))
                is_over = True
            elif page * PAGE_BYTES < len(self.data):
                if random.random() < 0.5:
                    # The size reached the disk, the page did not.
                    self._write_back(page, self._page(self.durable, page).ljust(len(new), b"\0"))
                is_over = True
        self.parsed = None
        self.data = bytearray(self.durable)
        self.dirty.clear()
        self.lost.clear()

    def is_durable(self, size_bytes: int) -> bool:
        """Returns whether this number of bytes would survive a power loss unchanged."""
        return self.durable[:size_bytes] == self.data[:size_bytes] and len(self.data) >= size_bytes

    @staticmethod
    def _page(data: bytearray, page: int) -> bytes:
        return bytes(data[page * PAGE_BYTES : (page + 1) * PAGE_BYTES])

    def _write_back(self, page: int, content: bytes) -> None:
        start = page * PAGE_BYTES
        if len(self.durable) < start:
            self.durable += bytes(start - len(self.durable))
        self.durable[start : start + len(content)] = content


class Folder:
    """Names as seen and on the disk, with the changes between the two, in order."""

    def __init__(self) -> None:
        self.names: dict[str, File | Folder] = {}
        self.durable: dict[str, File | Folder] = {}
        self.changes: list[Callable[[dict[str, File | Folder]], object]] = []
        self.is_removed = False

    def change(self, change: Callable[[dict[str, File | Folder]], object]) -> None:
        change(self.names)
        self.changes.append(change)

    def sync(self) -> None:
        self.durable = dict(self.names)
        self.changes.clear()

    def lose_power(self, random: Random, *, in_order: bool) -> None:
        for change in self.changes[: random.randrange(len(self.changes) + 1)]:
            change(self.durable)
        self.changes.clear()
        self.names = dict(self.durable)
        self.is_removed = False
        for node in self.names.values():
            node.lose_power(random, in_order=in_order)


@dataclass
class Fault:
    """The `number`-th call of one of `operations` from now on fails, or is slow (`error` 0)."""

    operations: frozenset[str]
    number: int
    error: int
    delay_s: float = 0.0


class Disk:
    """The disk that processes share. Everything is below ROOT."""

    def __init__(self, jobs: Jobs, random: Random) -> None:
        self.jobs, self.random = jobs, random
        self.root = Folder()
        self.faults: list[Fault] = []
        self.is_full = False
        self.on_fault: Callable[[str], None] = lambda words: None

    def lose_power(self, *, in_order: bool) -> None:
        self.root.lose_power(self.random, in_order=in_order)

    # Faults

    def clear_faults(self) -> None:
        self.faults.clear()
        self.is_full = False

    def fault(self, operation: str, path: Path | str) -> OSError | None:
        """Returns the error of this call."""
        for fault in self.faults:
            if operation in fault.operations:
                fault.number -= 1
                if fault.number <= 0:
                    self.faults.remove(fault)
                    if not fault.error:
                        self.on_fault(f"{operation} {path} takes {fault.delay_s:.1f} s")
                        self.jobs.sleep(fault.delay_s)
                        return None
                    self.on_fault(f"{operation} {path}: {errno.errorcode[fault.error]}")
                    return os_error(fault.error)
                break
        if self.is_full and operation in ("write", "create", "make_dir", "copy", "metadata"):
            return os_error(errno.ENOSPC)
        return None

    # Queries

    def find(self, path: Path) -> File | Folder | None:
        if not path.is_relative_to(ROOT):
            return None
        node: File | Folder | None = self.root
        for name in path.relative_to(ROOT).parts:
            if not isinstance(node, Folder):
                return None
            node = node.names.get(name)
        return node

    def file(self, path: Path) -> File:
        node = self.find(path)
        if not isinstance(node, File):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        return node

    def folder(self, path: Path) -> Folder:
        node = self.find(path)
        if not isinstance(node, Folder):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        return node

    def damage(self, path: Path, at: int, bit: int) -> None:
        """Flips one bit, on the disk and in the visible content."""
        file = self.file(path)
        file.parsed = None
        file.data[at] ^= 1 << bit
        if at < len(file.durable):
            file.durable[at] ^= 1 << bit

    def is_durable(self, path: Path, size_bytes: int) -> bool:
        """Returns whether the name in its folders, and the content, are durable."""
        node: File | Folder | None = self.root
        for name in path.relative_to(ROOT).parts:
            node = node.durable.get(name) if isinstance(node, Folder) else None
        return isinstance(node, File) and node.is_durable(size_bytes)


@contextmanager
def typed_errors(path: Path, operation: str) -> Iterator[None]:
    """Raises errors as storage/files.py does."""
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        raise DiskFailure(str(path), operation, error) from error


def joined(buffers: Sequence[Buffer]) -> bytes:
    return b"".join(buffers)
