"""Entries and ledgers for tests of storage."""

from __future__ import annotations

from storage.entry import EntryFields, Position, build_entry, read_header, stamped_header
from storage.ledger import LedgerWriter


def append(
    writer: LedgerWriter,
    *,
    value_bytes: int = 20,
    publish_time_ms: int | None = None,
    append_time_ms: int = 1,
) -> tuple[Position, bytes]:
    """Queues one entry of one message, unlike any other; its position and its bytes as stored."""
    number = writer.next_entry_id
    value = f"{writer.ledger_id}:{number} ".encode()
    frame = build_entry(
        b"key %d" % number,
        value.ljust(value_bytes, b"v"),
        EntryFields(
            message_count=1,
            sequence_id=number,
            publish_time_ms=number if publish_time_ms is None else publish_time_ms,
        ),
    )
    header = read_header(frame)
    stamped = stamped_header(header, writer.ledger_id, number, append_time_ms, 1)
    body = memoryview(frame)[len(stamped) :]
    return writer.append(header, stamped, body), stamped + bytes(body)
