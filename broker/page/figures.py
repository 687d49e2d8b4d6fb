"""The sizes of a topic, and the part of it that compaction has passed. Pure.

>>> segment = {"size_bytes": 80, "entries": 2, "last": {"ledger_id": 3, "entry_id": 1}}
>>> ledger = LedgerRecord(ledger_id=3, segments=[segment])
>>> found = figures([ledger], None, Position(3, 1))
>>> found.raw_bytes, found.backlog_bytes
(80, 0)
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ledgerfold.storage.entry import Position
from ledgerfold.storage.segment import live_entries, record_position
from ledgerfold.v1.records_pb2 import LedgerRecord, TopicRecord


class Figures(NamedTuple):
    """`passed_bytes`, `backlog_bytes`: the raw data up to the horizon, and after it.

    `garbage_bytes`: the part of the compacted ledger that dead messages take.
    """

    entries: int = 0
    ledgers: int = 0
    passed_bytes: int = 0
    backlog_bytes: int = 0
    compacted_bytes: int = 0
    garbage_bytes: int = 0

    @property
    def raw_bytes(self) -> int:
        return self.passed_bytes + self.backlog_bytes

    @property
    def total_bytes(self) -> int:
        return self.raw_bytes + self.compacted_bytes


def figures(
    raw: Iterable[LedgerRecord], compacted: LedgerRecord | None, horizon: Position | None
) -> Figures:
    entries = ledgers = passed = ahead = 0
    for ledger in raw:
        ledgers += 1
        for segment in ledger.segments:
            entries += live_entries(segment)
            is_passed = (
                horizon is not None
                and segment.entries > 0
                and record_position(segment, last=True) <= horizon
            )
            if is_passed:
                passed += segment.size_bytes
            else:
                ahead += segment.size_bytes
    segments = () if compacted is None else compacted.segments
    size_bytes = sum(each.size_bytes for each in segments)
    garbage = sum(each.dead.bytes for each in segments)
    return Figures(entries, ledgers, passed, ahead, size_bytes, garbage)


def horizon_of(record: TopicRecord) -> Position | None:
    """Returns the position up to which the topic is compacted; None if compaction never ran."""
    if record.HasField("compaction_moved_to"):
        at = record.compaction_moved_to
    elif record.HasField("compacted"):
        at = record.compacted.horizon
    else:
        return None
    return Position(at.ledger_id, at.entry_id)
