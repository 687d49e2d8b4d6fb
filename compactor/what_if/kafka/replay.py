"""Replays a Kafka topic's history under other settings, with its cleaner.

The replay starts empty, and appends the log's batches in order. A batch's time is its largest
timestamp, limited to the time of its append here, and never decreases: an imported log, which was
appended at once, has the times of its records.

* Segments roll by the settings, and the cleaner wakes every `log.cleaner.backoff.ms` from the first
  append on. Its passes are a broker's: cleanings while the log is dirty or overdue, and deletion by
  retention. Times at which nothing can change are skipped.
* A cleaning takes no time. Its output exists in addition to its input until it ends: the peak.
* After the last append, time continues until nothing changes any more: lags end, retention
  deletes. An idle log keeps its active segment, as in Kafka.

The log contains the results of earlier cleanings; records that they removed are not replayed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from ledgerfold.compactor.positions import Integers
from ledgerfold.compactor.what_if.kafka.cleaner import Cleaner
from ledgerfold.compactor.what_if.kafka.growing import GrowingLog, Origin
from ledgerfold.compactor.what_if.kafka.history import History
from ledgerfold.compactor.what_if.replay import shown_points
from ledgerfold.kafka.cleanable import Limit, Plan, plan
from ledgerfold.kafka.segment import closed_from
from ledgerfold.storage.errors import InvalidRequest
from ledgerfold.v1.compactor_pb2 import CleanerSettings
from ledgerfold.v1.what_if_pb2 import CleaningReplay, SpacePoint

# Records, batches and segments that a replay may process.
STEPS_MAX = 500_000_000
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
        """Sets the size from that time on."""
        self._byte_ms += (time_ms - self.time_ms) * self.size_bytes
        self.time_ms, self.size_bytes = time_ms, size_bytes
        self.peak_bytes = max(self.peak_bytes, size_bytes)
        if is_point:
            self.points.append((time_ms, size_bytes))

    def add_all(self, times_ms: Integers, sizes: Integers) -> None:
        """Adds consecutive, increasing sizes without points."""
        self.add(int(times_ms[0]), int(sizes[0]), is_point=False)
        self._byte_ms += float(np.dot(np.diff(times_ms).astype(np.float64), sizes[:-1]))
        self.time_ms = int(times_ms[-1])
        self.add(self.time_ms, int(sizes[-1]), is_point=False)

    def mean_bytes(self, began_ms: int) -> float:
        lasted_ms = self.time_ms - began_ms
        return self._byte_ms / lasted_ms if lasted_ms else float(self.size_bytes)

    def shown(self) -> list[SpacePoint]:
        return shown_points(*np.array(self.points, np.int64).T)


class Replay:
    """A replay of one history under one trial's settings. `check` is called repeatedly and may
    raise.
    """

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
        # The largest dirty ratio so far, and the limit of the last plan's range.
        self._dirtiest, self._limit = 0.0, Limit.ACTIVE_SEGMENT
        self._answer = CleaningReplay(trial=settings.trial, begin_ms=self._began_ms)

    def run(self) -> CleaningReplay:
        """Runs the replay. Raises InvalidRequest if it is too large, and what `check` raises."""
        clock_ms, at = self._history.clock_ms, 0
        due_ms: int | None = None
        while True:
            until = self._appends_until(due_ms)
            while at < until:
                end = self._log.calm_until(at, until)
                if end > at:
                    self._append_calm(at, end)
                    at = end
                    continue
                time_ms = int(clock_ms[at])
                is_new = self._log.append(at)
                self._space.add(time_ms, self._log.size_bytes, is_point=is_new)
                at += 1
                if is_new:
                    tick_ms = self._tick(time_ms)
                    due_ms = tick_ms if due_ms is None else min(due_ms, tick_ms)
                    until = self._appends_until(due_ms)
            if due_ms is None:
                return self._result()
            has_deleted = self._pass(due_ms)
            # Deleted segments were clean: the remaining log may be dirty enough when the cleaner
            # wakes again.
            due_ms = self._tick(due_ms + 1) if has_deleted else self._next_due(due_ms)

    def _appends_until(self, due_ms: int | None) -> int:
        """Returns the end of the batches that are appended before the cleaner wakes."""
        clock_ms = self._history.clock_ms
        return len(clock_ms) if due_ms is None else int(np.searchsorted(clock_ms, due_ms, "right"))

    def _append_calm(self, first: int, end: int) -> None:
        self._check()
        before = self._log.size_bytes
        self._log.append_calm(first, end)
        sizes = before + np.cumsum(self._history.batches.size_bytes[first:end])
        self._space.add_all(self._history.clock_ms[first:end], sizes)

    def _tick(self, time_ms: int) -> int:
        """Returns when the cleaner wakes next, at or after that time."""
        backoff_ms = max(self._settings.backoff_ms, 1)
        return time_ms + (self._began_ms - time_ms) % backoff_ms

    # -- a pass ----------------------------------------------------------------------------

    def _pass(self, now_ms: int) -> bool:
        """Runs passes. Returns whether retention deleted anything after the last plan."""
        log = self._log
        while True:
            self._check()
            plan_now = self._plan(now_ms)
            is_due = plan_now.is_eligible(self._settings.min_cleanable_ratio)
            if is_due:
                self._clean(plan_now, now_ms)
            deleted_bytes = log.delete_old(now_ms)
            self._answer.bytes_deleted += deleted_bytes
            self._space.add(now_ms, log.size_bytes, is_point=True)
            if not is_due:
                return deleted_bytes > 0

    def _plan(self, now_ms: int) -> Plan:
        """Plans a cleaning. Repairs an invalid checkpoint."""
        plan_now = plan(self._log.view, self._checkpoint, self._settings, now_ms)
        self._dirtiest, self._limit = max(self._dirtiest, plan_now.ratio or 0.0), plan_now.limit
        if plan_now.must_repair:
            self._checkpoint = plan_now.first_dirty_offset
        self._steps += len(self._log.closed)
        if self._steps + self._cleaner.steps > STEPS_MAX:
            raise InvalidRequest(
                f"Replaying {self._settings.trial.config} processes more than {STEPS_MAX} records: "
                "try larger segments, or a larger min.cleanable.dirty.ratio."
            )
        return plan_now

    def _clean(self, plan: Plan, now_ms: int) -> None:
        answer, space, before = self._answer, self._space, self._log.size_bytes
        cleaned = self._cleaner.clean(plan, now_ms)
        space.add(now_ms, before + cleaned.bytes_written, is_point=True)
        self._checkpoint = cleaned.next_offset
        answer.rounds += 1
        answer.bytes_read += cleaned.bytes_read
        answer.bytes_rewritten += cleaned.bytes_written
        answer.bytes_estimated += cleaned.bytes_estimated

    def _next_due(self, now_ms: int) -> int | None:
        """Returns the time at which the cleaner wakes because new work is due; None: never."""
        later = [each for each in self._changes(now_ms) if now_ms < each <= _TIME_MAX]
        return self._tick(min(later)) if later else None

    def _changes(self, now_ms: int) -> Iterator[int]:
        """Yields the times at which a lag ends, or retention deletes a segment."""
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

    def _result(self) -> CleaningReplay:
        answer, space, log = self._answer, self._space, self._log
        appended = int(self._history.batches.size_bytes.sum())
        answer.write_amplification = answer.bytes_rewritten / appended if appended else 0.0
        answer.space_peak_bytes = space.peak_bytes
        answer.space_mean_bytes = space.mean_bytes(self._began_ms)
        answer.space_end_bytes = log.size_bytes
        answer.records_end, answer.tombstones_end = self._cleaner.remaining()
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
            return f"nothing could be cleaned: the cleanable range ends at the {self._limit.value}"
        return (
            f"the dirty ratio was {self._dirtiest:.4g} at most; a cleaning needs more than "
            f"{self._settings.min_cleanable_ratio:g}"
        )
