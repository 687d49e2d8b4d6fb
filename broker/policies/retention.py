"""The selection of raw ledgers to trim, and what keeps the others. Pure.

Rules (Pulsar: ManagedLedgerImpl.internalTrimLedgers; docs/PROFILES.md, rule 15.4):

1. Only closed ledgers are trimmed, oldest first, up to the first one that must stay.
2. Every durable cursor, and the compaction horizon if compaction is on, has passed its last entry.
   If there is neither, the profile decides whether all stay or all may be deleted.
3. Retention allows it: passed ledgers stay until they are older than the time limit or exceed the
   size limit. -1 means no limit. If both limits are 0, nothing is retained.

  >>> from ledgerfold.v1.records_pb2 import LEDGER_STATE_CLOSED
  >>> stored = {3: LedgerRecord(ledger_id=3, state=LEDGER_STATE_CLOSED), 5: LedgerRecord()}
  >>> ledgers, policies = RawLedgers([3, 5], stored.__getitem__), Policies(retention_ms=60_000)
  >>> kept_by(ledgers, Holds([Hold("cursor s", Position(5, 0))]), policies, now_ms=1)
  {3: ['retention time'], 5: ['open']}
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import NamedTuple

from ledgerfold.broker.log.ledger_record import size_bytes
from ledgerfold.broker.log.raw_ledgers import RawLedgers
from ledgerfold.storage.entry import Position
from ledgerfold.v1.records_pb2 import LedgerRecord, Policies

# The holders of a ledger that are named; the others are counted.
NAMED_MAX = 3


class Hold(NamedTuple):
    """Keeps the ledgers with an entry after `position`. `holder`: a cursor, for example."""

    holder: str
    position: Position


class _Bound(NamedTuple):
    """Keeps the ledger at index `first`, and all after it."""

    first: int
    holder: str


@dataclass(frozen=True)
class Holds:
    """The holds that keep the ledgers of a topic, except retention.

    `cursors`: cursors, the horizon and readers; `without_cursor`: ledgers may be deleted if there
    are none. `others`: further holds. `damaged`: ledgers that stay, and all after the first.
    """

    cursors: Sequence[Hold]
    others: Sequence[Hold] = ()
    damaged: Collection[int] = ()
    without_cursor: bool = False

    @property
    def lowest(self) -> Holds:
        """Returns holds that keep the same ledgers: the lowest of each kind."""
        first = [
            [min(each, key=lambda hold: hold.position)] if each else []
            for each in (self.cursors, self.others)
        ]
        return replace(self, cursors=first[0], others=first[1])

    def bounds(self, ledgers: RawLedgers) -> list[_Bound]:
        """Returns a bound for each hold, those that keep the most ledgers first."""
        holds = [*self.cursors, *self.others]
        # Cursors of many consumers are at one position.
        passed = {each: ledgers.passed_by(each) for each in {hold.position for hold in holds}}
        limits = [_Bound(passed[position], what) for what, position in holds]
        limits += [
            _Bound(ledgers.ids.index(each), f"damage of ledger {each}")
            for each in self.damaged
            if each in ledgers
        ]
        if not (self.cursors or self.without_cursor):
            limits.append(_Bound(0, "no cursor exists"))
        # The open ones, which no position passes, or the newest.
        unending = min(len(ledgers.closed()), len(ledgers.ids) - 1)
        limits.append(_Bound(max(0, unending), "newest ledger"))
        return sorted(limits, key=lambda bound: bound.first)


def ledgers_to_trim(
    ledgers: RawLedgers, holds: Holds, policies: Policies, now_ms: int
) -> list[int]:
    """Returns the ids of the ledgers to delete, oldest first.

    The cost depends on the number of deleted ledgers, not of kept ones.
    """
    passed = holds.lowest.bounds(ledgers)[0].first
    return ledgers.ids[: _expired(ledgers, passed, policies, now_ms)]


def kept_by(
    ledgers: RawLedgers, holds: Holds, policies: Policies, now_ms: int
) -> dict[int, list[str]]:
    """Returns what keeps each ledger. Nothing keeps those that the next trimming deletes."""
    bounds = holds.bounds(ledgers)
    expired = _expired(ledgers, bounds[0].first, policies, now_ms)
    holders, exhausted = dict[int, list[str]](), 0
    for index, record in enumerate(ledgers.closed()):
        while exhausted < len(bounds) and bounds[exhausted].first <= index:
            exhausted += 1
        named = [each.holder for each in bounds[: min(exhausted, NAMED_MAX)]]
        if exhausted > NAMED_MAX:
            named.append(f"{exhausted - NAMED_MAX} more")
        if not exhausted and index >= expired:
            named = _limits(policies)
        holders[record.ledger_id] = named
    return holders | {each: ["open"] for each in ledgers.ids[len(holders) :]}


def _expired(ledgers: RawLedgers, passed: int, policies: Policies, now_ms: int) -> int:
    """Counts the oldest ledgers that no limit keeps, of the `passed` that nothing else keeps."""
    kept_bytes = ledgers.bytes_of_oldest(passed)
    for count, record in enumerate(islice(ledgers.closed(), passed)):
        if not _is_deletable(record, kept_bytes, policies, now_ms):
            return count
        kept_bytes -= size_bytes(record)
    return passed


def _limits(policies: Policies) -> list[str]:
    """Returns the limits of retention, none of which is exceeded."""
    limits = {"retention time": policies.retention_ms, "retention size": policies.retention_bytes}
    return [what for what, limit in limits.items() if limit]


def has_limit(policies: Policies) -> bool:
    """Returns whether ledgers are deleted by a limit, not as soon as all cursors passed them."""
    return policies.retention_ms > 0 or policies.retention_bytes > 0


def _is_deletable(record: LedgerRecord, kept_bytes: int, policies: Policies, now_ms: int) -> bool:
    age_limit_ms, size_limit = policies.retention_ms, policies.retention_bytes
    too_old = age_limit_ms >= 0 and now_ms - record.closed_ms >= age_limit_ms
    too_much = size_limit >= 0 and kept_bytes > size_limit
    # A limit of 0 with a positive one would delete everything at once: the positive limit wins.
    if age_limit_ms == 0 and size_limit > 0:
        return too_much
    if size_limit == 0 and age_limit_ms > 0:
        return too_old
    return too_old or too_much
