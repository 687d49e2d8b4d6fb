"""The creation of a namespace, with the policies and the grants in its body: all of them, or none.

  >>> policies, grants = parsed({"message_ttl_in_seconds": 60, "bundles": {"numBundles": 4}})
  >>> policies.message_ttl_ms, grants
  (60000, [])

The checks are those of the separate calls. Values that Pulsar's clients send for policies that are
not set are accepted. Source: Pulsar's NamespacesBase and Policies.
"""

from __future__ import annotations

from typing import Any

from ledgerfold.broker.http.answers import Refusal, Request
from ledgerfold.broker.http.cluster import CLUSTER, check_valid
from ledgerfold.broker.http.permissions import parse_actions
from ledgerfold.broker.http.policy_table import POLICIES, QUOTAS, parse_quota
from ledgerfold.broker.http.routes import Route
from ledgerfold.broker.http.topics import NAMESPACE
from ledgerfold.broker.topics.broker import Broker
from ledgerfold.broker.topics.permissions import checked_grant
from ledgerfold.v1.records_pb2 import Grant, Policies

_CLUSTERS, _AUTH, _ROLES = "replication_clusters", "auth_policies", "namespace_auth"
_QUOTA_MAP = "backlog_quota_map"
_KNOWN = {_CLUSTERS, _AUTH, _QUOTA_MAP, "bundles", *(each.name for each in POLICIES)}
# Values of clients that set no such policy. As in Pulsar, -1 is one of these only.
_NONE = {
    "compaction_threshold": -1,
    "max_unacked_messages_per_consumer": -1,
    "max_unacked_messages_per_subscription": -1,
    "schema_compatibility_strategy": "",
}
# The depth of a policy that is not set; Pulsar's have two levels.
_DEPTH_MAX = 10
# Values of other policies that are not set.
_NOT_SET = ("", "None", "UNDEFINED", "Full", -1)


def new_namespace_routes(broker: Broker) -> list[Route]:
    return [("PUT", NAMESPACE, NewNamespaces(broker).create)]


class NewNamespaces:
    def __init__(self, broker: Broker) -> None:
        self._namespaces, self._policies = broker.namespaces, broker.policies

    async def create(self, request: Request) -> None:
        tenant = request.names["tenant"]
        check_valid(request.names["namespace"], "Namespace name is not valid")
        if self._namespaces.tenant(tenant) is None:
            raise Refusal(404, "Tenant does not exist")
        body = _object("Policies", request.body)
        _check_clusters(body, tenant)
        if not await self._namespaces.create(request.namespace, *parsed(body)):
            raise Refusal(409, "Namespace already exists")
        await self._policies.apply(request.namespace)


def parsed(body: dict[str, Any]) -> tuple[Policies, list[Grant]]:
    """Returns the policies and the grants of a new namespace. Raises Refusal, InvalidRequest."""
    unknown = [name for name, value in body.items() if name not in _KNOWN and not _is_unset(value)]
    if unknown:
        raise Refusal(501, f"Policies that are not emulated: {', '.join(unknown)[:200]}")
    policies = Policies()
    for each in POLICIES:
        value = body.get(each.name)
        if value is not None and value != _NONE.get(each.name):
            policies.MergeFrom(each.parse(value))
    for kind, quota in _object(_QUOTA_MAP, body.get(_QUOTA_MAP)).items():
        if kind not in QUOTAS:
            raise Refusal(400, f"The backlog quotas are {' and '.join(QUOTAS)}.")
        policies.MergeFrom(parse_quota(QUOTAS[kind], quota))
    return policies, _grants(body)


def _grants(body: dict[str, Any]) -> list[Grant]:
    auth = _object(_AUTH, body.get(_AUTH))
    others = [name for name, value in auth.items() if name != _ROLES and not _is_unset(value)]
    if others:
        raise Refusal(501, f"Grants in a new namespace are {_ROLES} only, not {others[0][:100]}.")
    roles = _object(_ROLES, auth.get(_ROLES))
    return [
        checked_grant("", role, parse_actions(actions))
        for role, actions in roles.items()
        if actions
    ]


def _check_clusters(body: dict[str, Any], tenant: str) -> None:
    clusters = body.get(_CLUSTERS) or []
    if not isinstance(clusters, list):
        raise Refusal(400, f"{_CLUSTERS} must be a list of names.")
    for each in clusters:
        if each != CLUSTER:
            allowed = f"the list of allowed clusters list for tenant [{tenant}]"
            raise Refusal(403, f"Cluster [{str(each)[:200]}] is not in {allowed}")


def _object(what: str, value: Any) -> dict[str, Any]:
    """Returns an object of the body, which may be left out. Raises Refusal."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise Refusal(400, f"{what} must be an object.")
    return value


def _is_unset(value: Any, depth: int = _DEPTH_MAX) -> bool:
    """Returns whether Pulsar's clients send this value for a policy that is not set."""
    if isinstance(value, dict):
        return depth > 0 and all(_is_unset(each, depth - 1) for each in value.values())
    return value is None or value is False or value in _NOT_SET or value == []
