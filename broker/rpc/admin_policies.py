"""The calls of AdminService that read and set policies (broker/topics/policy_store.py)."""

from __future__ import annotations

from ledgerfold.broker.common.given_names import check_namespace
from ledgerfold.broker.common.names import parse_namespace, persistent_topic
from ledgerfold.broker.common.shielding import runs_to_completion
from ledgerfold.broker.topics.broker import Broker
from ledgerfold.storage.errors import InvalidRequest
from ledgerfold.v1 import admin_pb2


class PolicyHandlers:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._policies = broker.policies

    async def get(self, request: admin_pb2.GetPoliciesRequest) -> admin_pb2.GetPoliciesResponse:
        kind, name = _scope(request.scope)
        of = self._policies.of_topic if kind == "topic" else self._policies.of_namespace
        return admin_pb2.GetPoliciesResponse(policies=of(name, applied=request.applied))

    @runs_to_completion
    async def update(
        self, request: admin_pb2.UpdatePoliciesRequest
    ) -> admin_pb2.UpdatePoliciesResponse:
        kind, name = _scope(request.scope)
        if kind == "namespace" and self._broker.metadata.namespace(name) is None:
            check_namespace(name)
        if kind == "topic" and self._broker.partitions.count(name):
            await self._policies.update_partitioned_topic(name, request.set, request.remove)
        elif kind == "topic":
            topic = await self._broker.topic(name, create=False)
            await self._policies.update_topic(topic, request.set, request.remove)
        else:
            await self._policies.update_namespace(name, request.set, request.remove)
        return admin_pb2.UpdatePoliciesResponse()


def _scope(scope: admin_pb2.PolicyScope) -> tuple[str, str]:
    kind = scope.WhichOneof("scope")
    if kind == "topic":
        return kind, persistent_topic(scope.topic)
    if kind == "namespace":
        return kind, parse_namespace(scope.namespace)
    raise InvalidRequest("Name a topic or a namespace.")
