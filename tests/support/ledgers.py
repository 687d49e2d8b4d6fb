"""Entries and ledgers for tests of storage."""

from __future__ import annotations

import os
from pathlib import Path

from ledgerfold.storage.entry import (
    HEADER_BYTES_MIN,
    EntryFields,
    Position,
    build_entry,
    crc32c,
    read_header,
    stamp,
)
from ledgerfold.storage.ledger import LedgerWriter
from ledgerfold.storage.names import parse_segment_name


def append(
    writer: LedgerWriter,
    *,
    value_bytes: int = 20,
    publish_time_ms: int | None = None,
    append_time_ms: int = 1,
) -> tuple[Position, bytes]:
    """Queues one entry of one message, unlike any other; its position and its bytes as stored.

    The exception is the field for the durable length at that time: here it is 0 (see `plain`).
    """
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
    body = memoryview(frame)[header.header_bytes :]
    position = writer.append(header, (body,), append_time_ms, 1)
    return position, stamp(frame, *position, append_time_ms, 1)


def plain(entry: bytes) -> bytes:
    """A stored entry as if nothing had been durable when it was written."""
    header = read_header(entry)
    return stamp(entry, *header.position, header.append_time_ms, header.producer_number)


def as_version_1(entry: bytes) -> bytes:
    """The same entry as a build before version 2 would have sent or stored it."""
    header = read_header(entry)
    body = b"\x01" + entry[5:HEADER_BYTES_MIN]
    return crc32c(body).to_bytes(4, "little") + body + entry[header.header_bytes :]


def is_segment(name: str) -> bool:
    """Returns whether a file in a ledger's folder is a segment: not its label, nor a torn copy."""
    return parse_segment_name(name) is not None


def deleted_but_open(folder: Path) -> list[str]:
    """Files of that folder whose bytes stay on the disk, for this process has them open."""
    links = []
    for name in os.listdir("/proc/self/fd"):
        try:
            links.append(os.readlink(f"/proc/self/fd/{name}"))
        except FileNotFoundError:
            continue
    return [each for each in links if each.startswith(str(folder)) and each.endswith("(deleted)")]
