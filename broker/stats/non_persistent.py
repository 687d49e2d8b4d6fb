"""The stats of a non-persistent topic, with the field names of Pulsar's `topics stats`.

Fields without a meaning in this broker are omitted; those that need stored messages are 0. Dropped
messages are counted for each subscription: `msgDropRate` is Pulsar's, in messages per second over
the last whole minute; `msgDropCounter` is not Pulsar's: their number since the subscription began.
Sources: Pulsar's NonPersistentTopicStatsImpl and NonPersistentSubscriptionStatsImpl.
"""

from __future__ import annotations

from typing import Any

from ledgerfold.broker.common.given_names import shown
from ledgerfold.broker.stats.subscription import (
    counters,
    describe_consumers,
    traffic_of,
)
from ledgerfold.broker.subscriptions.non_persistent import NonPersistentSubscription
from ledgerfold.broker.topics.non_persistent_topic import NonPersistentTopic


def non_persistent_stats(topic: NonPersistentTopic) -> dict[str, Any]:
    """Returns Pulsar's `topics stats`. Counters start with the topic."""
    now_ms = topic.clock.now_ms()
    subscriptions = {
        shown(name): _describe(each, now_ms) for name, each in topic.subscriptions.items()
    }
    return {
        **counters(topic),
        "storageSize": 0,
        "backlogSize": 0,
        "msgDropRate": sum(each["msgDropRate"] for each in subscriptions.values()),
        "msgDropCounter": sum(each["msgDropCounter"] for each in subscriptions.values()),
        "publishers": [
            # Every message that a producer sends is accepted.
            {
                "producerName": name,
                "accessMode": each.claim.mode,
                "msgDropRate": 0.0,
                **each.peer.stats(),
            }
            for name, each in topic.producers.items()
        ],
        "subscriptions": subscriptions,
        "deduplicationStatus": "Disabled",
    }


def _describe(subscription: NonPersistentSubscription, now_ms: int) -> dict[str, Any]:
    dropped = subscription.dropped
    return {
        "msgBacklog": 0,
        "unackedMessages": 0,
        **traffic_of(subscription).stats(),
        "msgDropRate": dropped.per_second(now_ms),
        "msgDropCounter": dropped.total,
        "isDurable": subscription.is_durable,
        **describe_consumers(subscription),
    }


def non_persistent_internal_stats(topic: NonPersistentTopic) -> dict[str, Any]:
    """Returns Pulsar's `topics stats-internal`: there are no ledgers."""
    return {
        "entriesAddedCounter": topic.entries_in,
        "numberOfEntries": 0,
        "totalSize": 0,
        "currentLedgerEntries": 0,
        "currentLedgerSize": 0,
        "ledgers": [],
        "cursors": {
            shown(name): {"active": bool(each.consumers), "properties": {}}
            for name, each in topic.subscriptions.items()
        },
    }
