"""The description of a metric, and its vocabulary."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

COUNTER, GAUGE, HISTOGRAM = "counter", "gauge", "histogram"
# The name of Pulsar's standalone cluster: there is only one broker.
CLUSTER = "standalone"
TOPIC_LABELS = ("cluster", "namespace", "topic")
SUBSCRIPTION_LABELS = (*TOPIC_LABELS, "subscription")
# The output of `topics stats`, or a part of it.
Stats = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Metric:
    """The description of a metric. `help`: its meaning in a sentence or two."""

    name: str
    help: str
    unit: str = ""
    kind: str = GAUGE
    labels: tuple[str, ...] = ()


Source = TypeVar("Source")
Value = TypeVar("Value", float, float | None)


@dataclass(frozen=True, slots=True)
class Sampled(Generic[Source, Value]):
    """A metric, and the function that reads a sample from its source; None: no sample."""

    metric: Metric
    read: Callable[[Source], Value]
