"""The description of a metric, and its vocabulary."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

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
