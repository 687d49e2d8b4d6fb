"""The comparison of a ledger's record with its files, byte by byte.

>>> from ledgerfold.storage.files import REAL
>>> empty = LedgerRecord(ledger_id=7, topic="t")
>>> check_ledger(empty, folder, REAL, is_same_boot=True).is_whole
True
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ledgerfold.storage.entry import EARLIEST, Position
from ledgerfold.storage.files import Files
from ledgerfold.storage.kafka.span import Span, joined
from ledgerfold.storage.names import segment_number
from ledgerfold.storage.segment import record_position
from ledgerfold.storage.segment_check import Bounds, check_segment
from ledgerfold.storage.segment_findings import Extent, SegmentCheck
from ledgerfold.v1.records_pb2 import (
    LEDGER_KIND_COMPACTED,
    LedgerRecord,
    PositionRange,
    SegmentRecord,
)

_ENTRY_ID_MAX = 2**63 - 1


@dataclass(slots=True)
class LedgerCheck:
    """A ledger's record, and the checks of its files."""

    record: LedgerRecord
    segments: list[SegmentCheck]
    is_reconstructed: bool = False

    @property
    def is_raw(self) -> bool:
        return self.record.kind != LEDGER_KIND_COMPACTED

    @property
    def is_whole(self) -> bool:
        """True if the files are intact. A raw ledger must have no gaps, except recorded ones."""
        if self.is_reconstructed or not all(each.is_whole for each in self.segments):
            return False
        return not self.is_raw or self.lost_ranges() == [_pair(each) for each in self.record.lost]

    def extents(self) -> list[Extent]:
        return [extent for each in self.segments for extent in each.extents]

    def span(self) -> Span:
        """Returns the span of the Kafka batches."""
        return joined(extent.span for extent in self.extents())

    def lost_ranges(self) -> list[tuple[int, int]]:
        """Returns the ranges of a raw ledger's lost entry ids (first, last), up to the last known
        one.
        """
        missing: list[tuple[int, int]] = []
        expected = 0
        for extent in self.extents():
            if extent.first.entry_id > expected:
                missing.append((expected, extent.first.entry_id - 1))
            expected = extent.last.entry_id + 1
        end = max((each for each in self._known_ends()), default=-1)
        if end >= expected:
            missing.append((expected, end))
        return missing

    def _known_ends(self) -> Iterator[int]:
        for each in self.record.lost:
            yield each.last_entry_id
        for check in self.segments:
            if check.segment.entries:
                yield check.segment.last.entry_id
            elif check.size_bytes is None:
                # The record of an open segment has only its first entry.
                yield segment_number(check.segment.path) or 0
            for damage in check.damages:
                if not damage.is_torn and not check.segment.sealed:
                    yield damage.entry.entry_id


def _pair(range_: PositionRange) -> tuple[int, int]:
    return range_.first_entry_id, range_.last_entry_id


def check_ledger(
    record: LedgerRecord, folder: Path, files: Files, *, is_same_boot: bool
) -> LedgerCheck:
    """Checks every byte of the ledger's files. Raises DiskFailure."""
    checks: list[SegmentCheck] = []
    after = EARLIEST
    for number, segment in enumerate(record.segments):
        bounds = Bounds(after)
        if record.kind != LEDGER_KIND_COMPACTED:
            bounds = _raw_bounds(record, number)
        if segment.sealed and segment.entries:
            # Bytes after its recorded end were never acknowledged.
            bounds = bounds._replace(before=record_position(segment, last=True).next)
        bounds = bounds._replace(is_same_boot=is_same_boot or record.damaged)
        check = check_segment(folder / segment.path, segment, bounds, files)
        checks.append(check)
        if check.extents:
            after = check.extents[-1].last
    return LedgerCheck(record, checks)


def _raw_bounds(record: LedgerRecord, number: int) -> Bounds:
    before = _ENTRY_ID_MAX
    if number + 1 < len(record.segments):
        before = _first_entry_id(record.segments[number + 1])
    after = _first_entry_id(record.segments[number]) - 1
    ledger_id = record.ledger_id
    return Bounds(Position(ledger_id, after), Position(ledger_id, before), ledger_id)


def _first_entry_id(segment: SegmentRecord) -> int:
    """Returns the first entry id of a raw ledger's segment, from its file's name."""
    number = segment_number(segment.path)
    return record_position(segment, last=False).entry_id if number is None else number
