"""One cleaning: the map of the cleanable part, groups of segments, and the remaining batches.

>>> OffsetMap(limit=1).put(b"k", 3)
True
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from tests.model.kafka.batches import Batch, Record, header_only, rebuilt
from tests.model.kafka.log import Log
from tests.model.kafka.producers import Producer, Refused
from tests.model.kafka.segments import SPAN_MAX, Segment
from tests.model.kafka.settings import LONG_MAX
from tests.model.kafka.transactions import Transactions

KAFKA, DOCUMENTED = "kafka-4.1", "documented"
MAP, COPY = "map", "copy"


class OffsetMap:
    """Keys are compared exactly: there are no equal digests."""

    def __init__(self, limit: int) -> None:
        self.offsets: dict[bytes, int] = {}
        self.latest = -1
        self._limit = limit

    def put(self, key: bytes, offset: int) -> bool:
        """Returns False if the map is full, even if it has the key."""
        if len(self.offsets) >= self._limit:
            return False
        self.offsets[key] = self.latest = offset
        return True


@dataclass
class Stats:
    map_messages_read: int = 0
    messages_read: int = 0
    messages_written: int = 0
    invalid_messages_read: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    map_size: int = 0


class Round:
    """Models the cleaning of one log, from the first dirty offset to the bound. `clean` returns the
    clean point.

    `poll` is called before a segment is read, with MAP or COPY; an error that it raises ends the
    cleaning.
    """

    def __init__(
        self,
        log: Log,
        first_dirty: int,
        bound: int,
        limit: int,
        profile: str = KAFKA,
        poll: Callable[[str], None] = lambda phase: None,
    ) -> None:
        self._poll = poll
        self._log, self._first_dirty, self._bound = log, first_dirty, bound
        self._profile = profile
        self._now_ms = log.clock.now_ms
        self._tracker = Transactions()
        self.map = OffsetMap(limit)
        self.stats = Stats()

    def clean(self) -> int:
        self._fill_map()
        end = self.map.latest + 1
        groups = grouped(
            self._log.between(0, end),
            self._log.settings.segment_bytes,
            self._log.settings.index_bytes,
            self._bound,
        )
        for group in groups:
            self._clean_group(group)
        self.stats.map_size = len(self.map.offsets)
        return end

    # The map

    def _fill_map(self) -> None:
        segments = self._log.between(self._first_dirty, self._bound)
        ends = [segment.base for segment in segments[1:]] + [self._bound]
        tracker = Transactions()
        aborted = self._log.aborted_between(self._first_dirty, self._bound, self._log.start)
        if self._profile == DOCUMENTED and segments:
            # Kafka 4.1.0 reopens transactions that ended before the point at which it starts.
            starts = self._scanned(segments[0])
            first = starts[0].base if starts else self._first_dirty
            aborted = [txn for txn in aborted if txn.last >= first]
        tracker.add(aborted)
        for segment, end in zip(segments, ends, strict=True):
            self._poll(MAP)
            for batch in self._scanned(segment):
                if not self._map_batch(batch, tracker):
                    return
            self.map.latest = end - 1

    def _scanned(self, segment: Segment) -> list[Batch]:
        return segment.batches_from(segment.position_of(self._first_dirty))

    def _map_batch(self, batch: Batch, tracker: Transactions) -> bool:
        is_aborted = tracker.may_drop(batch) and not batch.control
        if batch.control:
            self.stats.map_messages_read += 1
        elif is_aborted:
            self.stats.map_messages_read += len(batch.records)
        else:
            for record in batch.records:
                is_dirty = record.key is not None and record.offset >= self._first_dirty
                if is_dirty and not self.map.put(record.key or b"", record.offset):
                    return False
                self.stats.map_messages_read += 1
        if batch.last >= self._first_dirty:
            self.map.latest = batch.last
        return True

    # Copying

    def _clean_group(self, group: list[Segment]) -> None:
        log, tracker = self._log, self._tracker
        cleaned = Segment(group[0].base, self._now_ms, group[-1].modified_ms)
        tracker.kept = []
        active = log.producers.active
        for at, segment in enumerate(group):
            upper = group[at + 1].base if at + 1 < len(group) else segment.next_offset
            tracker.add(log.aborted_between(segment.base, upper, log.start))
            if segment.batches:
                self._poll(COPY)
            for batch in segment.batches:
                left = self._left_of(batch, active)
                if left is not None:
                    self._copy(left, cleaned)
        cleaned.aborted = tracker.kept
        cleaned.close()
        log.replace_segments(group, cleaned)

    def _copy(self, batch: Batch, cleaned: Segment) -> None:
        """Kafka 4.1.0 fails, half-way, where an index that a group was let have is full."""
        settings = self._log.settings
        is_due = cleaned.unindexed_bytes > settings.index_interval_bytes
        if self._profile == KAFKA and is_due and cleaned.is_index_full(settings):
            raise Refused("IllegalArgumentException")
        cleaned.append(batch, settings)

    def _left_of(self, batch: Batch, active: dict[int, Producer]) -> Batch | None:
        stats = self.stats
        may_drop = self._tracker.may_drop(batch)
        drops = may_drop
        if batch.control:
            drops = may_drop and batch.horizon is not None and batch.horizon <= self._now_ms
        keeps_header = _is_last_of(batch, active.get(batch.pid)) or batch.next == self._bound
        stats.bytes_read += batch.size
        if drops and not keeps_header:
            return None
        stats.messages_read += len(batch.records)
        kept = [] if drops else [r for r in batch.records if self._keeps(batch, r)]
        left = self._written(batch, kept, may_drop and batch.control, keeps_header)
        if left is not None:
            stats.messages_written += len(left.records)
            stats.bytes_written += left.size
        return left

    def _written(
        self, batch: Batch, kept: list[Record], is_empty_marker: bool, keeps_header: bool
    ) -> Batch | None:
        if not kept:
            return header_only(batch) if keeps_header else None
        horizon = batch.horizon
        if horizon is None and (is_empty_marker or any(r.value is None for r in kept)):
            horizon = self._now_ms + self._log.settings.delete_retention_ms
            if horizon > LONG_MAX:
                # Kafka's sum is negative: no horizon.
                horizon = None
        if len(kept) == len(batch.records) and horizon == batch.horizon:
            return batch
        made = rebuilt(batch, kept, horizon)
        return replace(made, size=self._log.sizer(made))

    def _keeps(self, batch: Batch, record: Record) -> bool:
        if batch.control or record.offset > self.map.latest:
            return True
        if record.key is None:
            self.stats.invalid_messages_read += 1
            return False
        if record.offset < self.map.offsets.get(record.key, -1):
            return False
        is_young = batch.horizon is None or self._now_ms < batch.horizon
        return record.value is not None or is_young


def _is_last_of(batch: Batch, entry: Producer | None) -> bool:
    """Returns whether it holds the last sequence, or else the epoch, of a producer that is
    remembered.
    """
    if entry is None or not batch.has_producer:
        return False
    last = entry.last_data_offset
    if last is not None:
        return batch.last == last
    return batch.control and batch.epoch == entry.epoch


def grouped(
    segments: list[Segment], bytes_max: int, index_bytes_max: int, bound: int
) -> list[list[Segment]]:
    groups: list[list[Segment]] = []
    for at, segment in enumerate(segments):
        following = segments[at + 1].base if at + 1 < len(segments) else bound
        if groups:
            group = [*groups[-1], segment]
            if (
                sum(s.size for s in group) <= bytes_max
                and sum(s.offset_index_bytes for s in group) <= index_bytes_max
                and sum(s.time_index_bytes for s in group) <= index_bytes_max
                and (segment.size == 0 or following - 1 - group[0].base <= SPAN_MAX)
            ):
                groups[-1] = group
                continue
        groups.append([segment])
    return groups
