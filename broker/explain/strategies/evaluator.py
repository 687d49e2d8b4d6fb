"""What a strategy's judge is asked, and what it says of each version, in the strategy's words.

A judge goes through the input of one run as far as it concerns one key: `meet` with each version in
order, and then `keeps`. Each says the verdicts that are known by then: a version is dropped when
something makes it so, and kept at the end; what nothing later can change is kept at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, Protocol

from ledgerfold.broker.explain.versions import Found
from ledgerfold.storage.decoded import StoredMessage
from ledgerfold.v1 import explain_pb2 as pb

# So many versions of a key are held at once, in each place where some are; what is older is not
# told. Some megabytes.
HELD_MAX = 10_000


class Decision(NamedTuple):
    """`why`, in a few words. `by`: the version that is the cause. `stays`: of one that is kept,
    what it takes to be dropped."""

    found: Found
    keeps: bool
    rule: pb.CompactionRule
    why: str
    by: Found | None = None
    stays: str = ""


class Asked(NamedTuple):
    """Of a run: its strategy, the settings of it, all of them, and its time. `read`: a message,
    value and properties included, for the strategies that want more than a key section tells."""

    name: str
    settings: Mapping[str, str]
    time_ms: int
    read: Callable[[Found], StoredMessage]


class Evaluator(Protocol):
    """Over the versions of one key, in one run."""

    def meet(self, version: Found) -> Iterable[Decision]: ...

    def keeps(self) -> Iterable[Decision]: ...


def dropped(found: Found, rule: pb.CompactionRule, why: str, by: Found | None = None) -> Decision:
    return Decision(found, False, rule, why, by)


def gone(tombstone: Found) -> Decision:
    """Of a tombstone that has had its effect."""
    return dropped(tombstone, pb.COMPACTION_RULE_TOMBSTONE, "a tombstone")


def rule_of(follower: Found) -> pb.CompactionRule:
    """What a version does to the value whose place it takes."""
    if follower.is_tombstone:
        return pb.COMPACTION_RULE_DELETED
    return pb.COMPACTION_RULE_OBSCURED
