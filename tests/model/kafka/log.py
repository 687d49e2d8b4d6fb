"""A partition's log: segments, offsets, producers, the high watermark, and visibility to readers.

>>> log = Log(TopicSettings.of({}), Clock(10))
>>> log.append_as_leader(batch_of({}, [{"key": "a", "value": "1"}], 10))
(0, 0)
>>> log.end, log.stable
(1, 1)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from tests.model.kafka.batches import ABORT, Batch, Record, fresh, size_of
from tests.model.kafka.producers import CLIENT, REPLICATION, Producers, Refused, Snapshots
from tests.model.kafka.records import batch_of, numbered, taken_by_leader
from tests.model.kafka.segments import SPAN_MAX, Aborted, Segment
from tests.model.kafka.settings import TopicSettings

EXPIRY_CHECK_MS = 600_000

__all__ = ["Clock", "Log", "TopicSettings", "batch_of"]


@dataclass
class Clock:
    now_ms: int = 0


class Log:
    """`held`: a high watermark set explicitly; without it, the log's end."""

    def __init__(
        self,
        settings: TopicSettings,
        clock: Clock,
        *,
        start: int = 0,
        expiration_ms: int = 86_400_000,
        keeps_resends: bool = False,
        sizer: Callable[[Batch], int] = size_of,
    ) -> None:
        self.settings, self.clock, self.start, self.sizer = settings, clock, start, sizer
        self.segments = [Segment(start, clock.now_ms, clock.now_ms)]
        self.end = start
        self.high_watermark = start
        self.held: int | None = None
        self._snapshots: Snapshots = {}
        self._expiration_ms, self._keeps_resends = expiration_ms, keeps_resends
        self.producers = self._new_producers()
        self.producers.map_end = start
        self._recovered = start
        self.expires_at_ms = clock.now_ms + EXPIRY_CHECK_MS

    def _new_producers(self) -> Producers:
        return Producers(self._snapshots, self._expiration_ms, self._keeps_resends)

    # Segments

    @property
    def active(self) -> Segment:
        return self.segments[-1]

    @property
    def size(self) -> int:
        return sum(segment.size for segment in self.segments)

    def between(self, start: int, end: int) -> list[Segment]:
        """Returns the segments from the one that holds `start` up to `end`, exclusive."""
        if start >= end:
            return []
        first = max((s.base for s in self.segments if s.base <= start), default=start)
        return [s for s in self.segments if first <= s.base < end]

    def closed_from(self, offset: int) -> list[Segment]:
        """Returns the segments from the one that holds the offset up to the active one,
        exclusive.
        """
        return self.between(offset, self.active.base)

    def roll(self, base: int | None = None) -> None:
        """Rolls the active segment; an empty one is replaced."""
        first = max(self.end if base is None else base, self.end)
        now = self.clock.now_ms
        if self.active.base == first and not self.active.batches:
            self.segments.pop()
        else:
            self.active.close()
        self.segments.append(Segment(first, now, now))
        self.end = max(self.end, first)
        self.producers.map_end = first
        self.producers.take_snapshot()
        self._recovered = max(self._recovered, first)

    def _roll_if_full(self, batch: Batch) -> None:
        active, settings = self.active, self.settings
        began = active.first_timestamp()
        now = self.clock.now_ms
        waited = batch.max_timestamp - began if began >= 0 else now - active.created_ms
        if (
            active.size > settings.segment_bytes - batch.size
            or (active.size > 0 and waited > settings.roll_ms)
            or active.is_index_full(settings)
            or batch.last - active.base > SPAN_MAX
        ):
            self.roll(batch.base)

    # Appending

    def append_as_leader(self, batch: Batch, origin: str = CLIENT) -> tuple[int, int]:
        if self._sized(batch).size > self.settings.message_bytes:
            raise Refused("RecordTooLargeException")
        taken = taken_by_leader(batch, self.settings, self.clock.now_ms)
        return self._append(self._sized(numbered(taken, self.end)), origin)

    def append_as_follower(self, batch: Batch) -> tuple[int, int]:
        if batch.base < self.end:
            raise Refused("UnexpectedAppendOffsetException")
        return self._append(self._sized(batch), REPLICATION)

    def _sized(self, batch: Batch) -> Batch:
        return replace(batch, size=self.sizer(batch), appended_ms=self.clock.now_ms)

    def _append(self, batch: Batch, origin: str) -> tuple[int, int]:
        if batch.size > self.settings.segment_bytes:
            raise Refused("RecordBatchTooLargeException")
        self._roll_if_full(batch)
        if batch.has_producer and origin == CLIENT and not batch.control:
            known = self.producers.known.get(batch.pid)
            sent = known.duplicate_of(batch) if known else None
            if sent:
                return sent.first, sent.last
        entry, done = self.producers.check(batch, origin) if batch.has_producer else (None, None)
        self.active.append(fresh(batch), self.settings)
        self.active.modified_ms = self.clock.now_ms
        self.end = batch.next
        if entry:
            self.producers.update(batch.pid, entry)
        if done:
            stable = self.producers.stable_after(done)
            if done.is_aborted:
                self.active.aborted.append(Aborted(done.pid, done.first, done.last, stable))
            self.producers.complete(done)
        self.producers.map_end = self.end
        self.follow()
        return batch.base, batch.last

    # Offsets

    def follow(self) -> None:
        wanted = self.end if self.held is None else min(self.held, self.end)
        self.high_watermark = max(wanted, self.start)
        self.producers.replicated_below(self.high_watermark)

    @property
    def stable(self) -> int:
        unstable = self.producers.unstable()
        if unstable is None:
            return self.high_watermark
        return min(self._batch_at(max(unstable, self.start)), self.high_watermark)

    def _batch_at(self, offset: int) -> int:
        """Returns the start of the batch that holds the offset, or of the next one.

        A log start may be inside a batch, and a transaction's first batch may have been removed by
        a cleaning.
        """
        for segment in self._from(offset):
            for batch in segment.batches:
                if batch.last >= offset:
                    return batch.base
        return self.end

    def move_start(self, offset: int) -> bool:
        if offset > self.high_watermark:
            raise Refused("OffsetOutOfRangeException")
        if offset <= self.start:
            return False
        self.start = offset
        self._recovered = max(self._recovered, offset)
        self.producers.starts_at(offset)
        return True

    # Truncation of the end

    def truncate(self, offset: int) -> None:
        if offset >= self.end:
            return
        now = self.clock.now_ms
        if self.segments[0].base > offset:
            self._start_anew(offset)
            return
        gone = [segment for segment in self.segments if segment.base > offset]
        self.segments = [segment for segment in self.segments if segment.base <= offset]
        self.active.truncate(offset, now)
        self.end = offset
        self._recovered = min(self._recovered, offset)
        self.producers.drop_snapshots(segment.base for segment in gone)
        self.start = min(offset, self.start)
        self._rebuild_producers(self.producers, self.end)
        if self.high_watermark >= self.end:
            self.high_watermark = self.end
            self.producers.replicated_below(self.end)

    def _start_anew(self, offset: int) -> None:
        now = self.clock.now_ms
        self._snapshots.clear()
        self.segments = [Segment(offset, now, now)]
        self.start = self.end = self.high_watermark = self._recovered = offset
        self.producers = self._new_producers()
        self.producers.map_end = self.producers.snapshot_end = offset

    # Deletion of the beginning

    def delete_old(self) -> int:
        """Deletes whole segments from the oldest: below the log start, then by size, then by
        time.
        """
        deleted = self._delete_while(
            lambda _, following: following is not None and following.base <= self.start
        )
        if not self.settings.delete:
            return deleted
        if 0 <= self.settings.retention_bytes <= self.size:
            excess = self.size - self.settings.retention_bytes

            def is_excess(segment: Segment, _: Segment | None) -> bool:
                nonlocal excess
                if excess < segment.size:
                    return False
                excess -= segment.size
                return True

            deleted += self._delete_while(is_excess)
        if self.settings.retention_ms >= 0:
            limit = self.clock.now_ms - self.settings.retention_ms
            deleted += self._delete_while(lambda s, _: s.largest_timestamp_ms() < limit)
        return deleted

    def _delete_while(self, condition: Callable[[Segment, Segment | None], bool]) -> int:
        gone = 0
        for at, segment in enumerate(self.segments):
            following = self.segments[at + 1] if at + 1 < len(self.segments) else None
            upper = following.base if following else self.end
            if self.high_watermark < upper or not condition(segment, following):
                break
            if following is None and not segment.batches:
                break
            gone += 1
        if gone:
            if gone == len(self.segments):
                self.roll()
            self.producers.drop_snapshots(segment.base for segment in self.segments[:gone])
            self.segments = self.segments[gone:]
            self.move_start(self.segments[0].base)
        return gone

    def replace_segments(self, old: list[Segment], new: Segment) -> None:
        at = self.segments.index(old[0])
        self.segments[at : at + len(old)] = [new]
        self.producers.drop_snapshots(s.base for s in old if s.base != new.base)

    # Opening

    def reopen(self, clean: bool) -> None:
        """Reopens as after a clean shutdown, or after a crash without lost data."""
        recovered = self._recovered
        if clean:
            self.producers.take_snapshot()
            for segment in self.segments:
                segment.close()
        now = self.clock.now_ms
        for segment in self.segments:
            segment.load(now)
        if not clean:
            for segment in self._from(recovered):
                self._recover(segment)
        self.end = self.active.next_offset
        if self.end < self.start:
            # Truncated below every batch: the log restarts there.
            self.segments = [Segment(self.start, now, now)]
            self.end = self.start
        self.start = max(self.start, self.segments[0].base)
        self._recovered = self.end
        self.producers = self._new_producers()
        self.producers.drop_strays({segment.base for segment in self.segments})
        self._rebuild_producers(self.producers, self.end, was_clean=clean)
        self.follow()
        self.expires_at_ms = now + EXPIRY_CHECK_MS

    def _from(self, offset: int) -> list[Segment]:
        return self.between(offset, self.active.base + 1) or [self.active]

    def _recover(self, segment: Segment) -> None:
        state = self._new_producers()
        self._rebuild_producers(state, segment.base)
        segment.rebuild_indexes(self.settings)
        for batch in segment.batches:
            aborted = state.replay(batch)
            if aborted:
                segment.aborted.append(aborted)
            state.map_end = batch.next
        state.take_snapshot()

    def _rebuild_producers(self, state: Producers, end: int, was_clean: bool = False) -> None:
        """Rebuilds from the newest snapshot and the batches after it."""
        bases = [segment.base for segment in self.segments]
        wanted = [*bases[-2:], end]
        if not self._snapshots and was_clean:
            for offset in wanted:
                state.map_end = offset
                state.take_snapshot()
            return
        was_empty = state.is_empty and state.map_end >= end
        state.truncate(self.start, end, self.clock.now_ms)
        if end > state.map_end and not was_empty:
            for segment in self.between(state.map_end, end):
                first = max(segment.base, state.map_end, self.start)
                state.map_end = first
                if segment.base in wanted:
                    state.take_snapshot()
                for batch in segment.batches:
                    if first <= batch.last < end:
                        state.replay(batch)
                        state.map_end = batch.next
        state.map_end = end
        state.take_snapshot()

    def expire(self) -> None:
        """Removes producers that were idle for too long; checked every ten minutes."""
        now = self.clock.now_ms
        if now >= self.expires_at_ms:
            self.producers.expire(now)
            late = now - self.expires_at_ms
            self.expires_at_ms += EXPIRY_CHECK_MS * (late // EXPIRY_CHECK_MS + 1)

    # Reading

    def aborted_between(self, start: int, end: int, from_offset: int) -> list[Aborted]:
        """Returns entries from the segment of `start` on that end at or after `from_offset` and
        begin below `end`.
        """
        found = []
        for segment in self._from(start):
            for txn in segment.aborted:
                if txn.last >= from_offset and txn.first < end:
                    found.append(txn)
                if txn.stable >= end:
                    return found
        return found

    def read(self, offset: int, isolation: str) -> tuple[list[tuple[Batch, Record]], int]:
        """Returns the records that a consumer delivers, and its next offset."""
        if offset < self.start or offset > self.end:
            raise Refused("OffsetOutOfRangeException")
        limits = {"end": self.end, "committed": self.stable}
        limit = limits.get(isolation, self.high_watermark)
        found: list[tuple[Batch, Record]] = []
        following = offset
        if offset >= limit:
            return found, following
        for segment in self._from(offset):
            batches = [b for b in segment.batches if offset <= b.last < limit]
            aborted = _Aborting(
                self.aborted_between(following, self.end, following)
                if isolation == "committed"
                else ()
            )
            for batch in batches:
                following = batch.next
                if not aborted.is_dropped(batch) and not batch.control:
                    found += [(batch, r) for r in batch.records if r.offset >= offset]
        return found, following


class _Aborting:
    """Models how a consumer skips aborted records."""

    def __init__(self, aborted: Iterable[Aborted]) -> None:
        self._ahead = sorted(aborted, key=lambda txn: txn.first)
        self._open: set[int] = set()

    def is_dropped(self, batch: Batch) -> bool:
        while self._ahead and self._ahead[0].first <= batch.last:
            self._open.add(self._ahead.pop(0).pid)
        if batch.marker == ABORT:
            self._open.discard(batch.pid)
        return not batch.control and batch.transactional and batch.pid in self._open
