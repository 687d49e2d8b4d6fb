"""What a subscription says of itself, with Pulsar's field names.

Source: Pulsar's SubscriptionStatsImpl, ConsumerStatsImpl and CursorStats, as far as the fields
exist here. Unacknowledged messages are counted for Shared and Key_Shared only, as in Pulsar.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from broker.consumer import Consumer
    from broker.subscription import Subscription


def backlog_entries(subscription: Subscription) -> int:
    """Raw entries behind the mark-delete that are not acknowledged."""
    log, cursor = subscription.log, subscription.cursor
    behind = log.entries_between(cursor.mark_delete, log.last_position())
    return behind - sum(log.entries_between(after, upto) for after, upto in cursor.ranges)


def describe(subscription: Subscription) -> dict[str, Any]:
    consumers = subscription.consumers
    active = subscription.active_consumer
    stats: dict[str, Any] = {
        "msgBacklog": backlog_entries(subscription),
        "unackedMessages": sum(each.state.unacked_messages for each in consumers),
        "msgOutCounter": subscription.messages_out_before + sum(c.messages_out for c in consumers),
        "bytesOutCounter": subscription.bytes_out_before + sum(c.bytes_out for c in consumers),
        "isDurable": subscription.is_durable,
        "consumers": [_describe_consumer(each) for each in consumers],
    }
    if subscription.type is not None:
        stats["type"] = str(subscription.type)
    if active is not None:
        stats["activeConsumerName"] = active.name
    return stats


def _describe_consumer(consumer: Consumer) -> dict[str, Any]:
    return {
        "consumerName": consumer.name,
        "availablePermits": consumer.state.permits,
        "unackedMessages": consumer.state.unacked_messages,
        "msgOutCounter": consumer.messages_out,
        "bytesOutCounter": consumer.bytes_out,
        "readCompacted": consumer.read_compacted,
    }


def describe_cursor(subscription: Subscription) -> dict[str, Any]:
    cursor = subscription.cursor
    ranges = ",".join(map(str, cursor.ranges))
    return {
        "markDeletePosition": str(cursor.mark_delete),
        "readPosition": str(subscription.read_position),
        "individuallyDeletedMessages": f"[{ranges}]",
        "totalNonContiguousDeletedMessagesRange": cursor.range_count,
        "state": "Open",
    }
