"""Evaluators: the decisions of one run about the versions of one key, with their reasons.

An evaluator gets the part of a run's input that concerns one key: `process` gets each version in
order, then `keeps` is called. Each call returns the decisions that have become final: a version is
dropped as soon as its successor is known. It is kept at the end, or at once if no later version can
change that. The rules are those of ledgerfold/strategies/plain.py; a subclass only describes them.

    >>> from ledgerfold.storage.entry import Position
    >>> from ledgerfold.storage.key_scan import KeyVersion
    >>> evaluator = ByRules(PublishingOrder())
    >>> for entry_id, value_bytes in enumerate((1, 0, 1)):
    ...     found = KeyVersion(Position(1, entry_id), -1, 5, 0, value_bytes, False)
    ...     for decision in evaluator.process(found):
    ...         print(decision.version.name, decision.why)
    1:0 deleted by 1:1
    1:1 a tombstone
    >>> [(decision.version.name, decision.why) for decision in evaluator.keeps()]
    [('1:2', 'newest')]
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple, Protocol

from ledgerfold.broker.common.clock import LAST_MS
from ledgerfold.broker.common.traffic import iso_time
from ledgerfold.storage.decoded import StoredMessage
from ledgerfold.storage.key_scan import KeyVersion
from ledgerfold.storage.text import counted
from ledgerfold.strategies.plain import (
    EventTime,
    EventTimeWindow,
    KeepN,
    PublishingOrder,
    takes_over,
)
from ledgerfold.v1 import explain_pb2 as pb

# The number of versions of a key that each structure holds at once; older ones are not explained.
# They take a few megabytes.
HELD_MAX = 10_000
_UNITS = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000), ("ms", 1))


# The text before the name of the version that replaces or deletes another one.
_REPLACED = {
    pb.COMPACTION_RULE_OBSCURED: "superseded by",
    pb.COMPACTION_RULE_DELETED: "deleted by",
}


class Decision(NamedTuple):
    """A decision about a version. `by`: the version that caused it.

    `reason`: in a few words; for a version that `by` replaces or deletes, what to add to that.
    `stays`: for a kept version, what must happen until it is dropped.
    """

    version: KeyVersion
    keeps: bool
    rule: pb.CompactionRule
    reason: str
    by: KeyVersion | None = None
    stays: str = ""

    @property
    def why(self) -> str:
        """The reason as text. Formatted on demand: most decisions of a long history are not
        shown.
        """
        verb = _REPLACED.get(self.rule)
        if verb is None or self.by is None:
            return self.reason
        return f"{verb} {self.by.name}{self.reason}"


class RunParameters(NamedTuple):
    """The parameters of a run: its strategy, all settings, and its time.

    `read`: reads a message with value and properties, for strategies that need more than key
    sections.
    """

    name: str
    settings: Mapping[str, str]
    time_ms: int
    read: Callable[[KeyVersion], StoredMessage]


class Evaluator(Protocol):
    """An evaluator of the versions of one key, in one run."""

    def process(self, version: KeyVersion) -> Iterable[Decision]: ...

    def keeps(self) -> Iterable[Decision]: ...


def dropped(
    version: KeyVersion, rule: pb.CompactionRule, why: str, by: KeyVersion | None = None
) -> Decision:
    return Decision(version, False, rule, why, by)


def applied(tombstone: KeyVersion) -> Decision:
    """Returns the decision about a tombstone that has been applied."""
    return dropped(tombstone, pb.COMPACTION_RULE_TOMBSTONE, "a tombstone")


def replaced(version: KeyVersion, by: KeyVersion, reason: str = "") -> Decision:
    """Returns the decision about a current value that another version replaces or deletes."""
    is_deleted = by.is_tombstone
    rule = pb.COMPACTION_RULE_DELETED if is_deleted else pb.COMPACTION_RULE_OBSCURED
    return Decision(version, False, rule, reason, by)


class ByRules:
    """The evaluator of `publishing-order`, and the base of those of other strategies."""

    def __init__(self, rules: PublishingOrder[KeyVersion]) -> None:
        self._rules = rules

    def process(self, version: KeyVersion) -> Iterator[Decision]:
        for removed in self._rules.process(version).removed:
            yield self._on_removal(removed, version)
        if version.is_tombstone:
            yield applied(version)

    def keeps(self) -> Iterator[Decision]:
        for survivor in self._rules.kept:
            yield self._on_survival(survivor)

    def _on_removal(self, version: KeyVersion, by: KeyVersion) -> Decision:
        return replaced(version, by)

    def _on_survival(self, version: KeyVersion) -> Decision:
        stays = "stays until a newer value or a tombstone of its key is compacted"
        return Decision(version, True, pb.COMPACTION_RULE_NEWEST, "newest", stays=stays)


class LastN(ByRules):
    """The evaluator of `keep-n`. Bound: if n is larger, the last HELD_MAX."""

    def __init__(self, n: int) -> None:
        super().__init__(KeepN(n))
        self._n = n

    def process(self, version: KeyVersion) -> Iterator[Decision]:
        yield from super().process(version)
        if len(self._rules.kept) > HELD_MAX:
            self._rules.kept.popleft()

    def _on_removal(self, version: KeyVersion, by: KeyVersion) -> Decision:
        if by.is_tombstone:
            return replaced(version, by)
        why = f"not the last: {by.name} is newer"
        if self._n > 1:
            newer = f"{self._rules.kept[0].name} to {by.name}"
            why = f"not one of the last {self._n:,}: {newer} are newer"
        return dropped(version, pb.COMPACTION_RULE_BEYOND_N, why, by)

    def keeps(self) -> Iterator[Decision]:
        why = "the last" if self._n == 1 else f"one of the last {self._n:,}"
        survivors = self._rules.kept
        for newer, survivor in zip(range(len(survivors) - 1, -1, -1), survivors, strict=True):
            values = counted(self._n - newer, "more value")
            stays = f"stays until {values}, or a tombstone, of its key are compacted"
            yield Decision(survivor, True, pb.COMPACTION_RULE_LAST_N, why, stays=stays)


class ByEventTime(ByRules):
    """The evaluator of `event-time`, with at most one current value.

    >>> from ledgerfold.storage.entry import Position
    >>> from ledgerfold.storage.key_scan import KeyVersion
    >>> evaluator = ByEventTime(EventTime())
    >>> for entry_id, (event_ms, value_bytes) in enumerate([(5, 1), (3, 1), (4, 0)]):
    ...     version = KeyVersion(Position(1, entry_id), -1, 9, event_ms, value_bytes, False)
    ...     for decision in evaluator.process(version):
    ...         print(decision.version.name, decision.why)
    1:1 older by event time than the current 1:0
    1:2 a tombstone older by event time than the current 1:0: ignored
    >>> [(decision.version.name, decision.why) for decision in evaluator.keeps()]
    [('1:0', 'latest by event time')]
    """

    def __init__(self, rules: EventTime[KeyVersion]) -> None:
        super().__init__(rules)
        # The last tombstone that was accepted.
        self._tombstone: KeyVersion | None = None
        self._why = ""

    def process(self, version: KeyVersion) -> Iterator[Decision]:
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

    def _on_removal(self, version: KeyVersion, by: KeyVersion) -> Decision:
        if _is_later(by, version):
            return replaced(version, by, f", whose event time {_time(by)} is later")
        return replaced(version, by, ", published later with the same event time")

    def _on_survival(self, version: KeyVersion) -> Decision:
        stays = "stays until a message of its key that is not older by event time is compacted"
        return Decision(version, True, pb.COMPACTION_RULE_LATEST_EVENT, self._why, stays=stays)


class ByWindow(ByEventTime):
    """The evaluator of `event-time-window`. A young message is kept, tombstones too, and has no
    effect.
    """

    def __init__(self, lag_ms: int, time_ms: int) -> None:
        self._window = EventTimeWindow[KeyVersion](time_ms - lag_ms)
        super().__init__(self._window)
        self._lag = _duration(lag_ms)

    def process(self, version: KeyVersion) -> Iterator[Decision]:
        if self._window.is_young(version):
            why, stays = (
                f"younger than the lag of {self._lag}",
                f"stays until it is {self._lag} old",
            )
            yield Decision(version, True, pb.COMPACTION_RULE_YOUNG, why, stays=stays)
        else:
            yield from super().process(version)


class Own:
    """The evaluator of the user-defined strategy `name`: its code is never run in the broker.

    Messages in the compacted ledger were kept. Of the other messages, only those in the input of
    the last run are known to have been dropped. The strategy itself determines only the next run's
    decisions.
    """

    def __init__(self, name: str) -> None:
        self._why = f"the code of {name!r} decides"

    def process(self, version: KeyVersion) -> Iterable[Decision]:
        keeps = version.in_compacted
        return [Decision(version, keeps, pb.COMPACTION_RULE_OWN_CODE, self._why)]

    def keeps(self) -> Iterable[Decision]:
        return ()


def _accepted(version: KeyVersion, tombstone: KeyVersion | None) -> str:
    if tombstone is None or not _is_later(tombstone, version):
        return "latest by event time"
    return (
        f"older by event time than the tombstone {tombstone.name}, which was removed with its "
        "time; latest by event time since then"
    )


def _is_later(version: KeyVersion, other: KeyVersion) -> bool:
    return version.event_time_ms > other.event_time_ms


def _ignored(version: KeyVersion, current: KeyVersion) -> str:
    kind = "a tombstone " if version.is_tombstone else ""
    end = ": ignored" if version.is_tombstone else ""
    if _is_later(current, version):
        return f"{kind}older by event time than the current {current.name}{end}"
    return f"{kind}in a batch, with the same event time as the current {current.name}{end}"


def _time(version: KeyVersion) -> str:
    time_ms = version.event_time_ms
    return iso_time(time_ms) if 0 <= time_ms <= LAST_MS else f"{time_ms} ms"


def _duration(span_ms: int) -> str:
    """Formats a duration in the largest unit that fits: "1 h", "90 s"."""
    unit, size = next((unit, size) for unit, size in _UNITS if span_ms % size == 0)
    return f"{span_ms // size:,} {unit}" if span_ms else "0 ms"
