"""The JSON of backlog quotas and of delayed delivery, as Pulsar's clients send and read it.

>>> quota = {"limitSize": 10, "policy": "producer_exception"}
>>> shown_quotas(parse_quota("backlog_size_quota", quota))["destination_storage"]["limitSize"]
10
"""

from __future__ import annotations

from typing import Any

from ledgerfold.broker.http.answers import Refusal, Request, whole_number
from ledgerfold.v1.records_pb2 import BacklogPolicy, BacklogQuota, Policies

# Pulsar's names of the two quotas.
_FIELDS = {"destination_storage": "backlog_size_quota", "message_age": "backlog_age_quota"}
_PREFIX = "BACKLOG_POLICY_"
_POLICIES = [name.removeprefix(_PREFIX).lower() for name, _ in BacklogPolicy.items()]
_TICK_MS = 1000


def quota_field(request: Request) -> str:
    """Returns the quota that a request names. Raises Refusal."""
    kind = request.query.get("backlogQuotaType", "destination_storage")
    if kind not in _FIELDS:
        raise Refusal(400, f"backlogQuotaType must be {' or '.join(_FIELDS)}.")
    return _FIELDS[kind]


def parse_quota(name: str, body: Any) -> Policies:
    """Returns the policies to set. Raises Refusal."""
    if not isinstance(body, dict):
        raise Refusal(
            400, "A backlog quota must be an object with limitSize or limitTime, and policy."
        )
    policy = body.get("policy")
    if policy not in _POLICIES:
        raise Refusal(400, f"The policy of a backlog quota must be {', '.join(_POLICIES)}.")
    # Older clients say `limit`.
    size_bytes = whole_number("limitSize", body.get("limitSize", body.get("limit", -1)))
    seconds = whole_number("limitTime", body.get("limitTime", -1))
    quota = BacklogQuota(
        limit_bytes=max(-1, size_bytes),
        limit_ms=seconds * 1000 if seconds > 0 else -1,
        policy=f"{_PREFIX}{policy.upper()}",
    )
    policies = Policies()
    getattr(policies, name).CopyFrom(quota)
    return policies


def shown_quotas(policies: Policies) -> dict[str, Any]:
    """Returns the quotas that are set, by Pulsar's names."""
    return {
        kind: _shown(getattr(policies, name))
        for kind, name in _FIELDS.items()
        if policies.HasField(name)
    }


def _shown(quota: BacklogQuota) -> dict[str, Any]:
    return {
        "limit": quota.limit_bytes,
        "limitSize": quota.limit_bytes,
        "limitTime": quota.limit_ms // 1000 if quota.limit_ms > 0 else -1,
        "policy": BacklogPolicy.Name(quota.policy).removeprefix(_PREFIX).lower(),
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
