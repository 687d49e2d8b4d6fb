"""The evaluators of `event-time` and `event-time-window`.

>>> from ledgerfold.storage.entry import Position
>>> from ledgerfold.storage.key_scan import KeyVersion
>>> evaluator = ByEventTime(EventTime())
>>> for entry_id, (event_ms, value_bytes) in enumerate([(5, 1), (3, 1), (4, 0)]):
...     key_version = KeyVersion(Position(1, entry_id), -1, 9, event_ms, value_bytes, False)
...     for decision in evaluator.process(LocatedVersion(key_version)):
...         print(decision.version.name, decision.why)
1:1 older by event time than the current 1:0
1:2 a tombstone older by event time than the current 1:0: ignored
>>> [(decision.version.name, decision.why) for decision in evaluator.keeps()]
[('1:0', 'latest by event time')]
"""

from __future__ import annotations

from collections.abc import Iterator

from ledgerfold.broker.common.clock import LAST_MS
from ledgerfold.broker.common.traffic import iso_time
from ledgerfold.broker.explain.strategies.evaluator import ByRules, Decision, dropped, replaced
from ledgerfold.broker.explain.versions import LocatedVersion
from ledgerfold.strategies.plain import EventTime, EventTimeWindow, takes_over
from ledgerfold.v1 import explain_pb2 as pb

_UNITS = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000), ("ms", 1))


class ByEventTime(ByRules):
    """An evaluator with at most one current value."""

    def __init__(self, rules: EventTime[LocatedVersion]) -> None:
        super().__init__(rules)
        # The last tombstone that was accepted.
        self._tombstone: LocatedVersion | None = None
        self._why = ""

    def process(self, version: LocatedVersion) -> Iterator[Decision]:
        current = self._rules.kept[0] if self._rules.kept else None
        if current is not None and not takes_over(version, current):
            why = _ignored(version, current)
            yield dropped(version, pb.COMPACTION_RULE_EARLIER_EVENT, why, current)
            return
        yield from super().process(version)
        if version.is_tombstone:
            self._tombstone = version
        else:
            self._why, self._tombstone = _accepted(version, self._tombstone), None

    def _on_removal(self, version: LocatedVersion, by: LocatedVersion) -> Decision:
        if _is_later(by, version):
            return replaced(version, by, f", whose event time {_time(by)} is later")
        return replaced(version, by, ", published later with the same event time")

    def _on_survival(self, version: LocatedVersion) -> Decision:
        stays = "stays until a message of its key that is not older by event time is compacted"
        return Decision(version, True, pb.COMPACTION_RULE_LATEST_EVENT, self._why, stays=stays)


class ByWindow(ByEventTime):
    """An evaluator of the old messages. A young message is kept, tombstones too, and has no
    effect.
    """

    def __init__(self, lag_ms: int, time_ms: int) -> None:
        self._window = EventTimeWindow[LocatedVersion](time_ms - lag_ms)
        super().__init__(self._window)
        self._lag = duration_text(lag_ms)

    def process(self, version: LocatedVersion) -> Iterator[Decision]:
        if self._window.is_young(version):
            why, stays = (
                f"younger than the lag of {self._lag}",
                f"stays until it is {self._lag} old",
            )
            yield Decision(version, True, pb.COMPACTION_RULE_YOUNG, why, stays=stays)
        else:
            yield from super().process(version)


def _accepted(version: LocatedVersion, tombstone: LocatedVersion | None) -> str:
    if tombstone is None or not _is_later(tombstone, version):
        return "latest by event time"
    return (
        f"older by event time than the tombstone {tombstone.name}, which was removed with its "
        "time; latest by event time since then"
    )


def _is_later(version: LocatedVersion, other: LocatedVersion) -> bool:
    return version.event_time_ms > other.event_time_ms


def _ignored(version: LocatedVersion, current: LocatedVersion) -> str:
    kind = "a tombstone " if version.is_tombstone else ""
    end = ": ignored" if version.is_tombstone else ""
    if _is_later(current, version):
        return f"{kind}older by event time than the current {current.name}{end}"
    return f"{kind}in a batch, with the same event time as the current {current.name}{end}"


def _time(version: LocatedVersion) -> str:
    time_ms = version.event_time_ms
    return iso_time(time_ms) if 0 <= time_ms <= LAST_MS else f"{time_ms} ms"


def duration_text(span_ms: int) -> str:
    """Formats a duration in the largest unit that fits: "1 h", "90 s"."""
    unit, size = next((unit, size) for unit, size in _UNITS if span_ms % size == 0)
    return f"{span_ms // size:,} {unit}" if span_ms else "0 ms"
