"""The metrics of Kafka topics under Kafka's names, in Prometheus' form.

  >>> prometheus_name("kafka.log:type=LogCleaner,name=cleaner-recopy-percent")
  'kafka_log_logcleaner_cleaner_recopy_percent'

A Kafka broker's JMX exporter derives these names from `kafka.log:type=Log,name=...` and the
cleaner's, so its dashboards and alerts work. They exist once a Kafka topic is loaded.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from ledgerfold.broker.metrics.metric import COUNTER, TOPIC_LABELS, Metric, Sampled, Stats


def prometheus_name(object_name: str) -> str:
    """Converts the name of a Kafka gauge."""
    kind, _, name = object_name.removeprefix("kafka.log:type=").partition(",name=")
    return re.sub(r"[^a-z0-9]", "_", f"kafka_log_{kind}_{name}".lower())


def _log(name: str, unit: str, help: str, read: Callable[[Stats], float]) -> Sampled[Stats, float]:
    return Sampled(Metric(f"kafka_log_log_{name}", help, unit=unit, labels=TOPIC_LABELS), read)


# One sample per Kafka topic, read from `topics stats`.
LOG_METRICS = (
    _log("size", "bytes", "Size of a Kafka topic's batches.", lambda stats: stats["storageSize"]),
    _log(
        "numlogsegments",
        "",
        "Number of segments of a Kafka topic.",
        lambda s: s["kafka"]["segments"],
    ),
    _log("logstartoffset", "", "First offset of the log.", lambda s: s["kafka"]["logStartOffset"]),
    _log("logendoffset", "", "Next offset of the log.", lambda s: s["kafka"]["logEndOffset"]),
)

_SERVER = "kafka.server:type=BrokerTopicMetrics,name="
_CLEANER, _MANAGER = "kafka.log:type=LogCleaner,name=", "kafka.log:type=LogCleanerManager,name="
# The keys are Kafka's object names.
CLEANER_METRICS = {
    name: Metric(prometheus_name(name), help, unit=unit)
    for name, unit, help in (
        (
            f"{_CLEANER}cleaner-recopy-percent",
            "percent",
            "Share of the bytes read by the last cleaning that it wrote again.",
        ),
        (
            f"{_CLEANER}max-buffer-utilization-percent",
            "percent",
            "Utilization of the last cleaning's offset map.",
        ),
        (f"{_CLEANER}max-clean-time-secs", "seconds", "Duration of the last cleaning."),
        (
            f"{_CLEANER}max-compaction-delay-secs",
            "seconds",
            "Longest time by which a log has exceeded max.compaction.lag.ms.",
        ),
        (f"{_CLEANER}DeadThreadCount", "", "Cleaner threads that died."),
        (
            f"{_MANAGER}max-dirty-percent",
            "percent",
            "Largest dirty ratio when the cleaner last selected a log.",
        ),
        (
            f"{_MANAGER}time-since-last-run-ms",
            "milliseconds",
            "Time since the cleaner last selected a log.",
        ),
        (
            f"{_MANAGER}uncleanable-partitions-count",
            "",
            "Kafka topics marked uncleanable after a failed cleaning.",
        ),
        (f"{_MANAGER}uncleanable-bytes", "bytes", "Cleanable bytes of the uncleanable topics."),
    )
}
# A meter in Kafka; its count is exposed.
CLEANER_METRICS[f"{_SERVER}NoKeyCompactedTopicRecordsPerSec"] = Metric(
    "kafka_server_brokertopicmetrics_nokeycompactedtopicrecords_total",
    "Records without a key refused by compacted Kafka topics.",
    kind=COUNTER,
)


def kafka_metrics() -> tuple[Metric, ...]:
    """Returns the metrics in the order of the documentation."""
    return (*(each.metric for each in LOG_METRICS), *CLEANER_METRICS.values())
