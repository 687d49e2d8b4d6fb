"""The oracle's own rules of retention and of forgotten producers, to the millisecond.

Written from docs/PROFILES.md (rules 15.1 and 15.4) and Pulsar's documentation, not from the
product's modules: both must agree.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ledgerfold.storage.entry import Position
from ledgerfold.v1.records_pb2 import LEDGER_STATE_CLOSED, LedgerRecord, Policies

HOUR_MS = 3_600_000
# A producer is forgotten if it was disconnected for longer than this, and had at least this time to
# reconnect since its topic was loaded.
AWAY_MS = 6 * HOUR_MS


class Limits(NamedTuple):
    """The limits of retention. -1: none; 0 and 0: nothing is retained."""

    age_ms: int
    size_bytes: int

    @classmethod
    def of(cls, policies: Policies) -> Limits:
        """The broker of a simulation has 0 and 0."""
        return cls(policies.retention_ms, policies.retention_bytes)

    @property
    def hides(self) -> bool:
        """Returns whether data outside the limits are hidden from the compacted view, too."""
        return self.age_ms > 0 or self.size_bytes > 0

    def let_go(self, closed_ms: int, kept_bytes: int, now_ms: int) -> bool:
        """Returns whether the oldest unneeded ledger is deleted. `kept_bytes`: of all unneeded
        ledgers, including it.
        """
        is_old = 0 <= self.age_ms <= now_ms - closed_ms
        is_much = 0 <= self.size_bytes < kept_bytes
        if self.age_ms == 0 and self.size_bytes > 0:
            return is_much
        if self.size_bytes == 0 and self.age_ms > 0:
            return is_old
        return is_old or is_much


def size_of(record: LedgerRecord) -> int:
    return sum(segment.size_bytes for segment in record.segments)


def last_of(record: LedgerRecord) -> Position | None:
    """Returns None if it is empty."""
    for segment in reversed(record.segments):
        if segment.entries:
            return Position(segment.last.ledger_id, segment.last.entry_id)
    return None


def unneeded(ledgers: Sequence[LedgerRecord], needed_from: Position) -> list[LedgerRecord]:
    """Returns the oldest ledgers that are closed, contain nothing after that entry, and are not the
    newest.
    """
    found = []
    for record in ledgers[:-1]:
        last = last_of(record)
        if record.state != LEDGER_STATE_CLOSED or (last is not None and last > needed_from):
            break
        found.append(record)
    return found


def let_go(unneeded_ones: Sequence[LedgerRecord], limits: Limits, now_ms: int) -> list[int]:
    """Returns the ids of those of the oldest ledgers that retention does not keep."""
    kept_bytes, gone = sum(map(size_of, unneeded_ones)), []
    for record in unneeded_ones:
        if not limits.let_go(record.closed_ms, kept_bytes, now_ms):
            break
        gone.append(record.ledger_id)
        kept_bytes -= size_of(record)
    return gone


def due_times(ledgers: Iterable[LedgerRecord], policies: Policies) -> list[int]:
    """Returns the times at which retention, or message TTL, releases a whole ledger, one after the
    other.
    """
    limits = [policies.retention_ms] if policies.retention_ms > 0 else []
    limits += [policies.message_ttl_ms] if policies.message_ttl_ms > 0 else []
    return [
        record.closed_ms + limit
        for record in ledgers
        if record.state == LEDGER_STATE_CLOSED
        for limit in limits
    ]
