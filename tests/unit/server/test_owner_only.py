"""Tests that a data directory belongs to its owner alone: the modes of its files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from ledgerfold.broker.common.settings import BrokerSettings
from ledgerfold.broker.server.data_directory import held, recovered
from ledgerfold.storage.errors import InvalidRequest
from ledgerfold.storage.files import REAL
from ledgerfold.storage.lock import DirectoryLock
from ledgerfold.storage.owner_only import OTHERS, narrow


@pytest.fixture(autouse=True)
def open_handed() -> Iterator[None]:
    """The umask of a user who shares everything."""
    before = os.umask(0)
    yield
    os.umask(before)


def wide(folder: Path) -> list[str]:
    """Returns the files that others may access."""
    found = [folder, *folder.rglob("*")]
    return [str(path.relative_to(folder)) for path in found if path.lstat().st_mode & OTHERS]


def test_the_files_of_a_start(tmp_path: Path) -> None:
    """Lock, metadata, reserve, ledgers; the process is as before once it closes them."""
    data = tmp_path / "data"
    data.mkdir()
    assert wide(data) == ["."]
    settings = BrokerSettings(data)
    with held(data) as (metadata, lock):
        store = recovered(settings, metadata, lock, REAL, lambda: 0)
        store.create_ledger("persistent://public/default/t").close()
        assert (data / "metadata" / "CURRENT").exists()
    assert not wide(data)
    (tmp_path / "mine").touch()
    assert (tmp_path / "mine").stat().st_mode & OTHERS


def test_a_directory_with_wide_permissions_is_narrowed(tmp_path: Path) -> None:
    """Only Ledgerfold's files: nothing changes beside them and behind links."""
    data, elsewhere = tmp_path / "data", tmp_path / "elsewhere"
    for name in ("ledgers/7", "repairs/20261121T120007Z/ledgers", "compactor/work"):
        (data / name).mkdir(parents=True)
    for name in ("ledgers/7/0.log", "lock", "compactor/worker.log", "notes.txt"):
        (data / name).write_text("")
    elsewhere.mkdir()
    (elsewhere / "file").touch()
    (data / "ledgers" / "8").symlink_to(elsewhere)
    (data / "metadata").symlink_to(elsewhere)
    narrow(data)
    links = ("ledgers/8", "metadata")
    assert [name for name in wide(data) if name not in links] == ["notes.txt"]
    assert elsewhere.stat().st_mode & OTHERS
    assert (elsewhere / "file").stat().st_mode & OTHERS
    assert (data / "ledgers" / "7").stat().st_mode & 0o777 == 0o700
    assert (data / "lock").stat().st_mode & 0o777 == 0o600


def test_a_link_to_a_directory_with_wide_permissions(tmp_path: Path) -> None:
    """Only directories had been narrowed in a test, and the target of a link stayed open."""
    data, link = tmp_path / "data", tmp_path / "link"
    data.mkdir()
    (data / "lock").write_text("")
    link.symlink_to(data)
    narrow(link)
    assert not wide(data)


@pytest.mark.parametrize("name", ["lock", "reserve", "writes"])
def test_a_file_that_is_a_link_is_refused(tmp_path: Path, name: str) -> None:
    """A user who could write to the directory before its first start had any file overwritten."""
    victim = tmp_path / "victim"
    victim.write_text("kept")
    data = tmp_path / "data"
    data.mkdir()
    (data / name).symlink_to(victim)
    with pytest.raises(InvalidRequest, match=f"{name} is a link"), held(data):
        pass
    assert victim.read_text() == "kept"


def test_a_private_directory_is_not_traversed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start of a hundred thousand files would take longer by that."""
    tmp_path.chmod(0o700)
    monkeypatch.setattr(os, "walk", lambda folder: pytest.fail(f"{folder} is walked"))
    narrow(tmp_path)


def test_a_directory_of_another_user_is_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """For example a mount point: the broker serves, and its log says what to do."""
    data = tmp_path / "data"
    (data / "ledgers").mkdir(parents=True)

    def refuse(path: Path, mode: int) -> None:
        raise PermissionError(1, "Operation not permitted", str(path))

    monkeypatch.setattr(Path, "chmod", refuse)
    with held(data):
        pass
    assert "others may have access to them. Change the owner" in caplog.text


def test_the_lock_file_is_private(tmp_path: Path) -> None:
    with DirectoryLock(tmp_path, "1"):
        assert not (tmp_path / "lock").stat().st_mode & OTHERS
