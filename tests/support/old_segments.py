"""How compactors in memory treat segments of the previous ledger: what of them is dead, and links.

They decide as the real worker does (compactor/job/copy_survivors.py), but from entries that they
have read: a linked segment gets a deletion vector of all rows that are not left of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ledgerfold.storage.dead_tally import DeadTally
from ledgerfold.storage.deletion_vector import DeletionVector, load_vector, place_of
from ledgerfold.storage.entry import EntryHeader
from ledgerfold.storage.files import Files, replace_file
from ledgerfold.storage.names import deletion_vector_path
from ledgerfold.storage.segment import link_segment
from ledgerfold.v1.compactor_pb2 import CompactionPlan
from ledgerfold.v1.records_pb2 import SegmentRecord


def vector_of(ledgers_dir: Path, segment: SegmentRecord, files: Files) -> DeletionVector | None:
    return load_vector(ledgers_dir, segment, files) if segment.HasField("dead") else None


def live_rows(vector: DeletionVector | None, header: EntryHeader, offset: int) -> list[int]:
    """The rows of an entry that its ledger contains."""
    index = None if vector is None else place_of(vector, header, offset, "a segment")
    dead = [] if vector is None or index is None else vector.dead_rows(index)
    return [row for row in range(header.message_count) if row not in dead]


def linked(
    plan: CompactionPlan,
    segment: SegmentRecord,
    entries: Sequence[tuple[EntryHeader, Sequence[int]]],
    index: int,
    files: Files,
) -> SegmentRecord | None:
    """Links a segment, of whose entries, each given, these rows are left; None if it must be
    written again.
    """
    tally = DeadTally()
    for header, left in entries:
        tally.add(header, sorted(set(range(header.message_count)) - set(left)))
    stored, record = tally.finish()
    ledgers_dir = Path(plan.ledgers_dir)
    if record.bytes > plan.segment_garbage_max * segment.size_bytes or tally.is_all_dead:
        return None
    if record.messages == segment.dead.messages:
        return link_segment(ledgers_dir, segment, plan.ledger_id, index, files)
    found = link_segment(ledgers_dir, segment, plan.ledger_id, index, files, keeps_vector=False)
    replace_file(ledgers_dir / deletion_vector_path(found.path), [stored], files)
    found.dead.CopyFrom(record)
    return found
