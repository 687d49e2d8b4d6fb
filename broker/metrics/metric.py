"""What is said of a metric, and the words for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

COUNTER, GAUGE, HISTOGRAM = "counter", "gauge", "histogram"
# Of the one broker there is: the name of Pulsar's standalone cluster.
CLUSTER = "standalone"
TOPIC_LABELS = ("cluster", "namespace", "topic")
SUBSCRIPTION_LABELS = (*TOPIC_LABELS, "subscription")
# As `topics stats` shows them, or a part of that.
Stats = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Metric:
    """`help` is the meaning, a sentence or two."""

    name: str
    kind: str
    unit: str
    help: str
    labels: tuple[str, ...] = ()
