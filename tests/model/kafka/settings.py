"""A topic's settings, by Kafka's names, as far as the log and its cleaner use them.

>>> TopicSettings.of({"cleanup.policy": "compact,delete", "retention.ms": "5"}).retention_ms
5
>>> TopicSettings.of({"cleanup.policy": "compact", "max.compaction.lag.ms": "9"}).roll_ms
9
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

LONG_MAX = 2**63 - 1


@dataclass(frozen=True)
class TopicSettings:
    compact: bool
    delete: bool
    dirty_ratio: float
    min_lag_ms: int
    max_lag_ms: int
    delete_retention_ms: int
    segment_bytes: int
    segment_ms: int
    index_bytes: int
    index_interval_bytes: int
    retention_ms: int
    retention_bytes: int
    message_bytes: int
    append_time: bool
    ahead_ms: int
    behind_ms: int

    @classmethod
    def of(cls, given: Mapping[str, str]) -> TopicSettings:
        def number(name: str, default: int) -> int:
            return int(given.get(name, default))

        policies = given.get("cleanup.policy", "delete").replace(" ", "").split(",")
        return cls(
            "compact" in policies,
            "delete" in policies,
            float(given.get("min.cleanable.dirty.ratio", 0.5)),
            number("min.compaction.lag.ms", 0),
            number("max.compaction.lag.ms", LONG_MAX),
            number("delete.retention.ms", 86_400_000),
            number("internal.segment.bytes", number("segment.bytes", 1 << 30)),
            number("segment.ms", 604_800_000),
            number("segment.index.bytes", 10 << 20),
            number("index.interval.bytes", 4096),
            number("retention.ms", 604_800_000),
            number("retention.bytes", -1),
            number("max.message.bytes", 1_048_588),
            given.get("message.timestamp.type") == "LogAppendTime",
            number("message.timestamp.after.max.ms", 3_600_000),
            number("message.timestamp.before.max.ms", LONG_MAX),
        )

    @property
    def roll_ms(self) -> int:
        """Returns the largest age of an active segment: at most that of an uncompacted record."""
        return min(self.segment_ms, self.max_lag_ms) if self.compact else self.segment_ms
