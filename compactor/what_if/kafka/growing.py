"""A replayed log: the segments that a broker with the replay's settings would have.

Segments roll by ledgerfold/kafka/rolling.py, batch by batch. The cleaner replaces segments
(cleaner.py); retention deletes from the front.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ledgerfold.compactor.kafka.growth import grow
from ledgerfold.compactor.kafka.transactions import Kind
from ledgerfold.compactor.what_if.kafka.history import History
from ledgerfold.compactor.what_if.kafka.known_producers import KnownProducers, Sent
from ledgerfold.kafka.cleanable import LogView
from ledgerfold.kafka.retention import deletable
from ledgerfold.kafka.rolling import Growth
from ledgerfold.kafka.segment import Segment
from ledgerfold.storage.kafka.indexes import OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES
from ledgerfold.storage.kafka.transaction_index import AbortedTransaction
from ledgerfold.v1.compactor_pb2 import CleanerSettings

# The number of batches processed at once.
_BLOCK = 65_536
_OFFSETS_MAX = 2**31 - 1


@dataclass(frozen=True)
class Origin:
    """The start of a log, and its transaction index."""

    base_offset: int
    log_start_offset: int
    lines: tuple[AbortedTransaction, ...]


class GrowingLog:
    """A growing log. `closed`: all segments but the active one."""

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
        """The first offset present."""
        return self.closed[0].base_offset if self.closed else self._active.base_offset

    @property
    def segments(self) -> list[Segment]:
        return [*self.closed, self._active.segment(-1)]

    @property
    def view(self) -> LogView:
        unstable = self.producers.first_unstable_offset
        stable = self.log_end if unstable is None else max(unstable, self.log_start)
        return LogView(self.segments, self.log_start, self.log_end, stable)

    def calm_until(self, first: int, end: int) -> int:
        """Returns the first batch, at most `end`, that may roll the segment or decide a
        transaction.

        Returns `first` if that is not easily determined.
        """
        history, settings, active = self._history, self._settings, self._active
        interval = settings.index_interval_bytes
        if not active.size_bytes or not interval:
            return first
        if settings.is_deleted and settings.retention_bytes >= 0:
            return first
        behind, specials = history.bytes_before, history.special_batches
        at = np.searchsorted(specials, first)
        end = min(end, first + _BLOCK, int(specials[at]) if at < len(specials) else end)
        room = settings.segment_bytes - active.size_bytes
        end = min(end, int(np.searchsorted(behind, behind[first] + room, "right")) - 1)
        clock_ms, producers = history.clock_ms, self.producers
        producers.check(int(clock_ms[first]))
        end = min(end, int(np.searchsorted(clock_ms, producers.next_check_ms)))
        end = self._young_until(first, end)
        if end <= first:
            return first
        entries = int(behind[end] - behind[first] + active.unindexed_bytes) // interval + 1
        fits = active.time_entries + entries < settings.index_bytes_max // TIME_ENTRY_BYTES - 1
        fits &= active.offset_entries + entries < settings.index_bytes_max // OFFSET_ENTRY_BYTES
        span = history.batches.last_offset[end - 1] - active.base_offset
        return end if fits and span <= _OFFSETS_MAX else first

    def _young_until(self, first: int, end: int) -> int:
        """Returns the first batch for which the segment may be too old."""
        active, roll_ms = self._active, self._settings.roll_ms
        began_ms = active.first_batch_timestamp_ms
        if began_ms is None or began_ms < 0:
            old_ms = active.created_ms + roll_ms
            return min(end, int(np.searchsorted(self._history.clock_ms, old_ms, "right")))
        times = self._history.batches.max_timestamp_ms[first : max(first, end)]
        too_old = np.flatnonzero(times - began_ms > roll_ms)
        return first + int(too_old[0]) if len(too_old) else end

    def append_calm(self, first: int, end: int) -> None:
        """Appends these batches (calm_until), at least one."""
        batches, which = self._history.batches, slice(first, end)
        grow(
            self._active,
            batches.last_offset[which],
            batches.size_bytes[which],
            batches.max_timestamp_ms[which],
            int(self._history.clock_ms[end - 1]),
        )
        self.log_end = int(batches.last_offset[end - 1]) + 1
        ids = batches.producer_id[which]
        # The last batch of each producer.
        for producer_id, back in zip(*np.unique(ids[::-1], return_index=True), strict=True):
            if producer_id >= 0:
                self._note(end - 1 - int(back))

    def append(self, number: int) -> bool:
        """Appends a batch of the history. Returns whether the cleaner may have new work."""
        settings, active, batches = self._settings, self._active, self._history.batches
        base_offset = int(batches.base_offset[number])
        last_offset = int(batches.last_offset[number])
        size_bytes = int(batches.size_bytes[number])
        time_ms = int(self._history.clock_ms[number])
        max_timestamp_ms = int(batches.max_timestamp_ms[number])
        # Retention also considers the active segment's size, and its age if it has one.
        is_new = settings.is_deleted and (settings.retention_bytes >= 0 or not active.size_bytes)
        if active.must_end(
            size_bytes=size_bytes,
            max_timestamp_ms=max_timestamp_ms,
            last_offset=last_offset,
            segment_bytes=settings.segment_bytes,
            roll_ms=settings.roll_ms,
            now_ms=time_ms,
        ):
            self._roll(base_offset, time_ms)
            is_new = True
        self._active.append(
            last_offset=last_offset,
            size_bytes=size_bytes,
            max_timestamp_ms=max_timestamp_ms,
            time_ms=time_ms,
        )
        self.log_end = last_offset + 1
        if batches.producer_id[number] >= 0 and self._note(number):
            is_new = True
        return is_new

    def _roll(self, base_offset: int, now_ms: int) -> None:
        active = self._active
        if active.size_bytes or active.base_offset != base_offset:
            active.end()
            self.closed.append(active.segment(-1))
            self.closed_bytes += active.size_bytes
        self._active = self._grown(base_offset, now_ms)

    def _note(self, number: int) -> bool:
        """Updates the batch's producer. Returns whether a transaction ended."""
        batches, known = self._history.batches, self.producers
        known.check(int(self._history.clock_ms[number]))
        columns = (
            batches.producer_id,
            batches.producer_epoch,
            batches.base_offset,
            batches.last_offset,
            batches.max_timestamp_ms,
        )
        sent = Sent(*(int(column[number]) for column in columns))
        if not batches.is_control[number]:
            known.add_data(sent, is_transactional=bool(batches.is_transactional[number]))
            return False
        if self._history.kind_of(number) not in (Kind.ABORT, Kind.COMMIT):
            known.see(sent.producer_id)
            return False
        known.end_transaction(sent)
        return True

    def replace(self, count: int, by: list[Segment]) -> None:
        """Replaces the first `count` segments."""
        self.closed_bytes += sum(each.size_bytes for each in by)
        self.closed_bytes -= sum(each.size_bytes for each in self.closed[:count])
        self.closed[:count] = by

    def delete_old(self, now_ms: int) -> int:
        """Deletes what retention permits. Returns the number of bytes."""
        deleted = deletable(
            self.segments,
            self._settings,
            log_start=self.log_start,
            high_watermark=self.log_end,
            now_ms=now_ms,
        )
        if not deleted.count:
            return 0
        before = self.size_bytes
        if deleted.must_roll:
            self._roll(self.log_end, now_ms)
        self.replace(deleted.count, [])
        self.log_start = max(self.log_start, deleted.log_start)
        return before - self.size_bytes
