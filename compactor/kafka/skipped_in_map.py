"""Data that the map of Kafka 4.1.0 skips by mistake: a defect that a profile enables.

The map of a cleaning may begin inside a segment, after the marker of an aborted transaction. Kafka
then reopens that transaction, and the producer's next ABORT marker closes it: data that the
producer commits in between is not mapped. It therefore survives, unless the map has its key later,
and so does the data that it supersedes.

The offset index determines where the map begins to read: at the last batch with an entry that ends
at or below the first dirty offset, or at the segment's first one.

Source: Cleaner.buildOffsetMap, LogSegment.collectAbortedTxns of Kafka 4.1.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ledgerfold.compactor.job.plan import InputSegment
from ledgerfold.compactor.kafka.map_limit import batches_of
from ledgerfold.compactor.kafka.transactions import Kind, Line, facts_of
from ledgerfold.v1.compactor_pb2 import CleanPlan, CleanSegment

_NO_MARKER = 2**63 - 1


def skipped_lines(
    plan: CleanPlan,
    segments: Sequence[tuple[CleanSegment, Sequence[InputSegment]]],
    lines: Iterable[Line],
) -> tuple[Line, ...]:
    """Returns the skipped ranges as transaction index lines, from the map's start to a marker.

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
    found = list[Line]()
    for batches in batches_of(file for _, files in reached for file in files):
        if not opened:
            break
        for offset, producer_id, kind in facts_of(batches).tolist():
            if offset >= start and kind == Kind.ABORT and producer_id in opened:
                opened.discard(producer_id)
                found.append(Line(producer_id, start, offset, -1))
    found += [Line(producer_id, start, _NO_MARKER, -1) for producer_id in sorted(opened)]
    return tuple(found)


def _start(files: Iterable[InputSegment], dirty: int, index_interval_bytes: int) -> int:
    """Returns the base offset of the batch at which the map begins to read."""
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
