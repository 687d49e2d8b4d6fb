"""Recovery of all ledgers, at start.

1. Open raw ledgers are closed. Their last segment is scanned up to the first bad entry. If that is
   a torn tail (torn_tail.py), everything from it on is cut after a copy (.torn): it was never
   acknowledged. Otherwise there is damage, and nothing is changed. If the machine did not stop, and
   the disk has no room for the copy in addition to the reserve for deletions, a torn tail is cut
   without a copy.
2. Every file that a record names must exist and have its size; other ledgers are reported as
   damaged. The broker starts nevertheless: intact data can be read, and reads of the rest raise the
   error.
3. Ledgers in state DELETING are deleted, which includes ledgers that were incomplete when the
   process died. Files and folders that no record names are removed. If a removal fails (a surviving
   process may still write there), it is tried again later. Nothing that holds an entry is removed
   while a ledger is damaged, or the metadata have lost writes (storage/losses.py); a directory with
   ledgers but without a store record is not started at all.
4. Segments are synced before they are recorded as sealed, even if their writer had synced them.

A ledger whose writer failed is closed at its last durable entry, without a restart: later entries
were never acknowledged, and after a failed sync a read may return bytes that are not on the disk.

Sources: BookKeeper's ledger recovery; etcd's wal/repair.go for the copy.
"""

from __future__ import annotations

import logging
from collections import deque
from copy import deepcopy
from pathlib import Path
from typing import NamedTuple

from ledgerfold.storage.entry import (
    HEADER_BYTES,
    EntryHeader,
    Position,
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
from ledgerfold.storage.file_window import Window
from ledgerfold.storage.files import Files, size_if_any
from ledgerfold.storage.losses import find_losses
from ledgerfold.storage.metadata import MetadataStore
from ledgerfold.storage.names import (
    METADATA,
    TORN_SUFFIX,
    deletion_vector_path,
    parse_ledger_dir,
    parse_segment_name,
)
from ledgerfold.storage.open_files import ReadFile
from ledgerfold.storage.recovery_report import RecoveryReport
from ledgerfold.storage.removal import delete_left, sweep, sweep_folder
from ledgerfold.storage.reserve import RESERVE_BYTES
from ledgerfold.storage.segment import SegmentTally, file_names, shifted, with_segments
from ledgerfold.storage.text import counted
from ledgerfold.storage.torn_tail import may_be_torn, proves, reaches_beyond
from ledgerfold.storage.upgrade import upgrade
from ledgerfold.v1.records_pb2 import (
    LEDGER_STATE_CLOSED,
    LEDGER_STATE_DELETING,
    LEDGER_STATE_OPEN,
    LedgerRecord,
    SegmentRecord,
)

# The size of one read of an open segment, or one entry if that is larger.
_BLOCK_BYTES = 256 * 1024
_TALLIED_AT_ONCE = 1024
# The size of one read in the search for good entries after a bad one.
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
    """Recovers all ledgers. Raises DiskFailure, and the metadata's errors."""
    report = RecoveryReport(is_same_boot=is_same_boot)
    _check_metadata(ledgers_dir, metadata, files)
    ledgers = {record.ledger_id: record for record in metadata.ledgers()}
    report.ledger_ids = set(ledgers)
    unnamed = find_losses(ledgers_dir, metadata, ledgers, files, report)
    unrecorded = {ledger_id for ids in report.unrecorded.values() for ledger_id in ids}
    for record in ledgers.values():
        if record.state == LEDGER_STATE_DELETING:
            _delete(record, ledgers_dir, metadata, files, report)
            continue
        report.ledgers += 1
        if record.ledger_id in unrecorded:
            # It has entries that its record does not describe: its end is unknown.
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
    """Rejects the metadata of a later build, and missing metadata, before anything changes.

    Without metadata, every ledger would be removed as a file that no record names.
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
    """Continues a deletion, unless a lost write may have cancelled its reason."""
    if report.is_incomplete and files.exists(ledgers_dir / str(record.ledger_id)):
        report.preserved.append(str(ledgers_dir / str(record.ledger_id)))
    elif delete_left({record.ledger_id}, ledgers_dir, metadata, files):
        report.undeleted.append(record.ledger_id)
    else:
        report.deleted.append(record.ledger_id)


def check_files(record: LedgerRecord, ledgers_dir: Path, files: Files) -> StorageError | None:
    """Returns the error for a closed ledger's first missing file, if any. Checks names and sizes
    only.
    """
    for segment in record.segments:
        sizes = {segment.path: segment.size_bytes}
        if segment.HasField("dead"):
            sizes[deletion_vector_path(segment.path)] = segment.dead.size_bytes
        for path, size_bytes in sizes.items():
            if size_if_any(ledgers_dir / path, files) != size_bytes:
                source = f"the record of ledger {record.ledger_id}"
                return MissingFile(str(ledgers_dir / path), source)
    return None


def _close_ledger(
    record: LedgerRecord,
    ledgers_dir: Path,
    metadata: MetadataStore,
    files: Files,
    now_ms: int,
    report: RecoveryReport,
) -> StorageError | None:
    """Closes an open raw ledger if it is intact. Returns the error if it is damaged."""
    closed, damage = recovered(record, ledgers_dir, files, now_ms, report)
    if damage is not None:
        report.damaged_records[record.ledger_id] = closed
        if not record.damaged:
            # NOTE: after a power loss, a later start would treat the same bytes as a torn tail.
            record.damaged = True
            with metadata.batch() as batch:
                batch.put(record)
        return damage
    with metadata.batch() as batch:
        batch.put(closed)
    report.closed.append(record.ledger_id)
    if len(closed.segments) < len(record.segments):
        _sweep_closed(closed, ledgers_dir, files)
    return check_files(closed, ledgers_dir, files)


def recovered(
    record: LedgerRecord, ledgers_dir: Path, files: Files, now_ms: int, report: RecoveryReport
) -> tuple[LedgerRecord, StorageError | None]:
    """Returns the record of an open ledger's contents, and its damage; cuts a torn tail."""
    segments: list[SegmentRecord] = []
    damage: StorageError | None = None
    for segment in record.segments:
        if not segment.sealed:
            segment, error = _recover_segment(segment, record, ledgers_dir, files, report)
            damage = damage or error
        segments.append(segment)
    return _closed(record, segments, now_ms), damage


def _closed(record: LedgerRecord, segments: list[SegmentRecord], now_ms: int) -> LedgerRecord:
    closed = with_segments(record, (segment for segment in segments if segment.entries))
    closed.state, closed.damaged = LEDGER_STATE_CLOSED, False
    closed.closed_ms = now_ms
    return closed


def close_at_durable(
    record: LedgerRecord, ledgers_dir: Path, metadata: MetadataStore, files: Files, now_ms: int
) -> None:
    """Closes a ledger whose writer failed. `record` describes the part known to be durable.

    Raises DiskFailure.
    """
    sealed = deepcopy(record)
    for segment in sealed.segments:
        path = ledgers_dir / segment.path
        if segment.entries and files.size(path) > segment.size_bytes:
            _log.warning("%s: cut unacknowledged bytes from %d on", path, segment.size_bytes)
            files.truncate(path, segment.size_bytes)
        if not segment.entries and files.exists(path):
            # Nothing in it was acknowledged, and no record will name it.
            files.truncate(path, 0)
        if segment.entries and not segment.sealed:
            # Under durability "os", none of it was synced; or a sync may be what failed.
            files.rewrite(path, 0)
        segment.sealed = True
    closed = _closed(sealed, list(sealed.segments), now_ms)
    with metadata.batch() as batch:
        batch.put(closed)
    _sweep_closed(closed, ledgers_dir, files)


def _sweep_closed(closed: LedgerRecord, ledgers_dir: Path, files: Files) -> None:
    """Removes the files of segments that became empty."""
    named = file_names(closed)
    try:
        sweep_folder(str(closed.ledger_id), named, ledgers_dir, files)
    except DiskFailure as error:
        # The next start removes it.
        _log.warning("Not removed yet: %s", error)


# -- an unsealed segment ---------------------------------------------------------------------


def _recover_segment(
    segment: SegmentRecord,
    record: LedgerRecord,
    ledgers_dir: Path,
    files: Files,
    report: RecoveryReport,
) -> tuple[SegmentRecord, StorageError | None]:
    """Scans a segment and cuts its torn tail. Returns its contents, and any damage."""
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
        following = _search(file, offset, expected)
        head, bytes_left = file.pread(HEADER_BYTES, offset), size - offset
        is_torn = not (following.is_proof or record.damaged) and may_be_torn(
            is_same_boot=report.is_same_boot, reaches_beyond=reaches_beyond(head, 0, bytes_left)
        )
        if isinstance(damage, Corruption) and is_torn:
            _cut(path, offset, damage, files, report)
        else:
            return _damaged_record(tally.record, first, following.last, size), damage
    finally:
        file.close()
    tally.add_stored(headers)
    # NOTE: a killed process may leave entries that are only in the page cache. From now on they
    # count as stored: they are read, and rejected as duplicates if they are sent again.
    if unproven.offset is not None:
        files.rewrite(path, unproven.offset)
    tally.record.sealed = True
    return tally.record, None


class _Unproven:
    """The start of the entries that no later entry proves to be durable."""

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
    """Returns the header of an entry after verifying every byte of the entry."""
    try:
        at = window.index(offset, HEADER_BYTES, _BLOCK_BYTES)
        header = read_header(window.view, at, path)
        at = window.index(offset, header.size_bytes, _BLOCK_BYTES)
        verify_sections(window.view, header, at, path)
    except Corruption as error:
        raise shifted(error, window.base) from error
    if header.position != expected:
        raise Corruption(path, offset, f"entry {expected}", f"entry {header.position}")
    return header


def _damaged_record(
    so_far: SegmentRecord, first: Position, last: Position, size_bytes: int
) -> SegmentRecord:
    """Returns a record that extends to `last`: reads of its good part succeed, all others raise."""
    record = deepcopy(so_far)
    record.first.ledger_id, record.first.entry_id = first
    record.last.ledger_id, record.last.entry_id = last
    record.entries = last.entry_id - first.entry_id + 1
    record.size_bytes = size_bytes
    # Unknown: a search by time must read the segment, and finds the damage.
    record.publish_time_max_ms = _MAX_MS
    return record


class _Following(NamedTuple):
    """The highest position of a good header after a bad entry, else the bad entry's position."""

    last: Position
    is_proof: bool


def _search(file: ReadFile, offset: int, bad: Position) -> _Following:
    """Searches for good headers above `bad` from `offset` on, at every byte.

    The header alone decides. If sections had to be good too, then damage to the last two entries
    would look like a torn tail.
    """
    # Bytes 8 to 15 of a header are the ledger id: checksums are computed only where it matches.
    id_bytes = bad.ledger_id.to_bytes(8, "little")
    following = _Following(bad, False)
    while True:
        block = file.pread(_SEARCH_BYTES, offset)
        at = block.find(id_bytes, 8)
        while at >= 0:
            following = _with_header(following, block, at - 8, bad)
            at = block.find(id_bytes, at + 1)
        if len(block) < _SEARCH_BYTES:
            return following
        offset += len(block) - HEADER_BYTES + 1


def _with_header(following: _Following, block: bytes, at: int, bad: Position) -> _Following:
    try:
        header = read_header(block, at)
    except Corruption:
        return following
    except IncompatibleFormat:
        # A newer build's header may prove it: this build cannot tell.
        return _Following(max(following.last, bad.next), True)
    if header.position <= bad:
        return following
    is_proof = following.is_proof or proves(header, bad.entry_id)
    return _Following(max(following.last, header.position), is_proof)


def _cut(path: Path, offset: int, damage: Corruption, files: Files, report: RecoveryReport) -> None:
    if report.is_same_boot and not _has_room_for_copy(path, files):
        # Within a boot, the tail is the beginning of one entry, as a full disk leaves it: a copy is
        # useless. Waiting for room could take forever.
        _log.warning("%s: no room for a copy; its torn tail is cut without one", path)
    else:
        files.copy(path, path.with_name(path.name + TORN_SUFFIX))
        files.sync_dir(path.parent)
    files.truncate(path, offset)
    report.torn.append(str(path))
    # Also for readers of a directory that do not change it (ledgerfold/frames/directory.py).
    _log.warning("%s ends at byte %d, before a torn tail (%s)", path, offset, damage)


def _has_room_for_copy(path: Path, files: Files) -> bool:
    """Returns whether the disk has room for a copy in addition to the reserve for deletions."""
    return files.free_bytes(path.parent) >= files.size(path) + RESERVE_BYTES
