"""Computes the figures of a cleaned segment from its batches.

Rules: a batch gets an entry of the offset index when more than index.interval.bytes follow the
entry before it. The time index gets one at the same places, and at the end, if the largest
timestamp so far is larger than its last entry's. Entries take 8 and 12 bytes.

    >>> facts = facts_of([(5, 100, 7), (9, 100, 3)], 0, 50)
    >>> facts.next_offset, facts.max_timestamp_offset, facts.offset_index_bytes
    (10, 5, 8)

Source: LogSegment.append, LogSegment.onBecomeInactiveSegment of Kafka 4.1.
"""

from __future__ import annotations

from collections.abc import Iterable

from ledgerfold.storage.kafka.batch import NO_TIMESTAMP
from ledgerfold.v1.compactor_pb2 import CleanedGroup

_OFFSET_ENTRY_BYTES, _TIME_ENTRY_BYTES = 8, 12


class IndexFull(Exception):
    """A full index, found during the copy: a defect of Kafka 4.1.0 that a profile enables."""


def facts_of(
    batches: Iterable[tuple[int, int, int]],
    base_offset: int,
    index_interval_bytes: int,
    index_bytes_max: int | None = None,
) -> CleanedGroup:
    """Returns the figures of a group. `batches`: last offset, size and largest timestamp, in order.

    Raises IndexFull if an index exceeds `index_bytes_max`; None is unlimited.
    """
    group = CleanedGroup(
        base_offset=base_offset,
        next_offset=base_offset,
        max_timestamp_ms=NO_TIMESTAMP,
        max_timestamp_offset=-1,
        first_batch_timestamp_ms=NO_TIMESTAMP,
    )
    max_timestamp, max_offset, indexed_timestamp = NO_TIMESTAMP, -1, NO_TIMESTAMP
    count = offset_entries = time_entries = size_bytes = since_entry_bytes = 0
    for last_offset, batch_bytes, timestamp in batches:
        if not count:
            group.first_batch_timestamp_ms = timestamp
        if timestamp > max_timestamp:
            max_timestamp, max_offset = timestamp, last_offset
        if since_entry_bytes > index_interval_bytes:
            if index_bytes_max is not None and (
                offset_entries >= index_bytes_max // _OFFSET_ENTRY_BYTES
                or time_entries >= index_bytes_max // _TIME_ENTRY_BYTES - 1
            ):
                raise IndexFull(
                    f"The index of the new segment {base_offset} is full: {index_bytes_max} bytes."
                )
            offset_entries += 1
            since_entry_bytes = 0
            if max_timestamp > indexed_timestamp:
                time_entries, indexed_timestamp = time_entries + 1, max_timestamp
        count += 1
        size_bytes += batch_bytes
        since_entry_bytes += batch_bytes
        group.next_offset = last_offset + 1
    group.batches, group.size_bytes = count, size_bytes
    group.max_timestamp_ms, group.max_timestamp_offset = max_timestamp, max_offset
    group.offset_index_bytes = _OFFSET_ENTRY_BYTES * offset_entries
    group.time_index_bytes = _TIME_ENTRY_BYTES * (
        time_entries + (max_timestamp > indexed_timestamp)
    )
    return group
