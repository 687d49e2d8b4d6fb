"""A log that is appended to anew: its segments under other settings, as a broker would have them.

Where segments end is ledgerfold/kafka/rolling.py's rule, batch by batch. What of them a round wrote
the cleaner puts in their place (cleaner.py); what retention lets go goes from the front.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ledgerfold.compactor.kafka.transactions import Kind, Line
from ledgerfold.compactor.what_if.kafka.history import History
from ledgerfold.compactor.what_if.kafka.known_producers import KnownProducers, Sent
from ledgerfold.kafka.cleanable import LogView
from ledgerfold.kafka.retention import doomed
from ledgerfold.kafka.rolling import Growth
from ledgerfold.kafka.segment import Segment
from ledgerfold.v1.compactor_pb2 import CleanerSettings

# Of batches whose columns are turned into numbers of Python's at once.
_BLOCK = 8192


class Append(NamedTuple):
    """A batch, by its number in the history."""

    number: int
    time_ms: int
    base_offset: int
    last_offset: int
    size_bytes: int
    max_timestamp_ms: int
    producer_id: int


def appends(history: History) -> Iterator[Append]:
    """In order."""
    batches = history.batches
    columns = (
        np.arange(len(history)),
        history.clock_ms,
        batches.base_offset,
        batches.last_offset,
        batches.size_bytes,
        batches.max_timestamp_ms,
        batches.producer_id,
    )
    for start in range(0, len(history), _BLOCK):
        block = (column[start : start + _BLOCK].tolist() for column in columns)
        yield from map(Append._make, zip(*block, strict=True))


@dataclass(frozen=True)
class Origin:
    """Where a log begins, and its transaction index."""

    base_offset: int
    log_start_offset: int
    lines: tuple[Line, ...]


class GrowingLog:
    """`closed` are its segments but for the active one."""

    def __init__(self, history: History, settings: CleanerSettings, origin: Origin) -> None:
        self._history, self._settings = history, settings
        began_ms = int(history.clock_ms[0]) if len(history) else 0
        self.producers = KnownProducers(origin.lines, settings.producer_expiration_ms, began_ms)
        self.closed: list[Segment] = []
        self._active = self._grown(origin.base_offset, began_ms)
        self.log_start = origin.log_start_offset
        self.log_end = origin.base_offset
        self.closed_bytes = 0

    def _grown(self, base_offset: int, now_ms: int) -> Growth:
        return Growth(
            base_offset,
            now_ms,
            index_interval_bytes=self._settings.index_interval_bytes,
            index_bytes_max=self._settings.index_bytes_max,
        )

    @property
    def size_bytes(self) -> int:
        return self.closed_bytes + self._active.size_bytes

    @property
    def active_base(self) -> int:
        return self._active.base_offset

    @property
    def first_offset(self) -> int:
        """Of what is there."""
        return self.closed[0].base_offset if self.closed else self._active.base_offset

    @property
    def segments(self) -> list[Segment]:
        return [*self.closed, self._active.segment(-1)]

    @property
    def view(self) -> LogView:
        unstable = self.producers.first_unstable_offset
        stable = self.log_end if unstable is None else max(unstable, self.log_start)
        return LogView(self.segments, self.log_start, self.log_end, stable)

    def append(self, batch: Append) -> bool:
        """Whether there is anything new for the cleaner."""
        settings, active = self._settings, self._active
        # Retention looks at the active segment, too: at its size, and at its age if it has one.
        is_new = settings.is_deleted and (settings.retention_bytes >= 0 or not active.size_bytes)
        if active.must_end(
            size_bytes=batch.size_bytes,
            max_timestamp_ms=batch.max_timestamp_ms,
            last_offset=batch.last_offset,
            segment_bytes=settings.segment_bytes,
            roll_ms=settings.roll_ms,
            now_ms=batch.time_ms,
        ):
            self._roll(batch.base_offset, batch.time_ms)
            is_new = True
        self._active.append(
            last_offset=batch.last_offset,
            size_bytes=batch.size_bytes,
            max_timestamp_ms=batch.max_timestamp_ms,
            time_ms=batch.time_ms,
        )
        self.log_end = batch.last_offset + 1
        if batch.producer_id >= 0 and self._note(batch):
            is_new = True
        return is_new

    def _roll(self, base_offset: int, now_ms: int) -> None:
        active = self._active
        if active.size_bytes or active.base_offset != base_offset:
            active.end()
            self.closed.append(active.segment(-1))
            self.closed_bytes += active.size_bytes
        self._active = self._grown(base_offset, now_ms)

    def _note(self, batch: Append) -> bool:
        """What is known of its producer then; whether a transaction ended."""
        batches, number, known = self._history.batches, batch.number, self.producers
        known.check(batch.time_ms)
        sent = Sent(
            batch.producer_id,
            int(batches.producer_epoch[number]),
            batch.base_offset,
            batch.last_offset,
            batch.max_timestamp_ms,
        )
        if not batches.is_control[number]:
            known.add_data(sent, is_transactional=bool(batches.is_transactional[number]))
            return False
        if self._history.kind_of(number) not in (Kind.ABORT, Kind.COMMIT):
            known.see(batch.producer_id)
            return False
        known.end_transaction(sent)
        return True

    def replace(self, count: int, by: list[Segment]) -> None:
        """The first so many segments."""
        self.closed_bytes += sum(each.size_bytes for each in by)
        self.closed_bytes -= sum(each.size_bytes for each in self.closed[:count])
        self.closed[:count] = by

    def delete_old(self, now_ms: int) -> int:
        """What retention lets go; how many bytes that was."""
        found = doomed(
            self.segments,
            self._settings,
            log_start=self.log_start,
            high_watermark=self.log_end,
            now_ms=now_ms,
        )
        if not found.count:
            return 0
        before = self.size_bytes
        if found.must_roll:
            self._roll(self.log_end, now_ms)
        self.replace(found.count, [])
        self.log_start = max(self.log_start, found.log_start)
        return before - self.size_bytes
