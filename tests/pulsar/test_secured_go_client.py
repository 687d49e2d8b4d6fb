"""Pulsar's unmodified Go client, with TLS and tokens. Skipped like test_go_client.py."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import ledgerfold
from ledgerfold.admin import Admin
from tests.support.broker_process import BrokerProcess
from tests.support.go_client import GoClient, built
from tests.support.security_lab import RENEWING, Authority, Tokens, tls_options
from tests.support.waiting import WAIT_MS, wait_until

# The first build of the client takes minutes.
pytestmark = pytest.mark.timeout(1000)


class Secured:
    """A broker, and clients of roles."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.program = folder, built(folder)
        self.authority, self.tokens = Authority(folder), Tokens(folder)
        arguments = (
            *("--compactor", "off", "--pulsar-listen", "127.0.0.1:0", *self.tokens.options),
            *tls_options(self.authority.sign("broker")),
            *RENEWING,
        )
        self.broker = BrokerProcess(folder / "data", arguments=arguments)

    def token_file(self, role: str, **claims: Any) -> Path:
        file = self.folder / role
        file.write_text(self.tokens.of(role, **claims))
        return file

    def go(self, *token: Path) -> GoClient:
        url = f"pulsar+ssl://{self.broker.ready['pulsar']}"
        return GoClient(self.program, url, self.authority.file, *token)

    def grant(self, role: str) -> None:
        url = f"ledgerfold+ssl://{self.broker.url}"
        admin = ledgerfold.AuthenticationToken(self.tokens.of("admin"))
        trusted = str(self.authority.file)
        with Admin(url, authentication=admin, tls_trust_certs_file_path=trusted) as calls:
            calls.grant_permission(role, ["produce", "consume"], namespace="public/default")


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with ExitStack() as resources:
        secured = Secured(tmp_path_factory.mktemp("secured"))
        resources.enter_context(secured.broker)
        yield secured


def exchange(go: GoClient, topic: str) -> None:
    go("consumer", name="c", topic=topic, sub="s", type="Exclusive", earliest=True)
    go("producer", name="p", topic=topic)
    go("send", name="p", messages=[{"value": "secret"}])
    (found,) = go("receive", name="c", max=1, timeoutMs=WAIT_MS)["messages"]
    assert found["value"] == b"secret"
    go("ack", name="c", id=found["id"])


def test_a_role_with_a_grant_produces_and_consumes(secured: Secured) -> None:
    secured.grant("worker")
    with secured.go(secured.token_file("worker")) as go:
        exchange(go, "granted")


def test_a_role_without_a_grant_and_a_client_without_a_token_are_refused(secured: Secured) -> None:
    with secured.go(secured.token_file("stranger")) as go:
        assert "AuthorizationError" in go.refusal("producer", name="p", topic="refused")
        assert "AuthorizationError" in go.refusal("consumer", name="c", topic="refused", sub="s")
    with secured.go() as go:
        assert go.refusal("producer", name="p", topic="refused")


def test_a_client_renews_its_token_when_the_broker_asks_for_it(secured: Secured) -> None:
    """The consumer stays connected after the first token has expired."""
    secured.grant("renewing")
    expires_s = int(time.time()) + 6
    file = secured.token_file("renewing", exp=expires_s)
    with secured.go(file) as go:
        exchange(go, "renewed")
        secured.token_file("renewing")
        wait_until(lambda: time.time() > expires_s + 2, "the first token has expired")
        go("send", name="p", messages=[{"value": "later"}])
        (found,) = go("receive", name="c", max=1, timeoutMs=WAIT_MS)["messages"]
        assert found["value"] == b"later"
