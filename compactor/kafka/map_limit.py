"""Finds where a full offset map stops, exactly as Kafka's scan does.

Rules: record by record, a key is added to the map while it holds fewer keys than its limit. The
next record with a key then stops the scan, even if the map has the key. The map then covers the log
up to the last added record, the last batch that was read completely, or the end of the last segment
that was.

Therefore, given `full_at`, the record of the last new key within the limit, only records after it
have to be read.

Source: Cleaner.buildOffsetMap of Kafka 4.1.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from ledgerfold.compactor.job.plan import InputSegment
from ledgerfold.compactor.kafka.batches import Batches, LogFile
from ledgerfold.compactor.kafka.records import read_records
from ledgerfold.compactor.kafka.rows import Firsts
from ledgerfold.compactor.kafka.scan import keyed_batches
from ledgerfold.compactor.kafka.transactions import AbortedIndex, Line
from ledgerfold.compactor.positions import Integers


def full_at(firsts: Iterable[Firsts], keys_max: int) -> int | None:
    """Returns the first offset of the last key within the limit; None if there are fewer keys.

    `firsts`: of each bucket. Memory: 16 bytes for each key of the limit.
    """
    smallest: Integers = np.empty(0, np.int64)
    for each in firsts:
        joined = np.concatenate((smallest, np.frombuffer(each.blob, np.int64)))
        smallest = np.sort(joined)[:keys_max]
    return int(smallest[-1]) if len(smallest) == keys_max else None


class Stop(NamedTuple):
    """The first record that was not added to the map, and the last offset that the map covers."""

    offset: int
    last_mapped: int


def stop_after(
    segments: Sequence[tuple[int, Sequence[InputSegment]]], lines: Sequence[Line], full_at: int
) -> Stop | None:
    """Returns where a map stops that is full at that record; None if nowhere.

    `segments`: the next base offset and the files of each, from the one that holds the record.
    Raises as scan does.
    """
    aborted, latest = AbortedIndex(lines), full_at
    for next_base_offset, files in segments:
        for batches in batches_of(files):
            stop = _first_keyed(batches, aborted, full_at)
            if stop is None:
                latest = max(latest, int(batches.last_offset[-1]))
                continue
            number, offset = stop
            before = batches.last_offset[batches.last_offset < batches.base_offset[number]]
            return Stop(offset, max(latest, int(before[-1])) if len(before) else latest)
        latest = next_base_offset - 1
    return None


def batches_of(files: Iterable[InputSegment]) -> Iterator[Batches]:
    for file in files:
        with LogFile(file) as opened:
            yield from opened.chunks()


def _first_keyed(batches: Batches, aborted: AbortedIndex, after: int) -> tuple[int, int] | None:
    """Returns the first record after `after` with a key: its batch's index, and its offset."""
    which = keyed_batches(batches, aborted, int(batches.last_offset[-1]))
    which = which[batches.last_offset[which] > after]
    for records in read_records(batches, which):
        columns = records.columns()
        found = np.flatnonzero(columns.has_key & (columns.offset > after))
        if len(found):
            row = found[0]
            return int(records.batches[records.batch[row]]), int(records.offset[row])
    return None
