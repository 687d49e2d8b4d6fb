"""Replays cleanings over a log's columns: the bytes that each reads, and its result.

The rules are those of the worker (compactor/kafka/): the end of a full map
(compactor/kafka/map_limit.py), groups (compactor/kafka/grouping.py), markers and aborted data
(compactor/kafka/transactions.py), surviving batches and records (compactor/kafka/record_filter.py).
Keys are not compared: history.py.

Rebuilt batches have the sizes that they get from compactor/kafka/rewrite.py: as in Kafka, only a
record's length and its time change. The time is relative to the batch's base timestamp: the delete
horizon, or the first record's time. The size of an uncompressed batch is exact; a compressed
batch's is scaled like that of its uncompressed records.

Memory: a number for each remaining record, and five for each batch.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ledgerfold.compactor.kafka.grouping import Limits, groups_of
from ledgerfold.compactor.kafka.growth import grow
from ledgerfold.compactor.kafka.record_filter import is_producers_last
from ledgerfold.compactor.kafka.transactions import Kind, decide
from ledgerfold.compactor.kafka.varints import varint_bytes
from ledgerfold.compactor.positions import Booleans, Integers
from ledgerfold.compactor.what_if.kafka.growing import GrowingLog
from ledgerfold.compactor.what_if.kafka.history import History
from ledgerfold.kafka.cleanable import Plan, delete_horizon_ms
from ledgerfold.kafka.rolling import Growth
from ledgerfold.kafka.segment import Segment
from ledgerfold.storage.kafka.batch import BATCH_HEADER_BYTES, NO_TIMESTAMP
from ledgerfold.v1.compactor_pb2 import CleanerSettings, CleanSegment


class Cleaned(NamedTuple):
    """The result of a cleaning; `next_offset`: the clean point.

    `bytes_estimated`: those of compressed batches that are rebuilt.
    """

    next_offset: int
    bytes_read: int
    bytes_written: int
    bytes_estimated: int


class _Read(NamedTuple):
    """The input of a cleaning: batches, ascending, and the rows of their remaining records."""

    batches: Integers
    rows: Integers


class _Stays(NamedTuple):
    """The output of a cleaning, and the batches that it changes or removes, ascending."""

    batches: Integers
    rows: Integers
    touched: Integers


class Cleaner:
    """The cleaner of one log, from its first cleaning on."""

    def __init__(self, history: History, settings: CleanerSettings, log: GrowingLog) -> None:
        self._history, self._settings, self._log = history, settings, log
        batches = history.batches
        # The present values of each batch.
        self._size_bytes, self._count = batches.size_bytes.copy(), batches.record_count.copy()
        self._horizon_ms = batches.horizon_ms.copy()
        self._max_timestamp_ms = batches.max_timestamp_ms.copy()
        self._is_there = np.ones(len(history), np.bool_)
        # The remaining batches before `_end`, which cleanings have read.
        self._remaining = _Read(np.empty(0, np.int64), np.empty(0, np.int64))
        self._end = 0
        # Records, batches and segments processed so far.
        self.steps = 0

    def clean(self, plan: Plan, now_ms: int) -> Cleaned:
        """Cleans once. `plan`: of the log's present state."""
        log = self._log
        latest = self._latest(plan)
        segments = [each for each in log.closed if each.base_offset <= latest]
        groups = groups_of(
            list(map(_planned, segments)),
            Limits(self._settings.segment_bytes, self._settings.index_bytes_max),
            plan.bound,
        )
        count = len(segments)
        behind = log.closed[count].base_offset if count < len(log.closed) else log.active_base
        read = self._read(self._batch_at(behind))
        stays = self._decide(read, plan, latest, now_ms, behind)
        bases = [*(each.base_offset for each in segments), behind]
        by, first = list[Segment](), 0
        for group in groups:
            end = first + len(group)
            by.append(self._written(segments[first:end], bases[end], stays))
            first = end
        log.replace(count, by)
        self.steps += len(read.batches) + len(read.rows) + count
        self._remaining, self._end = _Read(stays.batches, stays.rows), self._batch_at(behind)
        return Cleaned(
            latest + 1,
            sum(each.size_bytes for each in segments),
            sum(each.size_bytes for each in by),
            self._estimated_bytes(stays.batches),
        )

    def remaining(self) -> tuple[int, int]:
        """Returns the number of records in the log, and of tombstones among them."""
        rows = self._read(len(self._history)).rows
        is_data = ~self._history.batches.is_control[self._history.batch_of[rows]]
        return len(rows), int(np.count_nonzero(self._history.records.is_null[rows] & is_data))

    def _batch_at(self, offset: int) -> int:
        return int(np.searchsorted(self._history.batches.base_offset, offset))

    def _read(self, end: int) -> _Read:
        """Returns everything present before that batch."""
        history, remaining = self._history, self._remaining
        first = self._batch_at(self._log.first_offset)
        since = max(self._end, first)
        new = np.arange(since, max(since, end))
        new_rows = np.arange(history.starts[since], history.starts[max(since, end)])
        old = remaining.batches[np.searchsorted(remaining.batches, first) :]
        old_rows = remaining.rows[np.searchsorted(remaining.rows, history.starts[first]) :]
        return _Read(np.concatenate((old, new)), np.concatenate((old_rows, new_rows)))

    # -- the map ---------------------------------------------------------------------------

    def _latest(self, plan: Plan) -> int:
        """Returns the last offset that the map covers."""
        history, limit = self._history, self._settings.keys_max
        first, behind = np.searchsorted(
            history.records.offset, (plan.first_dirty_offset, plan.bound)
        ).tolist()
        is_mapped = history.records.code[first:behind] >= 0
        is_new = is_mapped & (history.previous_offset[first:behind] < plan.first_dirty_offset)
        if np.count_nonzero(is_new) < limit:
            return plan.bound - 1
        full_at = first + int(np.flatnonzero(is_new)[limit - 1])
        stops = np.flatnonzero(is_mapped[full_at + 1 - first :])
        if not len(stops):
            return plan.bound - 1
        stop = full_at + 1 + int(stops[0])
        return self._covered(full_at, stop)

    def _covered(self, full_at: int, stop: int) -> int:
        """Returns the last offset added, or read completely before that record."""
        history = self._history
        full_offset, stop_offset = history.records.offset[[full_at, stop]].tolist()
        batch = int(history.batch_of[stop])
        before = batch - 1
        while before >= 0 and not self._is_there[before]:
            before -= 1
        base = max(s.base_offset for s in self._log.closed if s.base_offset <= stop_offset)
        ends = [full_offset]
        if before >= 0:
            ends.append(int(history.batches.last_offset[before]))
        if base > full_offset:
            ends.append(base - 1)
        return int(max(ends))

    # -- what stays ------------------------------------------------------------------------

    def _decide(self, read: _Read, plan: Plan, latest: int, now_ms: int, bound: int) -> _Stays:
        """Decides what stays, and updates the state of batches."""
        which, columns = read.batches, self._history.batches
        horizon_ms = self._horizon_ms[which]
        may_go = columns.is_control[which] & np.isin(
            columns.last_offset[which], self._discardable(bound)
        )
        has_come = (horizon_ms >= 0) & (horizon_ms <= now_ms)
        goes = columns.is_aborted[which] | (may_go & has_come)
        of = np.searchsorted(which, self._history.batch_of[read.rows])
        stays = ~goes[of] & (columns.is_control[which][of] | self._keeps(read, of, plan, latest))
        is_null = self._history.records.is_null[read.rows] & ~columns.is_control[which][of]
        in_map = self._history.records.offset[read.rows] <= latest
        stays &= ~(is_null & in_map & has_come[of])
        rows, of, is_null = read.rows[stays], of[stays], is_null[stays]
        count = np.bincount(of, minlength=len(which))
        has_null = np.bincount(of[is_null], minlength=len(which)) > 0
        is_stamped = (horizon_ms < 0) & (has_null | (may_go & (count > 0)))
        is_changed = (count > 0) & ((count < self._count[which]) | is_stamped)
        keeps_header = columns.last_offset[which] + 1 == plan.bound
        keeps_header |= is_producers_last(
            self._log.producers.at(now_ms),
            columns.producer_id[which],
            columns.producer_epoch[which],
            columns.last_offset[which],
            columns.is_control[which],
        )
        self._horizon_ms[which[is_stamped]] = delete_horizon_ms(
            now_ms, self._settings.delete_retention_ms
        )
        changed = which[is_changed]
        if len(changed):
            built = rebuilt(self._history, rows[is_changed[of]], changed, self._horizon_ms[changed])
            self._size_bytes[changed] = built.size_bytes
            self._max_timestamp_ms[changed] = built.max_timestamp_ms
        is_header = keeps_header & (count == 0)
        headers = which[is_header]
        self._size_bytes[headers], self._horizon_ms[headers] = BATCH_HEADER_BYTES, -1
        was_header = self._count[which] == 0
        self._count[which] = count
        is_left = (count > 0) | is_header
        self._is_there[which[~is_left]] = False
        touched = ~is_left | is_changed | (is_header & ~was_header)
        return _Stays(which[is_left], rows, which[touched])

    def _keeps(self, read: _Read, of: Integers, plan: Plan, latest: int) -> Booleans:
        """Returns which data records the map keeps, or does not cover."""
        history, rows = self._history, read.rows
        following = history.next_offset[rows]
        in_map = (following >= plan.first_dirty_offset) & (following <= latest)
        has_key = history.records.code[rows] >= 0
        keeps: Booleans = (has_key & ~in_map) | (history.records.offset[rows] > latest)
        return keeps

    def _discardable(self, bound: int) -> Integers:
        """Returns discardable control batches by last offset. Updates the transaction index."""
        history, known = self._history, self._log.producers
        facts, of = history.facts, history.fact_batches
        first = self._log.first_offset
        known.lines = [line for line in known.lines if line.last_offset >= first]
        is_read = self._is_there[of] & (facts[:, 0] < bound) & (facts[:, 0] >= first)
        facts, of = facts[is_read].copy(), of[is_read]
        is_header = history.batches.is_control[of] & (self._count[of] == 0)
        facts[is_header, 2] = Kind.EMPTY
        decided = decide(map(tuple, facts.tolist()), known.lines)
        known.lines = [
            *(line for line in decided.lines if line.last_offset < bound),
            *(line for line in known.lines if line.last_offset >= bound),
        ]
        return decided.discardable

    # -- what is written -------------------------------------------------------------------

    def _estimated_bytes(self, batches: Integers) -> int:
        columns, size_bytes = self._history.batches, self._size_bytes[batches]
        is_new = (size_bytes != columns.size_bytes[batches]) & (self._count[batches] > 0)
        return int(size_bytes[is_new & columns.is_compressed[batches]].sum())

    def _written(self, group: list[Segment], next_offset: int, stays: _Stays) -> Segment:
        """Returns the segment that replaces a group, which ends before `next_offset`."""
        first, end = self._batch_at(group[0].base_offset), self._batch_at(next_offset)
        if len(group) == 1 and not np.diff(np.searchsorted(stays.touched, (first, end)))[0]:
            return group[0]
        start, stop = np.searchsorted(stays.batches, (first, end)).tolist()
        which, base_offset = stays.batches[start:stop], group[0].base_offset
        growth = Growth(base_offset, 0, index_interval_bytes=self._settings.index_interval_bytes)
        if len(which):
            grow(
                growth,
                self._history.batches.last_offset[which],
                self._size_bytes[which],
                self._max_timestamp_ms[which],
            )
        growth.end()
        return replace(growth.segment(-1), modified_ms=group[-1].modified_ms)


def _planned(segment: Segment) -> CleanSegment:
    return CleanSegment(
        base_offset=segment.base_offset,
        size_bytes=segment.size_bytes,
        offset_index_bytes=segment.offset_index_bytes,
        time_index_bytes=segment.time_index_bytes,
    )


class Rebuilt(NamedTuple):
    """The figures of each rebuilt batch."""

    size_bytes: Integers
    max_timestamp_ms: Integers


def rebuilt(
    history: History, rows: Integers, batch_indexes: Integers, horizon_ms: Integers
) -> Rebuilt:
    """Returns the figures of these batches, ascending. `rows`: the remaining records; each has
    some.

    `horizon_ms`: the resulting horizon of each; -1: none.
    """
    batches, records = history.batches, history.records
    of = np.searchsorted(batch_indexes, history.batch_of[rows])
    starts = np.searchsorted(of, np.arange(len(batch_indexes)))
    times = records.time_ms[rows]
    base = np.where(horizon_ms >= 0, horizon_ms, times[starts])
    # After the length: attributes, of one byte, the time, and the rest.
    time_sizes, _ = varint_bytes(times - base[of])
    bodies = 1 + time_sizes + records.rest_bytes[rows]
    length_sizes, _ = varint_bytes(bodies)
    raw_bytes = np.add.reduceat(length_sizes + bodies, starts)
    section_bytes = batches.size_bytes[batch_indexes] - BATCH_HEADER_BYTES
    shares = np.ceil(section_bytes * raw_bytes / batches.raw_bytes[batch_indexes]).astype(np.int64)
    sizes = np.where(batches.is_compressed[batch_indexes], shares, raw_bytes)
    latest = np.maximum(np.maximum.reduceat(times, starts), NO_TIMESTAMP)
    appended = batches.has_append_time[batch_indexes]
    return Rebuilt(
        BATCH_HEADER_BYTES + sizes,
        np.where(appended, batches.max_timestamp_ms[batch_indexes], latest),
    )
