"""The check of a compaction's output, before it becomes a compacted ledger.

Each file must contain what its record says. A segment that is a link to one of the previous ledger
was checked when that ledger was published, and is not read again; only its deletion vector is.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ledgerfold.storage.deletion_vector import load_vector
from ledgerfold.storage.errors import CompactionFailed, Corruption, MissingFile
from ledgerfold.storage.files import Files, size_if_any
from ledgerfold.storage.names import (
    deletion_vector_path,
    key_index_path,
    parse_segment_name,
    segment_path,
)
from ledgerfold.storage.segment import record_position, tally_segment
from ledgerfold.storage.text import counted
from ledgerfold.v1.records_pb2 import SegmentRecord


def check_output(
    ledger_id: int,
    segments: Sequence[SegmentRecord],
    previous: Sequence[SegmentRecord],
    ledgers_dir: Path,
    files: Files,
) -> None:
    """Checks the files of `segments`. `previous`: segments that were checked before.

    Raises CompactionFailed if a segment is not in the ledger's folder, Corruption, MissingFile,
    EntryTooLarge.
    """
    known = {_identity(each): each for each in previous}
    last = None
    for segment in segments:
        number = parse_segment_name(Path(segment.path).name)
        if number is None or segment.path != segment_path(ledger_id, number):
            where = f"it names {segment.path!r}, which is not a segment of ledger {ledger_id}"
            raise CompactionFailed("manifest", where)
        before = known.get(_identity(segment))
        linked = _linked(segment, before, ledgers_dir, files)
        if linked is None:
            before, linked = None, tally_segment(ledgers_dir / segment.path, segment, files)
        if segment.HasField("key_index"):
            _check_index(segment, ledgers_dir, files)
            linked.key_index.CopyFrom(segment.key_index)
        if segment.HasField("dead"):
            _check_vector(segment, before, ledgers_dir, files)
            linked.dead.CopyFrom(segment.dead)
        if before is not None and segment.dead.messages < before.dead.messages:
            raise Corruption(segment.path, 0, "all messages that were dead before", "fewer")
        if linked != segment:
            raise Corruption(segment.path, 0, _summary(segment), _summary(linked))
        if last is not None and record_position(segment, last=False) <= last:
            raise Corruption(segment.path, 0, f"entries above {last}", _summary(segment))
        last = record_position(segment, last=True)


def _identity(segment: SegmentRecord) -> tuple[int, int, int]:
    return segment.checksum, segment.size_bytes, segment.entries


def _linked(
    segment: SegmentRecord, known: SegmentRecord | None, ledgers_dir: Path, files: Files
) -> SegmentRecord | None:
    """Returns the record of a segment whose file is that of the `known` one; None if it is not."""
    if known is None or not files.is_same(ledgers_dir / segment.path, ledgers_dir / known.path):
        return None
    linked = SegmentRecord()
    linked.CopyFrom(known)
    linked.path = segment.path
    # Both may differ from those in the previous ledger.
    linked.ClearField("key_index")
    linked.ClearField("dead")
    return linked


def _check_vector(
    segment: SegmentRecord, before: SegmentRecord | None, ledgers_dir: Path, files: Files
) -> None:
    """Checks a deletion vector, unless it is a link to the segment's previous one."""
    path = ledgers_dir / deletion_vector_path(segment.path)
    is_kept = before is not None and segment.dead == before.dead and files.exists(path)
    if before is not None and is_kept:
        known = ledgers_dir / deletion_vector_path(before.path)
        is_kept = files.is_same(path, known)
    if not is_kept:
        load_vector(ledgers_dir, segment, files)


def _check_index(segment: SegmentRecord, ledgers_dir: Path, files: Files) -> None:
    path = ledgers_dir / key_index_path(segment.path)
    if size_if_any(path, files) != segment.key_index.size_bytes:
        raise MissingFile(str(path), "a manifest")


def _summary(segment: SegmentRecord) -> str:
    return (
        f"{counted(segment.entries, 'entry', 'entries')} and "
        f"{counted(segment.messages, 'message')} up to "
        f"{record_position(segment, last=True)}, checksum {segment.checksum:08x}"
    )
