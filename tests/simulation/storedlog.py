"""What lies in a ledger's files, read as plainly as it can be: for the oracle.

Files grow, so what was parsed is remembered with the file until anything else happens to it.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from ledgerfold.storage.codec import decode
from ledgerfold.storage.entry import EntryHeader, Position, read_header, verify_sections
from ledgerfold.storage.errors import Corruption, IncompatibleFormat
from tests.model.strategy_model import Message
from tests.simulation.disk import Disk, File, Folder


class Row(NamedTuple):
    """One message, where it stands. Batch index -1: published alone."""

    position: Position
    batch_index: int
    key: bytes | None
    value: bytes
    event_time_ms: int


class Stored(NamedTuple):
    """An entry in a file; `end`: the offset behind it."""

    header: EntryHeader
    data: bytes
    path: Path
    end: int


def rows_of(entry: Stored) -> list[Row]:
    messages = decode(entry.data, entry.header).messages()
    return [
        Row(entry.header.position, m.batch_index, m.key, m.value, m.event_time_ms) for m in messages
    ]


def as_told(rows: Iterable[Row]) -> list[Message]:
    """As strategies see them."""
    return [
        Message(row.key, row.value, row.event_time_ms, is_alone=row.batch_index < 0) for row in rows
    ]


def scan(disk: Disk, ledgers: Path, ledger_id: int) -> dict[Position, Stored]:
    """Whole entries of a ledger's segments, in order, up to the first bad one of each file."""
    folder = disk.find(ledgers / str(ledger_id))
    found: dict[Position, Stored] = {}
    if isinstance(folder, Folder):
        for name in sorted(folder.names):
            node = folder.names[name]
            if name.endswith(".log") and isinstance(node, File):
                path = ledgers / str(ledger_id) / name
                for entry in _parse(node, path):
                    found[entry.header.position] = entry
    return found


def _parse(file: File, path: Path) -> list[Stored]:
    at: int = file.parsed[0] if file.parsed else 0
    entries: list[Stored] = file.parsed[1] if file.parsed else []
    while at < len(file.data):
        try:
            header = read_header(file.data, at)
            data = bytes(file.data[at : at + header.size_bytes])
            verify_sections(data, header)
        except (Corruption, IncompatibleFormat):
            break
        at += header.size_bytes
        entries.append(Stored(header, data, path, at))
    file.parsed = (at, entries)
    return entries
