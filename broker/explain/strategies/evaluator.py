"""The protocol of evaluators: their input, and their decisions about each version.

An evaluator processes the part of one run's input that concerns one key: `meet` with each version
in order, then `keeps`. Each returns the decisions that are final by then: a version is dropped as
soon as its successor is known, and kept at the end, or at once if nothing later can change that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, Protocol

from ledgerfold.broker.explain.versions import Found
from ledgerfold.storage.decoded import StoredMessage
from ledgerfold.v1 import explain_pb2 as pb

# The number of versions of a key that each structure holds at once; older ones are not explained.
# They take a few megabytes.
HELD_MAX = 10_000


class Decision(NamedTuple):
    """A decision about a version. `why`: in a few words. `by`: the version that caused it.

    `stays`: for a kept version, what must happen until it is dropped.
    """

    found: Found
    keeps: bool
    rule: pb.CompactionRule
    why: str
    by: Found | None = None
    stays: str = ""


class Asked(NamedTuple):
    """The parameters of a run: its strategy, all settings, and its time.

    `read`: reads a message with value and properties, for strategies that need more than key
    sections.
    """

    name: str
    settings: Mapping[str, str]
    time_ms: int
    read: Callable[[Found], StoredMessage]


class Evaluator(Protocol):
    """An evaluator of the versions of one key, in one run."""

    def meet(self, version: Found) -> Iterable[Decision]: ...

    def keeps(self) -> Iterable[Decision]: ...


def dropped(found: Found, rule: pb.CompactionRule, why: str, by: Found | None = None) -> Decision:
    return Decision(found, False, rule, why, by)


def applied(tombstone: Found) -> Decision:
    """Returns the decision about a tombstone that has been applied."""
    return dropped(tombstone, pb.COMPACTION_RULE_TOMBSTONE, "a tombstone")


def rule_of(follower: Found) -> pb.CompactionRule:
    """Returns the rule by which a version replaces the current value."""
    if follower.is_tombstone:
        return pb.COMPACTION_RULE_DELETED
    return pb.COMPACTION_RULE_OBSCURED
