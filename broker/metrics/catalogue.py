"""The catalogue of metrics: name, type, unit, labels, meaning, and the source of the value.

Names and labels that begin with `pulsar_` are Pulsar's own (its TopicStats and
NamespaceStatsAggregator, version 4.0.7), for use with its dashboards and alerts. Those that begin
with `kafka_` are Kafka's (kafka_metrics.py). All others begin with `ledgerfold_`. docs/METRICS.md
is this catalogue for users; tests/grpc/test_scrape.py keeps both, and the values that a broker
exposes, consistent. (Pulsar declares all of its metrics as gauges; counters are counters here.)
"""

from __future__ import annotations

from ledgerfold.broker.metrics.kafka_metrics import kafka_metrics
from ledgerfold.broker.metrics.metric import COUNTER, HISTOGRAM, TOPIC_LABELS, Metric
from ledgerfold.broker.metrics.subscription_metrics import SUBSCRIPTION_METRICS
from ledgerfold.broker.metrics.topic_metrics import TOPIC_METRICS

SYNC_BUCKETS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)

STRATEGY_INFO = Metric(
    "ledgerfold_compaction_strategy_info",
    "Always 1; the strategy in force for the next run, for topics whose compaction was ever "
    "requested. Its settings are not labels.",
    labels=(*TOPIC_LABELS, "strategy"),
)
TOPICS_COUNT = Metric(
    "pulsar_topics_count",
    "Loaded topics.",
    labels=("cluster", "namespace"),
)
QUEUE_LENGTH = Metric("ledgerfold_compaction_queue_length", "Queued compactions.")
RUNNING = Metric("ledgerfold_compactions_running", "Running compactions.")
COMPACTOR_STATE = Metric(
    "ledgerfold_compactor_state",
    "1 for the compactor's current state, 0 for the others: starting, ready, restarting, "
    "unavailable, disabled.",
    labels=("state",),
)
COMPACTOR_RESTARTS = Metric(
    "ledgerfold_compactor_restarts_total", "Restarts of the worker.", kind=COUNTER
)
# The keys are the attributes of broker/common/outgoing.py that the metrics report.
OUTGOING_METRICS = {
    "streams": Metric(
        "ledgerfold_streams", "Open streams: producers, consumers, readers, watchers."
    ),
    "streams_max": Metric("ledgerfold_streams_max", "Limit of open streams; more are refused."),
    "streams_refused": Metric(
        "ledgerfold_streams_refused_total", "Streams refused at the limit.", kind=COUNTER
    ),
    "streams_ended": Metric(
        "ledgerfold_streams_ended_total",
        "Streams closed because their clients read nothing while others needed the memory.",
        kind=COUNTER,
    ),
    "unsent_bytes": Metric(
        "ledgerfold_unsent_bytes",
        "Size of entries read for streams and not sent yet.",
        unit="bytes",
    ),
    "bytes_max": Metric(
        "ledgerfold_unsent_max_bytes",
        "Limit of unsent bytes, above which streams stop reading.",
        unit="bytes",
    ),
}
SYNC_SECONDS = Metric(
    "ledgerfold_fsync_seconds",
    "Duration of syncs of raw ledgers, without the queueing time that producers also wait for.",
    unit="seconds",
    kind=HISTOGRAM,
)
BUILD_INFO = Metric("ledgerfold_build_info", "Always 1; the broker's version.", labels=("version",))
BROKER_METRICS = (
    TOPICS_COUNT,
    QUEUE_LENGTH,
    RUNNING,
    COMPACTOR_STATE,
    COMPACTOR_RESTARTS,
    *OUTGOING_METRICS.values(),
    SYNC_SECONDS,
    BUILD_INFO,
)


def all_metrics() -> tuple[Metric, ...]:
    """Returns all metrics in the order of the documentation."""
    per_topic = [each.metric for each in TOPIC_METRICS]
    per_subscription = [each.metric for each in SUBSCRIPTION_METRICS]
    return (*per_topic, STRATEGY_INFO, *per_subscription, *kafka_metrics(), *BROKER_METRICS)
