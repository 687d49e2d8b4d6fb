"""Where a full map stops: exactly, as Kafka's scan does.

Rules: record by record, a key goes into the map while it holds fewer than its limit; the first
record with a key that comes then stops the scan, even if the key is in the map. The map then covers
the log up to the last record put, or the last batch that was read wholly, or the end of the last
segment that was.

So with `full_at`, the record that was the last new key within the limit, only what lies behind it
has to be looked at.

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
    """The first offset of the last key within the limit; None: there are fewer keys.

    `firsts` of each bucket. Memory: 16 bytes for each key of the limit.
    """
    smallest: Integers = np.empty(0, np.int64)
    for each in firsts:
        joined = np.concatenate((smallest, np.frombuffer(each.blob, np.int64)))
        smallest = np.sort(joined)[:keys_max]
    return int(smallest[-1]) if len(smallest) == keys_max else None


class Stop(NamedTuple):
    """The record that did not go into the map, and the last offset that the map covers."""

    offset: int
    last_mapped: int


def stop_behind(
    segments: Sequence[tuple[int, Sequence[InputSegment]]], lines: Sequence[Line], full_at: int
) -> Stop | None:
    """Where a map stops that is full at that record; None: nowhere.

    `segments`: the next base offset and the files of each, from that on which holds the record.
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
            yield from opened.stretches()


def _first_keyed(batches: Batches, aborted: AbortedIndex, after: int) -> tuple[int, int] | None:
    """The first record behind that offset that has a key: its batch's number, and its offset."""
    which = keyed_batches(batches, aborted, int(batches.last_offset[-1]))
    which = which[batches.last_offset[which] > after]
    for records in read_records(batches, which):
        columns = records.columns()
        found = np.flatnonzero(columns.has_key & (columns.offset > after))
        if len(found):
            row = found[0]
            return int(records.batches[records.batch[row]]), int(records.offset[row])
    return None
