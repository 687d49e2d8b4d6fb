"""Selects the segments that retention deletes: whole ones, oldest first.

    >>> from types import SimpleNamespace
    >>> log = [Segment(n, n * 10, n * 10 + 10, 100, max_timestamp_ms=n) for n in range(3)]
    >>> config = SimpleNamespace(is_deleted=True, retention_bytes=250, retention_ms=-1)
    >>> found = deletable(log, config, log_start=0, high_watermark=30, now_ms=5)
    >>> found.count, found.log_start
    (0, 0)
    >>> config.retention_bytes = 200
    >>> found = deletable(log, config, log_start=0, high_watermark=30, now_ms=5)
    >>> found.count, found.log_start, found.reasons
    (1, 10, (Reason.SIZE,))

Segments below the log start are deleted under every policy; by size and by age only under `delete`.
Nothing above the high watermark is deleted, and neither is an empty last segment. If all are
deleted, the active one rolls first, and an empty one replaces it.

Source: UnifiedLog.deleteOldSegments of Kafka 4.1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from ledgerfold.kafka.segment import Segment, Segments


class Retains(Protocol):
    """The topic settings that retention depends on (broker/kafka/config/config.py). -1 is
    unlimited.
    """

    @property
    def is_deleted(self) -> bool: ...
    @property
    def retention_bytes(self) -> int: ...
    @property
    def retention_ms(self) -> int: ...


class Reason(Enum):
    LOG_START = "below the log's start"
    SIZE = "retention.bytes"
    AGE = "retention.ms"

    def __repr__(self) -> str:
        return str(self)


@dataclass(frozen=True, slots=True)
class Deletable:
    """The deletable segments: the reason for each, oldest first, and the log start without them."""

    reasons: tuple[Reason, ...]
    log_start: int
    # All segments are deleted, and a new, empty one follows.
    must_roll: bool

    @property
    def count(self) -> int:
        return len(self.reasons)


def deletable(
    segments: Segments, config: Retains, *, log_start: int, high_watermark: int, now_ms: int
) -> Deletable:
    """Returns what one pass deletes: first below the log start, then by size, then by age."""
    reasons: list[Reason] = []
    must_roll = False
    rest = list(segments)
    start = log_start
    for reason, matches in _conditions(config, now_ms):
        count = _count(rest, matches(rest, start), high_watermark)
        reasons += [reason] * count
        if count == len(rest):
            must_roll = True
            end = rest[-1].next_offset
            rest.append(Segment(-1, end, end, 0, modified_ms=now_ms))
        if count:
            del rest[:count]
            start = max(start, rest[0].base_offset)
    return Deletable(tuple(reasons), start, must_roll)


_Matches = Callable[[Segment, Segment | None], bool]
_Condition = Callable[[list[Segment], int], _Matches]


def _conditions(config: Retains, now_ms: int) -> list[tuple[Reason, _Condition]]:
    conditions: list[tuple[Reason, _Condition]] = [(Reason.LOG_START, _below_start)]
    if config.is_deleted and config.retention_bytes >= 0:
        conditions.append((Reason.SIZE, _too_much(config.retention_bytes)))
    if config.is_deleted and config.retention_ms >= 0:
        conditions.append((Reason.AGE, _too_old(now_ms, config.retention_ms)))
    return conditions


def _below_start(_: list[Segment], log_start: int) -> _Matches:
    return lambda segment, behind: behind is not None and behind.base_offset <= log_start


def _too_much(limit_bytes: int) -> _Condition:
    """Matches segments as long as the excess covers the whole segment."""

    def matches(segments: list[Segment], _: int) -> _Matches:
        excess = sum(each.size_bytes for each in segments) - limit_bytes

        def covers(segment: Segment, behind: Segment | None) -> bool:
            nonlocal excess
            if excess < 0 or excess - segment.size_bytes < 0:
                return False
            excess -= segment.size_bytes
            return True

        return covers

    return matches


def _too_old(now_ms: int, limit_ms: int) -> _Condition:
    return lambda segments, start: (
        lambda segment, behind: now_ms - segment.largest_timestamp_ms > limit_ms
    )


def _count(segments: list[Segment], matches: _Matches, high_watermark: int) -> int:
    """Returns how many of the oldest segments match."""
    for at, segment in enumerate(segments):
        behind = segments[at + 1] if at + 1 < len(segments) else None
        if high_watermark < (behind.base_offset if behind else segment.next_offset):
            return at
        if not matches(segment, behind) or (behind is None and segment.is_empty):
            return at
    return len(segments)
