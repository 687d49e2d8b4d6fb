"""Evaluators: the decisions of one run about the versions of one key, with their reasons.

An evaluator gets the part of a run's input that concerns one key: `process` gets each version in
order, then `keeps` is called. Each call returns the decisions that have become final: a version is
dropped as soon as its successor is known. It is kept at the end, or at once if no later version can
change that. The rules are those of ledgerfold/strategies/plain.py; a subclass only describes them.

    >>> from ledgerfold.storage.entry import Position
    >>> from ledgerfold.storage.key_scan import KeyVersion
    >>> evaluator = ByRules(PublishingOrder())
    >>> for entry_id, value_bytes in enumerate((1, 0, 1)):
    ...     found = LocatedVersion(KeyVersion(Position(1, entry_id), -1, 5, 0, value_bytes, False))
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

from ledgerfold.broker.explain.versions import LocatedVersion
from ledgerfold.storage.decoded import StoredMessage
from ledgerfold.storage.text import counted
from ledgerfold.strategies.plain import KeepN, PublishingOrder
from ledgerfold.v1 import explain_pb2 as pb

# The number of versions of a key that each structure holds at once; older ones are not explained.
# They take a few megabytes.
HELD_MAX = 10_000


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

    version: LocatedVersion
    keeps: bool
    rule: pb.CompactionRule
    reason: str
    by: LocatedVersion | None = None
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
    read: Callable[[LocatedVersion], StoredMessage]


class Evaluator(Protocol):
    """An evaluator of the versions of one key, in one run."""

    def process(self, version: LocatedVersion) -> Iterable[Decision]: ...

    def keeps(self) -> Iterable[Decision]: ...


def dropped(
    version: LocatedVersion, rule: pb.CompactionRule, why: str, by: LocatedVersion | None = None
) -> Decision:
    return Decision(version, False, rule, why, by)


def applied(tombstone: LocatedVersion) -> Decision:
    """Returns the decision about a tombstone that has been applied."""
    return dropped(tombstone, pb.COMPACTION_RULE_TOMBSTONE, "a tombstone")


def replaced(version: LocatedVersion, by: LocatedVersion, reason: str = "") -> Decision:
    """Returns the decision about a current value that another version replaces or deletes."""
    is_deleted = by.is_tombstone
    rule = pb.COMPACTION_RULE_DELETED if is_deleted else pb.COMPACTION_RULE_OBSCURED
    return Decision(version, False, rule, reason, by)


class ByRules:
    """The evaluator of `publishing-order`, and the base of those of other strategies."""

    def __init__(self, rules: PublishingOrder[LocatedVersion]) -> None:
        self._rules = rules

    def process(self, version: LocatedVersion) -> Iterator[Decision]:
        for removed in self._rules.process(version).removed:
            yield self._on_removal(removed, version)
        if version.is_tombstone:
            yield applied(version)

    def keeps(self) -> Iterator[Decision]:
        for survivor in self._rules.kept:
            yield self._on_survival(survivor)

    def _on_removal(self, version: LocatedVersion, by: LocatedVersion) -> Decision:
        return replaced(version, by)

    def _on_survival(self, version: LocatedVersion) -> Decision:
        stays = "stays until a newer value or a tombstone of its key is compacted"
        return Decision(version, True, pb.COMPACTION_RULE_NEWEST, "newest", stays=stays)


class LastN(ByRules):
    """The evaluator of `keep-n`. Bound: if n is larger, the last HELD_MAX."""

    def __init__(self, n: int) -> None:
        super().__init__(KeepN(n))
        self._n = n

    def process(self, version: LocatedVersion) -> Iterator[Decision]:
        yield from super().process(version)
        if len(self._rules.kept) > HELD_MAX:
            self._rules.kept.popleft()

    def _on_removal(self, version: LocatedVersion, by: LocatedVersion) -> Decision:
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


class Own:
    """The evaluator of the user-defined strategy `name`: its code is never run in the broker.

    Messages in the compacted ledger were kept. Of the other messages, only those in the input of
    the last run are known to have been dropped. The strategy itself determines only the next run's
    decisions.
    """

    def __init__(self, name: str) -> None:
        self._why = f"the code of {name!r} decides"

    def process(self, version: LocatedVersion) -> Iterable[Decision]:
        keeps = version.in_compacted
        return [Decision(version, keeps, pb.COMPACTION_RULE_OWN_CODE, self._why)]

    def keeps(self) -> Iterable[Decision]:
        return ()
