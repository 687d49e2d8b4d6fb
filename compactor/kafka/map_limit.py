"""Finds where a full offset map stops, and what it skips, exactly as Kafka's scan does.

Rules: record by record, a key is added to the map while it holds fewer keys than its limit. The
next record with a key then ends the scan, even if the map has the key. The map then covers the log
up to the last added record, or up to the last batch or segment that was read completely.

Therefore, given `full_at`, the record of the last new key within the limit, only later records have
to be read.

Source: Cleaner.buildOffsetMap, LogSegment.collectAbortedTxns of Kafka 4.1.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from ledgerfold.compactor.job.plan import InputSegment
from ledgerfold.compactor.kafka.batches import Batches, batches_of
from ledgerfold.compactor.kafka.records import read_records
from ledgerfold.compactor.kafka.rows import Firsts
from ledgerfold.compactor.kafka.scan import keyed_batches
from ledgerfold.compactor.kafka.transactions import AbortedIndex, Kind, facts_of
from ledgerfold.compactor.positions import Integers
from ledgerfold.storage.kafka.transaction_index import AbortedTransaction
from ledgerfold.v1.compactor_pb2 import CleanPlan, CleanSegment

_NO_MARKER = 2**63 - 1


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
    segments: Sequence[tuple[int, Sequence[InputSegment]]],
    lines: Sequence[AbortedTransaction],
    full_at: int,
) -> Stop | None:
    """Returns where a map that is full at that record ends; None if nowhere.

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


def _first_keyed(batches: Batches, aborted: AbortedIndex, after: int) -> tuple[int, int] | None:
    """Returns the first record after `after` with a key: its batch's index, and its offset."""
    which = keyed_batches(batches, aborted, int(batches.last_offset[-1]))
    which = which[batches.last_offset[which] > after]
    for records in read_records(batches, which):
        columns = records.columns()
        keyed = np.flatnonzero(columns.has_key & (columns.offset > after))
        if len(keyed):
            row = keyed[0]
            return int(records.batches[records.batch[row]]), int(records.offset[row])
    return None


def skipped_lines(
    plan: CleanPlan,
    segments: Sequence[tuple[CleanSegment, Sequence[InputSegment]]],
    lines: Iterable[AbortedTransaction],
) -> tuple[AbortedTransaction, ...]:
    """Returns the ranges that the map of Kafka 4.1.0 skips by mistake, if a profile enables that.

    The map of a cleaning may begin inside a segment, after the marker of an aborted transaction.
    Kafka then reopens that transaction, and the producer's next ABORT marker closes it: data that
    the producer commits in between is not mapped. That data survives, unless the map has its key
    later; and so does the data that it supersedes. The ranges are transaction index lines, from the
    map's start to a marker.

    Reads only headers, and only if there is an aborted transaction of that kind. Raises as scan
    does.
    """
    dirty = plan.first_dirty_offset
    reached = [each for each in segments if each[0].next_base_offset > dirty]
    begins = reached[0][0].base_offset
    before = [line for line in lines if begins <= line.last_offset < dirty]
    if not before:
        return ()
    start = _start(reached[0][1], dirty, plan.index_interval_bytes)
    opened = {line.producer_id for line in before if line.last_offset < start}
    skipped = list[AbortedTransaction]()
    for batches in batches_of(file for _, files in reached for file in files):
        if not opened:
            break
        for offset, producer_id, kind in facts_of(batches).tolist():
            if offset >= start and kind == Kind.ABORT and producer_id in opened:
                opened.discard(producer_id)
                skipped.append(AbortedTransaction(producer_id, start, offset, -1))
    skipped += [
        AbortedTransaction(producer_id, start, _NO_MARKER, -1) for producer_id in sorted(opened)
    ]
    return tuple(skipped)


def _start(files: Iterable[InputSegment], dirty: int, index_interval_bytes: int) -> int:
    """Returns the base offset of the batch at which the map begins to read.

    The offset index determines it: the last batch with an entry that ends at or below the first
    dirty offset, or the segment's first one.
    """
    start, since_entry_bytes = None, 0
    for batches in batches_of(files):
        columns = (batches.base_offset, batches.last_offset, batches.size_bytes)
        for base, last, size_bytes in zip(*(each.tolist() for each in columns), strict=True):
            if last > dirty:
                return dirty if start is None else start
            if since_entry_bytes > index_interval_bytes:
                start, since_entry_bytes = base, 0
            elif start is None:
                start = base
            since_entry_bytes += size_bytes
    return dirty if start is None else start
