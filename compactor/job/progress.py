"""The progress of a run, which Spark sums up as tasks end.

It is for people, not for the manifest: Spark's accumulators may count a rerun task twice. The
manifest's counts are rows (rows.py).
"""

from __future__ import annotations

from typing import NamedTuple

from pyspark.accumulators import AccumulatorParam

from ledgerfold.compactor.job.plan import TaskPlan
from ledgerfold.v1.admin_pb2 import (
    COMPACTION_PHASE_ONE,
    COMPACTION_PHASE_TWO,
    CompactionProgress,
)


class Parts(NamedTuple):
    """The finished tasks of each kind, and the messages and bytes that they have read."""

    scans: int = 0
    scanned_messages: int = 0
    scanned_bytes: int = 0
    merges: int = 0
    copies: int = 0
    copied_messages: int = 0
    copied_bytes: int = 0

    def plus(self, other: Parts) -> Parts:
        return Parts(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))

    def minus(self, other: Parts) -> Parts:
        return Parts(*(mine - theirs for mine, theirs in zip(self, other, strict=True)))


class PartsSum(AccumulatorParam[Parts]):
    """Spark's accumulator of Parts."""

    def zero(self, value: Parts) -> Parts:
        return Parts()

    def addInPlace(self, value1: Parts, value2: Parts) -> Parts:  # noqa: N802 - Spark's name
        return value1.plus(value2)


def progress_of(parts: Parts, tasks: TaskPlan) -> CompactionProgress:
    """Returns the progress that administrators see."""
    phase_one_tasks = len(tasks.scans) + tasks.buckets
    done = parts.scans + parts.merges
    if done < phase_one_tasks:
        return CompactionProgress(
            phase=COMPACTION_PHASE_ONE,
            tasks_done=done,
            tasks_total=phase_one_tasks,
            messages=min(parts.scanned_messages, tasks.messages),
            bytes=min(parts.scanned_bytes, tasks.key_bytes),
            messages_total=tasks.messages,
            bytes_total=tasks.key_bytes,
        )
    return CompactionProgress(
        phase=COMPACTION_PHASE_TWO,
        tasks_done=min(parts.copies, len(tasks.copies)),
        tasks_total=len(tasks.copies),
        messages=min(parts.copied_messages, tasks.messages),
        bytes=min(parts.copied_bytes, tasks.size_bytes),
        messages_total=tasks.messages,
        bytes_total=tasks.size_bytes,
    )
