"""The verbs about grants of namespaces and topics. Source: Pulsar's NamespacesBase.

Pulsar's other actions (functions, sources, sinks, packages) do not exist here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from ledgerfold.broker.http.answers import Answer, Refusal, Request, shown
from ledgerfold.broker.http.cluster import check_exists
from ledgerfold.broker.http.routes import Route
from ledgerfold.broker.http.topics import NAMESPACE, TOPIC, named_topic
from ledgerfold.broker.topics.broker import Broker
from ledgerfold.storage.errors import TopicNotFound
from ledgerfold.v1.records_pb2 import Action, Grant

_PREFIX = "ACTION_"
_ACTIONS = {name.removeprefix(_PREFIX).lower(): action for name, action in Action.items() if action}
_NAMES = {action: name for name, action in _ACTIONS.items()}


def permission_routes(broker: Broker) -> list[Route]:
    verbs = PermissionVerbs(broker)
    return [
        route
        for path in (NAMESPACE, TOPIC)
        for route in (
            ("GET", f"{path}/permissions", verbs.get),
            ("POST", f"{path}/permissions/{{role}}", verbs.grant),
            ("DELETE", f"{path}/permissions/{{role}}", verbs.revoke),
        )
    ]


class PermissionVerbs:
    def __init__(self, broker: Broker) -> None:
        self._broker, self._permissions = broker, broker.namespaces.permissions

    def _scope(self, request: Request) -> tuple[str, str]:
        """Returns the namespace, and the full name of the topic or "". Raises TopicNotFound."""
        check_exists(self._broker, request.namespace)
        if "topic" not in request.names:
            return request.namespace, ""
        topic = named_topic(self._broker, request)
        if not self._broker.exists(topic) and not self._broker.partitions.count(topic):
            raise TopicNotFound(topic)
        return request.namespace, topic

    def _grants(self, namespace: str, topic: str) -> Sequence[Grant]:
        if topic:
            return self._permissions.of_topic(topic)
        return self._permissions.of_namespace(namespace)

    async def get(self, request: Request) -> Answer:
        return shown(_by_role(self._grants(*self._scope(request))))

    async def grant(self, request: Request) -> None:
        scope, actions = self._scope(request), parse_actions(request.body)
        await self._permissions.grant(*scope, request.names["role"], actions)

    async def revoke(self, request: Request) -> None:
        await self._permissions.revoke(*self._scope(request), request.names["role"])


def shown_grants(grants: Iterable[Grant]) -> dict[str, Any]:
    """Returns the grants of a namespace and of its topics, as in Pulsar's policies."""
    by_topic = defaultdict[str, list[Grant]](list)
    for each in grants:
        by_topic[each.topic].append(each)
    of_namespace = _by_role(by_topic.pop("", ()))
    return {
        "namespace_auth": of_namespace,
        "destination_auth": {topic: _by_role(found) for topic, found in by_topic.items()},
        "subscription_auth_roles": {},
    }


def _by_role(grants: Iterable[Grant]) -> dict[str, list[str]]:
    found = defaultdict[str, set[str]](set)
    for each in grants:
        found[each.role].update(map(_NAMES.__getitem__, each.actions))
    return {role: sorted(actions, reverse=True) for role, actions in found.items()}


def parse_actions(body: Any) -> list[int]:
    """Returns the actions of a grant. Raises Refusal."""
    if not isinstance(body, list) or not all(isinstance(each, str) for each in body):
        raise Refusal(400, 'Permissions are a list, such as ["produce", "consume"].')
    unknown = [each for each in body if each not in _ACTIONS]
    if unknown:
        known = " and ".join(sorted(_ACTIONS, reverse=True))
        raise Refusal(501, f"{unknown[0][:100]!r} is not emulated: permissions are {known}.")
    return [_ACTIONS[each] for each in body]
