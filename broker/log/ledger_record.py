"""Entry ids of a raw ledger whose entries a repair could not restore. Pure.

No entry has these ids and no count includes them. The ledger's record lists them in order
(docs/FORMATS.md, "Metadata"). Almost all ledgers have none.

  >>> record = LedgerRecord(lost=[{"first_entry_id": 3, "last_entry_id": 5}])
  >>> lost_between(record, 0, 4), nth_before(record, 7, 2)
  (2, 2)
"""

from __future__ import annotations

from ledgerfold.storage.entry import Position, position_of
from ledgerfold.v1.records_pb2 import LedgerRecord, TopicRecord


def last_entry(record: LedgerRecord) -> Position | None:
    """Returns the last position of a ledger according to its record, None if it is empty."""
    for segment in reversed(record.segments):
        if segment.entries:
            return position_of(segment.last)
    return None


def size_bytes(record: LedgerRecord) -> int:
    """Returns the size of all segments."""
    return sum(segment.size_bytes for segment in record.segments)


def all_ledger_ids(record: TopicRecord) -> list[int]:
    """Returns all ledger ids of a topic: raw, compacted and cleaned."""
    compacted = [record.compacted.ledger_id] if record.HasField("compacted") else []
    cleaned = (each for segment in record.kafka.segments for each in segment.ledger_ids)
    return sorted({*record.ledger_ids, *cleaned, *compacted})


def lost_between(record: LedgerRecord, after: int, through: int) -> int:
    """Counts lost entry ids e with after < e <= through."""
    return sum(
        max(0, min(each.last_entry_id, through) - max(each.first_entry_id, after + 1) + 1)
        for each in record.lost
    )


def nth_before(record: LedgerRecord, entry_id: int, count: int) -> int:
    """Returns the id of the `count`-th entry before the one that has `entry_id`."""
    entry_at = entry_id - count
    for each in reversed(record.lost):
        if each.first_entry_id <= entry_id and entry_at <= each.last_entry_id:
            entry_at -= each.last_entry_id - each.first_entry_id + 1
    return entry_at
