"""The policies of namespaces and topics (broker/http/policy_table.py).

A policy is read from and written to the same Policies as over gRPC. Both levels have the same three
verbs; Pulsar sets some with PUT and some with POST, and a topic's TTL by a query parameter. If a
level sets no value, the body is empty; `applied=true` asks a topic for the value in force.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ledgerfold.broker.http.answers import Answer, Refusal, Request, shown
from ledgerfold.broker.http.cluster import CLUSTER, check_exists
from ledgerfold.broker.http.permissions import shown_grants
from ledgerfold.broker.http.policy_table import (
    POLICIES,
    Policy,
    parse_quota,
    quota_field,
    shown_quotas,
)
from ledgerfold.broker.http.routes import Route
from ledgerfold.broker.http.topics import NAMESPACE, TOPIC, named_topic
from ledgerfold.broker.rpc.admin import PolicyHandlers
from ledgerfold.broker.topics.broker import Broker
from ledgerfold.storage.partition_names import parse_partition
from ledgerfold.v1 import admin_pb2
from ledgerfold.v1.records_pb2 import Policies

_BUNDLES = {"boundaries": ["0x00000000", "0xffffffff"], "numBundles": 1}


def policy_routes(broker: Broker) -> list[Route]:
    verbs = PolicyVerbs(broker)
    routes: list[Route] = [("GET", NAMESPACE, verbs.of_namespace)]
    for each in POLICIES:
        for level in each.levels:
            at, method = each.path_at(level), "PUT" if level in each.put_at else "POST"
            routes.append(("GET", at, partial(verbs.get, each)))
            routes.append((method, at, partial(verbs.set, each)))
            if level in each.removed_at:
                routes.append(("DELETE", at, partial(verbs.remove, each)))
    routes.append(("GET", f"{NAMESPACE}/bundles", verbs.bundles))
    routes.append(("GET", f"{NAMESPACE}/replication", verbs.replication))
    routes.append(("POST", f"{NAMESPACE}/replication", verbs.set_replication))
    for path in (NAMESPACE, TOPIC):
        routes.append(("GET", f"{path}/backlogQuotaMap", verbs.quotas))
        routes.append(("POST", f"{path}/backlogQuota", verbs.set_quota))
        routes.append(("DELETE", f"{path}/backlogQuota", verbs.remove_quota))
    return routes


class PolicyVerbs:
    """The verbs, by the calls of broker/rpc."""

    def __init__(self, broker: Broker) -> None:
        self._broker, self._policies = broker, PolicyHandlers(broker)

    def _scope(self, request: Request) -> admin_pb2.PolicyScope:
        """Raises Refusal for an unknown namespace, and for a partition, existing or not."""
        if "topic" in request.names:
            name = named_topic(self._broker, request)
            if parse_partition(name) is not None:
                raise Refusal(412, "Not allowed to set/get topic policy for a partition")
            return admin_pb2.PolicyScope(topic=name)
        check_exists(self._broker, request.namespace)
        return admin_pb2.PolicyScope(namespace=request.namespace)

    async def _of(self, scope: admin_pb2.PolicyScope, *, applied: bool) -> Policies:
        wanted = admin_pb2.GetPoliciesRequest(scope=scope, applied=applied)
        return (await self._policies.get(wanted)).policies

    async def _update(
        self,
        scope: admin_pb2.PolicyScope,
        values: Policies | None = None,
        remove: Sequence[str] = (),
    ) -> None:
        wanted = admin_pb2.UpdatePoliciesRequest(scope=scope, set=values, remove=remove)
        await self._policies.update(wanted)

    async def get(self, policy: Policy, request: Request) -> Answer:
        scope = self._scope(request)
        policies = await self._of(scope, applied=request.flag("applied"))
        if not policy.is_set(policies):
            return shown(policy.default if policy.shows_default(request) else None)
        # If only one of the two fields is set, the other one is shown as it is in force.
        in_force = await self._of(scope, applied=True)
        in_force.MergeFrom(policies)
        return shown(policy.show(in_force))

    async def set(self, policy: Policy, request: Request) -> None:
        scope, body = self._scope(request), request.body
        if body is None:
            body = request.query.get(policy.path)
        has_value = body is not None or policy.parses_none
        if not has_value and "topic" not in request.names:
            raise Refusal(400, "The request entity cannot be empty.")
        values = policy.parse(body) if has_value else Policies()
        if policy.is_set(values):
            await self._update(scope, values)
        else:
            await self.remove(policy, request)

    async def remove(self, policy: Policy, request: Request) -> None:
        await self._update(self._scope(request), remove=policy.fields)

    async def of_namespace(self, request: Request) -> Answer:
        """Shows the policies of a namespace that exist here, under Pulsar's names."""
        policies = await self._of(self._scope(request), applied=False)
        grants = self._broker.namespaces.permissions.all_in(request.namespace)
        document = {
            "replication_clusters": [CLUSTER],
            "bundles": _BUNDLES,
            "backlog_quota_map": shown_quotas(policies),
            "auth_policies": shown_grants(grants),
            "deleted": False,
        }
        for each in POLICIES:
            value = each.show(policies) if each.is_set(policies) else each.default
            if value is not None:
                document[each.name] = value
        return shown(document)

    async def bundles(self, request: Request) -> Answer:
        self._scope(request)
        return shown(_BUNDLES)

    async def replication(self, request: Request) -> Answer:
        self._scope(request)
        return shown([CLUSTER])

    async def set_replication(self, request: Request) -> Answer:
        """Accepts the only cluster, which set-up scripts name. Raises Refusal for any other."""
        self._scope(request)
        clusters = request.body
        if not isinstance(clusters, list | None):
            raise Refusal(400, "The clusters must be a list of names.")
        if not clusters:
            raise Refusal(412, "ClusterIds should not be null or empty")
        for each in clusters:
            if each != CLUSTER:
                raise Refusal(403, f"Invalid cluster id: {str(each)[:100]}")
        return Answer(200)

    async def quotas(self, request: Request) -> Answer:
        scope, applied = self._scope(request), request.flag("applied")
        # As in Pulsar, a namespace shows the policies in force.
        applied = applied or scope.WhichOneof("scope") == "namespace"
        return shown(shown_quotas(await self._of(scope, applied=applied)))

    async def set_quota(self, request: Request) -> None:
        scope = self._scope(request)
        if request.body is None:
            await self.remove_quota(request)
        else:
            await self._update(scope, parse_quota(quota_field(request), request.body))

    async def remove_quota(self, request: Request) -> None:
        await self._update(self._scope(request), remove=[quota_field(request)])
