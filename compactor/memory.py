"""The peak resident memory of a process and its descendants, from /proc.

The worker has three kinds of processes: this one, the JVM, Spark's Python workers. The kernel
records the peak of each (VmHWM) and resets it on request, so that each run can be measured. Pages
that the Python workers have shared since their fork count in each: the sum is an upper bound.
Without /proc (macOS) it is zero.
"""

from __future__ import annotations

import os
from collections import defaultdict
from pathlib import Path

_PROC = Path("/proc")
# Writing this to clear_refs resets VmHWM (proc_pid_clear_refs(5)).
_RESET_PEAK = "5"


def reset_peaks() -> None:
    """Begins a new measurement, as far as the kernel permits."""
    for pid in process_tree(os.getpid()):
        try:
            (_PROC / str(pid) / "clear_refs").write_text(_RESET_PEAK, encoding="ascii")
        except OSError:
            continue  # ended, or not permitted: then its peak is an older one


def peak_bytes() -> int:
    return sum(status_bytes(pid, "VmHWM") for pid in process_tree(os.getpid()))


def status_bytes(pid: int | str, field: str) -> int:
    """Returns a field of the process's status. 0 without /proc."""
    try:
        status = (_PROC / str(pid) / "status").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return 0
    for line in status.splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    return 0


def process_tree(root: int) -> list[int]:
    """Returns the process and all its running descendants."""
    children: dict[int, list[int]] = defaultdict(list)
    for entry in _PROC.glob("[0-9]*"):
        parent = _parent_of(entry)
        if parent is not None:
            children[parent].append(int(entry.name))
    pids = [root]
    for pid in pids:
        pids.extend(children[pid])
    return pids


def _parent_of(entry: Path) -> int | None:
    try:
        stat = (entry / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # "pid (name) state ppid ...": a name may hold spaces and brackets.
    return int(stat.rpartition(")")[2].split()[1])
