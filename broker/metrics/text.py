"""Readings in Prometheus' text format, version 0.0.4. Pure.

All samples of a name are grouped, after one line each for its meaning and its type. Metrics without
a sample are omitted, as in Pulsar. (prometheus_client is not used because it takes twelve
microseconds a line: seconds of CPU time with thousands of topics.)

  >>> from ledgerfold.broker.metrics.readings import SubscriptionReading
  >>> subscription = SubscriptionReading("s", tuple(range(len(SUBSCRIPTION_METRICS))))
  >>> nothing = tuple(None for _ in TOPIC_METRICS)
  >>> topic = TopicReading("n", "t", nothing, [subscription])
  >>> print(next(parts(Readings([topic], 0, 0, 0, 0))), end="")
  # HELP pulsar_subscription_back_log Unacknowledged raw entries.
  # TYPE pulsar_subscription_back_log gauge
  pulsar_subscription_back_log{cluster="standalone",namespace="n",topic="t",subscription="s"} 0
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ledgerfold.broker.metrics import catalogue
from ledgerfold.broker.metrics.kafka_metrics import CLEANER_METRICS, LOG_METRICS
from ledgerfold.broker.metrics.metric import (
    CLUSTER,
    SUBSCRIPTION_LABELS,
    TOPIC_LABELS,
    Metric,
    Sampled,
)
from ledgerfold.broker.metrics.readings import Readings, TopicReading
from ledgerfold.broker.metrics.subscription_metrics import SUBSCRIPTION_METRICS
from ledgerfold.broker.metrics.topic_metrics import TOPIC_METRICS
from ledgerfold.v1.admin_pb2 import CompactorState
from ledgerfold.version import __version__

_STATE_PREFIX = "COMPACTOR_STATE_"
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
# The formatted labels of a sample, and its value.
Sample = tuple[str, float]


def parts(readings: Readings) -> Iterator[str]:
    """Yields the text, one metric at a time."""
    topics = [(_labels(TOPIC_LABELS, *_names(each)), each.values) for each in readings.topics]
    yield from _sampled(TOPIC_METRICS, topics)
    strategies = [
        (_labels(catalogue.STRATEGY_INFO.labels, *_names(each), each.strategy), 1)
        for each in readings.topics
        if each.strategy is not None
    ]
    yield from _part(catalogue.STRATEGY_INFO, strategies)
    subscriptions = [
        (_labels(SUBSCRIPTION_LABELS, *_names(topic), each.name), each.values)
        for topic in readings.topics
        for each in topic.subscriptions
    ]
    yield from _sampled(SUBSCRIPTION_METRICS, subscriptions)
    logs = [(_labels(TOPIC_LABELS, *_names(each)), each.values) for each in readings.kafka]
    yield from _sampled(LOG_METRICS, logs)
    for name, value in readings.cleaner.items():
        yield from _part(CLEANER_METRICS[name], [("", value)])
    yield from _of_broker(readings)


def _sampled(
    metrics: Iterable[Sampled[Any, Any]], sources: Sequence[tuple[str, Sequence[float | None]]]
) -> Iterator[str]:
    """Yields the text of each metric: a sample of each source that has one."""
    for at, each in enumerate(metrics):
        samples = ((labels, values[at]) for labels, values in sources)
        present = ((labels, value) for labels, value in samples if value is not None)
        yield from _part(each.metric, present)


def _of_broker(readings: Readings) -> Iterator[str]:
    counts = Counter(topic.namespace for topic in readings.topics)
    loaded = catalogue.TOPICS_COUNT
    namespaces = [(_labels(loaded.labels, CLUSTER, name), count) for name, count in counts.items()]
    yield from _part(loaded, namespaces)
    yield from _part(catalogue.QUEUE_LENGTH, [("", readings.queue_length)])
    yield from _part(catalogue.RUNNING, [("", readings.running)])
    state = catalogue.COMPACTOR_STATE
    states = [
        (
            _labels(state.labels, name.removeprefix(_STATE_PREFIX).lower()),
            int(value == readings.compactor_state),
        )
        for name, value in CompactorState.items()
        if value
    ]
    yield from _part(state, states)
    yield from _part(catalogue.COMPACTOR_RESTARTS, [("", readings.compactor_restarts)])
    for name, value in readings.outgoing.items():
        yield from _part(catalogue.OUTGOING_METRICS[name], [("", value)])
    build = catalogue.BUILD_INFO
    yield from _part(build, [(_labels(build.labels, __version__), 1)])


def _names(topic: TopicReading) -> tuple[str, str, str]:
    return CLUSTER, topic.namespace, topic.topic


def _labels(names: Iterable[str], *values: str) -> str:
    pairs = zip(names, values, strict=True)
    written = ",".join(f'{name}="{value.translate(_ESCAPES)}"' for name, value in pairs)
    return f"{{{written}}}"


def _part(metric: Metric, samples: Iterable[Sample]) -> Iterator[str]:
    """Yields the text of one metric; nothing without samples."""
    name = metric.name
    lines = [f"{name}{labels} {value!r}\n" for labels, value in samples]
    if lines:
        yield f"# HELP {name} {metric.help}\n# TYPE {name} {metric.kind}\n{''.join(lines)}"
