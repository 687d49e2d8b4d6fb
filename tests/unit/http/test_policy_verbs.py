"""Policies over HTTP, as Pulsar 4.0.7 answers."""

from __future__ import annotations

import pytest

from ledgerfold.v1.records_pb2 import Policies
from tests.support.http_lab import HttpLab

N = "/namespaces/public/default"
T = "/persistent/public/default/t"
P = "/persistent/public/default/p"
RETENTION = {"retentionTimeInMinutes": 5, "retentionSizeInMB": 6}
PARTITION = "Not allowed to set/get topic policy for a partition"


@pytest.mark.parametrize("at", [N, T, P])
@pytest.mark.parametrize(
    ("path", "value", "broker"),
    [
        ("compactionThreshold", 1000, 0),
        ("retention", RETENTION, {"retentionTimeInMinutes": 0, "retentionSizeInMB": 0}),
        ("messageTTL", 60, 0),
    ],
)
def test_a_policy_is_set_shown_and_removed(
    lab: HttpLab, at: str, path: str, value: object, broker: object
) -> None:
    lab.done("PUT", T)
    lab.done("PUT", f"{P}/partitions", 2)
    method = "PUT" if (at, path) == (N, "compactionThreshold") else "POST"
    assert lab.get(f"{at}/{path}") is None
    assert lab.get(f"{at}/{path}?applied=true") == broker
    lab.done(method, f"{at}/{path}", value)
    assert lab.get(f"{at}/{path}") == value
    lab.done("DELETE", f"{at}/{path}")
    assert lab.get(f"{at}/{path}") is None


@pytest.mark.parametrize(("of", "broker"), [("Consumer", 50_000), ("Subscription", 200_000)])
def test_limits_of_unacknowledged_messages(lab: HttpLab, of: str, broker: int) -> None:
    """Pulsar names those of namespaces and topics differently."""
    lab.done("PUT", T)
    of_namespace, of_topic = f"{N}/maxUnackedMessagesPer{of}", f"{T}/maxUnackedMessagesOn{of}"
    assert (lab.get(of_namespace), lab.get(of_topic)) == (None, None)
    assert lab.get(f"{of_topic}?applied=true") == broker
    lab.done("POST", of_namespace, 7)
    assert lab.get(of_namespace) == lab.get(f"{of_topic}?applied=true") == 7
    assert lab.get(N)[f"max_unacked_messages_per_{of.lower()}"] == 7
    lab.done("POST", of_topic, 0)
    assert lab.get(of_topic) == lab.get(f"{of_topic}?applied=true") == 0
    assert lab.status("POST", of_namespace, -1) == 412
    assert lab.status("POST", of_namespace) == 400
    lab.done("POST", of_topic)
    lab.done("DELETE", of_namespace)
    assert lab.get(f"{of_topic}?applied=true") == broker


def test_a_topics_value_overrides_its_namespaces(lab: HttpLab) -> None:
    lab.done("PUT", T)
    lab.done("PUT", f"{N}/compactionThreshold", 1000)
    assert lab.get(f"{T}/compactionThreshold") is None
    assert lab.get(f"{T}/compactionThreshold?applied=true") == 1000
    lab.done("POST", f"{T}/compactionThreshold", 5)
    assert lab.get(f"{T}/compactionThreshold?applied=true") == 5
    shown = lab.get(N)
    assert (shown["compaction_threshold"], shown["replication_clusters"]) == (1000, ["standalone"])
    assert "retention_policies" not in shown


def test_a_topics_ttl_may_be_in_the_query(lab: HttpLab) -> None:
    """As Pulsar's tool sends it."""
    lab.done("PUT", T)
    lab.done("POST", f"{T}/messageTTL?messageTTL=60")
    assert lab.get(f"{T}/messageTTL") == 60


def test_an_absent_value_removes_the_policy(lab: HttpLab) -> None:
    lab.done("POST", f"{N}/retention", RETENTION)
    lab.done("POST", f"{N}/retention")
    assert lab.get(f"{N}/retention") is None
    lab.done("PUT", T)
    lab.done("POST", f"{T}/messageTTL?messageTTL=60")
    lab.done("POST", f"{T}/messageTTL")
    assert lab.get(f"{T}/messageTTL") is None


def test_retention_of_minus_one_is_unlimited(lab: HttpLab) -> None:
    unlimited = dict.fromkeys(RETENTION, -1)
    lab.done("POST", f"{N}/retention", unlimited)
    assert lab.get(f"{N}/retention") == unlimited
    lab.done("POST", f"{N}/retention", dict.fromkeys(RETENTION, 0))


def test_a_fraction_of_a_unit_is_rounded_up(lab: HttpLab) -> None:
    """Values that gRPC set in ms and bytes are rounded up: 0 means that nothing is kept."""
    limits = Policies(retention_ms=1, retention_bytes=1)
    lab.run(lab.broker.policies.update_namespace("public/default", limits, ()))
    assert lab.get(f"{N}/retention") == dict.fromkeys(RETENTION, 1)


def test_deduplication_is_a_policy(lab: HttpLab) -> None:
    """The answers before a value is set, and after it is removed, were those of the value in force:
    they had not been compared with Pulsar's.
    """
    lab.done("PUT", f"{T}")
    paths = f"{N}/deduplication", f"{T}/deduplicationEnabled"
    in_force = [f"{path}?applied=true" for path in paths]
    assert [lab.get(path) for path in paths] == [None, None]
    assert [lab.get(path) for path in in_force] == [True, True]
    lab.done("POST", paths[0], False)
    assert [lab.get(path) for path in paths] == [False, None]
    assert [lab.get(path) for path in in_force] == [False, False]
    assert lab.get(N)["deduplicationEnabled"] is False
    assert lab.get(f"{T}/stats")["deduplicationStatus"] == "Disabled"
    lab.done("POST", paths[1], True)
    assert [lab.get(path) for path in paths] == [False, True]
    for path in paths:
        lab.done("DELETE", path)
    assert [lab.get(path) for path in paths] == [None, None]
    assert [lab.get(path) for path in in_force] == [True, True]
    assert lab.ask("POST", f"{N}/replication", ["standalone"]).status == 200
    assert lab.get(f"{N}/replication") == ["standalone"]
    assert lab.get(f"{N}/bundles")["numBundles"] == 1


def test_backlog_quotas_of_topics_and_namespaces(lab: HttpLab) -> None:
    lab.done("PUT", f"{T}")
    size = {"limitSize": 2_000_000, "limitTime": -1, "policy": "producer_exception"}
    age = {"limitSize": -1, "limitTime": 60, "policy": "consumer_backlog_eviction"}
    for path in (N, T):
        assert lab.get(f"{path}/backlogQuotaMap") == {}
        lab.done("POST", f"{path}/backlogQuota", size)
        lab.done("POST", f"{path}/backlogQuota?backlogQuotaType=message_age", age)
        assert lab.get(f"{path}/backlogQuotaMap") == {
            "destination_storage": {"limit": 2_000_000, **size},
            "message_age": {"limit": -1, **age},
        }
        lab.done("DELETE", f"{path}/backlogQuota")
        assert list(lab.get(f"{path}/backlogQuotaMap")) == ["message_age"]
    lab.done("DELETE", f"{T}/backlogQuota?backlogQuotaType=message_age")
    assert lab.get(f"{T}/backlogQuotaMap") == {}
    assert list(lab.get(f"{T}/backlogQuotaMap?applied=true")) == ["message_age"]
    lab.done("POST", f"{N}/retention", {"retentionTimeInMinutes": -1, "retentionSizeInMB": 1})
    too_much = lab.ask(
        "POST", f"{N}/backlogQuota", {"limit": 2**20, "policy": "producer_exception"}
    )
    assert (too_much.status, "exceeds the retention" in str(too_much.reason)) == (412, True)


def test_a_quota_is_below_the_retention(lab: HttpLab) -> None:
    """Only values of the same level had been compared, and of a namespace also the age, unlike in
    Pulsar 4.0.7.
    """
    lab.done("PUT", T)
    age_path = "backlogQuota?backlogQuotaType=message_age"

    def retention(at: str, minutes: int, megabytes: int) -> int:
        body = {"retentionTimeInMinutes": minutes, "retentionSizeInMB": megabytes}
        return lab.status("POST", f"{at}/retention", body)

    def size(at: str, megabytes: int, seconds: int = -1) -> int:
        limits = {"limitSize": megabytes * 2**20, "limitTime": seconds}
        return lab.status("POST", f"{at}/backlogQuota", {**limits, "policy": "producer_exception"})

    def age(at: str, seconds: int) -> int:
        body = {"limitTime": seconds, "policy": "producer_exception"}
        return lab.status("POST", f"{at}/{age_path}", body)

    assert (retention(N, 10, 10), size(N, 10), size(N, 9), retention(N, 10, 9)) == (
        *(204, 412),
        *(204, 412),
    )
    # The time limit of the quota of the size counts.
    assert (size(N, 1, seconds=600), size(N, 1, seconds=599), retention(N, 9, 10)) == (
        *(412, 204),
        412,
    )
    assert (age(N, 600), retention(N, -1, 10), retention(N, 10, 10)) == (204, 204, 204)
    # A topic's quotas, and the retention that applies to it.
    assert (size(T, 10), size(T, 9), age(T, 600), age(T, 599)) == (412, 204, 412, 204)
    assert (retention(T, 20, 9), retention(T, 20, 20), size(T, 19)) == (412, 204, 204)
    lab.done("DELETE", f"{T}/backlogQuota")
    # The namespace's quota applies to it.
    assert (size(N, 8), retention(T, 20, 8), retention(T, 20, 9)) == (204, 412, 204)
    # The namespace's changes, others of the topic, and removals are not compared.
    assert (size(N, 9), lab.status("POST", f"{T}/messageTTL", 5)) == (204, 204)
    lab.done("DELETE", f"{T}/retention")


def test_quotas_of_a_partitioned_topic_are_compared(lab: HttpLab) -> None:
    lab.done("PUT", f"{P}/partitions", 2)
    lab.done("POST", f"{N}/retention", RETENTION)
    quota = {"limitSize": 6 * 2**20, "policy": "producer_exception"}
    assert lab.status("POST", f"{P}/backlogQuota", quota) == 412
    lab.done("POST", f"{P}/backlogQuota", quota | {"limitSize": 5 * 2**20})


def test_delayed_delivery_of_topics_and_namespaces(lab: HttpLab) -> None:
    lab.done("PUT", f"{T}")
    off = {"active": False, "tickTime": 1000, "maxDeliveryDelayInMillis": 0}
    assert lab.get(f"{T}/delayedDelivery?applied=true") is None
    lab.done("POST", f"{N}/delayedDelivery", {"active": False, "tickTime": 2000})
    assert lab.get(f"{N}/delayedDelivery") == off
    assert lab.get(f"{T}/delayedDelivery?applied=true") == off
    lab.done("POST", f"{T}/delayedDelivery", {"active": True, "tickTime": 1000})
    assert lab.get(f"{T}/delayedDelivery") == off | {"active": True}
    lab.done("DELETE", f"{T}/delayedDelivery")
    assert lab.get(f"{T}/delayedDelivery") is None
    # Pulsar's clients send the values that are not given as false and 0.
    for body in ({}, {"active": False, "tickTime": 0}):
        lab.done("POST", f"{T}/delayedDelivery", body)
        assert lab.get(f"{T}/delayedDelivery") == off
    lab.done("POST", f"{N}/delayedDelivery")
    assert lab.get(f"{N}/delayedDelivery") is None


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "reason"),
    [
        ("POST", f"{N}/replication", ["standalone", "other"], 403, "Invalid cluster id: other"),
        ("POST", f"{N}/replication", [], 412, "ClusterIds should not be null or empty"),
        ("POST", f"{N}/replication", None, 412, "ClusterIds should not be null or empty"),
        ("POST", f"{N}/replication", "standalone", 400, "must be a list"),
        ("POST", "/namespaces/public/nope/replication", ["standalone"], 404, "does not exist"),
        ("POST", f"{N}/backlogQuota", [], 400, "must be an object"),
        ("POST", f"{N}/backlogQuota", {"limitSize": 1}, 400, "consumer_backlog_eviction"),
        ("POST", f"{N}/backlogQuota?backlogQuotaType=x", {}, 400, "or message_age"),
        ("POST", f"{N}/delayedDelivery", {"active": 1}, 400, "active: true or false"),
        ("POST", f"{N}/delayedDelivery", {"active": True, "tickTime": "x"}, 400, "whole number"),
        ("PUT", f"{N}/compactionThreshold", -1, 412, "compactionThreshold must be 0 or more"),
        ("PUT", f"{N}/compactionThreshold", {}, 400, "must be a whole number"),
        ("PUT", f"{N}/compactionThreshold", 2**70, 400, "out of range"),
        ("PUT", f"{N}/compactionThreshold", 1.5, 400, "must be a whole number"),
        ("PUT", f"{N}/compactionThreshold", None, 400, "The request entity cannot be empty."),
        ("PUT", "/namespaces/public/nope/compactionThreshold", 1, 404, "Namespace does not exist"),
        ("GET", "/namespaces/public/nope/retention", None, 404, "Namespace does not exist"),
        ("DELETE", "/namespaces/public/nope/retention", None, 404, "Namespace does not exist"),
        ("POST", f"{N}/messageTTL", None, 400, "The request entity cannot be empty."),
        ("POST", f"{N}/messageTTL", -5, 412, "message TTL must >= 0"),
        ("POST", f"{N}/retention", RETENTION | {"retentionSizeInMB": -2}, 400, "must be >= -1"),
        ("POST", f"{N}/retention", {"retentionTimeInMinutes": 5}, 400, "Invalid retention policy"),
        ("POST", f"{N}/retention", [], 400, "Retention must be an object"),
        ("POST", f"{N}/deduplication", "x", 400, "true or false"),
        ("GET", "/persistent/public/default/nope/retention", None, 404, "nope not found"),
        ("POST", "/persistent/public/default/nope/retention", RETENTION, 404, "nope not found"),
        ("GET", f"{P}-partition-0/retention", None, 412, PARTITION),
        ("GET", "/persistent/public/default/no-partition-3/messageTTL", None, 412, PARTITION),
        ("POST", "/persistent/public/default/no-partition-3/retention", {}, 412, PARTITION),
        ("PUT", f"{P}-partition-9/schemaCompatibilityStrategy", "FULL", 412, PARTITION),
        ("DELETE", f"{P}-partition-9/backlogQuota", None, 412, PARTITION),
        ("GET", f"{N}/persistence", None, 501, "is not emulated"),
        ("POST", f"{N}/dispatchRate", {}, 501, "is not emulated"),
        ("POST", f"{T}/maxProducers", 3, 501, "is not emulated"),
    ],
)
def test_invalid_policies_are_refused(
    lab: HttpLab, method: str, path: str, body: object, status: int, reason: str
) -> None:
    lab.done("PUT", f"{P}/partitions", 1)
    answer = lab.ask(method, path, body)
    assert answer.status == status, answer
    assert reason in answer.reason
