"""The real file system seam, and that its double behaves alike."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from ledgerfold.storage.entry import Buffer
from ledgerfold.storage.errors import DiskFailure
from ledgerfold.storage.files import REAL, Files
from ledgerfold.storage.open_files import WRITE_BACK_BYTES
from tests.simulation.files import SimFiles
from tests.support.lossy_files import LossyFiles, front_half


@pytest.fixture(params=["real", "double"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> Files:
    return REAL if request.param == "real" else LossyFiles(tmp_path)


def write(files: Files, path: Path, content: bytes) -> None:
    file = files.create(path)
    file.write([content])
    file.sync()
    file.close()


def content(files: Files, path: Path) -> bytes:
    file = files.open_read(path)
    return file.pread(file.size_bytes, 0)


def test_files_are_made_changed_and_removed(files: Files, tmp_path: Path) -> None:
    """One walk through the whole protocol, on the disk and on its double."""
    folder, path = tmp_path / "a" / "b", tmp_path / "a" / "b" / "f"
    files.make_dir(folder)
    files.make_dir(folder)
    file = files.create(path)
    file.write([b"one ", memoryview(b"two "), bytearray(b"three")])
    assert (file.path, file.size_bytes) == (str(path), 13)
    file.sync()
    file.close()
    files.sync_dir(folder)
    assert (files.exists(path), files.size(path), files.listdir(folder)) == (True, 13, ["f"])
    read = files.open_read(path)
    assert (read.size_bytes, read.pread(3, 4), read.pread(100, 8)) == (13, b"two", b"three")
    assert read.pread(5, 13) == b""
    read.close()
    files.copy(path, folder / "copy")
    files.truncate(path, 3)
    files.replace(path, folder / "renamed")
    assert files.listdir(folder) == ["copy", "renamed"]
    assert content(files, folder / "renamed") == b"one"
    assert content(files, folder / "copy") == b"one two three"
    files.remove(folder / "copy")
    files.remove(folder / "copy")
    files.remove_dir(tmp_path / "a")
    files.remove_dir(tmp_path / "a")
    assert not files.exists(folder)


def test_missing_keys_are_not_found(files: Files, tmp_path: Path) -> None:
    """Looking at nothing is FileNotFoundError; making something twice is a DiskFailure."""
    for look in (files.open_read, files.size, files.listdir):
        with pytest.raises(FileNotFoundError):
            look(tmp_path / "nothing")
    write(files, tmp_path / "f", b"")
    with pytest.raises(DiskFailure):
        files.create(tmp_path / "f")


def test_a_short_write_goes_on_with_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel may write any part of the data, also across buffers."""
    real = os.writev

    def short(descriptor: int, buffers: Sequence[Buffer]) -> int:
        return real(descriptor, [b"".join(buffers)[:7]])

    monkeypatch.setattr(os, "writev", short)
    file = REAL.create(tmp_path / "f")
    file.write([b"12345", b"67890", b"abcde"])
    assert file.size_bytes == 15
    file.close()
    assert (tmp_path / "f").read_bytes() == b"1234567890abcde"


def test_more_buffers_than_one_call_takes_are_written(tmp_path: Path) -> None:
    """Linux takes 1,024 buffers at once."""
    file = REAL.create(tmp_path / "f")
    file.write([b"%04d" % number for number in range(2500)])
    file.close()
    assert (tmp_path / "f").read_bytes() == b"".join(b"%04d" % n for n in range(2500))


def test_synced_data_reach_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The operating system is asked. That it is had been taken for granted of folders."""
    synced = list[Path]()

    def note(descriptor: int) -> None:
        synced.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")))

    monkeypatch.setattr(os, "fsync", note)
    monkeypatch.setattr(os, "fdatasync", note)
    write(REAL, tmp_path / "f", b"one")
    REAL.sync_dir(tmp_path)
    assert synced == [tmp_path / "f", tmp_path]


def test_many_new_bytes_reach_the_disk_before_a_sync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sync of a large file would delay all others. Each range is asked for once."""
    asked = list[tuple[int, int]]()

    def note(descriptor: int, start: int, size: int, advice: int) -> None:
        assert advice == os.POSIX_FADV_DONTNEED
        asked.append((start, size))

    monkeypatch.setattr(os, "posix_fadvise", note)
    file, third = REAL.create(tmp_path / "f"), bytes(WRITE_BACK_BYTES // 3 + 1)
    for _ in range(6):
        file.write([third])
    file.write([third, third])
    file.sync()
    file.write([third])
    file.close()
    assert asked == [(0, 3 * len(third)), (3 * len(third), 3 * len(third))]
    assert (tmp_path / "f").read_bytes() == bytes(9 * len(third))


def test_a_file_system_that_takes_no_hints_takes_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: object) -> None:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    monkeypatch.setattr(os, "posix_fadvise", refuse)
    file = REAL.create(tmp_path / "f")
    file.write([bytes(WRITE_BACK_BYTES)])
    file.write([b"x"])
    file.sync()
    file.close()


@pytest.mark.parametrize("call", ["writev", "fdatasync"])
def test_a_failed_file_stays_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """After one failed write or sync the file refuses both, even if the disk works again."""

    def fail(*arguments: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    file = REAL.create(tmp_path / "f")
    with monkeypatch.context() as patched:
        patched.setattr(os, call, fail)
        if call == "fdatasync":
            file.write([b"x"])
        with pytest.raises(DiskFailure, match="No space left"):
            file.sync() if call == "fdatasync" else file.write([b"x"])
    with pytest.raises(DiskFailure):
        file.write([b"y"])
    with pytest.raises(DiskFailure):
        file.sync()
    file.close()


def test_a_failed_read_is_a_disk_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An input/output error names the file."""
    write(REAL, tmp_path / "f", b"abc")
    file = REAL.open_read(tmp_path / "f")

    def fail(*arguments: object) -> bytes:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "pread", fail)
    with pytest.raises(DiskFailure, match="A read failed"):
        file.pread(3, 0)


def test_data_in_memory_are_read_completely_or_not_at_all(tmp_path: Path) -> None:
    """Recently written data are in memory, if the file system can tell; bytes after the end are
    not.
    """
    write(REAL, tmp_path / "a", b"0123456789")
    file = REAL.open_read(tmp_path / "a")
    buffer = bytearray(4)
    if file.pread_cached(memoryview(buffer), 3):
        assert buffer == b"3456"
    assert not file.pread_cached(memoryview(buffer), 8)
    file.close()
    assert not file.pread_cached(memoryview(buffer), 0)


def test_a_mapped_file_reads_as_its_bytes(tmp_path: Path) -> None:
    """Sealed segments are mapped by scans."""
    write(REAL, tmp_path / "f", b"abc")
    with REAL.map(tmp_path / "f") as mapped:
        assert bytes(mapped) == b"abc"


def test_the_double_loses_unsynced_data(tmp_path: Path) -> None:
    """A synced file needs its name synced too, and so do renames and removals."""
    files = LossyFiles(tmp_path)
    for name in ("kept", "renamed", "removed"):
        write(files, tmp_path / name, name.encode())
    files.sync_dir(tmp_path)
    write(files, tmp_path / "unnamed", b"synced, but nobody knows where")
    files.replace(tmp_path / "renamed", tmp_path / "new name")
    files.remove(tmp_path / "removed")
    files.make_dir(tmp_path / "folder")
    files.crash()
    assert files.listdir(tmp_path) == ["kept", "removed", "renamed"]
    assert content(files, tmp_path / "removed") == b"removed"


def test_the_double_keeps_the_requested_part_of_an_unsynced_tail(tmp_path: Path) -> None:
    """A torn write leaves its front half; a truncation is durable at once."""
    files = LossyFiles(tmp_path)
    file = files.create(tmp_path / "f")
    files.sync_dir(tmp_path)
    file.write([b"safe"])
    file.sync()
    file.write([b"1234"])
    files.crash(front_half)
    assert content(files, tmp_path / "f") == b"safe12"
    files.truncate(tmp_path / "f", 2)
    files.crash()
    assert content(files, tmp_path / "f") == b"sa"


def test_a_folder_that_changes_during_its_removal_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process removes a file first, or adds one before the folder is removed."""
    folder = tmp_path / "a"
    folder.mkdir()
    (folder / "one").write_bytes(b"1")
    rmdir, unlink, added = os.rmdir, os.unlink, 1

    def unlink_twice(path: str, *, dir_fd: int | None = None) -> None:
        unlink(path, dir_fd=dir_fd)
        unlink(path, dir_fd=dir_fd)

    def rmdir_too_late(path: str, *, dir_fd: int | None = None) -> None:
        nonlocal added
        if added:
            added -= 1
            (folder / "two").write_bytes(b"2")
        rmdir(path, dir_fd=dir_fd)

    monkeypatch.setattr(os, "unlink", unlink_twice)
    monkeypatch.setattr(os, "rmdir", rmdir_too_late)
    REAL.remove_dir(folder)
    assert not folder.exists()
    folder.mkdir()
    added = 1_000
    with pytest.raises(DiskFailure, match="not empty"):
        REAL.remove_dir(folder)


@pytest.mark.parametrize("double", [LossyFiles, SimFiles])
def test_every_operation_of_a_double_is_replaced(double: type[Files]) -> None:
    operations = {name for name in vars(Files) if not name.startswith("_")}
    # These touch no file.
    operations -= {"attempt", "temporary_path"}
    assert operations <= vars(double).keys()
