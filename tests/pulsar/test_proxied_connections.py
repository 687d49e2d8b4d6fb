"""A proxy at the door of Pulsar's protocol: its role, and the role of its client."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ledgerfold import AuthenticationToken
from ledgerfold.admin import Admin
from ledgerfold.v1 import pulsar_pb2
from ledgerfold.v1.pulsar_pb2 import AuthData, BaseCommand
from tests.pulsar.recorded import RawClient, connected_in_time, producer
from tests.support.broker_process import BrokerProcess
from tests.support.security_lab import RENEWING, Tokens

TOPIC = "persistent://public/default/orders"
AUTHENTICATION = pulsar_pb2.AUTHENTICATION_ERROR
AUTHORIZATION = pulsar_pb2.AUTHORIZATION_ERROR
Served = tuple[BrokerProcess, Tokens]


def serve(folder: Path, *more: str) -> Iterator[Served]:
    tokens = Tokens(folder)
    arguments = (
        *("--compactor", "off", "--pulsar-listen", "127.0.0.1:0", *tokens.options),
        *(*RENEWING, *more),
    )
    with BrokerProcess(folder / "data", arguments=arguments) as broker:
        with admin_of((broker, tokens)) as admin:
            admin.create_topic(TOPIC)
            for role in ("proxy", "writer"):
                admin.grant_permission(role, ["produce"], topic=TOPIC)
        yield broker, tokens


def admin_of(served: Served) -> Admin:
    broker, tokens = served
    return Admin(broker.url, authentication=AuthenticationToken(tokens.of("admin")))


@pytest.fixture(scope="module")
def trusting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A broker that believes its proxies."""
    folder = tmp_path_factory.mktemp("trusting")
    yield from serve(folder, "--proxy-roles", "proxy,bare-proxy")


@pytest.fixture(scope="module")
def checking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A broker to which proxies forward what their clients have shown."""
    config = (
        "authenticationEnabled=true",
        "authorizationEnabled=true",
        "proxyRoles=proxy",
        "authenticateOriginalAuthData=true",
    )
    folder = tmp_path_factory.mktemp("checking")
    yield from serve(folder, *(part for each in config for part in ("--pulsar-config", each)))


def connection(served: Served, token: str, **values: Any) -> RawClient:
    client = RawClient(str(served[0].ready["pulsar"]), is_connected=False)
    connecting = pulsar_pb2.CommandConnect(
        client_version=b"proxy",
        protocol_version=20,
        auth_method_name="token",
        auth_data=token.encode(),
        feature_flags=pulsar_pb2.FeatureFlags(supports_auth_refresh=True),
        **values,
    )
    client.send(BaseCommand(type=pulsar_pb2.CONNECT, connect=connecting))
    return client


@pytest.mark.parametrize(
    ("role", "original", "is_permitted"),
    [
        ("proxy", "writer", True),
        ("proxy", "stranger", False),
        ("bare-proxy", "writer", False),
        ("proxy", "admin", True),
    ],
)
def test_both_roles_need_the_permission(
    trusting: Served, role: str, original: str, is_permitted: bool
) -> None:
    with connection(trusting, trusting[1].of(role), original_principal=original) as client:
        assert client.read().type == pulsar_pb2.CONNECTED
        client.send(producer(TOPIC, producer_name=f"{role}-{original}"))
        answer = client.read()
        assert (answer.type == pulsar_pb2.PRODUCER_SUCCESS) is is_permitted
        assert is_permitted or answer.error.error == AUTHORIZATION


@pytest.mark.parametrize(
    ("role", "values", "why"),
    [
        ("writer", {"original_principal": "admin"}, "not a proxy role"),
        ("admin", {"original_principal": "writer"}, "not a proxy role"),
        ("writer", {"original_principal": "writer"}, "not a proxy role"),
        ("proxy", {}, "role of its client"),
        ("proxy", {"original_principal": " "}, "role of its client"),
        ("proxy", {"original_principal": "bare-proxy"}, "role of its client"),
        ("writer", {"proxy_version": "4.0"}, "not a proxy role"),
    ],
)
def test_other_pairs_of_roles_are_refused(
    trusting: Served, role: str, values: dict[str, str], why: str
) -> None:
    with connection(trusting, trusting[1].of(role), **values) as client:
        answer = client.read()
        assert answer.error.error == AUTHORIZATION
        assert why in answer.error.message
        assert client.is_closed()


def test_a_revoked_client_of_a_proxy_is_disconnected(trusting: Served) -> None:
    with admin_of(trusting) as admin:
        admin.grant_permission("leaving", ["produce"], topic=TOPIC)
        token = trusting[1].of("proxy")
        with connection(trusting, token, original_principal="leaving") as client:
            client.send(producer(TOPIC, producer_name="leaving"))
            client.read_until(lambda each: each.type == pulsar_pb2.PRODUCER_SUCCESS)
            admin.revoke_permission("leaving", topic=TOPIC)
            client.read_until(lambda each: each.type == pulsar_pb2.CLOSE_PRODUCER)


def test_an_expired_proxy_that_forwards_no_credentials_is_closed(trusting: Served) -> None:
    token = trusting[1].expiring
    with connected_in_time(
        lambda after_s: connection(trusting, token("proxy", after_s), original_principal="writer")
    ) as client:
        assert client.read().error.error == AUTHENTICATION
        assert client.is_closed()


@pytest.mark.parametrize("method", ["token", "none", None])
def test_forwarded_credentials_are_checked(checking: Served, method: str | None) -> None:
    forwarded = {"original_auth_data": checking[1].of("writer")}
    if method is not None:
        forwarded["original_auth_method"] = method
    # The name that the proxy gives does not matter: the token says who it is.
    with connection(
        checking, checking[1].of("proxy"), original_principal="admin", **forwarded
    ) as client:
        answer = client.read()
        if method != "token":
            assert answer.error.error == AUTHENTICATION
            return
        assert answer.type == pulsar_pb2.CONNECTED
        client.send(producer("other"))
        assert client.read().error.error == AUTHORIZATION
        client.send(producer(TOPIC, producer_name="forwarded"))
        assert client.read().type == pulsar_pb2.PRODUCER_SUCCESS


def test_forwarded_credentials_are_renewed(checking: Served) -> None:
    tokens = checking[1]

    def connecting(after_s: int) -> RawClient:
        return connection(
            checking,
            tokens.of("proxy"),
            original_principal="writer",
            original_auth_data=tokens.expiring("writer", after_s),
            original_auth_method="token",
        )

    with connected_in_time(connecting) as client:
        for role in ("writer", "proxy"):
            client.read_until(lambda each: each.type == pulsar_pb2.AUTH_CHALLENGE)
            data = AuthData(auth_method_name="token", auth_data=tokens.expiring(role, 4).encode())
            response = pulsar_pb2.CommandAuthResponse(response=data)
            client.send(BaseCommand(type=pulsar_pb2.AUTH_RESPONSE, auth_response=response))
        assert client.read().error.error == AUTHENTICATION
