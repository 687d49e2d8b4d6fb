"""The stats of subscriptions and readers, with Pulsar's field names.

Source: Pulsar's SubscriptionStatsImpl, ConsumerStatsImpl and CursorStats, as far as the fields
exist here; broker/stats/topic.py adds the size of the backlog. Unacknowledged messages are counted
for Shared and Key_Shared only, as in Pulsar. A reader is shown as in Pulsar: as a non-durable
subscription with one consumer. `unsentBytes` is not Pulsar's: bytes read for a consumer or reader
and not sent yet (broker/common/outgoing.py).
"""

from __future__ import annotations

from typing import Any

from ledgerfold.broker.common.traffic import Peer, Traffic
from ledgerfold.broker.log.backlog import LedgerSums
from ledgerfold.broker.log.log import TopicLog
from ledgerfold.broker.subscriptions.consumer import Consumer
from ledgerfold.broker.subscriptions.key_shared import KeySharedDispatcher
from ledgerfold.broker.subscriptions.non_persistent import NonPersistentSubscription
from ledgerfold.broker.subscriptions.subscription import Subscription
from ledgerfold.broker.topics.loaded_topic import ServedTopic
from ledgerfold.broker.topics.reader import Reader
from ledgerfold.storage.entry import Position


def describe(subscription: Subscription, sums: LedgerSums | None = None) -> dict[str, Any]:
    consumers, backlog = subscription.consumers, subscription.backlog_entries(sums)
    dispatcher = subscription.dispatcher
    delayed = 0 if dispatcher is None else dispatcher.delayed
    return {
        "msgBacklog": backlog,
        "msgBacklogNoDelayed": max(0, backlog - delayed),
        "msgDelayed": delayed,
        "msgInReplay": 0 if dispatcher is None else dispatcher.waiting,
        "blockedSubscriptionOnUnackedMsgs": dispatcher is not None and dispatcher.is_blocked,
        "unackedMessages": sum(each.state.unacked_messages for each in consumers),
        **traffic_of(subscription).stats(),
        "totalMsgExpired": subscription.entries_expired,
        "lastExpireTimestamp": subscription.expired_ms,
        "lastMarkDeleteAdvancedTimestamp": subscription.recorded.advanced_ms,
        "isDurable": subscription.is_durable,
        "subscriptionProperties": dict(subscription.recorded.properties),
        "nonContiguousDeletedMessagesRanges": subscription.cursor.range_count,
        **describe_consumers(subscription),
    }


def counters(topic: ServedTopic) -> dict[str, Any]:
    """Returns what topics of all kinds count. Averages are over all messages since the load."""
    return {
        "msgInCounter": topic.messages_in,
        "bytesInCounter": topic.bytes_in,
        "averageMsgSize": topic.bytes_in / topic.messages_in if topic.messages_in else 0.0,
        "msgOutCounter": topic.messages_out,
        "bytesOutCounter": topic.bytes_out,
    }


def traffic_of(subscription: Subscription | NonPersistentSubscription) -> Traffic:
    """Returns the traffic to all consumers, including disconnected ones."""
    traffic = subscription.traffic_before
    for consumer in subscription.consumers:
        traffic = traffic.plus(consumer.traffic)
    return traffic


def describe_consumers(subscription: Subscription | NonPersistentSubscription) -> dict[str, Any]:
    """Describes the connected consumers, with the active one, if there is.

    As in Pulsar, the type is that of the last ones; None if there were none since the load.
    """
    consumers = [describe_consumer(each) for each in subscription.consumers]
    stats: dict[str, Any] = {"consumers": consumers, "type": str(subscription.last_type)}
    dispatcher = subscription.dispatcher
    if isinstance(dispatcher, KeySharedDispatcher):
        stats["keySharedMode"] = "STICKY" if dispatcher.policy.is_sticky else "AUTO_SPLIT"
        stats["allowOutOfOrderDelivery"] = dispatcher.policy.allows_out_of_order
        ranges = dispatcher.ranges()
        for consumer, shown in zip(subscription.consumers, consumers, strict=True):
            shown["keyHashRangeArrays"] = ranges.get(consumer.state.number, [])
    if subscription.active_consumer is not None:
        stats["activeConsumerName"] = subscription.active_consumer.name
    return stats


def describe_consumer(consumer: Consumer) -> dict[str, Any]:
    return {
        "consumerName": consumer.name,
        "availablePermits": consumer.state.permits,
        "unackedMessages": consumer.state.unacked_messages,
        "blockedConsumerOnUnackedMsgs": consumer.state.is_blocked,
        "readCompacted": consumer.read_compacted,
        "unsentBytes": consumer.share.size_bytes,
        **_of_stream(consumer.traffic, consumer.peer),
    }


def _of_stream(traffic: Traffic, peer: Peer) -> dict[str, Any]:
    average = round(traffic.messages / traffic.entries) if traffic.entries else 0
    return {"avgMessagesPerEntry": average, **traffic.stats(), **peer.stats()}


def describe_cursor(subscription: Subscription) -> dict[str, Any]:
    cursor, is_active = subscription.cursor, bool(subscription.consumers)
    position = subscription.read_position
    return cursor_stats(subscription.log, cursor.mark_delete, position, is_active=is_active) | {
        "individuallyDeletedMessages": f"[{','.join(map(str, cursor.ranges))}]",
        "totalNonContiguousDeletedMessagesRange": cursor.range_count,
    }


def describe_reader(reader: Reader) -> dict[str, Any]:
    """Describes a reader as a subscription. Its backlog starts at its read position."""
    backlog = reader.log.ledgers.entries_between(_mark_delete(reader), reader.log.positions.last())
    consumer = {
        "consumerName": reader.name,
        "availablePermits": reader.permits,
        "unackedMessages": 0,
        "readCompacted": reader.read_compacted,
        "unsentBytes": reader.share.size_bytes,
        **_of_stream(reader.traffic, reader.peer),
    }
    return {
        "msgBacklog": backlog,
        "msgBacklogNoDelayed": backlog,
        "unackedMessages": 0,
        **reader.traffic.stats(),
        "isDurable": False,
        "nonContiguousDeletedMessagesRanges": 0,
        "consumers": [consumer],
        "type": "Exclusive",
        "activeConsumerName": reader.name,
    }


def describe_reader_cursor(reader: Reader) -> dict[str, Any]:
    mark_delete = _mark_delete(reader)
    return cursor_stats(reader.log, mark_delete, reader.read_position, is_active=True)


def _mark_delete(reader: Reader) -> Position:
    return reader.log.positions.previous(reader.read_position)


def cursor_stats(
    log: TopicLog, mark_delete: Position, read_position: Position, *, is_active: bool
) -> dict[str, Any]:
    """Describes a cursor that has not acknowledged anything after its mark-delete."""
    # Pulsar counts from the mark-delete to the read position, which it includes.
    unread = log.ledgers.entries_between(mark_delete, log.positions.previous(read_position)) + 1
    return {
        "markDeletePosition": str(_in_ledgers(log, mark_delete, -1)),
        "readPosition": str(_in_ledgers(log, read_position, 0)),
        "numberOfEntriesSinceFirstNotAckedMessage": unread,
        "individuallyDeletedMessages": "[]",
        "totalNonContiguousDeletedMessagesRange": 0,
        "active": is_active,
        "state": "Open",
        "properties": {},
    }


def _in_ledgers(log: TopicLog, position: Position, entry_id_first: int) -> Position:
    """Clamps a position to the first ledger, where Pulsar's cursors begin."""
    ledger_ids = log.ledgers.ids
    is_before = position.ledger_id < 0 and bool(ledger_ids)
    return Position(ledger_ids[0], entry_id_first) if is_before else position
