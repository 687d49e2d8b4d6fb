"""The policies of namespaces and topics about schemas.

Unlike other policies (broker/http/policies.py), those of a namespace have a value even if they are
not set. Sources: Pulsar's NamespacesBase and PersistentTopicsBase, as observed on Pulsar 4.0.7.
"""

from __future__ import annotations

from typing import Any

from ledgerfold.broker.http.answers import Answer, Refusal, Request, shown
from ledgerfold.broker.http.cluster import check_exists
from ledgerfold.broker.http.routes import Route
from ledgerfold.broker.http.topics import NAMESPACE, TOPIC, named_topic
from ledgerfold.broker.rpc.admin import PolicyHandlers
from ledgerfold.broker.schemas.compatibility import strategy_name, strategy_number
from ledgerfold.broker.topics.broker import Broker
from ledgerfold.storage.errors import InvalidRequest
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


class SchemaPolicyVerbs:
    def __init__(self, broker: Broker) -> None:
        self._broker, self._policies = broker, PolicyHandlers(broker)

    def _scope(self, request: Request) -> admin_pb2.PolicyScope:
        if "topic" in request.names:
            return admin_pb2.PolicyScope(topic=named_topic(self._broker, request))
        check_exists(self._broker, request.namespace)
        return admin_pb2.PolicyScope(namespace=request.namespace)

    async def _of(self, request: Request) -> Policies:
        scope, applied = self._scope(request), request.flag("applied")
        wanted = admin_pb2.GetPoliciesRequest(scope=scope, applied=applied)
        return (await self._policies.get(wanted)).policies

    async def _update(
        self, request: Request, values: Policies | None = None, remove: str = ""
    ) -> Answer:
        names = [remove] if remove else []
        scope = self._scope(request)
        wanted = admin_pb2.UpdatePoliciesRequest(scope=scope, set=values, remove=names)
        await self._policies.update(wanted)
        return Answer()

    async def strategy(self, request: Request) -> Answer:
        found = _shown_strategy(await self._of(request))
        return shown(found or (None if "topic" in request.names else _UNDEFINED))

    async def set_strategy(self, request: Request) -> Answer:
        if request.body in (None, _UNDEFINED):
            return await self.remove_strategy(request)
        if not isinstance(request.body, str):
            raise Refusal(400, "A schema compatibility strategy must be a string.")
        try:
            strategy = SchemaCompatibilityStrategy.Name(strategy_number(request.body))
        except InvalidRequest as error:
            raise Refusal(412, error.message) from None
        return await self._update(request, Policies(schema_compatibility_strategy=strategy))

    async def remove_strategy(self, request: Request) -> Answer:
        return await self._update(request, remove=_STRATEGY)

    async def enforced(self, request: Request) -> Answer:
        return shown((await self._of(request)).schema_validation_enforced)

    async def set_enforced(self, request: Request) -> Answer:
        values = Policies(schema_validation_enforced=_flag(request.body))
        return await self._update(request, values)

    async def updates(self, request: Request) -> Answer:
        policies = await self._of(request)
        return shown(schema_policies(policies)["is_allow_auto_update_schema"])

    async def set_updates(self, request: Request) -> Answer:
        return await self._update(request, Policies(allow_auto_update_schema=_flag(request.body)))


def _flag(body: Any) -> bool:
    if not isinstance(body, bool):
        raise Refusal(400, "The value must be true or false.")
    return body
