"""What happens at start to what a crash left.

1. Raw ledgers that were open are closed. Their last segment is scanned: a bad entry with no good
   one of the same ledger behind it is a torn tail, which is copied aside (.torn) and cut off; a bad
   entry with good ones behind it is damage, and nothing is touched.
2. Every file that a record names must be there and have its size; a ledger of which that is not so
   is reported, and whoever opens it gets the error. The broker starts all the same.
3. Ledgers in state DELETING are deleted; files and folders that no record names are removed.

Sources: BookKeeper's ledger recovery; etcd's wal/repair.go for the copy kept aside.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from pathlib import Path

from ledgerfold.v1.records_pb2 import (
    LEDGER_STATE_CLOSED,
    LEDGER_STATE_DELETING,
    LEDGER_STATE_OPEN,
    LedgerRecord,
    SegmentRecord,
)

from storage.entry import HEADER_BYTES, EntryHeader, Position, read_header, verify_sections
from storage.errors import Corruption, IncompatibleFormat, MissingFile, StorageError
from storage.files import Files
from storage.metadata import MetadataStore
from storage.names import TORN_SUFFIX, parse_ledger_dir
from storage.segment import SegmentTally

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class RecoveryReport:
    """What was done, by ledger id or path."""

    ledgers: int = 0
    closed: list[int] = field(default_factory=list)
    torn: list[str] = field(default_factory=list)
    deleted: list[int] = field(default_factory=list)
    orphans: list[str] = field(default_factory=list)
    damaged: dict[int, StorageError] = field(default_factory=dict)

    def __str__(self) -> str:
        return (
            f"{self.ledgers} ledgers, {len(self.closed)} closed, {len(self.torn)} torn tails cut, "
            f"{len(self.deleted)} deleted, {len(self.orphans)} orphans removed, "
            f"{len(self.damaged)} damaged"
        )


def recover_all(
    ledgers_dir: Path, metadata: MetadataStore, files: Files, now_ms: int
) -> RecoveryReport:
    """Everything above. Raises DiskFailure, and what the metadata raises."""
    report = RecoveryReport()
    for record in metadata.ledgers():
        if record.state == LEDGER_STATE_DELETING:
            files.remove_dir(ledgers_dir / str(record.ledger_id))
            with metadata.batch() as batch:
                batch.delete_ledger(record.ledger_id)
            report.deleted.append(record.ledger_id)
            continue
        report.ledgers += 1
        if record.state == LEDGER_STATE_OPEN:
            error = close_ledger(record, ledgers_dir, metadata, files, now_ms, report)
            report.closed.append(record.ledger_id)
        else:
            error = _check_files(record, ledgers_dir, files)
        if error is not None:
            _log.error("Ledger %d: %s", record.ledger_id, error)
            report.damaged[record.ledger_id] = error
    _sweep(ledgers_dir, metadata, files, report)
    return report


def _check_files(record: LedgerRecord, ledgers_dir: Path, files: Files) -> StorageError | None:
    for segment in record.segments:
        path = ledgers_dir / segment.path
        if not files.exists(path) or files.size(path) != segment.size_bytes:
            return MissingFile(str(path), f"the record of ledger {record.ledger_id}")
    return None


def close_ledger(
    record: LedgerRecord,
    ledgers_dir: Path,
    metadata: MetadataStore,
    files: Files,
    now_ms: int,
    report: RecoveryReport | None = None,
) -> StorageError | None:
    """Closes an open raw ledger as far as it is whole; the error if it is damaged."""
    report = report or RecoveryReport()
    kept: list[SegmentRecord] = []
    try:
        for segment in record.segments:
            path = ledgers_dir / segment.path
            if segment.sealed:
                kept.append(segment)
                continue
            if not files.exists(path):
                raise MissingFile(str(path), f"the record of ledger {record.ledger_id}")
            found = _recover_segment(path, segment.path, record.ledger_id, files, report)
            if found.entries:
                kept.append(found)
            else:
                files.remove(path)
    except (Corruption, MissingFile, IncompatibleFormat) as error:
        return error
    closed = LedgerRecord()
    closed.CopyFrom(record)
    del closed.segments[:]
    closed.segments.extend(kept)
    closed.state = LEDGER_STATE_CLOSED
    closed.closed_ms = now_ms
    with metadata.batch() as batch:
        batch.put_ledger(closed)
    return _check_files(closed, ledgers_dir, files)


def _recover_segment(
    path: Path, relative: str, ledger_id: int, files: Files, report: RecoveryReport
) -> SegmentRecord:
    """Scans an unsealed segment and cuts its torn tail. Raises Corruption."""
    file = files.open_read(path)
    try:
        content = file.pread(file.size_bytes, 0)
    finally:
        file.close()
    tally = SegmentTally(relative)
    offset = 0
    while offset < len(content):
        try:
            header = _whole_entry(content, offset, str(path), ledger_id, tally.record)
        except Corruption as damage:
            last = Position(ledger_id, tally.record.last.entry_id if tally.record.entries else -1)
            if _good_entry_behind(content, offset, last):
                raise
            _cut(path, offset, damage, files, report)
            break
        tally.add(header, header.position)
        tally.add_crc(content[offset : offset + 4])
        offset += header.size_bytes
    tally.record.sealed = True
    return tally.record


def _whole_entry(
    content: bytes, offset: int, path: str, ledger_id: int, so_far: SegmentRecord
) -> EntryHeader:
    header = read_header(content, offset, path)
    verify_sections(content, header, offset, path)
    follows = not so_far.entries or header.entry_id == so_far.last.entry_id + 1
    if header.ledger_id != ledger_id or not follows:
        raise Corruption(
            path, offset, f"the entry after {so_far.last.entry_id}", str(header.position)
        )
    return header


def _good_entry_behind(content: bytes, offset: int, last: Position) -> bool:
    """Whether a header of this ledger with a higher entry id stands anywhere behind `offset`."""
    # Bytes 8 to 15 of a header are the ledger id: the only places worth a checksum.
    wanted = last.ledger_id.to_bytes(8, "little")
    at = content.find(wanted, offset + 9)
    while at >= 0:
        start = at - 8
        if start > offset and start + HEADER_BYTES <= len(content):
            try:
                if read_header(content, start).position > last:
                    return True
            except (Corruption, IncompatibleFormat):
                pass
        at = content.find(wanted, at + 1)
    return False


def _cut(path: Path, offset: int, damage: Corruption, files: Files, report: RecoveryReport) -> None:
    files.copy(path, path.with_name(path.name + TORN_SUFFIX))
    files.sync_dir(path.parent)
    files.truncate(path, offset)
    report.torn.append(str(path))
    _log.warning("%s: cut a torn tail at byte %d (%s)", path, offset, damage)


def _sweep(
    ledgers_dir: Path, metadata: MetadataStore, files: Files, report: RecoveryReport
) -> None:
    """Removes what no record names. Torn copies stay as long as their ledger does."""
    ledgers = {record.ledger_id: record for record in metadata.ledgers()}
    named = {segment.path for record in ledgers.values() for segment in record.segments}
    for folder in files.listdir(ledgers_dir):
        ledger_id = parse_ledger_dir(folder)
        if ledger_id is None:
            continue
        names = files.listdir(ledgers_dir / folder)
        is_named = any(f"{folder}/{name}" in named for name in names)
        if ledger_id not in ledgers and not is_named:
            files.remove_dir(ledgers_dir / folder)
            report.orphans.append(folder)
            continue
        if ledger_id in report.damaged:
            continue
        for name in names:
            if f"{folder}/{name}" not in named and not name.endswith(TORN_SUFFIX):
                files.remove(ledgers_dir / folder / name)
                report.orphans.append(f"{folder}/{name}")
