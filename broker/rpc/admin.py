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
from ledgerfold.v1 import admin_pb2
from ledgerfold.v1.admin_pb2_grpc import AdminServiceServicer
from ledgerfold.v1.records_pb2 import RUN_TRIGGER_ADMIN

from broker import __version__, stats
from broker.names import COMPACTION_CURSOR, parse_namespace, persistent_topic
from broker.policy_store import PolicyStore
from broker.rpc.admin_clock import ClockCalls
from broker.rpc.admin_cursors import CursorCalls
from broker.rpc.admin_operations import OperationCalls
from broker.status_map import rpc_errors, rpc_stream_errors
from broker.subscription_factory import create_subscription
from storage.errors import InvalidRequest, NotAllowed, SubscriptionBusy, TopicNotFound

if TYPE_CHECKING:
    from broker.broker import Broker

Context = grpc.aio.ServicerContext[Any, Any]
COMPACTED = "compacted"


class AdminService(ClockCalls, CursorCalls, OperationCalls, AdminServiceServicer):
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._policies = PolicyStore(broker)

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
    async def CreateTopic(  # noqa: N802
        self, request: admin_pb2.CreateTopicRequest, context: Context
    ) -> admin_pb2.CreateTopicResponse:
        await self._broker.create_topic(persistent_topic(request.topic, "created"))
        return admin_pb2.CreateTopicResponse()

    @rpc_errors
    async def DeleteTopic(  # noqa: N802
        self, request: admin_pb2.DeleteTopicRequest, context: Context
    ) -> admin_pb2.DeleteTopicResponse:
        await self._broker.delete_topic(persistent_topic(request.topic), request.force)
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
    async def UnloadTopic(  # noqa: N802
        self, request: admin_pb2.UnloadTopicRequest, context: Context
    ) -> admin_pb2.UnloadTopicResponse:
        await self._broker.unload_topic(self._existing(request.topic))
        return admin_pb2.UnloadTopicResponse()

    @rpc_errors
    async def TrimTopic(  # noqa: N802
        self, request: admin_pb2.TrimTopicRequest, context: Context
    ) -> admin_pb2.TrimTopicResponse:
        topic = await self._broker.topic(persistent_topic(request.topic), create=False)
        return admin_pb2.TrimTopicResponse(ledgers_removed=await topic.trim())

    @rpc_errors
    async def CreateSubscription(  # noqa: N802
        self, request: admin_pb2.CreateSubscriptionRequest, context: Context
    ) -> admin_pb2.CreateSubscriptionResponse:
        name = request.subscription
        if not name:
            raise InvalidRequest("A subscription needs a name.")
        if name == COMPACTION_CURSOR:
            raise NotAllowed(f"{name} is compaction's own. Trigger a compaction instead.")
        topic = await self._broker.topic(persistent_topic(request.topic, "subscribed to"))
        if name in topic.subscriptions:
            raise SubscriptionBusy(topic.name, name, "it exists already.")
        await create_subscription(topic, name, request.start, created_ms=self._broker.clock_ms())
        return admin_pb2.CreateSubscriptionResponse()

    @rpc_errors
    async def ListSubscriptions(  # noqa: N802
        self, request: admin_pb2.ListSubscriptionsRequest, context: Context
    ) -> admin_pb2.ListSubscriptionsResponse:
        topic = await self._broker.topic(persistent_topic(request.topic), create=False)
        names = sorted(topic.subscriptions)
        if topic.record.compaction_cursor:
            names.append(COMPACTION_CURSOR)
        return admin_pb2.ListSubscriptionsResponse(subscriptions=names)

    # Compaction

    @rpc_errors
    async def TriggerCompaction(  # noqa: N802
        self, request: admin_pb2.TriggerCompactionRequest, context: Context
    ) -> admin_pb2.TriggerCompactionResponse:
        name = persistent_topic(request.topic, COMPACTED)
        topic = await self._broker.topic(name, create=False, to_write=True)
        number = await self._broker.compaction.trigger(topic, RUN_TRIGGER_ADMIN)
        return admin_pb2.TriggerCompactionResponse(run_number=number)

    @rpc_errors
    async def GetCompactionStatus(  # noqa: N802
        self, request: admin_pb2.GetCompactionStatusRequest, context: Context
    ) -> admin_pb2.GetCompactionStatusResponse:
        topic = await self._broker.topic(persistent_topic(request.topic, COMPACTED), create=False)
        return self._broker.compaction.status(topic)

    @rpc_stream_errors
    async def WatchCompaction(  # noqa: N802
        self, request: admin_pb2.WatchCompactionRequest, context: Context
    ) -> AsyncIterator[admin_pb2.WatchCompactionResponse]:
        topic = await self._broker.topic(persistent_topic(request.topic, COMPACTED), create=False)
        async for status in self._broker.compaction.watch(topic):
            yield admin_pb2.WatchCompactionResponse(status=status)

    @rpc_errors
    async def CancelCompaction(  # noqa: N802
        self, request: admin_pb2.CancelCompactionRequest, context: Context
    ) -> admin_pb2.CancelCompactionResponse:
        number = await self._broker.compaction.cancel(self._existing(request.topic))
        return admin_pb2.CancelCompactionResponse(run_number=number)

    @rpc_errors
    async def ListRuns(  # noqa: N802
        self, request: admin_pb2.ListRunsRequest, context: Context
    ) -> admin_pb2.ListRunsResponse:
        if request.limit < 0:
            raise InvalidRequest(f"A limit of {request.limit}; 0 means all.")
        topic = self._existing(request.topic) if request.topic else None
        runs = self._broker.compaction.history.runs(topic, request.limit)
        return admin_pb2.ListRunsResponse(runs=runs)

    # Policies

    @rpc_errors
    async def GetPolicies(  # noqa: N802
        self, request: admin_pb2.GetPoliciesRequest, context: Context
    ) -> admin_pb2.GetPoliciesResponse:
        kind, name = _scope(request.scope)
        of = self._policies.of_topic if kind == "topic" else self._policies.of_namespace
        return admin_pb2.GetPoliciesResponse(policies=of(name, applied=request.applied))

    @rpc_errors
    async def UpdatePolicies(  # noqa: N802
        self, request: admin_pb2.UpdatePoliciesRequest, context: Context
    ) -> admin_pb2.UpdatePoliciesResponse:
        kind, name = _scope(request.scope)
        if kind == "topic":
            topic = await self._broker.topic(name, create=False)
            await self._policies.update_topic(topic, request.set, request.remove)
        else:
            await self._policies.update_namespace(name, request.set, request.remove)
        return admin_pb2.UpdatePoliciesResponse()

    def _existing(self, name: str) -> str:
        """The full name of a topic that exists, loaded or not. Raises TopicNotFound, NotAllowed."""
        full = persistent_topic(name, COMPACTED)
        if self._broker.metadata.topic(full) is None:
            raise TopicNotFound(full)
        return full


def _scope(scope: admin_pb2.PolicyScope) -> tuple[str, str]:
    kind = scope.WhichOneof("scope")
    if kind == "topic":
        return kind, persistent_topic(scope.topic)
    if kind == "namespace":
        return kind, parse_namespace(scope.namespace)
    raise InvalidRequest("Say whose policies: a topic's or a namespace's.")
