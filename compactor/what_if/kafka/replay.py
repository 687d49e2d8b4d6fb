"""A Kafka topic's history, replayed under other settings: what its cleaner would have done.

The replay begins with nothing, and appends the log's batches as they lie there, in order. The time
of a batch is its largest timestamp, but no later than it was appended here, and never falls: so the
log of an import, all of which came at once, has the times of its records.

* Segments end as the settings say, and the cleaner wakes each `log.cleaner.backoff.ms` from the
  first append on. It takes a turn as a broker's does: a round if the log is dirty or overdue, again
  for as long as it is; and what retention lets go. Times at which nothing can be new are skipped.
* A round takes no time. What it writes lies beside what it read until it has ended: the peak.
* Behind the last append time goes on until nothing changes any more: lags end, retention lets go.
  An idle log keeps its active segment, as Kafka's does.

What is in the log was left by earlier rounds, if there were some: what those took away is not
replayed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from ledgerfold.compactor.positions import Integers
from ledgerfold.compactor.what_if.kafka.cleaner import Cleaner
from ledgerfold.compactor.what_if.kafka.growing import GrowingLog, Origin, append_of
from ledgerfold.compactor.what_if.kafka.history import History
from ledgerfold.kafka.cleanable import Limit, Plan, plan
from ledgerfold.kafka.segment import closed_from
from ledgerfold.storage.errors import InvalidRequest
from ledgerfold.v1.compactor_pb2 import CleanerSettings
from ledgerfold.v1.what_if_pb2 import CleaningReplay, SpacePoint

# Records, batches and segments that all turns of a replay together may look at.
STEPS_MAX = 500_000_000
POINTS_MAX = 1_000
_TIME_MAX = 2**63 - 1


@dataclass
class _Space:
    """The log's size over time."""

    time_ms: int = 0
    size_bytes: int = 0
    peak_bytes: int = 0
    points: list[tuple[int, int]] = field(default_factory=list)
    _byte_ms: float = 0

    def add(self, time_ms: int, size_bytes: int, *, is_point: bool) -> None:
        """From that time on it has that size."""
        self._byte_ms += (time_ms - self.time_ms) * self.size_bytes
        self.time_ms, self.size_bytes = time_ms, size_bytes
        self.peak_bytes = max(self.peak_bytes, size_bytes)
        if is_point:
            self.points.append((time_ms, size_bytes))

    def add_all(self, times_ms: Integers, sizes: Integers) -> None:
        """One behind the other, growing; none is a point."""
        self.add(int(times_ms[0]), int(sizes[0]), is_point=False)
        self._byte_ms += float(np.dot(np.diff(times_ms).astype(np.float64), sizes[:-1]))
        self.time_ms = int(times_ms[-1])
        self.add(self.time_ms, int(sizes[-1]), is_point=False)

    def mean_bytes(self, began_ms: int) -> float:
        lasted_ms = self.time_ms - began_ms
        return self._byte_ms / lasted_ms if lasted_ms else float(self.size_bytes)

    def shown(self) -> list[SpacePoint]:
        count = len(self.points)
        which = np.unique(np.linspace(0, count - 1, min(POINTS_MAX, count), dtype=np.int64))
        shown = (self.points[at] for at in which.tolist())
        return [SpacePoint(publish_time_ms=time_ms, bytes=size) for time_ms, size in shown]


class Replay:
    """Of one history under one trial's settings. `check` is called on the way, and may raise."""

    def __init__(
        self,
        history: History,
        settings: CleanerSettings,
        origin: Origin,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self._history, self._settings, self._check = history, settings, check
        self._log = GrowingLog(history, settings, origin)
        self._cleaner = Cleaner(history, settings, self._log)
        self._checkpoint: int | None = None
        self._began_ms = int(history.clock_ms[0]) if len(history) else 0
        self._space = _Space(self._began_ms)
        self._steps = 0
        # Of all looks at the log: the largest ratio, and what the last one's range ended at.
        self._dirtiest, self._limit = 0.0, Limit.ACTIVE_SEGMENT
        self._answer = CleaningReplay(trial=settings.trial, begin_ms=self._began_ms)

    def run(self) -> CleaningReplay:
        """Raises InvalidRequest when it is too much, and what `check` raises."""
        clock_ms, at, due_ms = self._history.clock_ms, 0, None
        while True:
            upto = (
                len(clock_ms) if due_ms is None else int(np.searchsorted(clock_ms, due_ms, "right"))
            )
            while at < upto:
                end = self._log.calm_until(at, upto)
                if end > at:
                    self._append_calm(at, end)
                    at = end
                    continue
                time_ms = int(clock_ms[at])
                is_new = self._log.append(append_of(self._history, at))
                self._space.add(time_ms, self._log.size_bytes, is_point=is_new)
                at += 1
                if is_new:
                    tick_ms = self._tick(time_ms)
                    due_ms = tick_ms if due_ms is None else min(due_ms, tick_ms)
                    upto = self._upto(due_ms)
            if due_ms is None:
                return self._told()
            has_deleted = self._turn(due_ms)
            # What is gone was clean: the rest may be dirty enough when the cleaner wakes again.
            due_ms = self._tick(due_ms + 1) if has_deleted else self._next_due(due_ms)

    def _upto(self, due_ms: int | None) -> int:
        """Behind the last batch that is appended before the cleaner wakes then."""
        clock_ms = self._history.clock_ms
        return len(clock_ms) if due_ms is None else int(np.searchsorted(clock_ms, due_ms, "right"))

    def _append_calm(self, first: int, end: int) -> None:
        self._check()
        before = self._log.size_bytes
        self._log.append_calm(first, end)
        sizes = before + np.cumsum(self._history.batches.size_bytes[first:end])
        self._space.add_all(self._history.clock_ms[first:end], sizes)

    def _tick(self, time_ms: int) -> int:
        """When the cleaner wakes next, at that time or behind it."""
        backoff_ms = max(self._settings.backoff_ms, 1)
        return time_ms + (self._began_ms - time_ms) % backoff_ms

    # -- a turn ----------------------------------------------------------------------------

    def _turn(self, now_ms: int) -> bool:
        """Whether retention let something go behind the last look at how dirty the log is."""
        log = self._log
        while True:
            self._check()
            made = self._plan(now_ms)
            is_due = made.is_eligible(self._settings.min_cleanable_ratio)
            if is_due:
                self._clean(made, now_ms)
            deleted_bytes = log.delete_old(now_ms)
            self._answer.bytes_deleted += deleted_bytes
            self._space.add(now_ms, log.size_bytes, is_point=True)
            if not is_due:
                return deleted_bytes > 0

    def _plan(self, now_ms: int) -> Plan:
        """Of a round now. A checkpoint that cannot be right is set anew."""
        made = plan(self._log.view, self._checkpoint, self._settings, now_ms)
        self._dirtiest, self._limit = max(self._dirtiest, made.ratio or 0.0), made.limit
        if made.must_repair:
            self._checkpoint = made.first_dirty_offset
        self._steps += len(self._log.closed)
        if self._steps + self._cleaner.steps > STEPS_MAX:
            raise InvalidRequest(
                f"Replaying {self._settings.trial.config} looks at more than {STEPS_MAX} records: "
                "ask for larger segments, or a larger min.cleanable.dirty.ratio."
            )
        return made

    def _clean(self, made: Plan, now_ms: int) -> None:
        answer, space, before = self._answer, self._space, self._log.size_bytes
        cleaned = self._cleaner.clean(made, now_ms)
        space.add(now_ms, before + cleaned.bytes_written, is_point=True)
        self._checkpoint = cleaned.next_offset
        answer.rounds += 1
        answer.bytes_read += cleaned.bytes_read
        answer.bytes_rewritten += cleaned.bytes_written
        answer.bytes_estimated += cleaned.bytes_estimated

    def _next_due(self, now_ms: int) -> int | None:
        """When the cleaner wakes and time alone has made something new; None: it never does."""
        later = [each for each in self._changes(now_ms) if now_ms < each <= _TIME_MAX]
        return self._tick(min(later)) if later else None

    def _changes(self, now_ms: int) -> Iterator[int]:
        """Times at which a lag ends, or retention lets a segment go."""
        log, settings = self._log, self._settings
        segments = log.segments
        first_dirty = max(self._checkpoint or 0, log.log_start)
        dirty = closed_from(segments, first_dirty)
        for each in dirty:
            if each.largest_timestamp_ms > now_ms - settings.min_compaction_lag_ms:
                yield each.largest_timestamp_ms + settings.min_compaction_lag_ms
                break
        dates = [each.first_batch_timestamp_ms for each in dirty]
        dated = [each for each in dates if each > 0]
        if dated:
            yield min(dated) + settings.max_compaction_lag_ms + 1
        if settings.is_deleted and settings.retention_ms >= 0:
            yield segments[0].largest_timestamp_ms + settings.retention_ms + 1

    def _told(self) -> CleaningReplay:
        answer, space, log = self._answer, self._space, self._log
        appended = int(self._history.batches.size_bytes.sum())
        answer.write_amplification = answer.bytes_rewritten / appended if appended else 0.0
        answer.space_peak_bytes = space.peak_bytes
        answer.space_mean_bytes = space.mean_bytes(self._began_ms)
        answer.space_end_bytes = log.size_bytes
        answer.records_end, answer.tombstones_end = self._cleaner.left()
        answer.segments_end = len(log.segments)
        space.add(space.time_ms, log.size_bytes, is_point=True)
        answer.points.extend(space.shown())
        answer.end_ms = space.time_ms
        if not answer.rounds:
            answer.why_no_round = self._why_no_round()
        return answer

    def _why_no_round(self) -> str:
        if not len(self._history):
            return "the log is empty"
        if not self._dirtiest:
            return f"nothing could be cleaned: all of it lies behind the {self._limit.value}"
        return (
            f"the dirty ratio was {self._dirtiest:.4g} at most; a round comes above "
            f"{self._settings.min_cleanable_ratio:g}"
        )
