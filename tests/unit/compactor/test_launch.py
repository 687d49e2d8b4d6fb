"""Spark's launch on a full disk: a JVM that cannot write its port, and errors of the disk."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ledgerfold.compactor import launch
from ledgerfold.compactor.launch import ends_if_mute, reports_full_disk
from ledgerfold.storage.errors import DiskFailure
from ledgerfold.storage.files import Files
from tests.support.waiting import WAIT_S

# A JVM that writes its port at once, or never.
_WRITES = "import os, sys; os.rename(sys.argv[1], sys.argv[2])"
_IS_MUTE = "import time; time.sleep(1000)"


class _Exited(Exception):
    """PySpark's error for a JVM that ends early."""


@pytest.fixture(autouse=True)
def pids(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Gets the processes that may be ended: this process has others, which other tests share."""
    launched: list[int] = []
    monkeypatch.setattr(launch, "process_tree", lambda root: [root, *launched])
    return launched


def _launched(folder: Path, program: str, pids: list[int]) -> int:
    """Waits as PySpark does. Returns the port's file's size."""
    (folder / "tmp").mkdir()
    aside, renamed = folder / "tmp" / "connection1.info", folder / "tmp" / "port"
    aside.touch()
    arguments = [str(aside), str(renamed)]
    with subprocess.Popen([sys.executable, "-c", program, *arguments]) as process:
        pids.append(process.pid)
        if process.wait(WAIT_S):
            raise _Exited(process.returncode)
    return renamed.stat().st_size


@pytest.mark.process
def test_a_jvm_that_cannot_write_its_port_is_ended(tmp_path: Path, pids: list[int]) -> None:
    """Otherwise the worker would wait for ever, as it did on a full disk."""
    with pytest.raises(DiskFailure, match="No space left") as failure, ends_if_mute(tmp_path, 0.05):
        _launched(tmp_path, _IS_MUTE, pids)
    assert failure.value.is_full
    assert isinstance(failure.value.__cause__, _Exited)


@pytest.mark.process
def test_a_jvm_that_writes_its_port_continues(tmp_path: Path, pids: list[int]) -> None:
    with ends_if_mute(tmp_path, 5.0):
        assert _launched(tmp_path, _WRITES, pids) == 0


@pytest.mark.process
def test_a_slow_jvm_that_has_not_come_to_its_port_continues(
    tmp_path: Path, pids: list[int]
) -> None:
    """It may take long to start on a busy machine."""
    program = "import time; time.sleep(0.3)"
    with ends_if_mute(tmp_path, 0.05), subprocess.Popen([sys.executable, "-c", program]) as jvm:
        pids.append(jvm.pid)
        assert jvm.wait(WAIT_S) == 0


def test_other_errors_remain_what_they_are(tmp_path: Path) -> None:
    with pytest.raises(_Exited), ends_if_mute(tmp_path), reports_full_disk(tmp_path):
        raise _Exited


def test_an_error_on_a_full_disk_is_the_disk_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark describes it in its own ways."""

    class Full(Files):
        def free_bytes(self, path: Path) -> int:
            assert path == tmp_path
            return 4096

    monkeypatch.setattr(launch, "REAL", Full())
    with pytest.raises(DiskFailure, match="No space left"), reports_full_disk(tmp_path):
        raise _Exited
    with reports_full_disk(tmp_path):
        pass
