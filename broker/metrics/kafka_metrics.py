"""The metrics of Kafka topics under Kafka's names, in Prometheus' form.

  >>> prometheus_name("kafka.log:type=LogCleaner,name=cleaner-recopy-percent")
  'kafka_log_logcleaner_cleaner_recopy_percent'

A Kafka broker's JMX exporter derives these names from `kafka.log:type=Log,name=...` and the
cleaner's, so its dashboards and alerts work. They exist once a Kafka topic is loaded.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from ledgerfold.broker.metrics.metric import COUNTER, GAUGE, TOPIC_LABELS, Metric, Stats


def prometheus_name(object_name: str) -> str:
    """Converts the name of a Kafka gauge."""
    kind, _, name = object_name.removeprefix("kafka.log:type=").partition(",name=")
    return re.sub(r"[^a-z0-9]", "_", f"kafka_log_{kind}_{name}".lower())


class KafkaReading(NamedTuple):
    """The values of one topic: one for each of LOG_METRICS."""

    namespace: str
    topic: str
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class LogMetric:
    """A metric with one sample per Kafka topic, read from `topics stats`."""

    metric: Metric
    read: Callable[[Stats], float]


def _log(name: str, unit: str, help: str, read: Callable[[Stats], float]) -> LogMetric:
    return LogMetric(Metric(f"kafka_log_log_{name}", GAUGE, unit, help, TOPIC_LABELS), read)


LOG_METRICS = (
    _log("size", "bytes", "Of a Kafka topic's batches.", lambda stats: stats["storageSize"]),
    _log("numlogsegments", "", "Segments of a Kafka topic.", lambda s: s["kafka"]["segments"]),
    _log("logstartoffset", "", "Where the log begins.", lambda s: s["kafka"]["logStartOffset"]),
    _log("logendoffset", "", "The next offset.", lambda s: s["kafka"]["logEndOffset"]),
)

_SERVER = "kafka.server:type=BrokerTopicMetrics,name="
_CLEANER, _MANAGER = "kafka.log:type=LogCleaner,name=", "kafka.log:type=LogCleanerManager,name="
# By Kafka's object name.
CLEANER_METRICS = {
    name: Metric(prometheus_name(name), GAUGE, unit, help)
    for name, unit, help in (
        (
            f"{_CLEANER}cleaner-recopy-percent",
            "percent",
            "Of what the last round read, how much it wrote again.",
        ),
        (
            f"{_CLEANER}max-buffer-utilization-percent",
            "percent",
            "How full the last round's offset map was.",
        ),
        (f"{_CLEANER}max-clean-time-secs", "seconds", "How long the last round took."),
        (
            f"{_CLEANER}max-compaction-delay-secs",
            "seconds",
            "How long the log that waited longest was beyond max.compaction.lag.ms.",
        ),
        (f"{_CLEANER}DeadThreadCount", "", "Cleaner threads that ended by a defect."),
        (
            f"{_MANAGER}max-dirty-percent",
            "percent",
            "The largest dirty ratio when the cleaner last chose.",
        ),
        (
            f"{_MANAGER}time-since-last-run-ms",
            "milliseconds",
            "Since the cleaner last chose.",
        ),
        (
            f"{_MANAGER}uncleanable-partitions-count",
            "",
            "Kafka topics that the cleaner leaves alone, because a round of theirs failed.",
        ),
        (f"{_MANAGER}uncleanable-bytes", "bytes", "What could be cleaned of those."),
    )
}
# A meter in Kafka; its count is exposed.
CLEANER_METRICS[f"{_SERVER}NoKeyCompactedTopicRecordsPerSec"] = Metric(
    "kafka_server_brokertopicmetrics_nokeycompactedtopicrecords_total",
    COUNTER,
    "",
    "Records without a key that compacted Kafka topics refused.",
)


def kafka_metrics() -> tuple[Metric, ...]:
    """Returns the metrics in the order of the documentation."""
    return (*(each.metric for each in LOG_METRICS), *CLEANER_METRICS.values())
