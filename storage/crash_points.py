"""Named points where a test can kill the process, to show that a crash there does no harm.

`LEDGERFOLD_CRASH_AT=commit.before-batch` makes the process kill itself (SIGKILL, as the kernel
would) the first time it reaches the point; `name@3` the third time. Without the variable, a point
costs one lookup.

The names are listed here so that a test can iterate over them. A compaction plan can name a point,
too (`armed`), so that users can test their programs (broker/faults/compaction.py).
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

POINTS = (
    # storage: an append, a roll
    "flush.before-write",
    "flush.after-write",
    "flush.after-sync",
    "roll.before-record",
    "roll.after-record",
    # broker: a compaction, seen from the process that commits it
    "run.recorded",
    "run.sealed",
    "run.planned",
    "run.manifest-received",
    "commit.before-batch",
    "commit.after-batch",
    "commit.before-delete",
    "commit.after-delete",
    # broker: a run of Kafka's cleaner
    "clean.planned",
    "clean.manifest-received",
    "clean.before-batch",
    "clean.after-batch",
    "clean.after-delete",
    # broker: a truncation of a Kafka topic's log
    "truncate.unloaded",
    "truncate.before-batch",
    "truncate.after-batch",
    "truncate.after-delete",
    # broker: a reset
    "reset.unloaded",
    "reset.recorded",
    # broker: a snapshot saved and restored
    "snapshot.linked",
    "snapshot.renamed",
    "restore.marked",
    "restore.linked",
    "restore.recorded",
    # compactor: the worker's own steps
    "worker.phase-one",
    "worker.segment-written",
    "worker.segment-renamed",
    "worker.vector-written",
    "worker.before-manifest",
)

_lock = threading.Lock()


def _from_environment() -> dict[str, int]:
    point = os.environ.get("LEDGERFOLD_CRASH_AT", "")
    if not point:
        return {}
    name, _, count = point.partition("@")
    if name not in POINTS:
        raise ValueError(f"LEDGERFOLD_CRASH_AT names {name!r}; the points are {', '.join(POINTS)}")
    return {name: int(count or "1")}


_armed = _from_environment()


@contextmanager
def armed(point: str) -> Iterator[None]:
    """Makes the process kill itself if it reaches the point inside. "" arms none."""
    if not point:
        yield
        return
    with _lock:
        _armed[point] = 1
    try:
        yield
    finally:
        with _lock:
            _armed.pop(point, None)


def reach(point: str) -> None:
    """Kills the process if LEDGERFOLD_CRASH_AT names this point, or it is armed."""
    if not _armed:
        return
    with _lock:
        remaining = _armed.get(point)
        if remaining is None:
            return
        _armed[point] = remaining - 1
    if remaining == 1:
        os.kill(os.getpid(), signal.SIGKILL)
