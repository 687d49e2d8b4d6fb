"""Room that is kept for deletions."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from ledgerfold.storage.entry import Buffer
from ledgerfold.storage.errors import DiskFailure
from ledgerfold.storage.files import Files
from ledgerfold.storage.open_files import AppendFile, RealAppendFile
from ledgerfold.storage.reserve import RESERVE_BYTES, Reserve


class Full(RealAppendFile):
    """A file on it."""

    def __init__(self, disk: Disk, path: Path, flags: int) -> None:
        super().__init__(path, flags)
        self._disk = disk

    def write(self, buffers: Sequence[Buffer]) -> None:
        wanted = sum(map(len, buffers))
        if wanted > self._disk.room:
            raise DiskFailure(self.path, "A write", OSError(28, "No space left on device"))
        self._disk.room -= wanted
        super().write(buffers)


class Disk(Files):
    """One that says how much is free, and may be full."""

    free = room = 2 * RESERVE_BYTES

    def free_bytes(self, path: Path) -> int:
        return self.free

    def create(self, path: Path) -> AppendFile:
        return Full(self, path, os.O_CREAT | os.O_EXCL)

    def open_append(self, path: Path, size_bytes: int) -> AppendFile:
        return Full(self, path, 0)


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture
def reserve(disk: Disk, tmp_path: Path) -> Reserve:
    return Reserve(tmp_path / "reserve", disk)


def size_of(folder: Path) -> int:
    return sum(path.stat().st_blocks * 512 for path in folder.iterdir())


def test_the_reserve_is_released_inside_the_block(reserve: Reserve, tmp_path: Path) -> None:
    """And can be taken again when the last one that uses it is done."""
    reserve.keep()
    assert size_of(tmp_path) >= RESERVE_BYTES
    with reserve.lent():
        with reserve.lent():
            assert reserve.is_lent
        assert reserve.is_lent
        reserve.renew()
        assert not size_of(tmp_path)
    assert not reserve.is_lent
    reserve.renew()
    assert reserve.is_there
    assert size_of(tmp_path) >= RESERVE_BYTES


def test_no_reserve_is_created_on_a_nearly_full_disk(
    disk: Disk, reserve: Reserve, tmp_path: Path
) -> None:
    """It waits until twice as much is free."""
    disk.free -= 1
    reserve.keep()
    assert not reserve.is_there
    disk.free += 1
    reserve.renew()
    assert reserve.is_there


def test_the_reserve_is_renewed_as_far_as_space_permits(
    disk: Disk, reserve: Reserve, tmp_path: Path
) -> None:
    """Otherwise, the next deletion or start would have no reserve. The rest follows."""
    reserve.keep()
    disk.free = 0
    with reserve.lent():
        disk.free = disk.room = RESERVE_BYTES // 2 + 5
    reserve.renew()
    assert size_of(tmp_path) >= RESERVE_BYTES // 2
    assert reserve.is_there
    disk.free = disk.room = RESERVE_BYTES
    reserve.renew()
    assert (tmp_path / "reserve").stat().st_size == RESERVE_BYTES


def test_a_reserve_left_by_a_crash_is_completed(reserve: Reserve, tmp_path: Path) -> None:
    """The existing file may hold nothing."""
    (tmp_path / "reserve").write_bytes(b"half")
    reserve.keep()
    assert size_of(tmp_path) >= RESERVE_BYTES


def test_a_reserve_is_created_only_on_request(reserve: Reserve, tmp_path: Path) -> None:
    """Inspecting a directory leaves it unchanged."""
    reserve.renew()
    with reserve.lent():
        pass
    assert not list(tmp_path.iterdir())


def test_a_disk_that_refuses_the_reserve_is_no_error(
    reserve: Reserve,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The broker serves without."""

    def full(disk: Disk, path: Path) -> None:
        raise DiskFailure(str(path), "Making a file", OSError(28, "No space left on device"))

    monkeypatch.setattr(Disk, "create", full)
    reserve.keep()
    assert not reserve.is_there
