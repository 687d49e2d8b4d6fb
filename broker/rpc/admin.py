"""AdminService: topics, policies, compaction, runs.

    grpcurl -plaintext -d '{"topic": "orders"}' 127.0.0.1:7650 \\
        ledgerfold.v1.AdminService/TriggerCompaction

Answers are those of Pulsar's admin API where it has the call (reference section 17). Compaction and
everything that needs stored data is refused for non-persistent topics (NotAllowed).
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import grpc

from ledgerfold.broker.explain.scan import Explainer
from ledgerfold.broker.ground.names import COMPACTION_CURSOR, parse_namespace, persistent_topic
from ledgerfold.broker.ground.uncancelled import runs_to_its_end
from ledgerfold.broker.rpc.admin_clock import ClockCalls
from ledgerfold.broker.rpc.admin_cursors import CursorCalls
from ledgerfold.broker.rpc.admin_operations import OperationCalls
from ledgerfold.broker.rpc.partitions import PartitionCalls
from ledgerfold.broker.stats import topic as stats
from ledgerfold.broker.subscriptions.lifecycle import create_subscription
from ledgerfold.broker.topics.freeing import freeing
from ledgerfold.broker.topics.partitioned_compaction import PartitionedCompaction
from ledgerfold.broker.topics.policy_store import PolicyStore
from ledgerfold.broker.wire.errors import rpc_errors, rpc_stream_errors
from ledgerfold.storage.errors import (
    InvalidRequest,
    NotAllowed,
    SubscriptionExists,
    TopicIsPartitioned,
    TopicNotFound,
)
from ledgerfold.v1 import admin_pb2, explain_pb2
from ledgerfold.version import __version__

if TYPE_CHECKING:
    from ledgerfold.broker.topics.broker import Broker
    from ledgerfold.broker.topics.topic import Topic

Context = grpc.aio.ServicerContext[Any, Any]
COMPACTED = "compacted"


class AdminService(ClockCalls, CursorCalls, OperationCalls, PartitionCalls):
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._policies = PolicyStore(broker)
        self._compaction = PartitionedCompaction(broker)
        self._explainer = Explainer(broker)

    @rpc_errors
    async def GetBrokerInfo(  # noqa: N802
        self, request: admin_pb2.GetBrokerInfoRequest, context: Context
    ) -> admin_pb2.GetBrokerInfoResponse:
        settings, compactor = self._broker.settings, self._broker.compactor
        return admin_pb2.GetBrokerInfoResponse(
            version=__version__,
            data_dir=str(settings.data_dir),
            durability=settings.store.durability,
            pid=os.getpid(),
            started_ms=self._broker.started_ms,
            compactor_state=compactor.state,
            compactor_message=compactor.message,
            compactor_pid=compactor.pid,
        )

    # Topics and subscriptions

    @rpc_errors
    @runs_to_its_end
    async def CreateTopic(  # noqa: N802
        self, request: admin_pb2.CreateTopicRequest, context: Context
    ) -> admin_pb2.CreateTopicResponse:
        await self._broker.create_topic(persistent_topic(request.topic, "created"))
        return admin_pb2.CreateTopicResponse()

    @rpc_errors
    @runs_to_its_end
    async def DeleteTopic(  # noqa: N802
        self, request: admin_pb2.DeleteTopicRequest, context: Context
    ) -> admin_pb2.DeleteTopicResponse:
        name, force = persistent_topic(request.topic), request.force
        await freeing(self._broker.store, lambda: self._broker.delete_topic(name, force))
        return admin_pb2.DeleteTopicResponse()

    @rpc_errors
    async def ListTopics(  # noqa: N802
        self, request: admin_pb2.ListTopicsRequest, context: Context
    ) -> admin_pb2.ListTopicsResponse:
        namespace = parse_namespace(request.namespace) if request.namespace else ""
        return admin_pb2.ListTopicsResponse(topics=self._broker.list_topics(namespace))

    @rpc_errors
    async def GetTopicStats(  # noqa: N802
        self, request: admin_pb2.GetTopicStatsRequest, context: Context
    ) -> admin_pb2.GetTopicStatsResponse:
        topic = await self._broker.topic(persistent_topic(request.topic), create=False)
        compaction = self._broker.compaction.stats(topic)
        document = stats.topic_stats(topic, compaction)
        return admin_pb2.GetTopicStatsResponse(json=json.dumps(document))

    @rpc_errors
    async def GetTopicInternalStats(  # noqa: N802
        self, request: admin_pb2.GetTopicInternalStatsRequest, context: Context
    ) -> admin_pb2.GetTopicInternalStatsResponse:
        topic = await self._broker.topic(persistent_topic(request.topic), create=False)
        document = stats.internal_stats(self._broker, topic)
        return admin_pb2.GetTopicInternalStatsResponse(json=json.dumps(document))

    @rpc_errors
    @runs_to_its_end
    async def UnloadTopic(  # noqa: N802
        self, request: admin_pb2.UnloadTopicRequest, context: Context
    ) -> admin_pb2.UnloadTopicResponse:
        for name in self._existing(request.topic):
            await self._broker.unload_topic(name)
        return admin_pb2.UnloadTopicResponse()

    @rpc_errors
    @runs_to_its_end
    async def TrimTopic(  # noqa: N802
        self, request: admin_pb2.TrimTopicRequest, context: Context
    ) -> admin_pb2.TrimTopicResponse:
        removed = [await topic.trim() for topic in await self._topics(request.topic)]
        return admin_pb2.TrimTopicResponse(ledgers_removed=sum(removed))

    @rpc_errors
    @runs_to_its_end
    async def CreateSubscription(  # noqa: N802
        self, request: admin_pb2.CreateSubscriptionRequest, context: Context
    ) -> admin_pb2.CreateSubscriptionResponse:
        name = request.subscription
        if not name:
            raise InvalidRequest("A subscription needs a name.")
        if name == COMPACTION_CURSOR:
            raise NotAllowed(f"{name} is compaction's own. Trigger a compaction instead.")
        full = persistent_topic(request.topic, "subscribed to")
        topics = [await self._broker.topic(each) for each in self._broker.partitions.names(full)]
        if all(name in topic.subscriptions for topic in topics):
            raise SubscriptionExists(full, name)
        now_ms = self._broker.clock_ms()
        for topic in topics:
            await create_subscription(topic, name, request.start, created_ms=now_ms)
        return admin_pb2.CreateSubscriptionResponse()

    @rpc_errors
    async def ListSubscriptions(  # noqa: N802
        self, request: admin_pb2.ListSubscriptionsRequest, context: Context
    ) -> admin_pb2.ListSubscriptionsResponse:
        topics = await self._topics(request.topic)
        names = sorted({name for topic in topics for name in topic.subscriptions})
        if any(topic.record.compaction_cursor for topic in topics):
            names.append(COMPACTION_CURSOR)
        return admin_pb2.ListSubscriptionsResponse(subscriptions=names)

    # Compaction

    @rpc_errors
    @runs_to_its_end
    async def TriggerCompaction(  # noqa: N802
        self, request: admin_pb2.TriggerCompactionRequest, context: Context
    ) -> admin_pb2.TriggerCompactionResponse:
        number = await self._compaction.trigger(persistent_topic(request.topic, COMPACTED))
        return admin_pb2.TriggerCompactionResponse(run_number=number)

    @rpc_errors
    async def GetCompactionStatus(  # noqa: N802
        self, request: admin_pb2.GetCompactionStatusRequest, context: Context
    ) -> admin_pb2.GetCompactionStatusResponse:
        name = persistent_topic(request.topic, COMPACTED)
        if count := self._broker.partitions.count(name):
            applied = self._policies.of_topic(name, applied=True)
            if not applied.emulation.partitioned_status:
                raise TopicIsPartitioned(name, count)
        return await self._compaction.status(name)

    @rpc_stream_errors
    async def WatchCompaction(  # noqa: N802
        self, request: admin_pb2.WatchCompactionRequest, context: Context
    ) -> AsyncIterator[admin_pb2.WatchCompactionResponse]:
        name = persistent_topic(request.topic, COMPACTED)
        async for status in self._compaction.watch(name):
            yield admin_pb2.WatchCompactionResponse(status=status)

    @rpc_errors
    @runs_to_its_end
    async def CancelCompaction(  # noqa: N802
        self, request: admin_pb2.CancelCompactionRequest, context: Context
    ) -> admin_pb2.CancelCompactionResponse:
        number = await self._compaction.cancel(self._existing(request.topic))
        return admin_pb2.CancelCompactionResponse(run_number=number)

    @rpc_errors
    async def ListRuns(  # noqa: N802
        self, request: admin_pb2.ListRunsRequest, context: Context
    ) -> admin_pb2.ListRunsResponse:
        if request.limit < 0:
            raise InvalidRequest(f"A limit of {request.limit}; 0 means all.")
        topics = self._existing(request.topic) if request.topic else []
        runs = self._broker.compaction.history.runs(*topics, limit=request.limit)
        return admin_pb2.ListRunsResponse(runs=runs)

    @rpc_errors
    async def Explain(  # noqa: N802
        self, request: explain_pb2.ExplainRequest, context: Context
    ) -> explain_pb2.ExplainResponse:
        if request.HasField("message_id"):
            name = persistent_topic(request.topic, COMPACTED)
            topics = [await self._broker.topic(name, create=False)]
        else:
            topics = await self._topics(request.topic)
        return await self._explainer.explain(topics, request)

    # Policies

    @rpc_errors
    async def GetPolicies(  # noqa: N802
        self, request: admin_pb2.GetPoliciesRequest, context: Context
    ) -> admin_pb2.GetPoliciesResponse:
        kind, name = _scope(request.scope)
        of = self._policies.of_topic if kind == "topic" else self._policies.of_namespace
        return admin_pb2.GetPoliciesResponse(policies=of(name, applied=request.applied))

    @rpc_errors
    @runs_to_its_end
    async def UpdatePolicies(  # noqa: N802
        self, request: admin_pb2.UpdatePoliciesRequest, context: Context
    ) -> admin_pb2.UpdatePoliciesResponse:
        kind, name = _scope(request.scope)
        if kind == "topic" and self._broker.partitions.count(name):
            await self._policies.update_partitioned_topic(name, request.set, request.remove)
        elif kind == "topic":
            topic = await self._broker.topic(name, create=False)
            await self._policies.update_topic(topic, request.set, request.remove)
        else:
            await self._policies.update_namespace(name, request.set, request.remove)
        return admin_pb2.UpdatePoliciesResponse()

    def _existing(self, name: str) -> list[str]:
        """The full name of a topic that exists, or of its partitions, loaded or not.

        Raises TopicNotFound, NotAllowed.
        """
        names = self._broker.partitions.names(persistent_topic(name, COMPACTED))
        for each in names:
            if self._broker.metadata.topic(each) is None:
                raise TopicNotFound(each)
        return names

    async def _topics(self, name: str) -> list[Topic]:
        """The same, loaded."""
        return [await self._broker.topic(each, create=False) for each in self._existing(name)]


def _scope(scope: admin_pb2.PolicyScope) -> tuple[str, str]:
    kind = scope.WhichOneof("scope")
    if kind == "topic":
        return kind, persistent_topic(scope.topic)
    if kind == "namespace":
        return kind, parse_namespace(scope.namespace)
    raise InvalidRequest("Say whose policies: a topic's or a namespace's.")
