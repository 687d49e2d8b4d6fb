"""Pulsar's policies of namespaces and topics: the paths, the fields here and the JSON of each.

  >>> quota = {"limitSize": 10, "policy": "producer_exception"}
  >>> shown_quotas(parse_quota("backlog_size_quota", quota))["destination_storage"]["limitSize"]
  10

Sources: Pulsar's NamespacesBase and PersistentTopicsBase, as observed on Pulsar 4.0.7.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from ledgerfold.broker.http.answers import Refusal, Request, answering, whole_number
from ledgerfold.broker.http.topics import NAMESPACE, TOPIC
from ledgerfold.broker.schemas.compatibility import strategy_name, strategy_number
from ledgerfold.storage.errors import InvalidRequest
from ledgerfold.v1.records_pb2 import (
    BacklogPolicy,
    BacklogQuota,
    Policies,
    SchemaCompatibilityStrategy,
)

_MINUTE_MS, _MEGABYTE = 60_000, 1024 * 1024
_INT32_MAX = 2**31 - 1
_RETENTION = ("retentionTimeInMinutes", "retentionSizeInMB")
# Pulsar's names of the two quotas.
QUOTAS = {"destination_storage": "backlog_size_quota", "message_age": "backlog_age_quota"}
_QUOTA_PREFIX = "BACKLOG_POLICY_"
_QUOTA_POLICIES = [name.removeprefix(_QUOTA_PREFIX).lower() for name, _ in BacklogPolicy.items()]
_TICK_MS = 1000
_UNDEFINED = "UNDEFINED"


@dataclass(frozen=True, slots=True)
class Policy:
    """A policy of Pulsar's: its path, its fields here, and its JSON."""

    path: str
    # The name in the policies of a namespace.
    name: str
    fields: tuple[str, ...]
    # Returns the JSON of policies that have one of the fields, at least.
    show: Callable[[Policies], Any]
    # Returns the policies to set; none: remove them. Raises Refusal.
    parse: Callable[[Any], Policies]
    levels: tuple[str, ...] = (NAMESPACE, TOPIC)
    # The levels that set it with PUT; others: with POST.
    put_at: tuple[str, ...] = ()
    # The levels that remove it with DELETE.
    removed_at: tuple[str, ...] = (NAMESPACE, TOPIC)
    # The path for a topic, if it is another.
    topic_path: str = ""
    # Whether `parse` knows what no value means. If not, it removes a topic's policy.
    parses_none: bool = False
    # The JSON of a namespace that does not set it.
    default: Any = None
    # Whether a GET shows the default.
    shows_default: Callable[[Request], bool] = lambda request: True

    def is_set(self, policies: Policies) -> bool:
        return any(policies.HasField(each) for each in self.fields)

    def path_at(self, level: str) -> str:
        name = self.topic_path if level is TOPIC and self.topic_path else self.path
        return f"{level}/{name}"


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
        return _with(field, messages)

    topic_path = path.replace("Per", "On")
    return Policy(path, field, (field,), attrgetter(field), parse, topic_path=topic_path)


def _with(field: str, value: Any) -> Policies:
    policies = Policies()
    setattr(policies, field, value)
    return policies


def _ttl(body: Any) -> Policies:
    seconds = whole_number("messageTTL", body)
    if not 0 <= seconds <= _INT32_MAX:
        raise Refusal(412, "Invalid value for message TTL, message TTL must >= 0")
    return Policies(message_ttl_ms=seconds * 1000)


def _retention(body: Any) -> Policies:
    if body is None:
        return Policies()
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


def _delays(body: Any) -> Policies:
    if body is None:
        return Policies()
    if not isinstance(body, dict) or not isinstance(body.get("active", False), bool):
        raise Refusal(400, "Delayed delivery must be an object with active: true or false.")
    # As in Pulsar, any number is accepted.
    whole_number("tickTime", body.get("tickTime", _TICK_MS))
    if whole_number("maxDeliveryDelayInMillis", body.get("maxDeliveryDelayInMillis", 0)):
        raise Refusal(501, "A maximum delay is not emulated.")
    return Policies(delayed_delivery=body.get("active", False))


def _shown_delays(policies: Policies) -> dict[str, Any]:
    """Returns the policy. Messages are delivered when they are due, regardless of the tick."""
    is_active = policies.delayed_delivery or not policies.HasField("delayed_delivery")
    return {"active": is_active, "tickTime": _TICK_MS, "maxDeliveryDelayInMillis": 0}


def _flag(path: str, name: str, field: str, **settings: Any) -> Policy:
    """Describes a policy that is on or off."""

    def parse(body: Any) -> Policies:
        if not isinstance(body, bool):
            raise Refusal(400, "The value must be true or false.")
        return _with(field, body)

    return Policy(path, name, (field,), attrgetter(field), parse, parses_none=True, **settings)


def _strategy(body: Any) -> Policies:
    if body in (None, _UNDEFINED):
        return Policies()
    if not isinstance(body, str):
        raise Refusal(400, "A schema compatibility strategy must be a string.")
    with answering(InvalidRequest, 412):
        strategy = SchemaCompatibilityStrategy.Name(strategy_number(body))
    return Policies(schema_compatibility_strategy=strategy)


POLICIES = (
    Policy(
        "compactionThreshold",
        "compaction_threshold",
        ("compaction_threshold_bytes",),
        attrgetter("compaction_threshold_bytes"),
        _threshold,
        put_at=(NAMESPACE,),
    ),
    # As in Pulsar, setting retention or delays without a value removes them from a namespace, too.
    Policy(
        "retention",
        "retention_policies",
        ("retention_ms", "retention_bytes"),
        _shown_retention,
        _retention,
        parses_none=True,
    ),
    Policy(
        "messageTTL",
        "message_ttl_in_seconds",
        ("message_ttl_ms",),
        lambda policies: _in_units(policies.message_ttl_ms, 1000),
        _ttl,
    ),
    Policy(
        "delayedDelivery",
        "delayed_delivery_policies",
        ("delayed_delivery",),
        _shown_delays,
        _delays,
        parses_none=True,
    ),
    _unacked_limit("maxUnackedMessagesPerConsumer", "max_unacked_messages_per_consumer"),
    _unacked_limit("maxUnackedMessagesPerSubscription", "max_unacked_messages_per_subscription"),
    _flag(
        "deduplication",
        "deduplicationEnabled",
        "deduplication",
        topic_path="deduplicationEnabled",
        default=True,
        shows_default=lambda request: request.flag("applied"),
    ),
    # Policies of a namespace about schemas have a value even if they are not set.
    Policy(
        "schemaCompatibilityStrategy",
        "schema_compatibility_strategy",
        ("schema_compatibility_strategy",),
        lambda policies: strategy_name(policies.schema_compatibility_strategy),
        _strategy,
        put_at=(NAMESPACE, TOPIC),
        removed_at=(TOPIC,),
        parses_none=True,
        default=_UNDEFINED,
        shows_default=lambda request: "topic" not in request.names,
    ),
    _flag(
        "schemaValidationEnforced",
        "schema_validation_enforced",
        "schema_validation_enforced",
        removed_at=(),
        default=False,
    ),
    _flag(
        "isAllowAutoUpdateSchema",
        "is_allow_auto_update_schema",
        "allow_auto_update_schema",
        levels=(NAMESPACE,),
        removed_at=(),
        default=True,
    ),
)
