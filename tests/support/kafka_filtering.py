"""Filters a batch record by record, as a cleaning does: the oracle of compactor/kafka/rewrite.py,
which has the rules.

    >>> from ledgerfold.storage.kafka.records import build_columns, records_of
    >>> batch = build_columns([b"a", b"b"], [b"1", None], [10, 20])
    >>> left = kept(batch, [False, True], delete_horizon_ms=99)
    >>> [(record.offset, record.timestamp_ms) for record in records_of(left)]
    [(1, 20)]
    >>> read_batch_header(left).delete_horizon_ms
    99
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress as chosen

from ledgerfold.storage.entry import Buffer
from ledgerfold.storage.kafka.batch import (
    NO_TIMESTAMP,
    TimestampType,
    attributes_of,
    read_batch_header,
    sealed,
)
from ledgerfold.storage.kafka.compression import compress
from ledgerfold.storage.kafka.records import columns_of
from ledgerfold.storage.kafka.section import record_section


def kept(batch: Buffer, keep: Sequence[bool], delete_horizon_ms: int | None = None) -> bytes:
    """Returns the batch with the rows that `keep` selects; nothing if none is left.

    `delete_horizon_ms`: set because a tombstone survives, or the marker of an empty transaction;
    None sets none. Raises KafkaError.
    """
    if not any(keep):
        return b""
    header = read_batch_header(batch)
    horizon = header.delete_horizon_ms
    if all(keep) and (delete_horizon_ms is None or horizon is not None):
        return bytes(batch)
    horizon = delete_horizon_ms if horizon is None else horizon
    offsets, timestamps, keys, values, headers = columns_of(batch)
    survivors = list(chosen(range(len(offsets)), keep))
    times = list(chosen(timestamps, keep))
    base_timestamp = times[0] if horizon is None else horizon
    section = record_section(
        list(chosen(keys, keep)),
        list(chosen(values, keep)),
        times,
        {place: headers[row] for place, row in enumerate(survivors) if row in headers},
        [offset - header.base_offset for offset in chosen(offsets, keep)],
        base_timestamp,
    )
    rebuilt = header._replace(
        attributes=attributes_of(
            header.compression,
            header.timestamp_type,
            is_transactional=header.is_transactional,
            is_control=header.is_control,
            has_delete_horizon=horizon is not None,
        ),
        base_timestamp_ms=base_timestamp,
        record_count=len(survivors),
    )
    if header.timestamp_type == TimestampType.CREATE_TIME:
        rebuilt = rebuilt._replace(max_timestamp_ms=max(NO_TIMESTAMP, *times))
    return sealed(rebuilt, compress(header.compression, section))
