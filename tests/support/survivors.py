"""The segments that compactors in memory write, with the survivors that the pure model names.

They decide about segments as the real worker does (compactor/job/copy_survivors.py), but from
entries that they have read: a segment that is linked gets a deletion vector of all rows that are
not left of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ledgerfold.compactor.job.pulsar_rebuild import keep_pulsar_rows
from ledgerfold.compactor.job.rebuild import RawEntry, keep_rows
from ledgerfold.storage.codec import decode
from ledgerfold.storage.deletion_vector import DeadTally, DeletionVector, load_vector, place_of
from ledgerfold.storage.entry import Codec, EntryHeader, Position, read_header, verify_sections
from ledgerfold.storage.errors import MissingFile
from ledgerfold.storage.files import Files, replace_file
from ledgerfold.storage.names import deletion_vector_path
from ledgerfold.storage.segment import SegmentWriter, link_segment
from ledgerfold.v1.compactor_pb2 import CompactionPlan
from ledgerfold.v1.records_pb2 import RunCounts, SegmentRecord
from tests.model.choice_model import is_strategic, left_by


class Placed(NamedTuple):
    """An entry of a run's range: the number of its segment in the plan, and its live rows."""

    number: int
    header: EntryHeader
    entry: bytes
    live: list[int]


def _nothing() -> None:
    pass


class Survivors:
    """A run's work on files. `check` is called again and again; `sealing` before the last file is
    sealed. A file ends at `segment_bytes_max`, if that is given.
    """

    def __init__(
        self,
        plan: CompactionPlan,
        files: Files,
        check: Callable[[], None] = _nothing,
        sealing: Callable[[], None] = _nothing,
        segment_bytes_max: int | None = None,
    ) -> None:
        self._plan, self._files = plan, files
        self._check, self._sealing, self._bytes_max = check, sealing, segment_bytes_max
        self._segments: list[SegmentRecord] = []
        self._writer: SegmentWriter | None = None

    def write(self) -> tuple[list[SegmentRecord], RunCounts]:
        plan = self._plan
        placed = list(self._placed())
        rows = [(at, row) for at, each in enumerate(placed) for row in each.live]
        decoded = [list(decode(each.entry, each.header).messages()) for each in placed]
        messages = [(placed[at].header, decoded[at][row]) for at, row in rows]
        left = left_by(plan, messages)
        survivors = [rows[index] for index in left.rows]
        left_of = {at: [row for _, row in kept] for at, kept in groupby(survivors, itemgetter(0))}
        for number, of_segment in groupby(left_of, lambda at: placed[at].number):
            wanted = list(of_segment)
            if not self._is_linked(number, placed, left_of):
                self._copy([(placed[at], left_of[at]) for at in wanted])
        self._sealing()
        self._seal()
        return self._segments, RunCounts(
            messages_in=len(messages),
            messages_out=len(survivors),
            removed_events=left.removed_events,
        )

    def _copy(self, entries: Sequence[tuple[Placed, list[int]]]) -> None:
        plan = self._plan
        renumber = plan.renumber_batches and is_strategic(plan)
        for placed, kept in entries:
            self._check()
            if self._writer is None:
                number = len(self._segments)
                folder = Path(plan.ledgers_dir)
                self._writer = SegmentWriter(folder, plan.ledger_id, number, self._files)
            rebuilt = _rebuilt(placed.header, placed.entry, kept, renumber)
            self._writer.append(read_header(rebuilt), rebuilt)
            if self._bytes_max is not None and self._writer.size_bytes >= self._bytes_max:
                self._seal()

    def _seal(self) -> None:
        if self._writer is not None:
            self._segments.append(self._writer.seal())
            self._writer = None

    def _is_linked(
        self, number: int, placed: Sequence[Placed], left_of: dict[int, list[int]]
    ) -> bool:
        """Links a segment, unless it must be written again."""
        plan, segment = self._plan, self._plan.segments[number]
        is_raw = number >= plan.compacted_segments
        if is_strategic(plan) or not (is_raw or plan.keeps_segments):
            return False
        if is_raw and 2 * segment.size_bytes < plan.segment_bytes_max:
            return False
        tally, entries = DeadTally(), 0
        for at, each in enumerate(placed):
            if each.number == number:
                left = left_of.get(at, [])
                tally.add(each.header, sorted({*range(each.header.message_count)} - {*left}))
                entries += 1
        stored, record = tally.finish()
        is_garbage = record.bytes > plan.segment_garbage_max * segment.size_bytes
        # Retention may hide the first entries of a segment; a raw one may begin before the range.
        if is_garbage or entries < segment.entries:
            return False
        self._check()
        self._seal()
        ledgers_dir, index = Path(plan.ledgers_dir), len(self._segments)
        is_same = record.messages == segment.dead.messages
        linked = link_segment(
            ledgers_dir, segment, plan.ledger_id, index, self._files, keeps_vector=is_same
        )
        if not is_same:
            path = ledgers_dir / deletion_vector_path(linked.path)
            replace_file(path, [stored], self._files)
            linked.dead.CopyFrom(record)
        self._segments.append(linked)
        return True

    def _placed(self) -> Iterator[Placed]:
        """Each entry of the range, dead ones included."""
        plan = self._plan
        before, horizon = plan.horizon_previous, plan.horizon
        low = (before.ledger_id, before.entry_id) if plan.HasField("horizon_previous") else (-1, -1)
        high = (horizon.ledger_id, horizon.entry_id)
        floor = (plan.retention_floor.ledger_id, plan.retention_floor.entry_id)
        for number, segment in enumerate(plan.segments):
            self._check()
            path = Path(plan.ledgers_dir) / segment.path
            try:
                data = self._files.open_read(path).pread(segment.size_bytes, 0)
            except FileNotFoundError as error:
                raise MissingFile(str(path), "a plan") from error
            if len(data) < segment.size_bytes:
                raise MissingFile(str(path), "a plan")
            vector = None
            if segment.HasField("dead"):
                vector = load_vector(Path(plan.ledgers_dir), segment, self._files)
            at = 0
            while at < len(data):
                header = read_header(data, at, segment.path)
                verify_sections(data, header, at, segment.path)
                is_raw = number >= plan.compacted_segments
                position: Position = header.position
                if low < position <= high if is_raw else position >= floor:
                    entry = data[at : at + header.size_bytes]
                    yield Placed(number, header, entry, _live_rows(vector, header, at))
                at += header.size_bytes


def _live_rows(vector: DeletionVector | None, header: EntryHeader, offset: int) -> list[int]:
    index = None if vector is None else place_of(vector, header, offset, "a segment")
    dead = [] if vector is None or index is None else vector.dead_rows(index)
    return [row for row in range(header.message_count) if row not in dead]


def _rebuilt(header: EntryHeader, entry: bytes, kept: list[int], renumber: bool = False) -> bytes:
    if len(kept) == header.message_count and not (renumber and _is_numbered(header, entry)):
        return entry
    start = header.header_bytes
    end = start + header.key_bytes
    raw = RawEntry(entry[:start], entry[start:end], entry[end:])
    keep = keep_pulsar_rows if header.codec == Codec.PULSAR else keep_rows
    return b"".join(keep(header, raw, np.array(kept), renumber=renumber))


def _is_numbered(header: EntryHeader, entry: bytes) -> bool:
    """Returns whether ids differ from renumbering: from 0 on in a batch of that size, a single one
    as published alone.

    A run that leaves ids alone may have left the first two of a batch of three.
    """
    found = [(each.batch_index, each.batch_size) for each in decode(entry, header).messages()]
    count = len(found)
    return found != ([(index, count) for index in range(count)] if count > 1 else [(-1, 1)])
