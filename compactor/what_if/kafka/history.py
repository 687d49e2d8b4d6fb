"""A Kafka topic's log as columns, for replays: what they ask of its batches and records.

Which record of a key is the next one is the same under all settings, for what is cleaned away lies
in front of what supersedes it: so a round asks no key, only whether the next one is in its map.

    >>> none = np.empty(0, np.int64)
    >>> codes = np.array([5, 7, -1, 5])
    >>> [each.tolist() for each in neighbours(codes, np.array([0, 1, 2, 9]))]
    [[9, 9223372036854775807, 9223372036854775807, 9223372036854775807], [-1, -1, -1, 0]]

Memory of the driver: about 60 bytes a record, 100 a batch, and the distinct keys of each stretch of
a file; so a log has at most RECORDS_MAX records.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from ledgerfold.compactor.job.arrow_integers import from_arrow
from ledgerfold.compactor.job.rows import Failure
from ledgerfold.compactor.positions import Booleans, Integers
from ledgerfold.compactor.what_if.rows import key_column
from ledgerfold.storage.errors import InvalidRequest

RECORDS_MAX = 10_000_000
# No record of the key follows.
NEVER = 2**63 - 1


class BatchColumns(NamedTuple):
    """In order of offset."""

    base_offset: Integers
    last_offset: Integers
    size_bytes: Integers
    # As long as it is as it was appended: of its records, not compressed.
    raw_bytes: Integers
    record_count: Integers
    is_compressed: Booleans
    is_control: Booleans
    is_transactional: Booleans
    # Data of a transaction that was aborted.
    is_aborted: Booleans
    # Its records' time is the batch's largest.
    has_append_time: Booleans
    # -1: none.
    horizon_ms: Integers
    max_timestamp_ms: Integers
    producer_id: Integers
    producer_epoch: Integers
    append_time_ms: Integers


class RecordColumns(NamedTuple):
    """Of all batches, one behind the other, markers included."""

    offset: Integers
    time_ms: Integers
    # Of what lies behind its time: the offset delta, key, value and headers.
    rest_bytes: Integers
    is_null: Booleans
    has_key: Booleans
    # Of the keys of a chunk; -1: the map never has it, for it has no key, or is aborted, or is a
    # marker.
    code: Integers


class Chunk(NamedTuple):
    """Of a stretch of a file. `facts`: of its transactional and control batches."""

    batches: BatchColumns
    records: RecordColumns
    keys: bytes
    facts: Integers


@dataclass(frozen=True)
class History:
    """All of a log. `next_offset`, `previous_offset`: of each record's key, NEVER and -1: none."""

    batches: BatchColumns
    records: RecordColumns
    facts: Integers
    next_offset: Integers
    previous_offset: Integers

    @cached_property
    def starts(self) -> Integers:
        """The first row of each batch, and where the last one ends."""
        return np.concatenate(([0], np.cumsum(self.batches.record_count)))

    @cached_property
    def batch_of(self) -> Integers:
        """Of each record."""
        return np.repeat(np.arange(len(self.batches.record_count)), self.batches.record_count)

    @cached_property
    def clock_ms(self) -> Integers:
        """When each batch was appended, as a replay has it (replay.py)."""
        times, appended = self.batches.max_timestamp_ms, self.batches.append_time_ms
        told = np.where(times >= 0, np.minimum(times, appended), appended)
        clock: Integers = np.maximum.accumulate(told)
        return clock

    @cached_property
    def bytes_before(self) -> Integers:
        """Each batch, and behind the last one."""
        return np.concatenate(([0], np.cumsum(self.batches.size_bytes)))

    @cached_property
    def special_batches(self) -> Integers:
        """Those that transactions are about, ascending."""
        return np.flatnonzero(self.batches.is_transactional | self.batches.is_control)

    @cached_property
    def fact_batches(self) -> Integers:
        """Which batch each of the facts is about."""
        found: Integers = np.searchsorted(self.batches.last_offset, self.facts[:, 0])
        return found

    def kind_of(self, batch: int) -> int:
        """Of a transactional or control batch: a Kind."""
        return int(self.facts[np.searchsorted(self.fact_batches, batch), 2])

    def __len__(self) -> int:
        return len(self.batches.record_count)


def check_length(records: int) -> None:
    """Raises InvalidRequest."""
    if records > RECORDS_MAX:
        raise InvalidRequest(f"A log of {records} records; at most {RECORDS_MAX} are replayed.")


def history_of(chunks: Sequence[Chunk | Failure]) -> History:
    """Raises the error that a task met."""
    found: list[Chunk] = []
    for chunk in chunks:
        if isinstance(chunk, Failure):
            raise chunk.error()
        found.append(chunk)
    found.sort(key=lambda chunk: int(chunk.batches.base_offset[0]))
    batches = BatchColumns(
        *joined_columns([each.batches for each in found], len(BatchColumns._fields))
    )
    records = RecordColumns(
        *joined_columns([each.records for each in found], len(RecordColumns._fields))
    )
    codes = _joined_codes(found)
    facts = [each.facts for each in found]
    return History(
        BatchColumns(*batches),
        RecordColumns(*records)._replace(code=codes),
        np.concatenate(facts) if facts else np.empty((0, 3), np.int64),
        *neighbours(codes, records[0]),
    )


def neighbours(codes: Integers, offsets: Integers) -> tuple[Integers, Integers]:
    """The next record and the one before with the same code, -1 being none."""
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
    """The chunks' columns end to end; so many without a chunk."""
    if not chunks:
        return [np.empty(0, np.int64)] * columns
    return [np.concatenate(column) for column in zip(*chunks, strict=True)]


def _joined_codes(chunks: Sequence[Chunk]) -> Integers:
    """Of keys that are the same in all chunks."""
    if not chunks:
        return np.empty(0, np.int64)
    columns = [key_column(each.keys) for each in chunks]
    codes = from_arrow(pa.concat_arrays(columns).dictionary_encode().indices)
    bounds = np.cumsum([0, *map(len, columns)])
    joined = []
    for (start, end), chunk in zip(pairwise(bounds), chunks, strict=True):
        # Behind all codes stands what -1 names.
        of = np.append(codes[start:end], -1)
        joined.append(of[chunk.records.code])
    return np.concatenate(joined).astype(np.int64)
