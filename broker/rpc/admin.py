"""AdminService: who serves which call. The handlers are grouped by what they are about.

    grpcurl -plaintext -d '{"topic": "orders"}' 127.0.0.1:7650 \\
        ledgerfold.v1.AdminService/TriggerCompaction

Answers are those of Pulsar's admin API where it has the call. Compaction and
everything that needs stored data is refused for non-persistent topics (NotAllowed). What changes
something runs to its end, whether its client waits or not.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress

from ledgerfold.broker.rpc.admin_clock import ClockHandlers
from ledgerfold.broker.rpc.admin_compaction import CompactionHandlers
from ledgerfold.broker.rpc.admin_partitions import PartitionedTopicHandlers
from ledgerfold.broker.rpc.admin_policies import PolicyHandlers
from ledgerfold.broker.rpc.admin_subscriptions import SubscriptionHandlers
from ledgerfold.broker.rpc.admin_topics import TopicHandlers
from ledgerfold.broker.rpc.handlers import Handler
from ledgerfold.broker.topics.broker import Broker
from ledgerfold.v1 import admin_pb2
from ledgerfold.version import __version__

# A worker's process, up to where it has looked for Java and PySpark.
_COMPACTOR_KNOWN_SECONDS = 10.0


def admin_calls(broker: Broker) -> dict[str, Handler]:
    """By their names in the wire contract."""
    topics = TopicHandlers(broker)
    partitioned = PartitionedTopicHandlers(broker)
    subscriptions = SubscriptionHandlers(broker)
    policies = PolicyHandlers(broker)
    compaction = CompactionHandlers(broker)
    clock = ClockHandlers(broker)

    async def get_broker_info(
        request: admin_pb2.GetBrokerInfoRequest,
    ) -> admin_pb2.GetBrokerInfoResponse:
        if request.await_compactor:
            with suppress(TimeoutError):
                async with asyncio.timeout(_COMPACTOR_KNOWN_SECONDS):
                    await broker.compactor.known()
        return broker_info(broker)

    return {
        "GetBrokerInfo": get_broker_info,
        "CreateTopic": topics.create,
        "DeleteTopic": topics.delete,
        "ListTopics": topics.list_names,
        "GetTopicStats": topics.stats,
        "GetTopicInternalStats": topics.internal_stats,
        "UnloadTopic": topics.unload,
        "TrimTopic": topics.trim,
        "TruncateTopic": topics.truncate,
        "TerminateTopic": topics.terminate,
        "GetMessageIdByTimestamp": topics.message_id_by_timestamp,
        "CreatePartitionedTopic": partitioned.create,
        "UpdatePartitionedTopic": partitioned.grow,
        "GetPartitionedTopicMetadata": partitioned.metadata,
        "ListPartitionedTopics": partitioned.list_names,
        "DeletePartitionedTopic": partitioned.delete,
        "GetPartitionedTopicStats": partitioned.stats,
        "CreateSubscription": subscriptions.create,
        "ListSubscriptions": subscriptions.list_names,
        "ExpireMessages": subscriptions.expire_messages,
        "ResetCursor": subscriptions.reset_cursor,
        "SkipMessages": subscriptions.skip_messages,
        "ClearBacklog": subscriptions.clear_backlog,
        "GetPolicies": policies.get,
        "UpdatePolicies": policies.update,
        "TriggerCompaction": compaction.trigger,
        "GetCompactionStatus": compaction.status,
        "WatchCompaction": compaction.watch,
        "CancelCompaction": compaction.cancel,
        "ListRuns": compaction.list_runs,
        "Explain": compaction.explain,
        "WhatIf": compaction.what_if,
        "GetClock": clock.get,
        "MoveClock": clock.move,
    }


def broker_info(broker: Broker) -> admin_pb2.GetBrokerInfoResponse:
    settings, compactor, outgoing = broker.settings, broker.compactor, broker.outgoing
    return admin_pb2.GetBrokerInfoResponse(
        version=__version__,
        data_dir=str(settings.data_dir),
        durability=settings.store.durability,
        pid=os.getpid(),
        started_ms=broker.started_ms,
        compactor_state=compactor.state,
        compactor_message=compactor.message,
        compactor_pid=compactor.pid,
        streams=outgoing.streams,
        streams_max=outgoing.streams_max,
        unsent_bytes=outgoing.unsent_bytes,
        unsent_bytes_max=outgoing.bytes_max,
        streams_refused=outgoing.streams_refused,
        streams_ended=outgoing.streams_ended,
    )
