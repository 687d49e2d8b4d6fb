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
        "Raw entries that are not acknowledged.",
        "msgBacklog",
    ),
    _subscription(
        "pulsar_subscription_back_log_no_delayed",
        GAUGE,
        "entries",
        "The same: no message is ever delayed.",
        "msgBacklogNoDelayed",
    ),
    _subscription(
        "pulsar_subscription_unacked_messages",
        GAUGE,
        "messages",
        "Delivered and not acknowledged, of Shared and Key_Shared subscriptions.",
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
        "When a consumer last acknowledged; 0 when none did.",
        "lastAckedTimestamp",
    ),
    _subscription(
        "pulsar_subscription_last_consumed_timestamp",
        GAUGE,
        "milliseconds since the epoch",
        "When a message was last delivered; 0 when none was.",
        "lastConsumedTimestamp",
    ),
    _subscription(
        "pulsar_subscription_last_expire_timestamp",
        GAUGE,
        "milliseconds since the epoch",
        "When messages were last looked at for expiry; 0 when they never were.",
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
