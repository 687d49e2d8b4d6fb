"""AdminService: the handler of each call, grouped by subject.

  grpcurl -plaintext -d '{"topic": "orders"}' 127.0.0.1:7650 \\
      ledgerfold.v1.AdminService/TriggerCompaction

Answers are those of Pulsar's admin API if it has the call. Compaction and all calls that need
stored data are refused for non-persistent topics (NotAllowed). Calls that change something run to
completion, even if their client disconnects.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress

from ledgerfold.broker.common.names import parse_namespace, persistent_topic
from ledgerfold.broker.common.shielding import runs_to_completion
from ledgerfold.broker.rpc.admin_compaction import CompactionHandlers
from ledgerfold.broker.rpc.admin_namespaces import NamespaceHandlers, PermissionHandlers
from ledgerfold.broker.rpc.admin_partitions import PartitionedTopicHandlers
from ledgerfold.broker.rpc.admin_properties import PropertyHandlers
from ledgerfold.broker.rpc.admin_schemas import SchemaHandlers
from ledgerfold.broker.rpc.admin_state import FaultHandlers, StateHandlers
from ledgerfold.broker.rpc.admin_subscriptions import SubscriptionHandlers
from ledgerfold.broker.rpc.admin_topics import MessageHandlers, TopicHandlers
from ledgerfold.broker.rpc.handlers import Handler, Handlers, calls_of
from ledgerfold.broker.topics.broker import Broker
from ledgerfold.storage.errors import InvalidRequest, NotAllowed
from ledgerfold.v1 import admin_pb2
from ledgerfold.version import __version__

# The limit for a worker's process to look for Java and PySpark.
_COMPACTOR_KNOWN_SECONDS = 10.0


def admin_calls(broker: Broker) -> dict[str, Handler]:
    """Returns the handlers by their names in the wire contract."""
    return calls_of(
        TopicHandlers(broker),
        MessageHandlers(broker),
        PartitionedTopicHandlers(broker),
        SubscriptionHandlers(broker),
        PropertyHandlers(broker),
        NamespaceHandlers(broker),
        PermissionHandlers(broker),
        PolicyHandlers(broker),
        SchemaHandlers(broker),
        CompactionHandlers(broker),
        BrokerHandlers(broker),
        StateHandlers(broker),
        FaultHandlers(broker),
    )


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


class BrokerHandlers(Handlers):
    """The calls about the broker itself, and about its clock (broker/common/clock.py)."""

    async def info(
        self, request: admin_pb2.GetBrokerInfoRequest
    ) -> admin_pb2.GetBrokerInfoResponse:
        if request.await_compactor:
            with suppress(TimeoutError):
                async with asyncio.timeout(_COMPACTOR_KNOWN_SECONDS):
                    await self._broker.compactor.known()
        return broker_info(self._broker)

    async def get(self, request: admin_pb2.GetClockRequest) -> admin_pb2.GetClockResponse:
        return admin_pb2.GetClockResponse(
            now_ms=self._broker.clock_ms(), is_manual=self._broker.manual_clock is not None
        )

    @runs_to_completion
    async def move(self, request: admin_pb2.MoveClockRequest) -> admin_pb2.MoveClockResponse:
        clock = self._broker.manual_clock
        if clock is None:
            raise NotAllowed("The broker uses the machine's clock. Start it with --test-clock.")
        move = request.WhichOneof("move")
        if move is None:
            raise InvalidRequest("Name the time to set the clock to, or the time to advance it by.")
        to_ms = request.to_ms if move == "to_ms" else clock.now_ms() + request.advance_ms
        await clock.move_to(to_ms)
        await self._broker.housekeeping.check_all()
        return admin_pb2.MoveClockResponse(now_ms=clock.now_ms())


class PolicyHandlers(Handlers):
    """The calls that read and set policies (broker/topics/policy_store.py)."""

    async def get(self, request: admin_pb2.GetPoliciesRequest) -> admin_pb2.GetPoliciesResponse:
        kind, name = _scope(request.scope)
        policies = self._broker.policies
        of = policies.of_topic if kind == "topic" else policies.of_namespace
        return admin_pb2.GetPoliciesResponse(policies=of(name, applied=request.applied))

    @runs_to_completion
    async def update(self, request: admin_pb2.UpdatePoliciesRequest) -> None:
        kind, name = _scope(request.scope)
        if kind == "topic" and self._broker.partitions.count(name):
            await self._broker.policies.update_partitioned_topic(name, request.set, request.remove)
        elif kind == "topic":
            topic = await self._broker.topic(name, create=False)
            await self._broker.policies.update_topic(topic, request.set, request.remove)
        else:
            await self._broker.policies.update_namespace(name, request.set, request.remove)


def _scope(scope: admin_pb2.PolicyScope) -> tuple[str, str]:
    kind = scope.WhichOneof("scope")
    if kind == "topic":
        return kind, persistent_topic(scope.topic)
    if kind == "namespace":
        return kind, parse_namespace(scope.namespace)
    raise InvalidRequest("Name a topic or a namespace.")
