"""Computes the cleanable range of a log, its dirty ratio, and whether it is overdue.

    >>> from types import SimpleNamespace
    >>> log = [Segment(n, n * 10, n * 10 + 10, 100, max_timestamp_ms=n) for n in range(5)]
    >>> view = LogView(log, log_start=0, log_end=50, last_stable_offset=45)
    >>> lags = SimpleNamespace(min_compaction_lag_ms=0, max_compaction_lag_ms=2**63 - 1)
    >>> found = plan(view, checkpoint=20, config=lags, now_ms=9)
    >>> found.first_dirty_offset, found.bound, found.clean_bytes, found.cleanable_bytes, found.ratio
    (20, 40, 200, 200, 0.5)

The range begins at the checkpoint, or at the log start if the checkpoint is invalid. It ends at the
smallest of the last stable offset, the active segment's base offset and, under
`min.compaction.lag.ms`, the base offset of the first closed segment that is too young. A segment is
never split at that end: `bound` is the base offset of the segment that holds it.

Source: LogCleanerManager.cleanableOffsets, calculateCleanableBytes and maxCompactionDelay,
LogToClean of Kafka 4.1.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from ledgerfold.kafka.segment import (
    NO_TIMESTAMP,
    Segment,
    Segments,
    closed_from,
    floor_index,
)

_LONG_MAX = 2**63 - 1


class HasLags(Protocol):
    """The topic settings that the range depends on (broker/kafka/config/config.py)."""

    @property
    def min_compaction_lag_ms(self) -> int: ...
    @property
    def max_compaction_lag_ms(self) -> int: ...


class Limit(Enum):
    """The limit at which the range ends: the first of the smallest."""

    LAST_STABLE_OFFSET = "last stable offset"
    ACTIVE_SEGMENT = "active segment"
    MIN_COMPACTION_LAG = "min.compaction.lag.ms"


@dataclass(frozen=True, slots=True)
class LogView:
    """A log as the cleaner sees it. `segments`: all segments, the active one last."""

    segments: Segments
    log_start: int
    log_end: int
    last_stable_offset: int


@dataclass(frozen=True, slots=True)
class Plan:
    """A cleaning plan. `must_repair`: the checkpoint is invalid and must be rewritten."""

    first_dirty_offset: int
    first_uncleanable_offset: int
    # The exclusive end of a cleaning: first_uncleanable_offset, rounded down to its segment's base.
    bound: int
    clean_bytes: int
    cleanable_bytes: int
    # The time by which max.compaction.lag.ms is exceeded, or 0.
    delay_ms: int
    must_repair: bool
    limit: Limit

    @property
    def ratio(self) -> float | None:
        """The dirty ratio; None if nothing is clean or cleanable."""
        total = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total if total else None

    @property
    def is_overdue(self) -> bool:
        return self.delay_ms > 0

    def is_eligible(self, min_ratio: float) -> bool:
        """Returns whether the ratio exceeds `min_ratio`, or the log is overdue and cleanable."""
        ratio = self.ratio
        if ratio is None:
            return False
        return (self.is_overdue and self.cleanable_bytes > 0) or ratio > min_ratio


def plan(log: LogView, checkpoint: int | None, config: HasLags, now_ms: int) -> Plan:
    first_dirty, must_repair = first_dirty_offset(log, checkpoint)
    uncleanable, limit = _first_uncleanable(log, first_dirty, config.min_compaction_lag_ms, now_ms)
    bound = _bound(log.segments, uncleanable)
    clean = sum(each.size_bytes for each in log.segments if each.base_offset < first_dirty)
    cleanable = sum(each.size_bytes for each in _between(log.segments, first_dirty, bound))
    delay_ms = _delay_ms(log.segments, first_dirty, config.max_compaction_lag_ms, now_ms)
    return Plan(first_dirty, uncleanable, bound, clean, cleanable, delay_ms, must_repair, limit)


def first_dirty_offset(log: LogView, checkpoint: int | None) -> tuple[int, bool]:
    """Returns the first dirty offset, and whether the checkpoint must be repaired."""
    if checkpoint is None:
        return log.log_start, False
    if not log.log_start <= checkpoint <= log.log_end:
        return log.log_start, True
    return checkpoint, False


def _first_uncleanable(
    log: LogView, first_dirty: int, min_lag_ms: int, now_ms: int
) -> tuple[int, Limit]:
    limits = [
        (log.last_stable_offset, Limit.LAST_STABLE_OFFSET),
        (log.segments[-1].base_offset, Limit.ACTIVE_SEGMENT),
    ]
    if min_lag_ms > 0:
        young = next(
            (
                each
                for each in closed_from(log.segments, first_dirty)
                if each.largest_timestamp_ms > now_ms - min_lag_ms
            ),
            None,
        )
        if young:
            limits.append((young.base_offset, Limit.MIN_COMPACTION_LAG))
    offset, limit = min(limits, key=lambda each: each[0])
    return max(first_dirty, offset), limit


def _bound(segments: Segments, uncleanable: int) -> int:
    """Returns the base offset of the closed segment that holds the offset, or of the active one."""
    return next(iter(closed_from(segments, uncleanable)), segments[-1]).base_offset


def _between(segments: Segments, first_dirty: int, bound: int) -> Iterator[Segment]:
    """Yields the segments from that of the first dirty offset up to the bound, exclusive."""
    if first_dirty >= bound:
        return
    for each in segments[floor_index(segments, first_dirty) :]:
        if each.base_offset >= bound:
            return
        yield each


def _delay_ms(segments: Segments, first_dirty: int, max_lag_ms: int, now_ms: int) -> int:
    """Returns how long the oldest known first-batch timestamp exceeds the maximum lag."""
    dates = [
        each.first_batch_timestamp_ms
        for each in closed_from(segments, first_dirty)
        if each.first_batch_timestamp_ms > 0
    ]
    if not dates:
        return 0
    return max(0, now_ms - max(0, max_lag_ms) - min(dates))


def delete_horizon_ms(now_ms: int, delete_retention_ms: int) -> int:
    """Returns the delete horizon that a cleaning sets; NO_TIMESTAMP if it would exceed 64 bits.

    A tombstone without one is never removed, but each cleaning may set one later. Source:
    MemoryRecords.filterTo and MemoryRecordsBuilder.hasDeleteHorizonMs of Kafka 4.1, where such a
    sum is negative.

    >>> delete_horizon_ms(1000, 86_400_000), delete_horizon_ms(1000, 2**63 - 1)
    (86401000, -1)
    """
    horizon_ms = now_ms + delete_retention_ms
    return horizon_ms if horizon_ms <= _LONG_MAX else NO_TIMESTAMP
