"""The limit of requests a second of roles: with authentication, roles behind one address do not
share it.

No test had asked two clients of one address, and with authentication, for more than the limit, or
counted how often a request's credentials are verified: twice or three times.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from ledgerfold.broker.common.security_settings import SecuritySettings
from ledgerfold.broker.pulsar.connection import Connection
from ledgerfold.broker.pulsar.frames import Splitter, encode, parse
from ledgerfold.broker.pulsar.shared import Shared
from ledgerfold.broker.security.guard import Credentials, Guard
from ledgerfold.broker.security.tokens import Caller
from ledgerfold.rpc_errors import error_from_rpc
from ledgerfold.storage.errors import AuthenticationFailed, TooManyRequests
from ledgerfold.v1 import pulsar_pb2
from ledgerfold.v1.admin_pb2 import GetClockRequest
from ledgerfold.v1.pulsar_pb2 import BaseCommand, CommandConnect
from tests.model.broker_lab import BrokerLab
from tests.support.http_lab import HttpLab
from tests.support.page_lab import PageLab
from tests.support.recording_transport import Client
from tests.support.security_lab import Tokens
from tests.support.served_lab import METHODS, ServedLab, path_of
from tests.support.waiting import WAIT_S
from tests.unit.server.test_request_rates_of_doors import LIMIT, Limit

# What each role is answered while nobody else asks, and what one more request is answered.
_ALL_BUT_ONE = [200] * LIMIT + [429]


@pytest.fixture
def tokens(tmp_path: Path) -> Tokens:
    return Tokens(tmp_path)


@pytest.fixture
def proofs(monkeypatch: pytest.MonkeyPatch) -> list[Credentials]:
    """The credentials that the broker verifies, in order."""
    verified = list[Credentials]()
    prove = Guard.proved

    def proved(guard: Guard, credentials: Credentials) -> Caller:
        verified.append(credentials)
        return prove(guard, credentials)

    monkeypatch.setattr(Guard, "proved", proved)
    return verified


def settings_of(tokens: Tokens) -> SecuritySettings:
    superusers = ("one", "two")
    return SecuritySettings(
        token_secret_key=str(tokens.file), superuser_roles=superusers, proxy_roles=("proxy",)
    )


def guard_of(tokens: Tokens, lab: BrokerLab) -> Guard:
    return Guard(settings_of(tokens), lab.broker.namespaces, lambda: 0)


@pytest.fixture
def lab() -> Iterator[BrokerLab]:
    lab = BrokerLab()
    yield lab
    lab.stop()


def test_roles_have_limits_of_their_own_over_grpc(
    lab: BrokerLab, tokens: Tokens, proofs: list[Credentials]
) -> None:
    lab.broker.rates = Limit()
    served = ServedLab(lab, guard_of(tokens, lab))
    method = METHODS[GetClockRequest.DESCRIPTOR.full_name]
    call = served.channel.unary_unary(path_of(method))

    async def asked(token: str) -> type[Exception] | None:
        try:
            await call(b"", metadata=(("authorization", f"Bearer {token}"),))
        except grpc.RpcError as error:
            return type(error_from_rpc(error))
        return None

    try:
        for token in (tokens.of("one"), tokens.of("two")):
            told = [served.run(asked(token)) for _ in range(LIMIT + 1)]
            assert told == [None] * LIMIT + [TooManyRequests]
        told = [served.run(asked("forged")) for _ in range(LIMIT + 1)]
        assert told == [AuthenticationFailed] * LIMIT + [TooManyRequests]
        assert len(proofs) == 3 * (LIMIT + 1)
    finally:
        served.close()


def test_roles_have_limits_of_their_own_over_http(
    tokens: Tokens, proofs: list[Credentials]
) -> None:
    lab = HttpLab()
    lab.serve_again(lambda: guard_of(tokens, lab.lab))
    lab.broker.rates = Limit()

    def statuses(token: str, **headers: str) -> list[int]:
        headers["Authorization"] = f"Bearer {token}"
        return [lab.ask("GET", "/tenants", headers=headers).status for _ in range(LIMIT + 1)]

    try:
        assert statuses(tokens.of("one")) == _ALL_BUT_ONE
        assert statuses(tokens.of("two")) == _ALL_BUT_ONE
        assert statuses("forged") == [401] * LIMIT + [429]
        assert len(proofs) == 3 * (LIMIT + 1)
        # A proxy's clients have limits of their own, too.
        named = {"X-Original-Principal": "three"}
        assert statuses(tokens.of("proxy"), **named) == [403] * LIMIT + [429]
        named = {"X-Original-Principal": "four"}
        assert statuses(tokens.of("proxy"), **named) == [403] * LIMIT + [429]
    finally:
        lab.close()


def test_roles_have_limits_of_their_own_at_the_page(
    tokens: Tokens, proofs: list[Credentials]
) -> None:
    lab = PageLab(security=settings_of(tokens))
    lab.broker.rates = Limit()

    def statuses(token: str) -> list[int]:
        headers = {"Authorization": f"Bearer {token}"}
        return [lab.ask("/", headers=headers).status for _ in range(LIMIT + 1)]

    try:
        assert statuses(tokens.of("one")) == _ALL_BUT_ONE
        assert statuses(tokens.of("two")) == _ALL_BUT_ONE
        assert statuses("forged") == [401] * LIMIT + [429]
        assert len(proofs) == 3 * (LIMIT + 1)
    finally:
        lab.close()


def test_roles_have_limits_of_their_own_over_pulsars_protocol(
    lab: BrokerLab, tokens: Tokens
) -> None:
    lab.broker.rates = Limit()
    shared = Shared(lab.broker, guard=guard_of(tokens, lab))

    async def refusals(token: str) -> list[int | None]:
        """Returns the errors of a connection, of two lookups, and of another connection."""
        lookup = pulsar_pb2.CommandLookup(topic="t", request_id=9)
        asked = BaseCommand(type=pulsar_pb2.LOOKUP, lookup=lookup)
        connect = CommandConnect(
            client_version=b"t", auth_method_name="token", auth_data=token.encode()
        )
        hello = BaseCommand(type=pulsar_pb2.CONNECT, connect=connect)
        return [*await answers([hello, asked, asked]), *await answers([hello])]

    async def answers(commands: list[BaseCommand]) -> list[int | None]:
        client, splitter, found = Client(), Splitter(2**20), list[int | None]()
        connection = Connection(shared)
        connection.connection_made(client)
        for each in commands:
            connection.data_received(encode(each))
            data: Any = await asyncio.wait_for(client.answers.get(), WAIT_S)
            (frame,) = splitter.feed(data)
            command = parse(frame).command
            if command.HasField("error"):
                found.append(command.error.error)
                break
            told = command.lookup_response
            found.append(told.error if told.HasField("error") else None)
        connection.connection_lost(None)
        await asyncio.sleep(0)
        return found

    async def scenario() -> None:
        many, forged = pulsar_pb2.TOO_MANY_REQUESTS, pulsar_pb2.AUTHENTICATION_ERROR
        for role in ("one", "two"):
            assert await refusals(tokens.of(role)) == [None, None, None, many]
        told = [(await refusals("forged"))[0] for _ in range(LIMIT)]
        assert told == [forged, forged, many]

    lab.run(asyncio.wait_for(scenario(), WAIT_S))
