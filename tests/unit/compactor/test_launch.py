"""Spark's launch on a full disk, on which the JVM cannot write its port."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ledgerfold.compactor.launch import PortFiles, ends_if_mute
from ledgerfold.storage.errors import CompactorUnavailable
from tests.support.waiting import WAIT_S


class _Exited(Exception):
    """PySpark's error for a JVM that ends early."""


@contextmanager
def _sleeping(port: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Starts a process that has been told to write its port to this file."""
    environment = {**os.environ, "_PYSPARK_DRIVER_CONN_INFO_PATH": str(port)}
    program = "import time; time.sleep(1000)"
    with subprocess.Popen([sys.executable, "-c", program], env=environment) as process:
        try:
            yield process
        finally:
            process.kill()


def _files(tmp_path: Path) -> tuple[Path, Path]:
    """Returns the names of a port's file, before and after it is complete."""
    folder = tmp_path / "local" / "tmp1"
    folder.mkdir(parents=True)
    return folder / "connection1.info", folder / "port"


@pytest.mark.process
def test_a_jvm_that_cannot_write_its_port_is_ended(tmp_path: Path) -> None:
    """Otherwise the worker would wait, as it did on a full disk. Its other processes go on."""
    aside, port = _files(tmp_path)
    aside.touch()

    def launched() -> None:
        with _sleeping(port) as jvm:
            raise _Exited(jvm.wait(WAIT_S))

    with _sleeping(tmp_path / "another") as other:
        with (
            pytest.raises(CompactorUnavailable, match="could not write to") as failure,
            ends_if_mute(tmp_path / "local", 0.05),
        ):
            launched()
        assert other.poll() is None
    assert str(failure.value.__cause__) == "-9"


def test_only_a_file_that_is_seen_twice_is_unchanged(tmp_path: Path) -> None:
    """A JVM may be between its two steps at the first look."""
    aside, port = _files(tmp_path)
    files = PortFiles(tmp_path / "local")
    assert not files.unchanged()
    aside.touch()
    assert not files.unchanged()
    aside.rename(port)
    assert not files.unchanged()
    aside.touch()
    assert not files.unchanged()
    assert files.unchanged() == {aside}


def test_other_errors_remain_what_they_are(tmp_path: Path) -> None:
    with pytest.raises(_Exited), ends_if_mute(tmp_path):
        raise _Exited
