"""Every metric there is: name, type, unit, labels, meaning, and where its value comes from.

Names and labels that begin with `pulsar_` are Pulsar's own (its TopicStats and
NamespaceStatsAggregator, version 4.0.7): its dashboards and alerts work. Those that begin with
`kafka_` are Kafka's (kafka_metrics.py). Everything else begins with `ledgerfold_`.
docs/METRICS.md is this catalogue for users; tests/grpc/test_scrape.py holds the two, and what a
broker exposes, together. (Pulsar calls all of its metrics gauges; counters are counters here.)
"""

from __future__ import annotations

from ledgerfold.broker.metrics.kafka_metrics import kafka_metrics
from ledgerfold.broker.metrics.metric import COUNTER, GAUGE, HISTOGRAM, TOPIC_LABELS, Metric
from ledgerfold.broker.metrics.subscription_metrics import SUBSCRIPTION_METRICS
from ledgerfold.broker.metrics.topic_metrics import TOPIC_METRICS

SYNC_BUCKETS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)

STRATEGY_INFO = Metric(
    "ledgerfold_compaction_strategy_info",
    GAUGE,
    "",
    "Always 1; the strategy in force for the next run, of topics that compaction was ever asked "
    "for. Its settings are no labels.",
    (*TOPIC_LABELS, "strategy"),
)
TOPICS_COUNT = Metric(
    "pulsar_topics_count",
    GAUGE,
    "",
    "Loaded topics; those that nobody has used since the start are not.",
    ("cluster", "namespace"),
)
QUEUE_LENGTH = Metric(
    "ledgerfold_compaction_queue_length", GAUGE, "", "Compactions that wait for their turn."
)
RUNNING = Metric("ledgerfold_compactions_running", GAUGE, "", "Compactions on their way.")
COMPACTOR_STATE = Metric(
    "ledgerfold_compactor_state",
    GAUGE,
    "",
    "1 for the state the compactor is in, 0 for the others: starting, ready, restarting, "
    "unavailable, disabled.",
    ("state",),
)
COMPACTOR_RESTARTS = Metric(
    "ledgerfold_compactor_restarts_total",
    COUNTER,
    "",
    "How often a worker ended and another one was started.",
)
# By the attributes of broker/ground/outgoing.py that they tell.
OUTGOING_METRICS = {
    "streams": Metric(
        "ledgerfold_streams", GAUGE, "", "Open streams: producers, consumers, readers, watchers."
    ),
    "streams_max": Metric(
        "ledgerfold_streams_max", GAUGE, "", "How many there may be; more are refused."
    ),
    "streams_refused": Metric(
        "ledgerfold_streams_refused_total", COUNTER, "", "Streams that were one too many."
    ),
    "streams_ended": Metric(
        "ledgerfold_streams_ended_total",
        COUNTER,
        "",
        "Streams that were ended because others needed the room and their client took nothing.",
    ),
    "unsent_bytes": Metric(
        "ledgerfold_unsent_bytes",
        GAUGE,
        "bytes",
        "Of entries that were read for streams and not sent yet.",
    ),
    "bytes_max": Metric(
        "ledgerfold_unsent_max_bytes", GAUGE, "bytes", "Above this nothing is read on for them."
    ),
}
SYNC_SECONDS = Metric(
    "ledgerfold_fsync_seconds",
    HISTOGRAM,
    "seconds",
    "How long syncs of raw ledgers took: what producers wait for, without the queue before it.",
)
BUILD_INFO = Metric(
    "ledgerfold_build_info", GAUGE, "", "Always 1; the broker's version.", ("version",)
)
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
    """In the order of the documentation."""
    per_topic = [each.metric for each in TOPIC_METRICS]
    per_subscription = [each.metric for each in SUBSCRIPTION_METRICS]
    return (*per_topic, STRATEGY_INFO, *per_subscription, *kafka_metrics(), *BROKER_METRICS)
