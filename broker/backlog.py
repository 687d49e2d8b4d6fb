"""How many raw bytes lie behind a position: exactly, or as Pulsar estimates it. Pure.

Exact counts whole segments, which is enough for the horizon: a run's range ends where a segment
ends. The estimate takes whole ledgers, and of the ledger in which the position stands the share of
its entries (ManagedLedgerImpl.getEstimatedBacklogSize; reference section 11.3).
"""

from __future__ import annotations

from typing import Protocol

from ledgerfold.v1.records_pb2 import LedgerRecord

from broker.retention import last_entry
from storage.entry import Position


class RawLedgers(Protocol):
    """What is needed of a topic's log (broker/log.py)."""

    def ledger_records(self) -> list[LedgerRecord]: ...
    def entries_between(self, after: Position, upto: Position) -> int: ...


def bytes_behind(position: Position, log: RawLedgers) -> int:
    """Of all segments that end behind it."""
    return sum(
        segment.size_bytes
        for record in log.ledger_records()
        for segment in record.segments
        if segment.entries and (segment.last.ledger_id, segment.last.entry_id) > position
    )


def estimated_bytes_behind(position: Position, log: RawLedgers) -> int:
    size_bytes = 0
    for record in log.ledger_records():
        last = last_entry(record)
        if last is None or last <= position:
            continue
        ledger_bytes = sum(segment.size_bytes for segment in record.segments)
        if record.ledger_id == position.ledger_id:
            entries = sum(segment.entries for segment in record.segments)
            ledger_bytes = ledger_bytes * log.entries_between(position, last) // entries
        size_bytes += ledger_bytes
    return size_bytes
