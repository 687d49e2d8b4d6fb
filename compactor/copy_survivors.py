"""Phase two: a task copies what survives of its segments into the new ledger, in order of id.

An entry of which all rows survive is copied as bytes, one of which some survive is rebuilt
(rebuild.py), one without survivors is left out. Checksums of both sections are verified on the way:
damage is found here at the latest and never carried on under a fresh checksum.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from ledgerfold.compactor.output import LedgerOutput
from ledgerfold.compactor.plan import InputSegment, Output
from ledgerfold.compactor.positions import ROW_BITS, Integers
from ledgerfold.compactor.rebuild import keep_rows
from ledgerfold.compactor.rows import Failure, Positions, Row, Written
from ledgerfold.compactor.segment_map import PlacedEntry, SegmentMap
from ledgerfold.storage.entry import ENTRY_BYTES_MAX, read_header
from ledgerfold.storage.errors import Corruption, InvalidRequest


def copy_survivors(
    rows: Iterable[Row], segments: Sequence[InputSegment], output: Output
) -> Iterator[Row]:
    """Rows for the driver: Written, and what is not this task's business.

    Raises Corruption, MissingFile, DiskFailure, EntryTooLarge. Files that are not finished are
    left to the driver, which removes the whole folder.
    """
    found: list[Integers] = []
    for row in rows:
        match row[1]:
            case Positions() as positions:
                found.append(positions.values)
            case Failure():
                yield row
                return
            case _:
                yield row
    if not found:
        return
    survivors = np.sort(np.concatenate(found))
    with LedgerOutput(output) as ledger:
        for segment in segments:
            first = np.int64(segment.ordinal) << ROW_BITS
            last = np.int64(segment.ordinal + 1) << ROW_BITS
            start, end = np.searchsorted(survivors, [first, last]).tolist()
            if start < end:
                _copy_segment(segment, survivors[start:end] - first, ledger)
        ledger.finish()
    for record in ledger.sealed:
        yield 0, Written(record.SerializeToString())
    yield 0, ledger.write_times


def _copy_segment(segment: InputSegment, rows: Integers, ledger: LedgerOutput) -> None:
    with SegmentMap(segment) as mapped:
        entries = list(mapped.entries())
        ends = np.array([entry.row + entry.header.message_count for entry in entries], np.int64)
        bounds = np.searchsorted(rows, ends).tolist()
        start = 0
        for index, (entry, end) in enumerate(zip(entries, bounds, strict=True)):
            if start < end:
                ordinal = segment.entries_before + index
                _copy_entry(mapped, entry, rows[start:end] - entry.row, ledger, ordinal)
            start = end


def _copy_entry(
    mapped: SegmentMap, entry: PlacedEntry, rows: Integers, ledger: LedgerOutput, ordinal: int
) -> None:
    raw, header = mapped.raw(entry), entry.header
    # The second: a run before batch indexes were counted may have left an entry that is too large.
    if len(rows) < header.message_count or header.size_bytes > ENTRY_BYTES_MAX:
        try:
            raw = keep_rows(header, raw, rows, mapped.path)
        except InvalidRequest as error:
            raise Corruption(mapped.path, entry.offset, "a native entry", str(error)) from error
        header = read_header(raw.header)
    ledger.append(header, raw, ordinal)
