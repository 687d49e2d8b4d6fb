"""Roles at the door of Pulsar's protocol: each command, and what it is answered."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from ledgerfold import AuthenticationToken
from ledgerfold.admin import Admin
from ledgerfold.broker.security.needs import COMMANDS, Need
from ledgerfold.v1 import pulsar_pb2
from ledgerfold.v1.pulsar_pb2 import AuthData, BaseCommand, MessageMetadata
from tests.pulsar.recorded import RawClient, connected_in_time, producer
from tests.support.broker_process import BrokerProcess
from tests.support.security_lab import RENEWING, Tokens

TOPIC = "persistent://public/default/orders"
REFUSED = pulsar_pb2.AUTHORIZATION_ERROR
OWN = {
    "reader": {Need.LOOKUP, Need.CONSUME},
    "writer": {Need.LOOKUP, Need.PRODUCE},
    "lister": {Need.LOOKUP, Need.CONSUME, Need.LIST},
    "nobody": set[Need](),
}
# Commands that need a permission: the field, its values, and the field of the answer's error.
ASKED: dict[str, tuple[str, dict[str, Any]]] = {
    "PRODUCER": ("producer", {"topic": TOPIC, "producer_id": 1}),
    "SUBSCRIBE": (
        "subscribe",
        {"topic": TOPIC, "consumer_id": 2, "subscription": "s", "sub_type": 0},
    ),
    "PARTITIONED_METADATA": ("partitioned_metadata", {"topic": TOPIC}),
    "LOOKUP": ("lookup", {"topic": TOPIC}),
    "GET_SCHEMA": ("get_schema", {"topic": TOPIC}),
    "GET_OR_CREATE_SCHEMA": (
        "get_or_create_schema",
        {"topic": TOPIC, "schema": {"name": b"", "schema_data": b"", "type": 1}},
    ),
    "GET_TOPICS_OF_NAMESPACE": ("get_topics_of_namespace", {"namespace": "public/default"}),
    "WATCH_TOPIC_LIST": (
        "watch_topic_list",
        {"namespace": "public/default", "watcher_id": 1, "topics_pattern": ".*"},
    ),
}


class Guarded(NamedTuple):
    broker: BrokerProcess
    tokens: Tokens

    @property
    def url(self) -> str:
        return str(self.broker.ready["pulsar"])

    def admin(self) -> Admin:
        return Admin(self.broker.url, authentication=AuthenticationToken(self.tokens.of("admin")))


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    folder = tmp_path_factory.mktemp("guarded")
    tokens = Tokens(folder)
    arguments = (
        *("--compactor", "off", "--pulsar-listen", "127.0.0.1:0", *tokens.options),
        *RENEWING,
    )
    with BrokerProcess(folder / "data", arguments=arguments) as broker:
        found = Guarded(broker, tokens)
        with found.admin() as admin:
            admin.create_topic(TOPIC)
            admin.grant_permission("reader", ["consume"], topic=TOPIC)
            admin.grant_permission("writer", ["produce"], topic=TOPIC)
            admin.grant_permission("lister", ["consume"], namespace="public/default")
        yield found


def connect(token: str, method: str = "token", **flags: Any) -> BaseCommand:
    connecting = pulsar_pb2.CommandConnect(
        client_version=b"test",
        protocol_version=20,
        auth_method_name=method,
        auth_data=token.encode(),
        feature_flags=pulsar_pb2.FeatureFlags(**flags),
    )
    return BaseCommand(type=pulsar_pb2.CONNECT, connect=connecting)


def connected(guarded: Guarded, token: str, **flags: Any) -> RawClient:
    client = RawClient(guarded.url, is_connected=False)
    client.send(connect(token, **flags))
    assert client.read().type == pulsar_pb2.CONNECTED
    return client


def expiring(guarded: Guarded, role: str, **flags: Any) -> RawClient:
    """Returns a connected client whose token expires soon."""

    def connecting(after_s: int) -> RawClient:
        client = RawClient(guarded.url, is_connected=False)
        client.send(connect(guarded.tokens.expiring(role, after_s), **flags))
        return client

    return connected_in_time(connecting)


def error_in(answer: BaseCommand) -> int:
    """Returns the error of an answer, whatever its form; 0 without one."""
    (field,) = (each for each, _ in answer.ListFields() if each.name != "type")
    told = getattr(answer, field.name)
    for name in ("error", "error_code"):
        if name in told.DESCRIPTOR.fields_by_name:
            return int(getattr(told, name))
    return 0


def test_every_command_that_needs_a_permission_is_tested() -> None:
    needing = {Need.PRODUCE, Need.CONSUME, Need.LOOKUP, Need.LIST, Need.ADMIN, Need.SUPERUSER}
    assert {name for name, need in COMMANDS.items() if need in needing} == ASKED.keys()


@pytest.mark.parametrize("role", OWN)
@pytest.mark.parametrize("name", ASKED)
def test_each_role_at_each_command(guarded: Guarded, role: str, name: str) -> None:
    field, values = ASKED[name]
    asked = BaseCommand(type=pulsar_pb2.CommandType.Value(name))
    with connected(guarded, guarded.tokens.of(role)) as client:
        asked.MergeFrom(BaseCommand(type=asked.type, **{field: {"request_id": 7, **values}}))
        client.send(asked)
        error = error_in(client.read())
        assert (error == REFUSED) == (COMMANDS[name] not in OWN[role]), error


@pytest.mark.parametrize(("role", "is_refused"), [("writer", True), ("both", False)])
def test_a_first_subscription_of_a_producer_needs_consume(
    guarded: Guarded, role: str, is_refused: bool
) -> None:
    """A subscription retains messages: who may only publish creates none."""
    with guarded.admin() as admin:
        admin.grant_permission("both", ["produce", "consume"], topic=TOPIC)
        with connected(guarded, guarded.tokens.of(role)) as client:
            values = {"topic": TOPIC, "producer_id": 3, "request_id": 7}
            opening: Any = {**values, "initial_subscription_name": f"first-{role}"}
            client.send(BaseCommand(type=pulsar_pb2.PRODUCER, producer=opening))
            assert (error_in(client.read()) == REFUSED) == is_refused
        assert (f"first-{role}" in admin.list_subscriptions(TOPIC)) == (not is_refused)


@pytest.mark.parametrize(
    ("token", "method"),
    [("", "token"), ("x.y.z", "token"), ("\xff", "token"), ("", "none"), ("a:b", "basic")],
)
def test_a_connection_without_a_valid_token(guarded: Guarded, token: str, method: str) -> None:
    with RawClient(guarded.url, is_connected=False) as client:
        client.send(connect(token, method))
        answer = client.read()
        assert answer.error.error == pulsar_pb2.AUTHENTICATION_ERROR
        assert client.is_closed()


def test_no_command_is_answered_before_connect(guarded: Guarded) -> None:
    with RawClient(guarded.url, is_connected=False) as client:
        client.send(producer(TOPIC))
        assert client.read().error.error == pulsar_pb2.NOT_ALLOWED
        assert client.is_closed()


def test_commands_about_unopened_ids_have_no_effect(guarded: Guarded) -> None:
    """A consumer cannot be skipped: what needs an open one has no effect without it."""
    with connected(guarded, guarded.tokens.of("nobody")) as client:
        sending = pulsar_pb2.CommandSend(producer_id=1, sequence_id=1)
        metadata = MessageMetadata(producer_name=b"p", sequence_id=1, publish_time=1)
        client.send(BaseCommand(type=pulsar_pb2.SEND, send=sending), metadata)
        for name in ("unsubscribe", "seek", "get_last_message_id"):
            type_ = pulsar_pb2.CommandType.Value(name.upper())
            client.send(BaseCommand(type=type_, **{name: {"consumer_id": 2, "request_id": 3}}))
            assert client.read().error.error == pulsar_pb2.SERVICE_NOT_READY
    with guarded.admin() as admin:
        assert admin.stats(TOPIC)["msgInCounter"] == 0


def test_only_the_same_role_may_answer_a_challenge(guarded: Guarded) -> None:
    for role, is_refused in (("writer", False), ("reader", True)):
        with expiring(guarded, "writer", supports_auth_refresh=True) as client:
            client.read_until(lambda each: each.type == pulsar_pb2.AUTH_CHALLENGE)
            data = AuthData(auth_method_name="token", auth_data=guarded.tokens.of(role).encode())
            response = pulsar_pb2.CommandAuthResponse(response=data)
            client.send(BaseCommand(type=pulsar_pb2.AUTH_RESPONSE, auth_response=response))
            client.send(producer(TOPIC, producer_name=role))
            error = error_in(client.read())
            assert (error == pulsar_pb2.AUTHENTICATION_ERROR) is is_refused


def test_an_expired_connection_that_cannot_renew_is_closed(guarded: Guarded) -> None:
    with expiring(guarded, "writer") as client:
        answer = client.read()
        assert answer.error.error == pulsar_pb2.AUTHENTICATION_ERROR
        assert client.is_closed()


def test_an_unrequested_auth_response_closes_the_connection(guarded: Guarded) -> None:
    with connected(guarded, guarded.tokens.of("reader")) as client:
        data = AuthData(auth_method_name="token", auth_data=guarded.tokens.of("admin").encode())
        response = pulsar_pb2.CommandAuthResponse(response=data)
        client.send(BaseCommand(type=pulsar_pb2.AUTH_RESPONSE, auth_response=response))
        assert client.is_closed()


def test_a_revoked_watcher_of_topics_is_disconnected(guarded: Guarded) -> None:
    field, values = ASKED["WATCH_TOPIC_LIST"]
    with guarded.admin() as admin:
        admin.grant_permission("watcher", ["consume"], namespace="public/default")
        with connected(guarded, guarded.tokens.of("watcher")) as client:
            asked = BaseCommand(
                type=pulsar_pb2.WATCH_TOPIC_LIST, **{field: {"request_id": 7, **values}}
            )
            client.send(asked)
            assert client.read().type == pulsar_pb2.WATCH_TOPIC_LIST_SUCCESS
            admin.revoke_permission("watcher", namespace="public/default")
            assert client.is_closed()
