"""The policies of namespaces and topics about schemas.

Unlike other policies (broker/http/policies.py), those of a namespace have a value even if they are
not set. Sources: Pulsar's NamespacesBase and PersistentTopicsBase, as observed on Pulsar 4.0.7.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ledgerfold.broker.http.answers import Answer, Refusal, Request, shown
from ledgerfold.broker.http.cluster import check_exists
from ledgerfold.broker.http.routes import Route
from ledgerfold.broker.http.topics import NAMESPACE, TOPIC, named_topic
from ledgerfold.broker.rpc.admin import PolicyHandlers
from ledgerfold.broker.schemas.compatibility import strategy_name, strategy_number
from ledgerfold.broker.topics.broker import Broker
from ledgerfold.storage.errors import InvalidRequest
from ledgerfold.storage.partition_names import parse_partition
from ledgerfold.v1 import admin_pb2
from ledgerfold.v1.records_pb2 import Policies, SchemaCompatibilityStrategy

_STRATEGY = "schema_compatibility_strategy"
_ENFORCED = "schema_validation_enforced"
_UPDATES = "allow_auto_update_schema"
_UNDEFINED = "UNDEFINED"


def schema_policy_routes(broker: Broker) -> list[Route]:
    verbs = SchemaPolicyVerbs(broker)
    routes: list[Route] = []
    for path in (NAMESPACE, TOPIC):
        routes += [
            ("GET", f"{path}/schemaCompatibilityStrategy", verbs.strategy),
            ("PUT", f"{path}/schemaCompatibilityStrategy", verbs.set_strategy),
            ("GET", f"{path}/schemaValidationEnforced", verbs.enforced),
            ("POST", f"{path}/schemaValidationEnforced", verbs.set_enforced),
        ]
    return [
        *routes,
        ("DELETE", f"{TOPIC}/schemaCompatibilityStrategy", verbs.remove_strategy),
        ("GET", f"{NAMESPACE}/isAllowAutoUpdateSchema", verbs.updates),
        ("POST", f"{NAMESPACE}/isAllowAutoUpdateSchema", verbs.set_updates),
    ]


def schema_policies(policies: Policies) -> dict[str, Any]:
    """Returns the policies of a namespace about schemas, under Pulsar's names."""
    return {
        _STRATEGY: _shown_strategy(policies) or _UNDEFINED,
        _ENFORCED: policies.schema_validation_enforced,
        "is_allow_auto_update_schema": not policies.HasField(_UPDATES)
        or policies.allow_auto_update_schema,
    }


def _shown_strategy(policies: Policies) -> str | None:
    is_set = policies.HasField(_STRATEGY)
    return strategy_name(policies.schema_compatibility_strategy) if is_set else None


class PolicyCalls:
    """The calls of broker/rpc that verbs about policies make."""

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


class SchemaPolicyVerbs(PolicyCalls):
    async def _effective(self, request: Request) -> Policies:
        return await self._of(self._scope(request), applied=request.flag("applied"))

    async def strategy(self, request: Request) -> Answer:
        found = _shown_strategy(await self._effective(request))
        return shown(found or (None if "topic" in request.names else _UNDEFINED))

    async def set_strategy(self, request: Request) -> None:
        values = parse_strategy(request.body)
        if values.HasField(_STRATEGY):
            await self._update(self._scope(request), values)
        else:
            await self.remove_strategy(request)

    async def remove_strategy(self, request: Request) -> None:
        await self._update(self._scope(request), remove=[_STRATEGY])

    async def enforced(self, request: Request) -> Answer:
        return shown((await self._effective(request)).schema_validation_enforced)

    async def set_enforced(self, request: Request) -> None:
        values = Policies(schema_validation_enforced=flag_in(request.body))
        await self._update(self._scope(request), values)

    async def updates(self, request: Request) -> Answer:
        policies = await self._effective(request)
        return shown(schema_policies(policies)["is_allow_auto_update_schema"])

    async def set_updates(self, request: Request) -> None:
        values = Policies(allow_auto_update_schema=flag_in(request.body))
        await self._update(self._scope(request), values)


def parse_strategy(body: Any) -> Policies:
    """Returns the policies to set; empty ones for the value of a strategy that is not set.

    Raises Refusal.
    """
    if body in (None, _UNDEFINED):
        return Policies()
    if not isinstance(body, str):
        raise Refusal(400, "A schema compatibility strategy must be a string.")
    try:
        strategy = SchemaCompatibilityStrategy.Name(strategy_number(body))
    except InvalidRequest as error:
        raise Refusal(412, error.message) from None
    return Policies(schema_compatibility_strategy=strategy)


def flag_in(body: Any) -> bool:
    """Raises Refusal."""
    if not isinstance(body, bool):
        raise Refusal(400, "The value must be true or false.")
    return body
