"""What happens at start to what a crash left.

1. Raw ledgers that were open are closed. Their last segment is scanned up to the first bad entry.
   A good header behind it proves that the bad one was acknowledged, when it says that this was
   synced before it was written itself: then there is damage, and nothing is touched. (A header of
   version 1 says nothing of the kind and counts as proof.) Without a proof all from the bad entry
   on is a torn tail, or was written by a flush that never ended; it is cut after a copy (.torn).
   A process that died on a machine that did not leaves everything as it wrote it: under the same
   boot only an entry that reaches beyond the end of the file is a torn tail, which is cut without a
   copy where a disk is too full for one, and for what is kept for deletions.
2. Every file that a record names must be there and have its size; a ledger of which that is not so
   is reported. The broker starts all the same: what is whole can be read, and whoever reads what is
   not gets the error.
3. Ledgers in state DELETING are deleted; files and folders that no record names are removed. What
   cannot be removed now (a process that lives on may still write there) is left for later. Nothing
   that holds an entry is removed while a ledger is damaged, or the metadata have lost writes
   (storage/losses.py); a directory with ledgers and without a store record is not started at all.
4. What is recorded as sealed is synced before, whatever its writer had synced.

A ledger whose writer failed is closed without a restart at its last durable entry: nobody was told
of what came after, and after a failed sync what a read shows is not what the disk holds.

Sources: BookKeeper's ledger recovery; etcd's wal/repair.go for the copy kept aside.
"""

from __future__ import annotations

import logging
from collections import deque
from pathlib import Path
from typing import NamedTuple

from ledgerfold.storage.entry import (
    FORMAT_VERSION,
    HEADER_BYTES,
    EntryHeader,
    Position,
    has_header,
    read_header,
    verify_sections,
)
from ledgerfold.storage.errors import (
    Corruption,
    DiskFailure,
    IncompatibleFormat,
    MissingFile,
    StorageError,
)
from ledgerfold.storage.files import Files, ReadFile
from ledgerfold.storage.losses import find_losses
from ledgerfold.storage.metadata import MetadataStore
from ledgerfold.storage.names import METADATA, TORN_SUFFIX, parse_ledger_dir, parse_segment_name
from ledgerfold.storage.recovery_report import RecoveryReport
from ledgerfold.storage.removal import delete_left, sweep, sweep_folder
from ledgerfold.storage.reserve import RESERVE_BYTES
from ledgerfold.storage.segment import SegmentTally, shifted
from ledgerfold.storage.upgrade import upgrade
from ledgerfold.storage.window import Window
from ledgerfold.storage.words import counted
from ledgerfold.v1.records_pb2 import (
    LEDGER_STATE_CLOSED,
    LEDGER_STATE_DELETING,
    LEDGER_STATE_OPEN,
    LedgerRecord,
    SegmentRecord,
)

# Read at once from an open segment, or one entry where that is larger.
_BLOCK_BYTES = 256 * 1024
_TALLIED_AT_ONCE = 1024
# Read at once in the search for good entries behind a bad one.
_SEARCH_BYTES = 4 * 1024 * 1024
_MAX_MS = 2**63 - 1
_log = logging.getLogger(__name__)


def recover_all(
    ledgers_dir: Path,
    metadata: MetadataStore,
    files: Files,
    now_ms: int,
    is_same_boot: bool = False,
) -> RecoveryReport:
    """Does all of the above. Raises DiskFailure, and what the metadata raises."""
    report = RecoveryReport(is_same_boot=is_same_boot)
    _check_metadata(ledgers_dir, metadata, files)
    ledgers = {record.ledger_id: record for record in metadata.ledgers()}
    report.known = set(ledgers)
    unnamed = find_losses(ledgers_dir, metadata, ledgers, files, report)
    unrecorded = {ledger_id for ids in report.unrecorded.values() for ledger_id in ids}
    for record in ledgers.values():
        if record.state == LEDGER_STATE_DELETING:
            _delete(record, ledgers_dir, metadata, files, report)
            continue
        report.ledgers += 1
        if record.ledger_id in unrecorded:
            # It has entries that its record does not tell of: nobody knows where it ends.
            error = None
        elif record.state == LEDGER_STATE_OPEN:
            error = _close_ledger(record, ledgers_dir, metadata, files, now_ms, report)
        else:
            error = check_files(record, ledgers_dir, files)
        if error is not None:
            _log.error("Ledger %d: %s", record.ledger_id, error)
            report.damaged[record.ledger_id] = error
    sweep(ledgers_dir, unnamed, files, report)
    upgrade(ledgers_dir, metadata, files)
    return report


def _check_metadata(ledgers_dir: Path, metadata: MetadataStore, files: Files) -> None:
    """Before anything changes: a later build's metadata are left alone, and without any that are
    there every ledger would be a file that nobody names.
    """
    store = metadata.store()
    folders = [each for each in files.listdir(ledgers_dir) if parse_ledger_dir(each) is not None]
    if folders and store is None:
        path = str(ledgers_dir.parent / METADATA)
        raise Corruption(
            path, 0, f"records of {counted(len(folders), 'ledger')}", "no store record"
        )


def _delete(
    record: LedgerRecord,
    ledgers_dir: Path,
    metadata: MetadataStore,
    files: Files,
    report: RecoveryReport,
) -> None:
    """Goes on with a deletion, unless a lost write may have changed what made it right."""
    if report.is_incomplete and files.exists(ledgers_dir / str(record.ledger_id)):
        report.kept.append(str(ledgers_dir / str(record.ledger_id)))
    elif delete_left({record.ledger_id}, ledgers_dir, metadata, files):
        report.left.append(record.ledger_id)
    else:
        report.deleted.append(record.ledger_id)


def check_files(record: LedgerRecord, ledgers_dir: Path, files: Files) -> StorageError | None:
    """What is missing of a closed ledger. Only names and sizes are looked at."""
    for segment in record.segments:
        path = ledgers_dir / segment.path
        if not files.exists(path) or files.size(path) != segment.size_bytes:
            return MissingFile(str(path), f"the record of ledger {record.ledger_id}")
    return None


def _close_ledger(
    record: LedgerRecord,
    ledgers_dir: Path,
    metadata: MetadataStore,
    files: Files,
    now_ms: int,
    report: RecoveryReport,
) -> StorageError | None:
    """Closes an open raw ledger if it is whole; the error if it is damaged."""
    found: list[SegmentRecord] = []
    damage: StorageError | None = None
    for segment in record.segments:
        if not segment.sealed:
            segment, error = _recover_segment(segment, record, ledgers_dir, files, report)
            damage = damage or error
        found.append(segment)
    closed = _closed(record, found, now_ms)
    if damage is not None:
        report.damaged_records[record.ledger_id] = closed
        if not record.damaged:
            # NOTE: a later start, after a power loss, would take the same bytes for a torn tail.
            record.damaged = True
            with metadata.batch() as batch:
                batch.put_ledger(record)
        return damage
    with metadata.batch() as batch:
        batch.put_ledger(closed)
    report.closed.append(record.ledger_id)
    if len(closed.segments) < len(record.segments):
        _sweep_closed(closed, ledgers_dir, files)
    return check_files(closed, ledgers_dir, files)


def _closed(record: LedgerRecord, segments: list[SegmentRecord], now_ms: int) -> LedgerRecord:
    closed = LedgerRecord()
    closed.CopyFrom(record)
    del closed.segments[:]
    closed.segments.extend(segment for segment in segments if segment.entries)
    closed.state, closed.damaged = LEDGER_STATE_CLOSED, False
    closed.closed_ms = now_ms
    return closed


def close_at_durable(
    record: LedgerRecord, ledgers_dir: Path, metadata: MetadataStore, files: Files, now_ms: int
) -> None:
    """Closes a ledger whose writer failed: `record` is what the writer knows to be durable.

    Raises DiskFailure.
    """
    sealed = LedgerRecord()
    sealed.CopyFrom(record)
    for segment in sealed.segments:
        path = ledgers_dir / segment.path
        if segment.entries and files.size(path) > segment.size_bytes:
            _log.warning("%s: cut what was not acknowledged at %d", path, segment.size_bytes)
            files.truncate(path, segment.size_bytes)
        if not segment.entries and files.exists(path):
            # Nothing in it was acknowledged, and no record is going to name it.
            files.truncate(path, 0)
        if segment.entries and not segment.sealed:
            # Under durability "os" nothing of it was synced, and a sync may be what failed.
            files.rewrite(path, 0)
        segment.sealed = True
    closed = _closed(sealed, list(sealed.segments), now_ms)
    with metadata.batch() as batch:
        batch.put_ledger(closed)
    _sweep_closed(closed, ledgers_dir, files)


def _sweep_closed(closed: LedgerRecord, ledgers_dir: Path, files: Files) -> None:
    """Removes the files of segments that became empty."""
    named = {segment.path for segment in closed.segments}
    try:
        sweep_folder(str(closed.ledger_id), named, ledgers_dir, files)
    except DiskFailure as error:
        # The next start finds it.
        _log.warning("Not removed yet: %s", error)


# -- an unsealed segment ---------------------------------------------------------------------


def _recover_segment(
    segment: SegmentRecord,
    record: LedgerRecord,
    ledgers_dir: Path,
    files: Files,
    report: RecoveryReport,
) -> tuple[SegmentRecord, StorageError | None]:
    """Scans it and cuts its torn tail. What it holds, and what is wrong with it."""
    path = ledgers_dir / segment.path
    first = Position(record.ledger_id, parse_segment_name(path.name) or 0)
    if not files.exists(path):
        error = MissingFile(str(path), f"the record of ledger {record.ledger_id}")
        return _damaged_record(segment, first, first, 0), error
    file = files.open_read(path)
    size, offset, expected = file.size_bytes, 0, first
    tally, window = SegmentTally(segment.path), Window(file.pread, size)
    headers: list[EntryHeader] = []
    unproven = _Unproven()
    try:
        while offset < size:
            headers.append(_whole_entry(window, offset, str(path), expected))
            unproven.add(headers[-1], offset)
            offset += headers[-1].size_bytes
            expected = expected.next
            if len(headers) == _TALLIED_AT_ONCE:
                tally.add_stored(headers)
                headers.clear()
    except (Corruption, IncompatibleFormat) as damage:
        tally.add_stored(headers)
        headers.clear()
        behind = _search(file, offset, expected)
        may_be_torn = not report.is_same_boot or _reaches_beyond(file, size, offset)
        may_be_torn &= not record.damaged
        if isinstance(damage, Corruption) and may_be_torn and not behind.is_proof:
            _cut(path, offset, damage, files, report)
        else:
            return _damaged_record(tally.record, first, behind.last, size), damage
    finally:
        file.close()
    tally.add_stored(headers)
    # NOTE: a process that was killed leaves entries that are only in the system's memory. From now
    # on they count as stored: they are read, and refused when they are sent again.
    if unproven.offset is not None:
        files.rewrite(path, unproven.offset)
    tally.record.sealed = True
    return tally.record, None


class _Unproven:
    """Where the entries begin that no later one says were durable."""

    def __init__(self) -> None:
        self._places: deque[tuple[int, int]] = deque()

    def add(self, header: EntryHeader, offset: int) -> None:
        while self._places and self._places[0][0] <= header.last_durable_entry_id:
            self._places.popleft()
        self._places.append((header.entry_id, offset))

    @property
    def offset(self) -> int | None:
        return self._places[0][1] if self._places else None


def _whole_entry(window: Window, offset: int, path: str, expected: Position) -> EntryHeader:
    """The header of an entry that is good in every byte."""
    try:
        at = window.place(offset, HEADER_BYTES, _BLOCK_BYTES)
        header = read_header(window.view, at, path)
        at = window.place(offset, header.size_bytes, _BLOCK_BYTES)
        verify_sections(window.view, header, at, path)
    except Corruption as error:
        raise shifted(error, window.base) from error
    if header.position != expected:
        raise Corruption(path, offset, f"entry {expected}", f"entry {header.position}")
    return header


def _damaged_record(
    so_far: SegmentRecord, first: Position, last: Position, size_bytes: int
) -> SegmentRecord:
    """A segment that reaches to `last`: reads of its good part succeed, all others raise."""
    record = SegmentRecord()
    record.CopyFrom(so_far)
    record.first.ledger_id, record.first.entry_id = first
    record.last.ledger_id, record.last.entry_id = last
    record.entries = last.entry_id - first.entry_id + 1
    record.size_bytes = size_bytes
    # Nobody knows: a search by time must look, and meet the damage.
    record.publish_time_max_ms = _MAX_MS
    return record


def _reaches_beyond(file: ReadFile, file_bytes: int, offset: int) -> bool:
    """Whether the file ends before the entry at `offset` does."""
    head = file.pread(HEADER_BYTES, offset)
    try:
        return not has_header(head, 0) or offset + read_header(head).size_bytes > file_bytes
    except (Corruption, IncompatibleFormat):
        return False


class _Behind(NamedTuple):
    """What stands behind a bad entry: the highest position of a good header, or the bad one's."""

    last: Position
    is_proof: bool


def _search(file: ReadFile, offset: int, bad: Position) -> _Behind:
    """Looks for good headers above `bad` at or behind `offset`, wherever they begin.

    The header alone decides. If good sections were asked for too, damage to two neighbours, the
    second the last one, would pass for a torn tail.
    """
    # Bytes 8 to 15 of a header are the ledger id: the only places worth a checksum.
    wanted = bad.ledger_id.to_bytes(8, "little")
    found = _Behind(bad, False)
    while True:
        block = file.pread(_SEARCH_BYTES, offset)
        at = block.find(wanted, 8)
        while at >= 0:
            found = _with_header(found, block, at - 8, bad)
            at = block.find(wanted, at + 1)
        if len(block) < _SEARCH_BYTES:
            return found
        offset += len(block) - HEADER_BYTES + 1


def _with_header(found: _Behind, block: bytes, at: int, bad: Position) -> _Behind:
    try:
        header = read_header(block, at)
    except Corruption:
        return found
    except IncompatibleFormat:
        # Of a newer build: nobody here knows what it proves.
        return _Behind(max(found.last, bad.next), True)
    if header.position <= bad:
        return found
    is_proof = header.version < FORMAT_VERSION or header.last_durable_entry_id >= bad.entry_id
    return _Behind(max(found.last, header.position), found.is_proof or is_proof)


def _cut(path: Path, offset: int, damage: Corruption, files: Files, report: RecoveryReport) -> None:
    if report.is_same_boot and not _has_room_beside(path, files):
        # Within a boot what is cut is the beginning of one entry, as a full disk leaves it: nothing
        # that a copy could bring back. To wait for room would be to wait for ever.
        _log.warning("%s: no room for a copy of it before its tail is cut", path)
    else:
        files.copy(path, path.with_name(path.name + TORN_SUFFIX))
        files.sync_dir(path.parent)
    files.truncate(path, offset)
    report.torn.append(str(path))
    _log.warning("%s: cut a torn tail at byte %d (%s)", path, offset, damage)


def _has_room_beside(path: Path, files: Files) -> bool:
    """For a copy, and for what is kept for deletions."""
    return files.free_bytes(path.parent) >= files.size(path) + RESERVE_BYTES
