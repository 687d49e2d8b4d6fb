"""Brokers, clusters, tenants and namespaces, as Pulsar 4.0.7 answers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.model.log_model import Message
from tests.support.http_lab import HttpLab

INFO = {"adminRoles": ["root"], "allowedClusters": ["standalone"]}


def test_the_broker_is_well(lab: HttpLab) -> None:
    assert lab.get("/brokers/health") == b"ok"
    assert lab.get("/brokers/ready") == b"ok"
    assert lab.get("/brokers/version").startswith(b"ledgerfold-")
    assert lab.get("/brokers") == [lab.address]
    assert lab.get("/brokers/standalone") == [lab.address]
    assert lab.get("/brokers/configuration/runtime")["clusterName"] == "standalone"
    assert lab.get("/brokers/leaderBroker")["brokerId"] == lab.address


def test_no_setting_can_be_changed_at_run_time(lab: HttpLab) -> None:
    """No test had asked: the names of verbs were taken for names of clusters."""
    assert lab.get("/brokers/configuration") == []
    assert lab.get("/brokers/configuration/values") == {}
    assert lab.get("/brokers/nope") == [lab.address]
    refused = lab.ask("GET", "/brokers/internal-configuration")
    assert (refused.status, "is not emulated" in str(refused.reason)) == (501, True)


def test_backlog_quotas_are_checked_on_request(lab: HttpLab) -> None:
    topic = "/persistent/public/default/t"
    lab.done("PUT", topic)
    lab.done("PUT", f"{topic}/subscription/s")
    lab.publish(([Message(b"k", b"v")], False))
    quota = {"limitSize": 0, "policy": "consumer_backlog_eviction"}
    lab.done("POST", f"{topic}/backlogQuota", quota)
    assert lab.get(f"{topic}/stats")["subscriptions"]["s"]["msgBacklog"] == 1
    assert lab.status("GET", "/brokers/backlog-quota-check") == 204
    assert lab.get(f"{topic}/stats")["subscriptions"]["s"]["msgBacklog"] == 0


def test_there_is_one_cluster(lab: HttpLab) -> None:
    assert lab.get("/clusters") == ["standalone"]
    found = lab.get("/clusters/standalone")
    assert found == {"serviceUrl": f"http://{lab.address}", "brokerServiceUrl": "pulsar://b:6650"}
    missing = lab.ask("GET", "/clusters/nope")
    assert (missing.status, missing.reason) == (404, "Cluster does not exist")


def test_a_tenant_is_made_and_deleted(lab: HttpLab) -> None:
    assert lab.get("/tenants") == ["public"]
    lab.done("PUT", "/tenants/acme", INFO)
    assert lab.get("/tenants") == ["acme", "public"]
    assert lab.get("/tenants/acme") == INFO
    lab.done("POST", "/tenants/acme", INFO | {"adminRoles": []})
    assert lab.get("/tenants/acme")["adminRoles"] == []
    assert lab.get("/namespaces/acme") == []
    assert lab.ask("PUT", "/tenants/acme", INFO).reason == "Tenant already exist"
    lab.done("DELETE", "/tenants/acme")
    assert lab.status("GET", "/tenants/acme") == 404


def test_created_tenants_and_namespaces_survive_a_crash(lab: HttpLab) -> None:
    lab.done("PUT", "/tenants/acme", INFO)
    lab.done("PUT", "/namespaces/acme/ns")
    store = lab.on_loop(lambda: lab.broker.metadata)
    assert [each.name for each in store.tenants()] == ["acme"]
    assert [each.name for each in store.namespaces()] == ["acme/ns"]
    found = store.store()
    assert found is not None
    assert "tenants" in found.features


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "reason"),
    [
        ("GET", "/tenants/nope", None, 404, "Tenant does not exist"),
        ("PUT", "/tenants/x", None, 412, "TenantInfo is null"),
        ("PUT", "/tenants/x", {"allowedClusters": []}, 412, "Clusters cannot be empty or blank"),
        ("PUT", "/tenants/x", {"allowedClusters": ["nope"]}, 412, "Clusters do not exist"),
        ("PUT", "/tenants/a%20b", INFO, 412, "Tenant name is not valid"),
        (
            *("PUT", "/tenants/x", INFO | {"adminRoles": [" "]}, 412),
            "AdminRoles contains whitespace in the beginning or end.",
        ),
        (
            *("PUT", "/namespaces/public/n4", {"replication_clusters": ["nope"]}, 403),
            "Cluster [nope] is not in the list of allowed clusters list for tenant [public]",
        ),
        ("POST", "/tenants/nope", INFO, 404, "Tenant nope not found"),
        ("DELETE", "/tenants/nope", None, 404, "Tenant doesn't exist"),
        ("DELETE", "/tenants/public", None, 409, "The tenant still has active namespaces"),
        (
            *("DELETE", "/tenants/public?force=true", None, 405),
            "Broker doesn't allow forced deletion of tenants",
        ),
        ("GET", "/namespaces/nope", None, 404, "Tenant not found"),
        ("PUT", "/namespaces/nope/ns", None, 404, "Tenant does not exist"),
        ("PUT", "/namespaces/public/n%20s", None, 412, "Namespace name is not valid"),
        ("PUT", "/namespaces/public/default", None, 409, "Namespace already exists"),
        ("DELETE", "/namespaces/nope/ns", None, 404, "Namespace nope/ns does not exist."),
        (
            *("DELETE", "/namespaces/public/default?force=true", None, 405),
            "Broker doesn't allow forced deletion of namespaces",
        ),
        ("GET", "/namespaces/public/nope/topics", None, 404, "Namespace does not exist"),
    ],
)
def test_refusals_equal_pulsars(
    lab: HttpLab, method: str, path: str, body: object, status: int, reason: str
) -> None:
    answer = lab.ask(method, path, body)
    assert (answer.status, answer.reason) == (status, reason)


def test_a_namespace_is_made_and_deleted(lab: HttpLab) -> None:
    assert lab.get("/namespaces/public") == ["public/default"]
    lab.done("PUT", "/namespaces/public/ns", {"bundles": {"numBundles": 4}})
    assert lab.get("/namespaces/public") == ["public/default", "public/ns"]
    assert lab.get("/namespaces/public/ns/topics") == []
    lab.run(lab.broker.create_topic("persistent://public/ns/t"))
    assert lab.get("/namespaces/public/ns/topics") == ["persistent://public/ns/t"]
    assert lab.get("/namespaces/public/ns/topics?mode=NON_PERSISTENT") == []
    refused = lab.ask("DELETE", "/namespaces/public/ns")
    assert (refused.status, refused.reason) == (409, "Cannot delete non empty namespace")
    lab.run(lab.broker.delete_topic("persistent://public/ns/t", force=False))
    lab.done("DELETE", "/namespaces/public/ns")
    assert lab.status("GET", "/namespaces/public/ns/topics") == 404
    # It is where topics go that name none.
    assert lab.status("DELETE", "/namespaces/public/default") == 405


def test_a_namespace_exists_when_a_client_used_it(lab: HttpLab) -> None:
    """So does its tenant, without a request to create them."""
    lab.run(lab.broker.create_topic("persistent://shop/eu/t"))
    assert lab.get("/tenants") == ["public", "shop"]
    assert lab.get("/namespaces/shop") == ["shop/eu"]
    assert lab.status("DELETE", "/tenants/shop") == 409


def test_a_lookup_names_the_pulsar_port(lab: HttpLab) -> None:
    found = lab.get("/lookup/v2/topic/persistent/public/default/t")
    assert found["brokerUrl"] == "pulsar://b:6650"
    assert lab.get("/lookup/v2/topic/persistent/public/default/t/bundle").startswith(b"0x0")
    unknown = lab.ask("GET", "/lookup/v2/topic/persistent/public/nope/t")
    assert (unknown.status, unknown.reason) == (404, "Namespace not found")
    named = lab.ask("GET", "/lookup/v2/topic/persistent/public/default/t?listenerName=outside")
    assert named.status == 405
    assert "omit the listener name" in named.reason
    settings = replace(lab.broker.settings, pulsar_listeners={"outside": "b.org:6651"})
    lab.on_loop(lambda: setattr(lab.broker, "settings", settings))
    path = "/lookup/v2/topic/persistent/public/default/t"
    by_header = lab.ask("GET", path, headers={"x-pulsar-listenername": "outside"})
    assert by_header.body["brokerUrl"] == "pulsar://b.org:6651"
    assert lab.get(f"{path}?listenerName=outside")["brokerUrl"] == "pulsar://b.org:6651"
    assert lab.get(path)["brokerUrl"] == "pulsar://b:6650"


def test_without_a_pulsar_port_a_lookup_is_refused() -> None:
    lab = HttpLab(pulsar_url=None)
    assert lab.status("GET", "/lookup/v2/topic/persistent/public/default/t") == 501
    lab.close()
