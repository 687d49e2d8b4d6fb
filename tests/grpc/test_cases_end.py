"""`scripts/cases` leaves no process behind when it is terminated."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import processes
from tests.support.waiting import RUN_S, WAIT_S, wait_until
from tests.tidy import ROOT

# The compactor is Spark's.
pytestmark = pytest.mark.spark
WAITS = "ABC-01 It waits in vain\n    create | eventually status -> SUCCESS\n"


def children(folder: Path) -> list[str]:
    """Returns the command lines of the processes in this folder: the broker, the compactor."""
    pids = map(int, filter(str.isdecimal, os.listdir("/proc")))
    lines = map(processes.command, pids)
    return [line for line in lines if f"{folder}/ledgerfold-cases-" in line]


@pytest.mark.skipif(not Path("/proc").exists(), reason="looks for processes in /proc")
def test_sigterm_of_the_command_ends_broker_and_compactor(tmp_path: Path) -> None:
    """They have separate sessions, and would otherwise stay."""
    path = tmp_path / "my.cases"
    path.write_text(WAITS)
    with subprocess.Popen(
        [sys.executable, "-m", "tests.cases", str(path)],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    ) as cases:
        wait_until(lambda: len(children(tmp_path)) >= 2, "broker and compactor", RUN_S)
        cases.terminate()
        assert cases.wait(WAIT_S) == 128 + signal.SIGTERM
    wait_until(lambda: not children(tmp_path), "their end")
