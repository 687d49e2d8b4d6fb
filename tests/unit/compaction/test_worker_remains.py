"""Tests that only the remains of a dead broker's worker are found, ended and removed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from ledgerfold.broker.worker.remains import (
    WORKER_VARIABLE,
    end_left_over,
    end_processes,
    new_scratch,
    processes,
)
from tests.support.waiting import WAIT_S, wait_until

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(not Path("/proc").is_dir(), reason="found in /proc"),
]

# As Spark's daemon does: a separate process group, with a child in it that outlives it.
DAEMON = """
import os, signal
os.setpgid(0, 0)
signal.signal(signal.SIGHUP, signal.SIG_IGN)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
os.fork()
while True:
    signal.pause()
"""


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Processes to be reaped."""
    found: list[subprocess.Popen[bytes]] = []
    yield found
    for process in found:
        # With its child, which is in its group.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(WAIT_S)


def start(token: str, started: list[subprocess.Popen[bytes]]) -> subprocess.Popen[bytes]:
    environment = {**os.environ, WORKER_VARIABLE: token}
    process = subprocess.Popen([sys.executable, "-c", DAEMON], env=environment)
    started.append(process)
    wait_until(lambda: len(list(processes(token))) == 2, "the daemon and its child")
    return process


def test_all_processes_and_the_folder_of_a_dead_brokers_worker_are_removed(
    tmp_path: Path, started: list[subprocess.Popen[bytes]]
) -> None:
    """FLT-04: before recovery removes the files that they write."""
    folder = new_scratch(tmp_path)
    (folder / "spark").mkdir()
    process = start(folder.name, started)
    end_left_over(tmp_path)
    assert process.wait(WAIT_S) == -signal.SIGKILL
    assert list(processes(folder.name)) == []
    assert not folder.exists()


def test_other_processes_are_not_killed(
    tmp_path: Path, started: list[subprocess.Popen[bytes]]
) -> None:
    """The worker of another directory, and processes without a token."""
    left, others = new_scratch(tmp_path / "one"), new_scratch(tmp_path / "other")
    process = start(others.name, started)
    end_left_over(tmp_path / "one")
    assert process.poll() is None
    assert (left.exists(), others.exists()) == (False, True)


def test_a_process_that_does_not_end_keeps_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that hangs in the kernel must not stop the start, nor lose its folder under it."""
    folder = new_scratch(tmp_path)
    monkeypatch.setattr("ledgerfold.marked_processes.marked", lambda token: iter([2**22 + 1]))
    ticks = iter(range(0, 100_000, 10))
    monkeypatch.setattr(time, "monotonic", lambda: next(ticks))
    end_left_over(tmp_path)
    assert folder.exists()
    monkeypatch.undo()
    end_left_over(tmp_path)
    assert not folder.exists()


def test_a_reused_pid_is_not_killed(
    monkeypatch: pytest.MonkeyPatch, started: list[subprocess.Popen[bytes]]
) -> None:
    """It is looked at once more, by a handle."""
    process = start("another", started)
    found = iter([[process.pid], []])
    monkeypatch.setattr("ledgerfold.marked_processes.marked", lambda token: iter(next(found)))
    assert end_processes("ours")
    assert process.poll() is None


def test_folders_of_earlier_versions_are_removed(tmp_path: Path) -> None:
    """Tests remains of an earlier version, and their absence."""
    end_left_over(tmp_path)
    left = tmp_path / "compactor" / "work"
    (left / "blockmgr").mkdir(parents=True)
    (left / "file").write_bytes(b"x")
    end_left_over(tmp_path)
    assert list(left.iterdir()) == []
