"""What Kafka's cleaner tells of itself, and of records that compacted topics refuse: Kafka's names.

Gauges are integers, and 0 before there is anything to tell: `max-clean-time-secs` and
`uncleanable-bytes` too, where Kafka 4.1.0 shows nonsense, which as_in_kafka() does as well.

Source: LogCleaner and LogCleanerManager of Kafka 4.1 (docs/METRICS.md).
"""

from __future__ import annotations

from collections.abc import Callable

from ledgerfold.broker.kafka.cleaner.choice import Choice
from ledgerfold.broker.kafka.cleaner.cleaning import RoundOutcome

_CLEANER = "kafka.log:type=LogCleaner,name="
_MANAGER = "kafka.log:type=LogCleanerManager,name="
_KEYLESS = "kafka.server:type=BrokerTopicMetrics,name=NoKeyCompactedTopicRecordsPerSec"


class Gauges:
    """Of one broker."""

    def __init__(self, clock_ms: Callable[[], int]) -> None:
        self._clock_ms = clock_ms
        self.dead_threads = 0
        # Refused because compacted topics take no record without a key.
        self.keyless_records = 0
        self._recopy_percent = 0
        self._clean_time_secs: int | None = None
        self._begun_ms = clock_ms()
        self._utilization_percent = 0
        self._delay_secs = 0
        self._dirty_percent = 0
        self._last_choice_ms: int | None = None

    def chosen(self, choice: Choice, now_ms: int) -> None:
        self._dirty_percent = choice.max_dirty_percent
        self._last_choice_ms = now_ms
        if choice.log is not None:
            self._delay_secs = choice.max_delay_ms // 1000

    def ended(self, outcome: RoundOutcome | None, elapsed_ms: int, slots: int = 0) -> None:
        """A round, if there was one."""
        if outcome is None:
            return
        stats = outcome.manifest.stats
        self._recopy_percent = 100 * stats.bytes_written // max(stats.bytes_read, 1)
        self._clean_time_secs = elapsed_ms // 1000
        if slots:
            self._utilization_percent = 100 * stats.map_keys // slots

    def values(self, uncleanable: int, uncleanable_bytes: int) -> dict[str, int]:
        """By object name. `uncleanable`: how many logs are left alone, and what could be cleaned
        of those.
        """
        last_ms = self._last_choice_ms
        return {
            f"{_CLEANER}max-buffer-utilization-percent": self._utilization_percent,
            f"{_CLEANER}cleaner-recopy-percent": self._recopy_percent,
            f"{_CLEANER}max-clean-time-secs": self._clean_time_secs or 0,
            f"{_CLEANER}max-compaction-delay-secs": self._delay_secs,
            f"{_CLEANER}DeadThreadCount": self.dead_threads,
            f"{_MANAGER}max-dirty-percent": self._dirty_percent,
            f"{_MANAGER}time-since-last-run-ms": (
                0 if last_ms is None else self._clock_ms() - last_ms
            ),
            f"{_MANAGER}uncleanable-partitions-count": uncleanable,
            f"{_MANAGER}uncleanable-bytes": uncleanable_bytes,
            _KEYLESS: self.keyless_records,
        }

    def as_in_kafka(self, values: dict[str, int], has_checkpoints: bool) -> dict[str, int]:
        """With the defects of 4.1.0: before the first round, minus the time at which the cleaner
        began; no bytes where a log that is left alone has no checkpoint, which is an error there.
        """
        if self._clean_time_secs is None:
            values[f"{_CLEANER}max-clean-time-secs"] = -((self._begun_ms + 1) // 1000)
        if not has_checkpoints:
            del values[f"{_MANAGER}uncleanable-bytes"]
        return values
