"""Policies and grants in the body of a new namespace, as Pulsar 4.0.7 answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ledgerfold.v1.records_pb2 import Policies
from tests.support.http_lab import HttpLab

NS = "/namespaces/public/ns"
GRANTS = {"namespace_auth": {"anonymous": ["produce", "consume"], "idle": []}}
RETENTION = {"retentionTimeInMinutes": 10, "retentionSizeInMB": 100}
SIZE = {"limitSize": 5_000_000, "limitTime": -1, "policy": "producer_exception"}
AGE = {"limitSize": -1, "limitTime": 60, "policy": "consumer_backlog_eviction"}
DELAYS = {"active": False, "tickTime": 1000, "maxDeliveryDelayInMillis": 0}
ALL: dict[str, Any] = {
    "retention_policies": RETENTION,
    "message_ttl_in_seconds": 60,
    "compaction_threshold": 1000,
    "deduplicationEnabled": False,
    "delayed_delivery_policies": DELAYS,
    "schema_compatibility_strategy": "FULL",
    "schema_validation_enforced": True,
    "is_allow_auto_update_schema": False,
}


def test_pulsars_own_tool_creates_a_namespace(lab: HttpLab) -> None:
    """The tool sends all policies, with its values for "not set"."""
    policies = {
        "auth_policies": {
            "namespace_auth": {},
            "destination_auth": {},
            "subscription_auth_roles": {},
        },
        "replication_clusters": ["standalone"],
        "allowed_clusters": [],
        "bundles": {"boundaries": None, "numBundles": 4},
        "backlog_quota_map": {},
        "deleted": False,
        "subscription_auth_mode": "None",
        "offload_threshold": -1,
        "offload_threshold_in_seconds": -1,
        "schema_compatibility_strategy": "UNDEFINED",
        "is_allow_auto_update_schema": True,
        "message_ttl_in_seconds": None,
    }
    lab.done("PUT", "/namespaces/public/ns", policies)
    assert lab.get("/namespaces/public") == ["public/default", "public/ns"]


def test_policies_of_a_new_namespace_are_applied(lab: HttpLab) -> None:
    quotas = {"destination_storage": SIZE, "message_age": AGE}
    lab.done("PUT", NS, ALL | {"auth_policies": GRANTS, "backlog_quota_map": quotas})
    shown = lab.get(NS)
    assert shown.items() >= ALL.items()
    limits = {name: each["limitSize"] for name, each in shown["backlog_quota_map"].items()}
    assert limits == {"destination_storage": 5_000_000, "message_age": -1}
    granted = {"anonymous": ["produce", "consume"]}
    assert shown["auth_policies"]["namespace_auth"] == granted
    assert lab.get(f"{NS}/permissions") == granted
    assert lab.get(f"{NS}/retention") == RETENTION


def test_a_namespace_shows_the_grants_of_its_topics(lab: HttpLab) -> None:
    lab.done("PUT", "/persistent/public/default/t")
    lab.done("POST", "/persistent/public/default/t/permissions/r", ["consume"])
    assert lab.get("/namespaces/public/default")["auth_policies"] == {
        "namespace_auth": {},
        "destination_auth": {"persistent://public/default/t": {"r": ["consume"]}},
        "subscription_auth_roles": {},
    }


@pytest.mark.parametrize(
    ("bad", "status"),
    [
        ({"max_producers_per_topic": 5}, 501),
        ({"auth_policies": {"subscription_auth_roles": {"s": ["r"]}}}, 501),
        ({"auth_policies": {"namespace_auth": {"r": ["functions"]}}}, 501),
        ({"auth_policies": {"namespace_auth": {"": ["consume"]}}}, 412),
        ({"auth_policies": []}, 400),
        ({"backlog_quota_map": {"other": SIZE}}, 400),
        ({"backlog_quota_map": {"destination_storage": SIZE | {"limitSize": 2**30}}}, 412),
        ({"retention_policies": RETENTION | {"retentionSizeInMB": 0}}, 400),
        ({"message_ttl_in_seconds": -3}, 412),
        # -1 is "not set" for other policies only; no test had it for these.
        ({"message_ttl_in_seconds": -1}, 412),
        ({"retention_policies": -1}, 400),
        ({"delayed_delivery_policies": -1}, 400),
        ({"schema_compatibility_strategy": "SOMETIMES"}, 412),
        ({"deduplicationEnabled": "yes"}, 400),
        ({"replication_clusters": ["elsewhere"]}, 403),
    ],
)
def test_a_refused_policy_creates_nothing(lab: HttpLab, bad: dict[str, Any], status: int) -> None:
    """The checks are those of the separate calls."""
    good = {"auth_policies": GRANTS} | ALL
    assert lab.status("PUT", NS, good | bad) == status
    assert lab.get("/namespaces/public") == ["public/default"]
    lab.done("PUT", NS, good)


def test_an_existing_namespace_keeps_its_policies(lab: HttpLab) -> None:
    lab.done("PUT", NS)
    assert lab.status("PUT", NS, ALL) == 409
    assert "retention_policies" not in lab.get(NS)


def test_grants_of_a_new_namespace_are_limited(
    lab: HttpLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ledgerfold.broker.topics.namespaces.GRANTS_MAX", 1)
    roles = {"a": ["consume"], "b": ["consume"]}
    body = {"auth_policies": {"namespace_auth": roles}}
    assert lab.status("PUT", NS, body) == 412
    assert lab.get("/namespaces/public") == ["public/default"]


def test_a_topic_that_is_added_meanwhile_is_not_left_without_the_policies(
    lab: HttpLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The topic was trimmed as if there were no threshold. No test had added one in between."""
    write = lab.broker.namespaces._in_thread

    async def late(work: Callable[[], Any]) -> Any:
        await lab.broker.create_topic("persistent://public/ns/t")
        return await write(work)

    monkeypatch.setattr(lab.broker.namespaces, "_in_thread", late)
    assert lab.status("PUT", NS, ALL) == 409
    assert "compaction_threshold" not in lab.get(NS)


def test_a_topic_that_is_added_at_once_keeps_its_raw_data(
    lab: HttpLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Loaded by the policies before the write, and recorded after it."""
    apply = lab.broker.policies.apply

    async def late(namespace: str) -> None:
        levels = lab.broker.policy_levels
        with monkeypatch.context() as patch:
            patch.setattr(levels, "of_namespace", lambda _: Policies())
            await lab.broker.create_topic("persistent://public/ns/t")
        await apply(namespace)

    monkeypatch.setattr(lab.broker.policies, "apply", late)
    lab.done("PUT", NS, ALL)
    stats = lab.get("/persistent/public/ns/t/stats")
    assert "__compaction" in stats["subscriptions"]


@pytest.mark.parametrize("value", [0, [0], {"a": {"b": 0}}])
def test_a_policy_of_zero_is_set(lab: HttpLab, value: Any) -> None:
    """Zero equals False, which is Pulsar's value for a policy that is not set."""
    assert lab.status("PUT", NS, {"max_topics_per_namespace": value}) == 501


def test_a_deep_policy_is_refused(lab: HttpLab) -> None:
    """It met the interpreter's limit of recursion."""
    deep: Any = None
    for _ in range(400):
        deep = {"z": deep}
    assert lab.status("PUT", NS, {"unknown": deep}) == 501
