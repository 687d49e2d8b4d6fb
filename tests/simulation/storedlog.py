"""Reads the files of a ledger in the simplest way, for the oracle.

Files only grow, so the parsed entries are cached until something else happens to the file.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from ledgerfold.storage.codec import decode
from ledgerfold.storage.decoded import StoredMessage
from ledgerfold.storage.entry import EntryHeader, Position, crc32c, read_header, verify_sections
from ledgerfold.storage.errors import Corruption, IncompatibleFormat
from ledgerfold.v1.records_pb2 import SegmentRecord
from tests.model.strategic_model import renumbered
from tests.simulation.disk import Disk, File, Folder


class Row(NamedTuple):
    """One message and its place."""

    position: Position
    publish_time_ms: int
    message: StoredMessage

    @property
    def key(self) -> bytes | None:
        return self.message.key


class Stored(NamedTuple):
    """An entry in a file; `end` is the offset after it."""

    header: EntryHeader
    data: bytes
    path: Path
    end: int


def rows_of(entry: Stored) -> list[Row]:
    header = entry.header
    messages = decode(entry.data, header).messages()
    return [Row(header.position, header.publish_time_ms, message) for message in messages]


def numbered_anew(rows: Sequence[Row]) -> list[Row]:
    """Numbers batches as strategic compaction does (profile `pulsar-4`)."""
    new = renumbered([(*row.position, row.message.batch_index) for row in rows])
    sizes = [len(list(group)) for _, group in groupby(rows, key=lambda row: row.position)]
    batch_sizes = [size for size in sizes for _ in range(size)]
    return [
        row._replace(message=row.message._replace(batch_index=index, batch_size=size))
        for row, (_, _, index), size in zip(rows, new, batch_sizes, strict=True)
    ]


def dead_rows(disk: Disk, segment: Path, may_be_damaged: bool) -> dict[int, set[int]]:
    """Returns the dead rows of a segment's entries, by offset, as docs/FORMATS.md describes
    them; none if the vector is damaged.
    """
    node = disk.find(segment.with_suffix(".dead"))
    if not isinstance(node, File):
        return {}
    data = bytes(node.data)
    if may_be_damaged and int.from_bytes(data[:4], "little") != crc32c(data[4:]):
        return {}
    rows, entries = int.from_bytes(data[8:16], "little"), int.from_bytes(data[24:32], "little")
    columns, at = list[list[int]](), 32
    for width in (8, 8, 4, 4):
        column = data[at : at + width * entries]
        columns.append(
            [int.from_bytes(column[i : i + width], "little") for i in range(0, len(column), width)]
        )
        at += width * entries
    found = dict[int, set[int]]()
    for offset, first, count, dead in zip(*columns, strict=True):
        width = 2 if count <= 65_536 else 4
        bits = (count + 7) // 8
        if dead == count:
            found[offset] = set(range(count))
        elif dead * width < bits:
            part = data[at : at + dead * width]
            at += dead * width
            found[offset] = {
                int.from_bytes(part[i : i + width], "little") for i in range(0, len(part), width)
            }
        else:
            part = data[at : at + bits]
            at += bits
            found[offset] = {row for row in range(count) if part[row // 8] >> row % 8 & 1}
        if len(found[offset]) != dead or first + count > rows:
            raise AssertionError(f"{segment}: its deletion vector is not what it says")
    return found


def live_rows(
    disk: Disk,
    ledgers: Path,
    entries: Iterable[Stored],
    segments: Iterable[SegmentRecord],
    may_be_damaged: bool,
) -> list[Row]:
    """Returns the messages of a ledger by the simplest reading of its vectors."""
    paths = [ledgers / each.path for each in segments if each.HasField("dead")]
    dead = {path: dead_rows(disk, path, may_be_damaged) for path in paths}
    return [
        row
        for entry in entries
        for number, row in enumerate(rows_of(entry))
        if number not in dead.get(entry.path, {}).get(entry.end - len(entry.data), ())
    ]


def scan(disk: Disk, ledgers: Path, ledger_id: int) -> dict[Position, Stored]:
    """Returns the entries of a ledger's segments, in order, up to the first bad one of each
    file.
    """
    folder = disk.find(ledgers / str(ledger_id))
    found: dict[Position, Stored] = {}
    if isinstance(folder, Folder):
        for name in sorted(folder.names):
            node = folder.names[name]
            if name.endswith(".log") and isinstance(node, File):
                path = ledgers / str(ledger_id) / name
                for entry in _parse(node, path):
                    # The file may have been parsed under its name in another ledger.
                    found[entry.header.position] = entry._replace(path=path)
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


def difference(expected: list[Row], found: list[Row]) -> str:
    missing = [row for row in expected if row not in found]
    extra = [row for row in found if row not in expected]
    return f"missing {_some(missing)}, too many {_some(extra)}"


def _some(rows: list[Row]) -> str:
    shown = [f"{row.position}/{row.message.batch_index} {row.key!r}" for row in rows[:4]]
    return f"{len(rows)} [{', '.join(shown)}]"
