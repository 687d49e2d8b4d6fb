"""Every rpc, command and route has a row in the table of needs, and no row is of nothing."""

from __future__ import annotations

import inspect
import re

import pytest
from grpc_health.v1 import health_pb2

from ledgerfold.broker.http.server import all_routes
from ledgerfold.broker.pulsar.connection import Connection
from ledgerfold.broker.rpc.guarded import need_of
from ledgerfold.broker.security.needs import COMMANDS, ROUTES, RPCS, Need
from ledgerfold.broker.server.grpc_server import ADMIN_SERVICE, DATA_SERVICE, KAFKA_SERVICE
from ledgerfold.v1 import admin_pb2, data_pb2, kafka_pb2, pulsar_pb2
from tests.support.http_lab import HttpLab

# The services of the broker's contract; a new one must be served, and listed here.
_CONTRACTS = (admin_pb2, data_pb2, kafka_pb2)
# What only brokers send.
_ANSWERS = {
    "UNKNOWN_COMMAND", "CONNECTED", "SEND_RECEIPT", "SEND_ERROR", "MESSAGE", "SUCCESS", "ERROR",
    "PRODUCER_SUCCESS", "PARTITIONED_METADATA_RESPONSE", "LOOKUP_RESPONSE",
    "CONSUMER_STATS_RESPONSE", "REACHED_END_OF_TOPIC", "GET_LAST_MESSAGE_ID_RESPONSE",
    "ACTIVE_CONSUMER_CHANGE", "GET_TOPICS_OF_NAMESPACE_RESPONSE", "GET_SCHEMA_RESPONSE",
    "ACK_RESPONSE", "GET_OR_CREATE_SCHEMA_RESPONSE", "TC_CLIENT_CONNECT_RESPONSE",
    "WATCH_TOPIC_LIST_SUCCESS", "WATCH_TOPIC_UPDATE", "AUTH_CHALLENGE",
}  # fmt: skip
# Rows of policies are the same for all methods, of which a route has some.
_POLICY_METHODS = ("GET", "PUT", "POST", "DELETE")


def test_every_rpc_has_a_permission() -> None:
    services = [each for pb2 in _CONTRACTS for each in pb2.DESCRIPTOR.services_by_name.values()]
    assert {*services} == {DATA_SERVICE, ADMIN_SERVICE, KAFKA_SERVICE}
    services.append(health_pb2.DESCRIPTOR.services_by_name["Health"])
    names = {f"{each.name}/{method.name}" for each in services for method in each.methods}
    assert names == RPCS.keys()


def test_an_rpc_without_a_listed_permission_needs_a_superuser(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = {name: need for name, need in RPCS.items() if name != "DataService/Read"}
    monkeypatch.setattr("ledgerfold.broker.rpc.guarded.RPCS", rows)
    assert need_of(DATA_SERVICE.methods_by_name["Read"]) is Need.SUPERUSER


def test_every_command_of_a_client_has_a_permission() -> None:
    assert set(pulsar_pb2.CommandType.keys()) - _ANSWERS == COMMANDS.keys()


def test_every_handled_command_is_a_clients_command() -> None:
    handled = re.findall(r"types\.([A-Z_]+):", inspect.getsource(Connection._handlers))
    assert {*handled, "CONNECT", "SEND", "PING", "PONG", "AUTH_RESPONSE"} == COMMANDS.keys()


def test_every_route_has_a_permission() -> None:
    lab = HttpLab()
    try:
        routes = lab.on_loop(lambda: all_routes(lab.broker, "http://h:1", "pulsar://h:2"))
    finally:
        lab.close()
    served = {(method, path) for method, path, _ in routes}
    assert served <= ROUTES.keys()
    paths = {path for _, path in served}
    for method, path in ROUTES.keys() - served:
        # A row of a policy may name a method, or a kind of scope, that its route has not.
        assert ROUTES[method, path] is Need.ADMIN
        is_policy = any(other.rpartition("/")[2] == path.rpartition("/")[2] for other in paths)
        assert is_policy, (method, path)
        assert method in _POLICY_METHODS, (method, path)


def test_a_schema_is_added_by_producers_and_deleted_by_admins() -> None:
    """As in Pulsar: a deletion would be a way around the strategy of compatibility."""
    schema = "/admin/v2/schemas/{tenant}/{namespace}/{topic}/schema"
    assert RPCS["AdminService/PutSchema"] is ROUTES["POST", schema] is Need.PRODUCE
    assert RPCS["AdminService/DeleteSchema"] is ROUTES["DELETE", schema] is Need.ADMIN


def test_unauthenticated_clients_have_exactly_these_rights() -> None:
    tables = (RPCS, COMMANDS, ROUTES)
    free = {str(name) for table in tables for name, need in table.items() if need is Need.NOTHING}
    assert free == {
        "Health/Check",
        "Health/List",
        "CONNECT",
        "AUTH_RESPONSE",
        "('GET', '/admin/v2/brokers/health')",
        "('GET', '/admin/v2/brokers/ready')",
    }
