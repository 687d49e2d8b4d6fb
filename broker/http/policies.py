"""The policies of namespaces and topics: one pair of functions for each.

  >>> quota = {"limitSize": 10, "policy": "producer_exception"}
  >>> shown_quotas(parse_quota("backlog_size_quota", quota))["destination_storage"]["limitSize"]
  10

A policy is read from and written to the same Policies as over gRPC. Both levels have the same three
verbs; Pulsar sets some with PUT and some with POST, and a topic's TTL by a query parameter. If a
level sets no value, the body is empty; `applied=true` asks a topic for the value in force. Sources:
Pulsar's NamespacesBase and PersistentTopicsBase.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Any

from ledgerfold.broker.http.answers import Answer, Refusal, Request, shown, whole_number
from ledgerfold.broker.http.cluster import CLUSTER
from ledgerfold.broker.http.permissions import shown_grants
from ledgerfold.broker.http.routes import Route
from ledgerfold.broker.http.schema_policies import PolicyCalls, flag_in, schema_policies
from ledgerfold.broker.http.topics import NAMESPACE, TOPIC
from ledgerfold.broker.topics.broker import Broker
from ledgerfold.broker.topics.deduplication import is_deduplicated
from ledgerfold.v1.records_pb2 import BacklogPolicy, BacklogQuota, Policies

_MINUTE_MS, _MEGABYTE = 60_000, 1024 * 1024
_BUNDLES = {"boundaries": ["0x00000000", "0xffffffff"], "numBundles": 1}
_INT32_MAX = 2**31 - 1
# As in Pulsar, setting these without a value removes them, also from a namespace.
_REMOVED = ("retention", "delayedDelivery")
_RETENTION = ("retentionTimeInMinutes", "retentionSizeInMB")
# Pulsar's names of the two quotas.
QUOTAS = {"destination_storage": "backlog_size_quota", "message_age": "backlog_age_quota"}
_QUOTA_PREFIX = "BACKLOG_POLICY_"
_QUOTA_POLICIES = [name.removeprefix(_QUOTA_PREFIX).lower() for name, _ in BacklogPolicy.items()]
_TICK_MS = 1000


@dataclass(frozen=True, slots=True)
class Policy:
    """A policy of Pulsar's: its path, its fields here, and its JSON."""

    path: str
    fields: tuple[str, ...]
    # Returns the JSON of policies that have one of the fields, at least.
    show: Callable[[Policies], Any]
    # Returns the policies to set. Raises Refusal.
    parse: Callable[[Any], Policies]
    # The method for a namespace; for a topic it is POST.
    method: str = "POST"
    # The path for a topic, if it is another.
    topic_path: str = ""

    def is_set(self, policies: Policies) -> bool:
        return any(policies.HasField(each) for each in self.fields)


def _threshold(body: Any) -> Policies:
    size_bytes = whole_number("compactionThreshold", body)
    if size_bytes < 0:
        raise Refusal(412, "compactionThreshold must be 0 or more")
    return Policies(compaction_threshold_bytes=size_bytes)


def _unacked_limit(path: str, field: str) -> Policy:
    def parse(body: Any) -> Policies:
        messages = whole_number(path, body)
        if not 0 <= messages <= _INT32_MAX:
            raise Refusal(412, f"{path} must be between 0 and {_INT32_MAX}")
        policies = Policies()
        setattr(policies, field, messages)
        return policies

    topic_path = path.replace("Per", "On")
    return Policy(path, (field,), attrgetter(field), parse, topic_path=topic_path)


def _ttl(body: Any) -> Policies:
    seconds = whole_number("messageTTL", body)
    if not 0 <= seconds <= _INT32_MAX:
        raise Refusal(412, "Invalid value for message TTL, message TTL must >= 0")
    return Policies(message_ttl_ms=seconds * 1000)


def _retention(body: Any) -> Policies:
    if not isinstance(body, dict):
        raise Refusal(400, f"Retention must be an object with {' and '.join(_RETENTION)}.")
    minutes, megabytes = (whole_number(name, body.get(name, 0)) for name in _RETENTION)
    for what, limit in (("time", minutes), ("size", megabytes)):
        if limit < -1:
            raise Refusal(400, f"Invalid retention policy: {what} limit must be >= -1")
        if limit > _INT32_MAX:
            raise Refusal(400, f"Invalid retention policy: {what} limit is too large")
    if 0 in (minutes, megabytes) and (minutes or megabytes):
        raise Refusal(
            400,
            "Invalid retention policy: Setting a single time or size limit to 0 is invalid when "
            "one of the limits has a non-zero value. Use the value of -1 instead of 0 to ignore a "
            "specific limit. To disable retention both limits must be set to 0.",
        )
    return Policies(
        retention_ms=_scaled(minutes, _MINUTE_MS), retention_bytes=_scaled(megabytes, _MEGABYTE)
    )


def _scaled(value: int, unit: int) -> int:
    """Converts a limit; -1 is no limit."""
    return value if value < 0 else value * unit


def _in_units(value: int, unit: int) -> int:
    """Converts a limit back. A part of a unit counts as one: 0 would mean that nothing is
    retained.
    """
    return value if value < 0 else -(-value // unit)


def _shown_retention(policies: Policies) -> dict[str, int]:
    return {
        "retentionTimeInMinutes": _in_units(policies.retention_ms, _MINUTE_MS),
        "retentionSizeInMB": _in_units(policies.retention_bytes, _MEGABYTE),
    }


def quota_field(request: Request) -> str:
    """Returns the quota that a request names. Raises Refusal."""
    kind = request.query.get("backlogQuotaType", "destination_storage")
    if kind not in QUOTAS:
        raise Refusal(400, f"backlogQuotaType must be {' or '.join(QUOTAS)}.")
    return QUOTAS[kind]


def parse_quota(name: str, body: Any) -> Policies:
    """Returns the policies to set. Raises Refusal."""
    if not isinstance(body, dict):
        raise Refusal(
            400, "A backlog quota must be an object with limitSize or limitTime, and policy."
        )
    policy = body.get("policy")
    if policy not in _QUOTA_POLICIES:
        raise Refusal(400, f"The policy of a backlog quota must be {', '.join(_QUOTA_POLICIES)}.")
    # Older clients say `limit`.
    size_bytes = whole_number("limitSize", body.get("limitSize", body.get("limit", -1)))
    seconds = whole_number("limitTime", body.get("limitTime", -1))
    quota = BacklogQuota(
        limit_bytes=max(-1, size_bytes),
        limit_ms=seconds * 1000 if seconds > 0 else -1,
        policy=f"{_QUOTA_PREFIX}{policy.upper()}",
    )
    policies = Policies()
    getattr(policies, name).CopyFrom(quota)
    return policies


def shown_quotas(policies: Policies) -> dict[str, Any]:
    """Returns the quotas that are set, by Pulsar's names."""
    return {
        kind: _shown_quota(getattr(policies, name))
        for kind, name in QUOTAS.items()
        if policies.HasField(name)
    }


def _shown_quota(quota: BacklogQuota) -> dict[str, Any]:
    return {
        "limit": quota.limit_bytes,
        "limitSize": quota.limit_bytes,
        "limitTime": quota.limit_ms // 1000 if quota.limit_ms > 0 else -1,
        "policy": BacklogPolicy.Name(quota.policy).removeprefix(_QUOTA_PREFIX).lower(),
    }


def parse_delays(body: Any) -> Policies:
    """Returns the policies to set. Raises Refusal."""
    if not isinstance(body, dict) or not isinstance(body.get("active", False), bool):
        raise Refusal(400, "Delayed delivery must be an object with active: true or false.")
    # As in Pulsar, any number is accepted.
    whole_number("tickTime", body.get("tickTime", _TICK_MS))
    if whole_number("maxDeliveryDelayInMillis", body.get("maxDeliveryDelayInMillis", 0)):
        raise Refusal(501, "A maximum delay is not emulated.")
    return Policies(delayed_delivery=body.get("active", False))


def shown_delays(policies: Policies) -> dict[str, Any]:
    """Returns the policy. Messages are delivered when they are due, regardless of the tick."""
    is_active = policies.delayed_delivery or not policies.HasField("delayed_delivery")
    return {"active": is_active, "tickTime": _TICK_MS, "maxDeliveryDelayInMillis": 0}


POLICIES = (
    Policy(
        "compactionThreshold",
        ("compaction_threshold_bytes",),
        lambda policies: policies.compaction_threshold_bytes,
        _threshold,
        "PUT",
    ),
    Policy("retention", ("retention_ms", "retention_bytes"), _shown_retention, _retention),
    Policy(
        "messageTTL",
        ("message_ttl_ms",),
        lambda policies: _in_units(policies.message_ttl_ms, 1000),
        _ttl,
    ),
    Policy("delayedDelivery", ("delayed_delivery",), shown_delays, parse_delays),
    _unacked_limit("maxUnackedMessagesPerConsumer", "max_unacked_messages_per_consumer"),
    _unacked_limit("maxUnackedMessagesPerSubscription", "max_unacked_messages_per_subscription"),
)


# The names in the policies of a namespace.
NAMESPACE_POLICIES = dict(
    zip(
        (
            "compaction_threshold",
            "retention_policies",
            "message_ttl_in_seconds",
            "delayed_delivery_policies",
            "max_unacked_messages_per_consumer",
            "max_unacked_messages_per_subscription",
        ),
        POLICIES,
        strict=True,
    )
)


def policy_routes(broker: Broker) -> list[Route]:
    verbs = PolicyVerbs(broker)
    routes: list[Route] = [("GET", NAMESPACE, verbs.of_namespace)]
    for each in POLICIES:
        for path, method in ((NAMESPACE, each.method), (TOPIC, "POST")):
            name = each.topic_path if path is TOPIC and each.topic_path else each.path
            at = f"{path}/{name}"
            routes.append(("GET", at, partial(verbs.get, each)))
            routes.append((method, at, partial(verbs.set, each)))
            routes.append(("DELETE", at, partial(verbs.remove, each)))
    for path in (f"{NAMESPACE}/deduplication", f"{TOPIC}/deduplicationEnabled"):
        routes.append(("GET", path, verbs.deduplication))
        routes.append(("POST", path, verbs.set_deduplication))
        routes.append(("DELETE", path, verbs.remove_deduplication))
    routes.append(("GET", f"{NAMESPACE}/bundles", verbs.bundles))
    routes.append(("GET", f"{NAMESPACE}/replication", verbs.replication))
    routes.append(("POST", f"{NAMESPACE}/replication", verbs.set_replication))
    for path in (NAMESPACE, TOPIC):
        routes.append(("GET", f"{path}/backlogQuotaMap", verbs.quotas))
        routes.append(("POST", f"{path}/backlogQuota", verbs.set_quota))
        routes.append(("DELETE", f"{path}/backlogQuota", verbs.remove_quota))
    return routes


class PolicyVerbs(PolicyCalls):
    async def get(self, policy: Policy, request: Request) -> Answer:
        scope = self._scope(request)
        policies = await self._of(scope, applied=request.flag("applied"))
        if not policy.is_set(policies):
            return shown(None)
        # If only one of the two fields is set, the other one is shown as it is in force.
        in_force = await self._of(scope, applied=True)
        in_force.MergeFrom(policies)
        return shown(policy.show(in_force))

    async def set(self, policy: Policy, request: Request) -> None:
        scope, body = self._scope(request), request.body
        if body is None:
            body = request.query.get(policy.path)
        if body is None and policy.path not in _REMOVED and "topic" not in request.names:
            raise Refusal(400, "The request entity cannot be empty.")
        if body is None:
            await self.remove(policy, request)
        else:
            await self._update(scope, policy.parse(body))

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
            "deduplicationEnabled": is_deduplicated(policies),
            "auth_policies": shown_grants(grants),
            "deleted": False,
        }
        for name, policy in NAMESPACE_POLICIES.items():
            if policy.is_set(policies):
                document[name] = policy.show(policies)
        return shown(document | schema_policies(policies))

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

    async def deduplication(self, request: Request) -> Answer:
        scope, applied = self._scope(request), request.flag("applied")
        policies = await self._of(scope, applied=applied)
        is_set = applied or policies.HasField("deduplication")
        return shown(is_deduplicated(policies) if is_set else None)

    async def set_deduplication(self, request: Request) -> None:
        scope = self._scope(request)
        await self._update(scope, Policies(deduplication=flag_in(request.body)))

    async def remove_deduplication(self, request: Request) -> None:
        """Returns to the broker's value, which is on."""
        await self._update(self._scope(request), remove=["deduplication"])

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
