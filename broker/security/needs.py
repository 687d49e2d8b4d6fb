"""The permission that each request needs, for all protocols.

  >>> RPCS["AdminService/TruncateTopic"], COMMANDS["SUBSCRIBE"]
  (<Need.ADMIN: 'admin'>, <Need.CONSUME: 'consume'>)

Each rpc, command of Pulsar's protocol and route of the admin REST API has a row
(tests/unit/security/test_needs.py walks all of them); a request without one is refused. The needs
are those of Pulsar's PulsarAuthorizationProvider, where it has the operation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Final


class Need(Enum):
    """The permission that a request needs, for the topic, namespace or tenant that it names."""

    # None: clients without credentials may send it.
    NOTHING = "nothing"
    # Any role.
    ROLE = "role"
    # None: its producer or consumer was checked when it opened.
    OPENED = "opened"
    # Permission to produce to the topic, or to consume from it.
    LOOKUP = "lookup"
    PRODUCE = "produce"
    CONSUME = "consume"
    # Permission to produce to all topics of the namespace, or to consume from them.
    LIST = "list"
    # A role that is an admin of the tenant. A request that names no tenant applies to all of them,
    # and needs a superuser.
    ADMIN = "admin"
    SUPERUSER = "superuser"


def _rows(service: str, rows: Mapping[Need, str]) -> dict[str, Need]:
    return {f"{service}/{name}": need for need, names in rows.items() for name in names.split()}


RPCS: Final[Mapping[str, Need]] = {
    **_rows(
        "DataService",
        {
            Need.PRODUCE: "Publish",
            Need.CONSUME: "Subscribe Read Seek Unsubscribe",
            Need.LOOKUP: "GetPartitions GetLastMessageId",
        },
    ),
    **_rows(
        "AdminService",
        {
            Need.ROLE: "GetBrokerInfo GetClock",
            Need.LOOKUP: "GetTopicStats GetTopicInternalStats GetTopicProperties "
            "GetPartitionedTopicMetadata "
            "GetPartitionedTopicStats GetSchema ListSchemas CheckSchema",
            Need.PRODUCE: "PutSchema",
            Need.CONSUME: "CreateSubscription ListSubscriptions ExpireMessages ResetCursor "
            "SkipMessages ClearBacklog GetMessageIdByTimestamp PeekMessages ExamineMessages "
            "GetMessageById GetSubscriptionProperties SetSubscriptionProperties Explain WhatIf",
            Need.LIST: "ListTopics ListPartitionedTopics",
            Need.ADMIN: "CreateTopic DeleteTopic UnloadTopic TrimTopic TruncateTopic "
            "TerminateTopic UpdateTopicProperties CreatePartitionedTopic "
            "UpdatePartitionedTopic DeletePartitionedTopic "
            "TriggerCompaction GetCompactionStatus WatchCompaction CancelCompaction ListRuns "
            "ListNamespaces CreateNamespace DeleteNamespace GetPolicies UpdatePolicies "
            "GetPermissions GrantPermission RevokePermission DeleteSchema",
            Need.SUPERUSER: "MoveClock Reset SaveSnapshot ListSnapshots RestoreSnapshot "
            "DeleteSnapshot AddFault ListFaults RemoveFault ClearFaults "
            "ListTenants CreateTenant UpdateTenant DeleteTenant",
        },
    ),
    **_rows(
        "KafkaService",
        {
            Need.ROLE: "InitProducerId",
            Need.PRODUCE: "Append EndTransaction",
            Need.LOOKUP: "GetKafkaConfig",
            # It can return records.
            Need.CONSUME: "DescribeLog",
            Need.ADMIN: "RollSegment SetLogStart TruncateLog SetHighWatermark SetKafkaConfig "
            "PlanCleaning Clean RunRetention GetCleaner SetCleaning",
        },
    ),
    # Health checks need no role, as is usual; the answer only says whether the broker serves.
    **_rows("Health", {Need.NOTHING: "Check List", Need.ROLE: "Watch"}),
}

# The keys are the types of the commands that clients send.
COMMANDS: Final[Mapping[str, Need]] = {
    "CONNECT": Need.NOTHING,
    "AUTH_RESPONSE": Need.NOTHING,
    "PING": Need.ROLE,
    "PONG": Need.ROLE,
    "PRODUCER": Need.PRODUCE,
    "SEND": Need.OPENED,
    "CLOSE_PRODUCER": Need.OPENED,
    "SUBSCRIBE": Need.CONSUME,
    "FLOW": Need.OPENED,
    "ACK": Need.OPENED,
    "REDELIVER_UNACKNOWLEDGED_MESSAGES": Need.OPENED,
    "UNSUBSCRIBE": Need.OPENED,
    "SEEK": Need.OPENED,
    "CLOSE_CONSUMER": Need.OPENED,
    "CONSUMER_STATS": Need.OPENED,
    "GET_LAST_MESSAGE_ID": Need.OPENED,
    "PARTITIONED_METADATA": Need.LOOKUP,
    "LOOKUP": Need.LOOKUP,
    "GET_SCHEMA": Need.LOOKUP,
    "GET_OR_CREATE_SCHEMA": Need.PRODUCE,
    "GET_TOPICS_OF_NAMESPACE": Need.LIST,
    "WATCH_TOPIC_LIST": Need.LIST,
    "WATCH_TOPIC_LIST_CLOSE": Need.OPENED,
    # It is refused anyway.
    "TC_CLIENT_CONNECT_REQUEST": Need.ROLE,
}

_ADMIN = "/admin/v2"
_TENANT = f"{_ADMIN}/tenants/{{tenant}}"
_NAMESPACE = f"{_ADMIN}/namespaces/{{tenant}}/{{namespace}}"
_ALL = f"{_ADMIN}/{{domain}}/{{tenant}}/{{namespace}}"
_TOPIC = f"{_ALL}/{{topic}}"
_SUBSCRIPTION = f"{_TOPIC}/subscription/{{subscription}}"
_SCHEMAS = f"{_ADMIN}/schemas/{{tenant}}/{{namespace}}/{{topic}}"
_LOOKUP = "/lookup/v2/topic/{domain}/{tenant}/{namespace}/{topic}"


def _routes(need: Need, methods: str, path: str, *ends: str) -> dict[tuple[str, str], Need]:
    return {(method, path + end): need for method in methods.split() for end in ends or ("",)}


def _policies(names: Iterable[str]) -> dict[tuple[str, str], Need]:
    """Returns the rows of the policies of namespaces and topics, for every method."""
    return {
        row: Need.ADMIN
        for path in (_NAMESPACE, _TOPIC)
        for name in names
        for row in _routes(Need.ADMIN, "GET PUT POST DELETE", path, f"/{name}")
    }


# By method and path. "/metrics" has an option of its own.
ROUTES: Final[Mapping[tuple[str, str], Need]] = {
    **_routes(Need.NOTHING, "GET", f"{_ADMIN}/brokers", "/health", "/ready"),
    **_routes(Need.ROLE, "GET", f"{_ADMIN}/brokers", "/version"),
    **_routes(Need.SUPERUSER, "GET", f"{_ADMIN}/brokers", "", "/{cluster}", "/leaderBroker"),
    **_routes(Need.SUPERUSER, "GET", f"{_ADMIN}/brokers", "/backlog-quota-check"),
    **_routes(Need.SUPERUSER, "GET", f"{_ADMIN}/brokers/configuration", "", "/values", "/runtime"),
    **_routes(Need.ROLE, "GET", f"{_ADMIN}/clusters", "", "/{cluster}"),
    **_routes(Need.SUPERUSER, "GET", f"{_ADMIN}/tenants"),
    **_routes(Need.SUPERUSER, "GET PUT POST DELETE", _TENANT),
    **_routes(Need.ADMIN, "GET", f"{_ADMIN}/namespaces/{{tenant}}"),
    **_routes(Need.ADMIN, "GET PUT DELETE", _NAMESPACE),
    **_routes(Need.LIST, "GET", _NAMESPACE, "/topics", "/bundles"),
    **_routes(Need.ADMIN, "PUT", _NAMESPACE, "/unload"),
    **_routes(Need.ADMIN, "GET", _NAMESPACE, "/permissions"),
    **_routes(Need.ADMIN, "GET POST", _NAMESPACE, "/replication"),
    **_routes(Need.ADMIN, "POST", _NAMESPACE, "/clearBacklog", "/clearBacklog/{subscription}"),
    **_routes(Need.ADMIN, "POST", _NAMESPACE, "/unsubscribe/{subscription}"),
    **_routes(Need.ADMIN, "POST DELETE", _NAMESPACE, "/permissions/{role}"),
    **_policies(
        (
            "compactionThreshold", "retention", "messageTTL", "delayedDelivery", "deduplication",
            "maxUnackedMessagesPerConsumer", "maxUnackedMessagesPerSubscription",
            "maxUnackedMessagesOnConsumer", "maxUnackedMessagesOnSubscription",
            "deduplicationEnabled", "backlogQuotaMap", "backlogQuota", "isAllowAutoUpdateSchema",
            "schemaCompatibilityStrategy", "schemaValidationEnforced",
        )
    ),
    **_routes(Need.LIST, "GET", _ALL, "", "/partitioned"),
    **_routes(Need.ADMIN, "PUT DELETE", _TOPIC),
    **_routes(Need.ADMIN, "GET", _TOPIC, "/permissions"),
    **_routes(Need.ADMIN, "POST DELETE", _TOPIC, "/permissions/{role}"),
    **_routes(Need.LOOKUP, "GET", _TOPIC, "/stats", "/internalStats", "/partitions"),
    **_routes(Need.LOOKUP, "GET", _TOPIC, "/partitioned-stats", "/partitioned-internalStats"),
    **_routes(Need.LOOKUP, "GET", _TOPIC, "/properties"),
    **_routes(Need.ADMIN, "PUT DELETE", _TOPIC, "/properties"),
    **_routes(Need.CONSUME, "GET", _TOPIC, "/lastMessageId", "/messageid/{timestamp}"),
    **_routes(Need.CONSUME, "GET", _TOPIC, "/examinemessage", "/ledger/{ledger}/entry/{entry}"),
    **_routes(Need.ADMIN, "PUT", _TOPIC, "/unload"),
    **_routes(Need.ADMIN, "POST", _TOPIC, "/trim", "/terminate", "/terminate/partitions"),
    **_routes(Need.ADMIN, "DELETE", _TOPIC, "/truncate", "/partitions"),
    **_routes(Need.ADMIN, "PUT GET", _TOPIC, "/compaction"),
    **_routes(Need.ADMIN, "PUT POST", _TOPIC, "/partitions"),
    **_routes(Need.CONSUME, "GET", _TOPIC, "/subscriptions"),
    **_routes(Need.CONSUME, "PUT DELETE", _SUBSCRIPTION),
    **_routes(Need.CONSUME, "GET PUT", _SUBSCRIPTION, "/properties"),
    **_routes(Need.CONSUME, "POST", _SUBSCRIPTION, "/skip_all", "/skip/{count}", "/resetcursor"),
    **_routes(Need.CONSUME, "POST", _SUBSCRIPTION, "/resetcursor/{timestamp}"),
    **_routes(Need.CONSUME, "POST", _SUBSCRIPTION, "/expireMessages", "/expireMessages/{seconds}"),
    **_routes(Need.CONSUME, "POST", _TOPIC, "/all_subscription/expireMessages/{seconds}"),
    **_routes(Need.CONSUME, "GET", _SUBSCRIPTION, "/position/{position}"),
    **_routes(Need.LOOKUP, "GET", _SCHEMAS, "/schema", "/schema/{version}", "/schemas"),
    **_routes(Need.PRODUCE, "POST", _SCHEMAS, "/schema"),
    **_routes(Need.ADMIN, "DELETE", _SCHEMAS, "/schema"),
    **_routes(Need.LOOKUP, "POST", _SCHEMAS, "/compatibility", "/version"),
    **_routes(Need.LOOKUP, "GET", _LOOKUP, "", "/bundle"),
    **_routes(Need.SUPERUSER, "GET", "/metrics"),
}  # fmt: skip
