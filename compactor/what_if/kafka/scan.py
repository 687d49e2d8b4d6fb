"""The Spark task of a replay: reads its files' batches and records into columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain

import numpy as np
import pyarrow as pa

from ledgerfold.compactor.job.joined_keys import joined_keys
from ledgerfold.compactor.job.plan import InputSegment
from ledgerfold.compactor.job.rows import Failure
from ledgerfold.compactor.kafka.batches import COMPRESSION, Batches, batches_of
from ledgerfold.compactor.kafka.records import Columns, Records, read_records
from ledgerfold.compactor.kafka.transactions import AbortedIndex, facts_of
from ledgerfold.compactor.positions import Booleans, Integers
from ledgerfold.compactor.what_if.kafka.history import (
    BatchColumns,
    Chunk,
    RecordColumns,
    joined_columns,
)
from ledgerfold.compactor.what_if.rows import key_blob
from ledgerfold.storage.errors import LedgerfoldError
from ledgerfold.storage.kafka.transaction_index import AbortedTransaction


@dataclass(frozen=True)
class HistoryScan:
    """A Spark task that reads files into chunks, in order. Picklable."""

    lines: tuple[AbortedTransaction, ...]

    def __call__(self, runs: Iterable[tuple[InputSegment, ...]]) -> Iterator[Chunk | Failure]:
        aborted = AbortedIndex(self.lines)
        try:
            for batches in batches_of(chain.from_iterable(runs)):
                yield chunk_of(batches, aborted)
        except LedgerfoldError as error:
            yield Failure.of(error)


def chunk_of(batches: Batches, aborted: AbortedIndex) -> Chunk:
    """Returns the columns of a chunk. Raises Corruption."""
    is_aborted = aborted.covers(batches)
    is_mapped = ~(batches.is_control | is_aborted)
    raw_bytes = np.zeros(len(batches), np.int64)
    parts: list[RecordColumns] = []
    keys: list[pa.BinaryArray] = []
    for records in read_records(batches, np.flatnonzero(batches.record_count > 0)):
        columns = records.columns()
        sizes = (records.end - records.start).astype(np.float64)
        summed = np.bincount(records.batch, sizes, len(records.batches))
        raw_bytes[records.batches] = summed.astype(np.int64)
        has_key = columns.has_key & is_mapped[records.batches][records.batch]
        codes = np.full(len(records), -1, np.int64)
        codes[has_key] = np.arange(np.count_nonzero(has_key)) + sum(map(len, keys))
        keys.append(columns.keys(np.flatnonzero(has_key)).column())
        parts.append(_records(batches, records, columns, codes))
    joined = RecordColumns(*joined_columns(parts, len(RecordColumns._fields)))
    distinct = joined_keys(keys)
    codes = np.append(distinct.codes, -1)[joined.code]
    return Chunk(
        _batches(batches, raw_bytes, is_aborted),
        joined._replace(code=codes),
        key_blob(distinct.keys),
        facts_of(batches),
    )


def _batches(batches: Batches, raw_bytes: Integers, is_aborted: Booleans) -> BatchColumns:
    horizon_ms = np.where(batches.has_horizon, batches.column("base_timestamp_ms"), -1)
    return BatchColumns(
        batches.base_offset,
        batches.last_offset,
        batches.size_bytes,
        raw_bytes,
        batches.record_count,
        (batches.attributes & COMPRESSION) != 0,
        batches.is_control,
        batches.is_transactional,
        is_aborted,
        batches.has_append_time,
        horizon_ms,
        batches.column("max_timestamp_ms"),
        batches.producer_id,
        batches.column("producer_epoch"),
        batches.entries["append_time_ms"].astype(np.int64),
    )


def _records(
    batches: Batches, records: Records, columns: Columns, codes: Integers
) -> RecordColumns:
    base = batches.column("base_timestamp_ms")[records.batches]
    latest = batches.column("max_timestamp_ms")[records.batches]
    is_appended = batches.has_append_time[records.batches][records.batch]
    deltas, rests_at = columns.timestamp_deltas()
    times = base[records.batch] + deltas
    return RecordColumns(
        columns.offset,
        np.where(is_appended, latest[records.batch], times),
        columns.end - rests_at,
        columns.is_null(),
        columns.has_key,
        codes,
    )
