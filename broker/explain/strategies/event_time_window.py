"""The evaluator of `event-time-window`: `event-time`, except for messages younger than a lag.

A message's age is the run's time minus its event time, or else its publish time. Younger messages,
tombstones too, are kept unchanged, and supersede nothing.

    >>> from ledgerfold.storage.entry import Position
    >>> from ledgerfold.storage.key_scan import KeyVersion
    >>> evaluator = EventTimeWindow(lag_ms=3_600_000, time_ms=9_000_000)
    >>> tombstone = KeyVersion(Position(1, 0), -1, 8_000_000, 0, 0, False)
    >>> [decision.why for decision in evaluator.meet(Found(tombstone))]
    ['younger than the lag of 1 h']
"""

from __future__ import annotations

from collections.abc import Iterator

from ledgerfold.broker.explain.strategies.evaluator import Decision
from ledgerfold.broker.explain.strategies.event_time import EventTime
from ledgerfold.broker.explain.versions import Found
from ledgerfold.v1 import explain_pb2 as pb

_UNITS = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000), ("ms", 1))


class EventTimeWindow:
    """An evaluator that passes the old messages to an `EventTime`."""

    def __init__(self, lag_ms: int, time_ms: int) -> None:
        self._lag_ms, self._time_ms = lag_ms, time_ms
        self._old = EventTime()

    def meet(self, version: Found) -> Iterator[Decision]:
        if self._is_young(version):
            lag = duration_text(self._lag_ms)
            yield Decision(
                version,
                True,
                pb.COMPACTION_RULE_YOUNG,
                f"younger than the lag of {lag}",
                stays=f"stays until it is {lag} old",
            )
        else:
            yield from self._old.meet(version)

    def keeps(self) -> Iterator[Decision]:
        return self._old.keeps()

    def _is_young(self, version: Found) -> bool:
        at_ms = version.version.event_time_ms or version.version.publish_time_ms
        return self._time_ms - at_ms < self._lag_ms


def duration_text(span_ms: int) -> str:
    """Formats a duration in the largest unit that fits: "1 h", "90 s"."""
    unit, size = next((unit, size) for unit, size in _UNITS if span_ms % size == 0)
    return f"{span_ms // size:,} {unit}" if span_ms else "0 ms"
