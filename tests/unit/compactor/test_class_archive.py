"""An archive that cannot be written costs no JVM. (tests/spark/test_worker.py writes one.)"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ledgerfold.compactor import class_archive
from ledgerfold.compactor.class_archive import ArchiveWriter, ClassArchive
from ledgerfold.storage.errors import DiskFailure
from ledgerfold.storage.files import Files

FREE = 2**40


class _Jvm(Exception):
    """The JVM would start."""


class _Disk(Files):
    """A disk with this free space, which takes files or does not."""

    def __init__(self, free: int, is_writable: bool) -> None:
        super().__init__()
        self._free, self._is_writable = free, is_writable

    def free_bytes(self, path: Path) -> int:
        return self._free

    def create(self, path: Path) -> Any:
        if not self._is_writable and path.suffix == ".tmp":
            raise DiskFailure(str(path), "A creation", PermissionError())
        return super().create(path)


def _write(folder: Path, files: Files) -> None:
    class_list = folder / "classes"
    class_list.write_text("java/lang/Object\n")
    ArchiveWriter(ClassArchive(folder / "cache" / "a.jsa"), files).write(None, class_list)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("folder", "free_disk", "free_memory", "is_writable", "logged"),
    [
        ("a:b", FREE, FREE, True, "for several paths"),
        ("a", 2**20, FREE, True, "is almost full"),
        ("a", FREE, 2**30, True, "1073741824 bytes of memory are left"),
        ("a", FREE, FREE, False, "A creation"),
    ],
)
def test_an_archive_that_cannot_be_written_starts_no_jvm(
    folder: str,
    free_disk: int,
    free_memory: int,
    is_writable: bool,
    logged: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(class_archive, "free_memory_bytes", lambda: free_memory)
    caplog.set_level("INFO")
    (tmp_path / folder).mkdir()
    _write(tmp_path / folder, _Disk(free_disk, is_writable))
    assert logged in caplog.text
    assert not list((tmp_path / folder / "cache").iterdir())


@pytest.mark.parametrize("free_memory", [FREE, None])
def test_otherwise_a_jvm_starts(
    free_memory: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def starts(_: object) -> list[str]:
        raise _Jvm

    monkeypatch.setattr(class_archive, "free_memory_bytes", lambda: free_memory)
    monkeypatch.setattr(class_archive, "_command", starts)
    with pytest.raises(_Jvm):
        _write(tmp_path, _Disk(FREE, is_writable=True))
    assert not list((tmp_path / "cache").iterdir())
