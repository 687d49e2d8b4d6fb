"""Kafka's gauges of the cleaner, and its count of records refused for a missing key.

Gauges are integers, and 0 before their first value. Kafka 4.1.0 reports wrong values of
`max-clean-time-secs` and `uncleanable-bytes` then, which as_in_kafka() reproduces.

Source: LogCleaner and LogCleanerManager of Kafka 4.1 (docs/METRICS.md).
"""

from __future__ import annotations

from collections.abc import Callable

from ledgerfold.broker.kafka.cleaner.choice import Choice
from ledgerfold.broker.kafka.cleaner.cleaning import CleaningResult

_CLEANER = "kafka.log:type=LogCleaner,name="
_MANAGER = "kafka.log:type=LogCleanerManager,name="
_KEYLESS = "kafka.server:type=BrokerTopicMetrics,name=NoKeyCompactedTopicRecordsPerSec"


class Gauges:
    """The gauges of one broker."""

    def __init__(self, clock_ms: Callable[[], int]) -> None:
        self._clock_ms = clock_ms
        self.dead_threads = 0
        # Records refused by compacted topics because they have no key.
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

    def ended(self, outcome: CleaningResult | None, elapsed_ms: int, slots: int = 0) -> None:
        """Records the figures of a cleaning, if the pass had one."""
        if outcome is None:
            return
        stats = outcome.manifest.stats
        self._recopy_percent = 100 * stats.bytes_written // max(stats.bytes_read, 1)
        self._clean_time_secs = elapsed_ms // 1000
        if slots:
            self._utilization_percent = 100 * stats.map_keys // slots

    def values(self, uncleanable: int, uncleanable_bytes: int) -> dict[str, int]:
        """Returns the gauges by object name.

        `uncleanable`, `uncleanable_bytes`: the number of uncleanable logs, and their cleanable
        bytes.
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
        """Applies the defects of 4.1.0 to `values`.

        Before the first cleaning, max-clean-time-secs is minus the start time of the cleaner. The
        bytes of uncleanable logs are missing when one of them has no checkpoint, which is an error
        in Kafka.
        """
        if self._clean_time_secs is None:
            values[f"{_CLEANER}max-clean-time-secs"] = -((self._begun_ms + 1) // 1000)
        if not has_checkpoints:
            del values[f"{_MANAGER}uncleanable-bytes"]
        return values
