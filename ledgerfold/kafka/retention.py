"""Which segments go: whole ones, from the oldest on, as far as the policy lets them.

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

A segment below the log's start goes under every policy; by size and by age only where `delete` is
in it. Nothing that the high watermark has not passed goes, nor an empty last segment. When all go,
the active one ends first and an empty one takes its place.

Source: UnifiedLog.deleteOldSegments of Kafka 4.1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from ledgerfold.kafka.segment import Segment, Segments


class Retains(Protocol):
    """What retention asks of a topic's settings: broker/kafka/config/config.py has them all.

    -1: without a bound.
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
class Doomed:
    """The oldest segments, so many, each with its reason; where the log begins without them."""

    reasons: tuple[Reason, ...]
    log_start: int
    # All of them go: a new, empty segment follows.
    must_roll: bool

    @property
    def count(self) -> int:
        return len(self.reasons)


def deletable(
    segments: Segments, config: Retains, *, log_start: int, high_watermark: int, now_ms: int
) -> Doomed:
    """What one pass takes: first below the start, then by size, then by age."""
    reasons: list[Reason] = []
    must_roll = False
    rest = list(segments)
    start = log_start
    for reason, goes in _conditions(config, now_ms):
        count = _count(rest, goes(rest, start), high_watermark)
        reasons += [reason] * count
        if count == len(rest):
            must_roll = True
            end = rest[-1].next_offset
            rest.append(Segment(-1, end, end, 0, modified_ms=now_ms))
        if count:
            del rest[:count]
            start = max(start, rest[0].base_offset)
    return Doomed(tuple(reasons), start, must_roll)


_Goes = Callable[[Segment, Segment | None], bool]
_Condition = Callable[[list[Segment], int], _Goes]


def _conditions(config: Retains, now_ms: int) -> list[tuple[Reason, _Condition]]:
    found: list[tuple[Reason, _Condition]] = [(Reason.LOG_START, _below_start)]
    if config.is_deleted and config.retention_bytes >= 0:
        found.append((Reason.SIZE, _too_much(config.retention_bytes)))
    if config.is_deleted and config.retention_ms >= 0:
        found.append((Reason.AGE, _too_old(now_ms, config.retention_ms)))
    return found


def _below_start(_: list[Segment], log_start: int) -> _Goes:
    return lambda segment, behind: behind is not None and behind.base_offset <= log_start


def _too_much(limit_bytes: int) -> _Condition:
    """As long as what is too much covers the whole segment."""

    def goes(segments: list[Segment], _: int) -> _Goes:
        excess = sum(each.size_bytes for each in segments) - limit_bytes

        def covers(segment: Segment, behind: Segment | None) -> bool:
            nonlocal excess
            if excess < 0 or excess - segment.size_bytes < 0:
                return False
            excess -= segment.size_bytes
            return True

        return covers

    return goes


def _too_old(now_ms: int, limit_ms: int) -> _Condition:
    return lambda segments, start: (
        lambda segment, behind: now_ms - segment.largest_timestamp_ms > limit_ms
    )


def _count(segments: list[Segment], goes: _Goes, high_watermark: int) -> int:
    """How many of the oldest."""
    for at, segment in enumerate(segments):
        behind = segments[at + 1] if at + 1 < len(segments) else None
        if high_watermark < (behind.base_offset if behind else segment.next_offset):
            return at
        if not goes(segment, behind) or (behind is None and segment.is_empty):
            return at
    return len(segments)
