"""The metrics of each subscription, and the stats field of each metric."""

from __future__ import annotations

from ledgerfold.broker.metrics.metric import (
    COUNTER,
    GAUGE,
    SUBSCRIPTION_LABELS,
    Metric,
    Sampled,
    Stats,
)


def _subscription(
    name: str, help: str, field: str, unit: str = "", kind: str = GAUGE
) -> Sampled[Stats, float]:
    """Declares a metric read from the stats field `field`; 0 if that is missing."""
    metric = Metric(name, help, unit, kind, SUBSCRIPTION_LABELS)
    return Sampled(metric, lambda stats: stats.get(field, 0))


# One sample per subscription, read from its block of the topic's stats.
SUBSCRIPTION_METRICS = (
    _subscription(
        "pulsar_subscription_back_log", "Unacknowledged raw entries.", "msgBacklog", "entries"
    ),
    _subscription(
        "pulsar_subscription_back_log_no_delayed",
        "The same without those that are delayed.",
        "msgBacklogNoDelayed",
        "entries",
    ),
    _subscription(
        "pulsar_subscription_unacked_messages",
        "Delivered and not acknowledged, for Shared and Key_Shared subscriptions.",
        "unackedMessages",
        "messages",
    ),
    _subscription(
        "pulsar_out_messages_total",
        "Delivered since the topic was loaded.",
        "msgOutCounter",
        "messages",
        kind=COUNTER,
    ),
    _subscription(
        "pulsar_out_bytes_total",
        "Delivered since the topic was loaded.",
        "bytesOutCounter",
        "bytes",
        kind=COUNTER,
    ),
    _subscription(
        "pulsar_subscription_last_acked_timestamp",
        "Time of the last acknowledgement; 0 if there was none.",
        "lastAckedTimestamp",
        "milliseconds since the epoch",
    ),
    _subscription(
        "pulsar_subscription_last_consumed_timestamp",
        "Time of the last delivery; 0 if there was none.",
        "lastConsumedTimestamp",
        "milliseconds since the epoch",
    ),
    _subscription(
        "pulsar_subscription_last_expire_timestamp",
        "Time of the last expiry check; 0 if there was none.",
        "lastExpireTimestamp",
        "milliseconds since the epoch",
    ),
    _subscription(
        "pulsar_subscription_total_msg_expired",
        "Expired since the topic was loaded.",
        "totalMsgExpired",
        "entries",
    ),
)
