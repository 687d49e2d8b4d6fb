"""Models the cleanable part of a log, its dirty ratio, and whether it is overdue.

>>> ratio_of(300, 200)
0.4
"""

from __future__ import annotations

from typing import NamedTuple

from tests.model.kafka.log import Log


class Range(NamedTuple):
    """`bound` is the uncleanable offset rounded down to a segment."""

    first_dirty: int
    first_uncleanable: int
    repair: bool
    bound: int
    clean_bytes: int
    cleanable_bytes: int
    delay_ms: int

    @property
    def is_overdue(self) -> bool:
        return self.delay_ms > 0

    @property
    def ratio(self) -> float | None:
        return ratio_of(self.clean_bytes, self.cleanable_bytes)

    @property
    def is_eligible(self) -> bool:
        return self.cleanable_bytes > 0


def ratio_of(clean_bytes: int, cleanable_bytes: int) -> float | None:
    total = clean_bytes + cleanable_bytes
    return cleanable_bytes / total if total else None


def range_of(log: Log, checkpoint: int | None, now_ms: int) -> Range:
    mark = log.start if checkpoint is None else checkpoint
    repair = mark < log.start or mark > log.end
    first_dirty = log.start if repair else mark
    uncleanable = max(
        first_dirty, min(log.stable, log.active.base, _young(log, first_dirty, now_ms))
    )
    bound = next((s.base for s in log.closed_from(uncleanable)), log.active.base)
    clean = sum(s.size for s in log.segments if s.base < first_dirty)
    cleanable = sum(s.size for s in log.between(min(first_dirty, bound), bound))
    return Range(
        first_dirty, uncleanable, repair, bound, clean, cleanable, _delay(log, first_dirty, now_ms)
    )


def _young(log: Log, first_dirty: int, now_ms: int) -> int:
    """The first segment with a record younger than the minimum lag blocks all behind it."""
    lag_ms = log.settings.min_lag_ms
    if lag_ms > 0:
        for segment in log.closed_from(first_dirty):
            if segment.largest_timestamp_ms() > now_ms - lag_ms:
                return segment.base
    return log.end


def _delay(log: Log, first_dirty: int, now_ms: int) -> int:
    began = [s.first_timestamp() for s in log.closed_from(first_dirty)]
    earliest = min((ms for ms in began if ms > 0), default=None)
    limit = now_ms - max(log.settings.max_lag_ms, 0)
    return limit - earliest if earliest is not None and earliest < limit else 0
