"""The peak resident memory of a process and its descendants, and the memory that is left.

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
# Control groups of version 2, and the start of the line that names this process's own.
_GROUPS, _OWN_GROUP = Path("/sys/fs/cgroup"), "0::/"
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
    for line in _text(_PROC / str(pid) / "status").splitlines():
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
    # "pid (name) state ppid ...": a name may hold spaces and brackets.
    fields = _text(entry / "stat").rpartition(")")[2].split()
    return int(fields[1]) if fields else None


def free_memory_bytes(proc: Path = _PROC, groups: Path = _GROUPS) -> int | None:
    """Returns the memory that this process may still use; None if the system does not say.

    That is the least of what the machine has and what each control group of the process (of a
    container, or a service) leaves: its limit less its use, except for the page cache.
    """
    left = [_fields(proc / "meminfo").get("MemAvailable:")]
    for line in _text(proc / "self/cgroup").splitlines():
        if line.startswith(_OWN_GROUP):
            group = groups / line.removeprefix(_OWN_GROUP)
            left += map(_left_bytes, (group, *group.parents))
    return min((each for each in left if each is not None), default=None)


def _left_bytes(group: Path) -> int | None:
    limit, used = _text(group / "memory.max").strip(), _text(group / "memory.current").strip()
    if not (limit.isdecimal() and used.isdecimal()):
        return None
    cached = _fields(group / "memory.stat")
    return int(limit) - int(used) + cached.get("active_file", 0) + cached.get("inactive_file", 0)


def _fields(path: Path) -> dict[str, int]:
    """Returns the numbers of a file of names and numbers, in bytes."""
    found = dict[str, int]()
    for line in _text(path).splitlines():
        name, number, *unit = (*line.split(), "", "")
        if number.isdecimal():
            found[name] = int(number) * (1024 if unit[0] == "kB" else 1)
    return found


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
