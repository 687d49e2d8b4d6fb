"""The progress of a run, which the engine sums up as tasks end.

It is for people, not for the manifest: Spark's accumulators may count a rerun task twice. The
manifest's counts are rows (rows.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ledgerfold.compactor.job.plan import InputSegment, size_bytes_of
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


def scan_parts(segments: Sequence[InputSegment], weight: Callable[[InputSegment], int]) -> Parts:
    """Returns a finished scan of these segments, of which it reads `weight` bytes."""
    messages = sum(segment.record.messages for segment in segments)
    return Parts(scans=1, scanned_messages=messages, scanned_bytes=sum(map(weight, segments)))


def copy_parts(segments: Sequence[InputSegment]) -> Parts:
    """Returns a finished copy of these segments."""
    messages = sum(segment.record.messages for segment in segments)
    size_bytes = sum(map(size_bytes_of, segments))
    return Parts(copies=1, copied_messages=messages, copied_bytes=size_bytes)


def progress_of(parts: Parts, total: Parts) -> CompactionProgress:
    """Returns the progress that administrators see. `total`: the parts of the complete run."""
    done, phase_one_tasks = parts.scans + parts.merges, total.scans + total.merges
    if done < phase_one_tasks:
        return CompactionProgress(
            phase=COMPACTION_PHASE_ONE,
            tasks_done=done,
            tasks_total=phase_one_tasks,
            messages=min(parts.scanned_messages, total.scanned_messages),
            bytes=min(parts.scanned_bytes, total.scanned_bytes),
            messages_total=total.scanned_messages,
            bytes_total=total.scanned_bytes,
        )
    return CompactionProgress(
        phase=COMPACTION_PHASE_TWO,
        tasks_done=min(parts.copies, total.copies),
        tasks_total=total.copies,
        messages=min(parts.copied_messages, total.copied_messages),
        bytes=min(parts.copied_bytes, total.copied_bytes),
        messages_total=total.copied_messages,
        bytes_total=total.copied_bytes,
    )
