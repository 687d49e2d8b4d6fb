"""The broker's threads have short time slices; its compactor's have those of other processes."""

from __future__ import annotations

import os
import platform
import re
from pathlib import Path

import pytest

from tests.support.broker_process import BrokerProcess

_KERNEL = tuple(int(part) for part in re.findall(r"\d+", platform.release())[:2])
_SCHED = Path("/proc/self/sched")


def _slices_ns(pid: int, threads: str = "*") -> set[int]:
    """Returns the slices of a process's threads. Each has its own."""
    texts = [each.read_text() for each in Path(f"/proc/{pid}/task").glob(f"{threads}/sched")]
    return {int(text) for each in texts for text in re.findall(r"se\.slice\s*:\s*(\d+)", each)}


@pytest.mark.process
@pytest.mark.skipif(
    not _SCHED.exists() or _KERNEL < (6, 12) or platform.machine() not in ("x86_64", "aarch64"),
    reason="the kernel has no slices per thread, or does not show them in /proc/PID/sched",
)
def test_the_broker_interrupts_its_compactor(tmp_path: Path) -> None:
    # Threads that another test started may have short ones.
    usual = _slices_ns(os.getpid(), str(os.getpid()))
    with BrokerProcess(tmp_path / "data", arguments=["--compactor", "inline"]) as broker:
        worker = broker.wait_for_compactor().compactor_pid
        assert _slices_ns(broker.pid) == {100_000}
        assert _slices_ns(worker) == usual
