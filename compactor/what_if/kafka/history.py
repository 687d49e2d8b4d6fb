"""A Kafka topic's log as columns, for replays.

The next record of a key is the same under all settings, because cleaned records precede the ones
that supersede them. A cleaning therefore compares no keys: it checks whether the next record is in
its map.

    >>> none = np.empty(0, np.int64)
    >>> codes = np.array([5, 7, -1, 5])
    >>> [each.tolist() for each in neighbours(codes, np.array([0, 1, 2, 9]))]
    [[9, 9223372036854775807, 9223372036854775807, 9223372036854775807], [-1, -1, -1, 0]]

Memory of the driver: about 60 bytes a record, 100 a batch, and the distinct keys of each chunk of a
file. A log has at most RECORDS_MAX records.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from ledgerfold.compactor.job.rows import Failure, succeeded
from ledgerfold.compactor.positions import Booleans, Integers
from ledgerfold.compactor.what_if.rows import joined_codes
from ledgerfold.storage.errors import InvalidRequest

RECORDS_MAX = 10_000_000
# The key has no later record.
NEVER = 2**63 - 1


class BatchColumns(NamedTuple):
    """Batches in offset order."""

    base_offset: Integers
    last_offset: Integers
    size_bytes: Integers
    # The uncompressed size of its records, as appended.
    raw_bytes: Integers
    record_count: Integers
    is_compressed: Booleans
    is_control: Booleans
    is_transactional: Booleans
    # Data of a transaction that was aborted.
    is_aborted: Booleans
    # Its records have the batch's largest time.
    has_append_time: Booleans
    # -1: none.
    horizon_ms: Integers
    max_timestamp_ms: Integers
    producer_id: Integers
    producer_epoch: Integers
    append_time_ms: Integers


class RecordColumns(NamedTuple):
    """The records of consecutive batches, markers included."""

    offset: Integers
    time_ms: Integers
    # The size of the fields after the timestamp: offset delta, key, value and headers.
    rest_bytes: Integers
    is_null: Booleans
    has_key: Booleans
    # The code of its key in the chunk; -1 if the map never has it: no key, aborted data, or a
    # marker.
    code: Integers


class Chunk(NamedTuple):
    """A chunk of a file. `facts`: of its transactional and control batches."""

    batches: BatchColumns
    records: RecordColumns
    keys: bytes
    facts: Integers


@dataclass(frozen=True)
class History:
    """A whole log. `next_offset`, `previous_offset`: of each record's key; NEVER and -1: none."""

    batches: BatchColumns
    records: RecordColumns
    facts: Integers
    next_offset: Integers
    previous_offset: Integers

    @cached_property
    def starts(self) -> Integers:
        """The first row of each batch, and the end of the last."""
        return np.concatenate(([0], np.cumsum(self.batches.record_count)))

    @cached_property
    def batch_of(self) -> Integers:
        """The batch of each record."""
        return np.repeat(np.arange(len(self.batches.record_count)), self.batches.record_count)

    @cached_property
    def clock_ms(self) -> Integers:
        """The append time of each batch in a replay (replay.py)."""
        times, appended = self.batches.max_timestamp_ms, self.batches.append_time_ms
        times_ms = np.where(times >= 0, np.minimum(times, appended), appended)
        clock: Integers = np.maximum.accumulate(times_ms)
        return clock

    @cached_property
    def bytes_before(self) -> Integers:
        """The bytes before each batch, and in total."""
        return np.concatenate(([0], np.cumsum(self.batches.size_bytes)))

    @cached_property
    def special_batches(self) -> Integers:
        """The transactional and control batches, ascending."""
        return np.flatnonzero(self.batches.is_transactional | self.batches.is_control)

    @cached_property
    def fact_batches(self) -> Integers:
        """The batch of each fact."""
        indexes: Integers = np.searchsorted(self.batches.last_offset, self.facts[:, 0])
        return indexes

    def kind_of(self, batch: int) -> int:
        """Returns the Kind of a transactional or control batch."""
        return int(self.facts[np.searchsorted(self.fact_batches, batch), 2])

    def __len__(self) -> int:
        return len(self.batches.record_count)


def check_length(records: int) -> None:
    """Raises InvalidRequest if a log is too long."""
    if records > RECORDS_MAX:
        raise InvalidRequest(f"The log has {records} records; at most {RECORDS_MAX} are replayed.")


def history_of(chunks: Sequence[Chunk | Failure]) -> History:
    """Joins chunks. Raises the error of a failed task."""
    sorted_chunks = sorted(succeeded(chunks), key=lambda chunk: int(chunk.batches.base_offset[0]))
    batches = joined_columns([each.batches for each in sorted_chunks], len(BatchColumns._fields))
    records = joined_columns([each.records for each in sorted_chunks], len(RecordColumns._fields))
    codes = joined_codes([(each.keys, each.records.code) for each in sorted_chunks])
    facts = [each.facts for each in sorted_chunks]
    return History(
        BatchColumns(*batches),
        RecordColumns(*records)._replace(code=codes),
        np.concatenate(facts) if facts else np.empty((0, 3), np.int64),
        *neighbours(codes, records[0]),
    )


def neighbours(codes: Integers, offsets: Integers) -> tuple[Integers, Integers]:
    """Returns the offsets of the next and the previous record with the same code; -1 is no code."""
    following = np.full(len(codes), NEVER, np.int64)
    before = np.full(len(codes), -1, np.int64)
    rows = np.flatnonzero(codes >= 0)
    order = rows[np.argsort(codes[rows], kind="stable")]
    earlier, later = order[:-1], order[1:]
    is_same = codes[earlier] == codes[later]
    following[earlier[is_same]] = offsets[later[is_same]]
    before[later[is_same]] = offsets[earlier[is_same]]
    return following, before


def joined_columns(chunks: Sequence[tuple[Any, ...]], columns: int) -> list[Any]:
    """Concatenates the chunks' columns; returns empty columns for no chunk."""
    if not chunks:
        return [np.empty(0, np.int64)] * columns
    return [np.concatenate(column) for column in zip(*chunks, strict=True)]
