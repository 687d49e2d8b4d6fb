"""Deletion vectors of segments that a run shares although some of their messages have died.

A segment that loses messages is linked into the new ledger with a deletion vector
(storage/deletion_vector.py). If too much of it would be dead, it is rewritten instead. A vector
needs only the places of the entries, which the key index of an old segment contains.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ledgerfold.compactor.job.key_index import EntryPlaces, KeyIndex
from ledgerfold.compactor.job.plan import InputSegment
from ledgerfold.compactor.job.segment_map import SegmentMap, vector_of
from ledgerfold.compactor.positions import Booleans, Integers, ranges
from ledgerfold.storage.deletion_vector import DeadRows, DeletionVector
from ledgerfold.storage.entry import (
    ENTRY_BYTES_MAX,
    HEADER_BYTES,
    LIVE_ROWS_BYTES,
)
from ledgerfold.storage.names import key_index_path
from ledgerfold.v1.records_pb2 import DeletionVectorRecord
from ledgerfold.v1.records_pb2 import Position as PositionRecord


def dead_mask(segment: InputSegment) -> Booleans:
    """Returns whether each row of a segment is dead. Raises as load_vector()."""
    is_dead = np.zeros(segment.record.messages, np.bool_)
    vector = vector_of(segment)
    if vector is None:
        return is_dead
    firsts, counts = _column(vector.first_rows), _column(vector.counts)
    is_whole = counts == _column(vector.dead_counts)
    is_dead[ranges(firsts[is_whole], counts[is_whole])] = True
    parts = np.flatnonzero(~is_whole)
    for index, first in zip(parts.tolist(), firsts[parts].tolist(), strict=True):
        is_dead[np.array(vector.dead_rows(index), np.int64) + first] = True
    return is_dead


def _column(column: object) -> Integers:
    return np.asarray(column).astype(np.int64)


class Vectored(NamedTuple):
    """The deletion vector of a segment that is linked: its file, and its record."""

    stored: bytes
    record: DeletionVectorRecord


def new_vector(
    segment: InputSegment, dead: Integers, garbage_max: float, places: EntryPlaces | None = None
) -> Vectored | None:
    """Returns the vector of a segment with these dead rows, which ascend.

    `places`: read from the segment's key index if omitted. Returns None if the segment must be
    rewritten: more than `garbage_max` of it would be dead, or an entry with its live rows would be
    too large for a reader. Raises as KeyIndex does.
    """
    record = segment.record
    if not garbage_max:
        return None
    firsts, offsets = _indexed_places(segment) if places is None else places
    counts = np.diff(firsts, append=record.messages)
    sizes = np.diff(offsets, append=record.size_bytes)
    entries = np.searchsorted(firsts, dead, "right") - 1
    dead_counts = np.bincount(entries, minlength=len(firsts))
    is_dead = dead_counts == counts
    # The share of an entry of 16 MiB fits into 64 bits with any number of rows.
    garbage = int((sizes * dead_counts // counts).sum())
    is_partly = (dead_counts > 0) & ~is_dead
    served = sizes[is_partly] + HEADER_BYTES + LIVE_ROWS_BYTES + counts[is_partly] // 8 + 1
    if garbage > garbage_max * record.size_bytes or (served > ENTRY_BYTES_MAX).any():
        return None
    if is_dead.all():
        return None
    vector = DeletionVector.of(
        record.messages, _entries(firsts, offsets, counts, dead_counts, dead)
    )
    stored = vector.encode()
    return Vectored(
        stored,
        DeletionVectorRecord(
            size_bytes=len(stored),
            checksum=int.from_bytes(stored[:4], "little"),
            messages=len(dead),
            entries=int(np.count_nonzero(is_dead)),
            bytes=garbage,
            **_bounds(segment, is_dead, offsets),
        ),
    )


def _indexed_places(segment: InputSegment) -> EntryPlaces:
    with KeyIndex(key_index_path(segment.path), segment.record.key_index) as index:
        return EntryPlaces(index.first_rows, index.offsets)


def _entries(
    firsts: Integers, offsets: Integers, counts: Integers, dead_counts: Integers, dead: Integers
) -> Iterator[DeadRows]:
    ends = np.cumsum(dead_counts)
    for at in np.flatnonzero(dead_counts).tolist():
        end = int(ends[at])
        rows = dead[end - int(dead_counts[at]) : end] - firsts[at]
        yield DeadRows(int(offsets[at]), int(firsts[at]), int(counts[at]), rows.tolist())


def _bounds(
    segment: InputSegment, is_dead: Booleans, offsets: Integers
) -> dict[str, PositionRecord]:
    """Returns the positions of the first and the last entry with a live row."""
    live = np.flatnonzero(~is_dead)
    bounds: dict[str, PositionRecord] = {}
    with SegmentMap(segment) as mapped:
        for name, at in (("first", live[0]), ("last", live[-1])):
            position = mapped.entry_at(int(offsets[at]), 0).header.position
            bounds[name] = PositionRecord(ledger_id=position.ledger_id, entry_id=position.entry_id)
    return bounds
