"""The metrics of each subscription, and the stats field of each metric."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ledgerfold.broker.metrics.metric import COUNTER, GAUGE, SUBSCRIPTION_LABELS, Metric, Stats


@dataclass(frozen=True, slots=True)
class SubscriptionMetric:
    """A metric with one sample per subscription; `read` gets its block of the topic's stats."""

    metric: Metric
    read: Callable[[Stats], float]


def _subscription(name: str, kind: str, unit: str, help: str, field: str) -> SubscriptionMetric:
    """Declares a metric read from the stats field `field`; 0 if that is missing."""
    metric = Metric(name, kind, unit, help, SUBSCRIPTION_LABELS)
    return SubscriptionMetric(metric, lambda stats: stats.get(field, 0))


SUBSCRIPTION_METRICS = (
    _subscription(
        "pulsar_subscription_back_log",
        GAUGE,
        "entries",
        "Unacknowledged raw entries.",
        "msgBacklog",
    ),
    _subscription(
        "pulsar_subscription_back_log_no_delayed",
        GAUGE,
        "entries",
        "The same without those that are delayed.",
        "msgBacklogNoDelayed",
    ),
    _subscription(
        "pulsar_subscription_unacked_messages",
        GAUGE,
        "messages",
        "Delivered and not acknowledged, for Shared and Key_Shared subscriptions.",
        "unackedMessages",
    ),
    _subscription(
        "pulsar_out_messages_total",
        COUNTER,
        "messages",
        "Delivered since the topic was loaded.",
        "msgOutCounter",
    ),
    _subscription(
        "pulsar_out_bytes_total",
        COUNTER,
        "bytes",
        "Delivered since the topic was loaded.",
        "bytesOutCounter",
    ),
    _subscription(
        "pulsar_subscription_last_acked_timestamp",
        GAUGE,
        "milliseconds since the epoch",
        "Time of the last acknowledgement; 0 if there was none.",
        "lastAckedTimestamp",
    ),
    _subscription(
        "pulsar_subscription_last_consumed_timestamp",
        GAUGE,
        "milliseconds since the epoch",
        "Time of the last delivery; 0 if there was none.",
        "lastConsumedTimestamp",
    ),
    _subscription(
        "pulsar_subscription_last_expire_timestamp",
        GAUGE,
        "milliseconds since the epoch",
        "Time of the last expiry check; 0 if there was none.",
        "lastExpireTimestamp",
    ),
    _subscription(
        "pulsar_subscription_total_msg_expired",
        GAUGE,
        "entries",
        "Expired since the topic was loaded.",
        "totalMsgExpired",
    ),
)
