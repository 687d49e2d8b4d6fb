"""The write mark: a count of the metadata's writes, in the file DATA/writes.

A RocksDB store that has lost the end of its log opens without an error, in an older state. So each
write is counted in the store, and here. A store that counts fewer than the mark has lost writes.

    >>> from ledgerfold.storage.files import REAL
    >>> mark = WriteMark.create(folder / "writes", 40, REAL)
    >>> mark.note(41)
    >>> WriteMark.load(folder / "writes", REAL).highest
    41

Rules (docs/FORMATS.md, "The write mark"):

1. The mark follows a durable write, so it is never ahead of an intact store.
2. `note` does not sync: the note survives the process, not the machine. `sync` makes it durable,
   and precedes any removal of files that a write allowed: a later start then finds a store with
   that write, or knows that it was lost.
3. The file has three slots, each with a checksum. `sync` alternates between the first two, so one
   of them is always intact; `note` uses the third. The highest count of a good slot is the mark.
"""

from __future__ import annotations

import logging
import struct
from contextlib import closing
from pathlib import Path

from ledgerfold.storage.entry import crc32c
from ledgerfold.storage.errors import Corruption, DiskFailure
from ledgerfold.storage.files import Files, replace_file

# A count and its checksum.
_SLOT = struct.Struct("<QI")
_SLOT_DISTANCE_BYTES = 64
_SYNCED_SLOTS, _NOTED_SLOT = (0, 1), 2
MARK_BYTES = 3 * _SLOT_DISTANCE_BYTES
_log = logging.getLogger(__name__)


class WriteMark:
    """The write mark of a data directory. `synced`: the highest count safe from power loss."""

    def __init__(self, path: Path, files: Files, counts: list[int | None]) -> None:
        self._path, self._files = path, files
        known = [each for each in counts if each is not None]
        self.highest = max(known, default=0)
        first, second = (counts[slot] or 0 for slot in _SYNCED_SLOTS)
        # NOTE: another process's note may not be on the disk.
        self.synced = max(first, second)
        self._next_slot = _SYNCED_SLOTS[0 if first <= second else 1]
        self._is_noting = True

    @classmethod
    def create(cls, path: Path, writes: int, files: Files) -> WriteMark:
        """Creates or replaces the file, durably. Raises DiskFailure."""
        slot = _slot(writes).ljust(_SLOT_DISTANCE_BYTES, b"\0")
        replace_file(path, [slot * (MARK_BYTES // _SLOT_DISTANCE_BYTES)], files)
        return cls(path, files, [writes] * 3)

    @classmethod
    def load(cls, path: Path, files: Files) -> WriteMark:
        """Loads the mark. Raises Corruption (no slot is good), FileNotFoundError, DiskFailure."""
        with closing(files.open_read(path)) as file:
            data = file.pread(MARK_BYTES, 0)
        counts = [_count(data, slot * _SLOT_DISTANCE_BYTES) for slot in (0, 1, 2)]
        if all(each is None for each in counts):
            raise Corruption(str(path), 0, "a count of writes", "no good one")
        return cls(path, files, counts)

    def note(self, writes: int) -> None:
        """Notes a write. A failure to note it does not fail that write."""
        self.highest = writes
        try:
            self._put(_NOTED_SLOT, writes, sync=False)
            self._is_noting = True
        except (DiskFailure, FileNotFoundError) as error:
            if self._is_noting:
                _log.warning("Metadata writes are not counted in the write mark: %s", error)
            self._is_noting = False

    def sync(self, writes: int) -> None:
        """Makes the count durable. Raises DiskFailure."""
        try:
            self._put(self._next_slot, writes, sync=True)
        except FileNotFoundError as error:
            raise DiskFailure(str(self._path), "A write", error) from error
        self._next_slot = _SYNCED_SLOTS[1 - _SYNCED_SLOTS.index(self._next_slot)]
        self.highest = max(self.highest, writes)
        self.synced = writes

    def _put(self, slot: int, writes: int, *, sync: bool) -> None:
        offset = slot * _SLOT_DISTANCE_BYTES
        self._files.overwrite(self._path, offset, _slot(writes), sync=sync)


def _slot(writes: int) -> bytes:
    count = writes.to_bytes(8, "little")
    return _SLOT.pack(writes, crc32c(count))


def _count(data: bytes, at: int) -> int | None:
    """Returns the count of a slot; None if its checksum does not match."""
    if at + _SLOT.size > len(data):
        return None
    count: int
    count, checksum = _SLOT.unpack_from(data, at)
    return count if crc32c(count.to_bytes(8, "little")) == checksum else None
