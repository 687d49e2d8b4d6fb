"""The verbs about brokers, clusters, tenants, namespaces, and the lookup of a topic's broker.

There is one cluster, `standalone`, with one broker. Sources: Pulsar's BrokersBase, ClustersBase,
TenantsBase, NamespacesBase and TopicLookup.
"""

from __future__ import annotations

from typing import Any

from ledgerfold.broker.common.names import check_named_entity, full_topic
from ledgerfold.broker.faults.faults import looked_up
from ledgerfold.broker.http.answers import Answer, Refusal, Request, answering, shown, text
from ledgerfold.broker.http.routes import ADMIN, Route
from ledgerfold.broker.pulsar.lookups import url_for
from ledgerfold.broker.topics.broker import Broker
from ledgerfold.storage.errors import InvalidRequest
from ledgerfold.version import __version__

CLUSTER = "standalone"
NO_NAMESPACE = "Namespace does not exist"
_MODES = ("PERSISTENT", "NON_PERSISTENT", "ALL")
# Verbs of Pulsar where other paths have the name of a cluster.
_OTHER_VERBS = ("internal-configuration",)
_LISTENER = "X-Pulsar-ListenerName"
_LOOKUP = "/lookup/v2/topic/{domain}/{tenant}/{namespace}/{topic}"


def cluster_routes(broker: Broker, url: str, pulsar_url: str | None) -> list[Route]:
    """Returns the routes. `url`: the one at which this API is served, "http://host:port"."""
    cluster, tenants = ClusterVerbs(broker, url, pulsar_url), TenantVerbs(broker)
    return [
        ("GET", f"{ADMIN}/brokers/health", cluster.health),
        ("GET", f"{ADMIN}/brokers/ready", cluster.health),
        ("GET", f"{ADMIN}/brokers/version", cluster.version),
        ("GET", f"{ADMIN}/brokers/leaderBroker", cluster.leader),
        ("GET", f"{ADMIN}/brokers/configuration", cluster.dynamic_names),
        ("GET", f"{ADMIN}/brokers/configuration/values", cluster.dynamic_values),
        ("GET", f"{ADMIN}/brokers/configuration/runtime", cluster.configuration),
        ("GET", f"{ADMIN}/brokers/backlog-quota-check", cluster.check_quotas),
        ("GET", f"{ADMIN}/brokers", cluster.brokers),
        ("GET", f"{ADMIN}/brokers/{{cluster}}", cluster.brokers),
        ("GET", f"{ADMIN}/clusters", cluster.clusters),
        ("GET", f"{ADMIN}/clusters/{{cluster}}", cluster.cluster),
        ("GET", f"{ADMIN}/tenants", tenants.tenants),
        ("GET", f"{ADMIN}/tenants/{{tenant}}", tenants.tenant),
        ("PUT", f"{ADMIN}/tenants/{{tenant}}", tenants.create_tenant),
        ("POST", f"{ADMIN}/tenants/{{tenant}}", tenants.update_tenant),
        ("DELETE", f"{ADMIN}/tenants/{{tenant}}", tenants.delete_tenant),
        ("GET", f"{ADMIN}/namespaces/{{tenant}}", tenants.namespaces),
        ("DELETE", f"{ADMIN}/namespaces/{{tenant}}/{{namespace}}", tenants.delete_namespace),
        ("GET", f"{ADMIN}/namespaces/{{tenant}}/{{namespace}}/topics", tenants.topics),
        ("GET", _LOOKUP, cluster.lookup),
        ("GET", f"{_LOOKUP}/bundle", cluster.bundle),
    ]


def check_exists(broker: Broker, namespace: str, reason: str = NO_NAMESPACE) -> None:
    """Raises Refusal for an unknown namespace."""
    for part in namespace.split("/"):
        check_valid(part, "Namespace name is not valid")
    if not broker.namespaces.exists(namespace):
        raise Refusal(404, reason)


def check_valid(name: str, reason: str) -> None:
    with answering(InvalidRequest, 412, reason):
        check_named_entity(name, name)


class ClusterVerbs:
    def __init__(self, broker: Broker, url: str, pulsar_url: str | None) -> None:
        self._broker, self._url, self._pulsar_url = broker, url, pulsar_url
        self._address = url.partition("://")[2]
        # The suffix of the URLs' names, as Pulsar's clients expect it.
        self._tls = "Tls" if url.startswith("https:") else ""

    async def health(self, request: Request) -> Answer:
        return text("ok")

    async def version(self, request: Request) -> Answer:
        return text(f"ledgerfold-{__version__}")

    async def brokers(self, request: Request) -> Answer:
        """Lists the broker for any name of a cluster, as Pulsar does."""
        verb = request.names.get("cluster")
        if verb in _OTHER_VERBS:
            raise Refusal(501, f"GET {ADMIN}/brokers/{verb} is not emulated.")
        return shown([self._address])

    async def check_quotas(self, request: Request) -> None:
        """Runs the check of backlog quotas that otherwise runs periodically."""
        await self._broker.housekeeping.check_quotas()

    async def dynamic_names(self, request: Request) -> Answer:
        """Lists the settings that can be changed at run time: none."""
        return shown([])

    async def dynamic_values(self, request: Request) -> Answer:
        return shown({})

    async def leader(self, request: Request) -> Answer:
        return shown({"serviceUrl": self._url, "brokerId": self._address})

    async def configuration(self, request: Request) -> Answer:
        """Shows the options that also exist in Pulsar, as text."""
        settings = self._broker.settings
        values = {
            "clusterName": CLUSTER,
            "maxMessageSize": settings.message_bytes_max,
            "brokerServiceCompactionThresholdInBytes": settings.compaction_threshold_bytes,
            "ttlDurationDefaultInSeconds": settings.message_ttl_ms // 1000,
            "topicCompactionRetainNullKey": str(settings.retain_null_key).lower(),
            "brokerDeduplicationEnabled": str(settings.deduplicates is not False).lower(),
        }
        return shown({name: str(value) for name, value in values.items()})

    async def clusters(self, request: Request) -> Answer:
        return shown([CLUSTER])

    async def cluster(self, request: Request) -> Answer:
        if request.names["cluster"] != CLUSTER:
            raise Refusal(404, "Cluster does not exist")
        found = {f"serviceUrl{self._tls}": self._url}
        if self._pulsar_url is not None:
            found[f"brokerServiceUrl{self._tls}"] = self._pulsar_url
        return shown(found)

    async def lookup(self, request: Request) -> Answer:
        name = full_topic(request.topic)
        check_exists(self._broker, request.namespace, "Namespace not found")
        if self._pulsar_url is None:
            raise Refusal(501, "This broker does not serve Pulsar's binary protocol.")
        await looked_up(self._broker.faults, name)
        listener = request.query.get("listenerName") or request.headers.get(_LISTENER, "")
        listeners = self._broker.settings.pulsar_listeners
        url = url_for(listener, listeners, self._pulsar_url)
        plain, tls = ("", url) if self._tls else (url, "")
        return shown(
            {"brokerUrl": plain, "httpUrl": self._url, "nativeUrl": url, "brokerUrlSsl": tls}
        )

    async def bundle(self, request: Request) -> Answer:
        check_exists(self._broker, request.namespace, "Namespace not found")
        return text("0x00000000_0xffffffff")


class TenantVerbs:
    def __init__(self, broker: Broker) -> None:
        self._broker, self._namespaces = broker, broker.namespaces

    async def tenants(self, request: Request) -> Answer:
        return shown(self._namespaces.tenants())

    async def tenant(self, request: Request) -> Answer:
        record = self._namespaces.tenant(request.names["tenant"])
        if record is None:
            raise Refusal(404, "Tenant does not exist")
        return shown({"adminRoles": list(record.admin_roles), "allowedClusters": [CLUSTER]})

    async def create_tenant(self, request: Request) -> None:
        name = request.names["tenant"]
        check_valid(name, "Tenant name is not valid")
        roles = _roles(request.body)
        if self._namespaces.tenant(name) is not None:
            raise Refusal(409, "Tenant already exist")
        await self._namespaces.put_tenant(name, roles)

    async def update_tenant(self, request: Request) -> None:
        name = request.names["tenant"]
        roles = _roles(request.body)
        if self._namespaces.tenant(name) is None:
            raise Refusal(404, f"Tenant {name} not found")
        await self._namespaces.put_tenant(name, roles)

    async def delete_tenant(self, request: Request) -> None:
        name = request.names["tenant"]
        if request.flag("force"):
            raise Refusal(405, "Broker doesn't allow forced deletion of tenants")
        if self._namespaces.tenant(name) is None:
            raise Refusal(404, "Tenant doesn't exist")
        if not await self._namespaces.delete_tenant(name):
            raise Refusal(409, "The tenant still has active namespaces")

    async def namespaces(self, request: Request) -> Answer:
        tenant = request.names["tenant"]
        if self._namespaces.tenant(tenant) is None:
            raise Refusal(404, "Tenant not found")
        return shown(self._namespaces.names(tenant))

    async def delete_namespace(self, request: Request) -> None:
        name = request.namespace
        if request.flag("force"):
            raise Refusal(405, "Broker doesn't allow forced deletion of namespaces")
        if not self._namespaces.exists(name):
            raise Refusal(404, f"Namespace {name} does not exist.")
        if not await self._namespaces.delete(name):
            raise Refusal(409, "Cannot delete non empty namespace")

    async def topics(self, request: Request) -> Answer:
        check_exists(self._broker, request.namespace)
        mode, names = request.query.get("mode", "").upper() or "PERSISTENT", list[str]()
        if mode not in _MODES:
            raise Refusal(404, f"The mode must be one of {', '.join(_MODES)}.")
        if mode != "NON_PERSISTENT":
            listed = self._broker.names.listed
            names += await self._broker.in_thread(lambda: listed(request.namespace))
        if mode != "PERSISTENT":
            names += self._broker.non_persistent.listed(request.namespace)
        return shown(names)


def _roles(body: Any) -> list[str]:
    """Returns the admin roles of a TenantInfo. Raises Refusal."""
    if body is None:
        raise Refusal(412, "TenantInfo is null")
    if not isinstance(body, dict):
        raise Refusal(400, "A TenantInfo must be an object.")
    clusters, roles = body.get("allowedClusters") or [], body.get("adminRoles") or []
    for each in (clusters, roles):
        if not isinstance(each, list) or not all(isinstance(name, str) for name in each):
            raise Refusal(400, "adminRoles and allowedClusters must be lists of names.")
    if not clusters:
        raise Refusal(412, "Clusters cannot be empty or blank")
    if clusters != [CLUSTER]:
        raise Refusal(412, "Clusters do not exist")
    return roles
