"""Pulsar's own client and this package's, with TLS and tokens, at one broker."""

from __future__ import annotations

import logging
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pulsar
import pytest

import ledgerfold
from ledgerfold.admin import Admin
from ledgerfold.errors import AuthenticationFailed, AuthorizationFailed, LedgerfoldError
from tests.support.broker_process import BrokerProcess
from tests.support.security_lab import RENEWING, Authority, Tokens, tls_options
from tests.support.waiting import WAIT_MS, WAIT_S, wait_until

_SILENT = logging.Logger("pulsar", logging.CRITICAL)
EVERY_PORT = (
    "--pulsar-listen",
    "127.0.0.1:0",
    "--admin-listen",
    "127.0.0.1:0",
    "--metrics-listen",
    "127.0.0.1:0",
)


class Secured(NamedTuple):
    broker: BrokerProcess
    authority: Authority
    tokens: Tokens

    def pulsar(
        self, token: str | Callable[[], str] | None, patience_s: int = round(WAIT_S)
    ) -> pulsar.Client:
        proof = {} if token is None else {"authentication": pulsar.AuthenticationToken(token)}
        return pulsar.Client(
            f"pulsar+ssl://{self.broker.ready['pulsar']}",
            tls_trust_certs_file_path=str(self.authority.file),
            operation_timeout_seconds=patience_s,
            logger=_SILENT,
            **proof,
        )

    def own(self, role: str | None, **more: Any) -> dict[str, Any]:
        """The arguments of this package's clients."""
        found: dict[str, Any] = {"tls_trust_certs_file_path": str(self.authority.file), **more}
        if role is not None:
            found["authentication"] = ledgerfold.AuthenticationToken(self.tokens.of(role))
        return found

    @property
    def url(self) -> str:
        return f"ledgerfold+ssl://{self.broker.url}"

    def admin(self, role: str | None = "admin") -> Admin:
        return Admin(self.url, **self.own(role))

    def get(self, port: str, path: str, role: str | None) -> int:
        """Returns the status of a GET over TLS."""
        context = ssl.create_default_context(cafile=str(self.authority.file))
        request = urllib.request.Request(f"https://{self.broker.ready[port]}{path}")
        if role is not None:
            request.add_header("Authorization", f"Bearer {self.tokens.of(role)}")
        try:
            with urllib.request.urlopen(request, context=context, timeout=WAIT_S) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder: Path = tmp_path_factory.mktemp("secured")
    authority, tokens = Authority(folder), Tokens(folder)
    arguments = (
        *("--compactor", "off", *EVERY_PORT, *tokens.options),
        *tls_options(authority.sign("broker")),
        *RENEWING,
    )
    with BrokerProcess(folder / "data", arguments=arguments) as broker:
        yield Secured(broker, authority, tokens)


def test_pulsars_client_produces_and_consumes_with_a_grant(secured: Secured) -> None:
    with secured.admin() as admin:
        admin.grant_permission("writer", ["produce"], topic="granted")
        admin.grant_permission("reader", ["consume"], topic="granted")
    writer, reader = (
        secured.pulsar(secured.tokens.of("writer")),
        secured.pulsar(secured.tokens.of("reader")),
    )
    try:
        consumer = reader.subscribe("granted", "s")
        writer.create_producer("granted").send(b"hello")
        assert consumer.receive(WAIT_MS).data() == b"hello"
        with pytest.raises(pulsar.AuthorizationError):
            reader.create_producer("granted")
        with pytest.raises(pulsar.AuthorizationError):
            writer.subscribe("granted", "other")
        with pytest.raises(pulsar.PulsarException):
            writer.create_producer("another")
    finally:
        writer.close()
        reader.close()


@pytest.mark.parametrize("token", ["", "e30.e30.", "nobody"])
def test_pulsars_client_without_a_valid_token_is_refused(secured: Secured, token: str) -> None:
    # It tries again until its timeout.
    client = secured.pulsar(token or None, patience_s=2)
    try:
        with pytest.raises(pulsar.PulsarException):
            client.create_producer("granted")
    finally:
        client.close()


def test_a_revoked_grant_disconnects_pulsars_clients(secured: Secured) -> None:
    with secured.admin() as admin:
        admin.grant_permission("leaving", ["produce", "consume"], topic="left")
        client = secured.pulsar(secured.tokens.of("leaving"))
        try:
            consumer, producer = client.subscribe("left", "s"), client.create_producer("left")
            producer.send(b"before")
            assert consumer.receive(WAIT_MS).data() == b"before"
            admin.revoke_permission("leaving", topic="left")
            wait_until(lambda: not admin.stats("left")["publishers"], "the producer's end")
            wait_until(
                lambda: not admin.stats("left")["subscriptions"]["s"]["consumers"],
                "the consumer's end",
            )
            # Connecting again, it is refused.
            with pytest.raises(pulsar.PulsarException):
                client.create_producer("left")
        finally:
            client.close()


@pytest.mark.slow
def test_a_token_is_renewed_before_its_connection_ends(secured: Secured) -> None:
    """Pulsar's client is asked for a new token, and gives it; without one it is disconnected."""
    given = list[str]()

    def token() -> str:
        given.append(secured.tokens.expiring("renewing", 4))
        return given[-1]

    with secured.admin() as admin:
        admin.grant_permission("renewing", ["produce"], topic="renewed")
        renewing, ending = secured.pulsar(token), secured.pulsar(token())
        try:
            producer = renewing.create_producer("renewed", producer_name="renewing")
            ending.create_producer("renewed", producer_name="ending")
            asked = len(given)
            wait_until(lambda: len(given) > asked, "a challenge")

            def names() -> list[str]:
                return [each["producerName"] for each in admin.stats("renewed")["publishers"]]

            wait_until(lambda: "ending" not in names(), "the end of the token that stays")
            producer.send(b"still here")
            assert "renewing" in names()
        finally:
            renewing.close()
            ending.close()


def test_this_packages_client_with_tls_and_tokens(secured: Secured) -> None:
    with secured.admin() as admin:
        admin.grant_permission("both", ["produce", "consume"], namespace="public/default")
    with ledgerfold.Client(secured.url, **secured.own("both")) as client:
        consumer = client.subscribe("own", "s")
        client.create_producer("own").send(b"hello")
        assert consumer.receive(WAIT_MS).data() == b"hello"
    nobody = ledgerfold.Client(secured.url, **secured.own("nobody"))
    with nobody, pytest.raises(AuthorizationFailed, match="'nobody' may not"):
        nobody.create_producer("own")
    stranger = ledgerfold.Client(secured.url, **secured.own(None))
    with stranger, pytest.raises(AuthenticationFailed):
        stranger.create_producer("own")


def test_an_untrusted_certificate_is_accepted_only_on_request(secured: Secured) -> None:
    token = ledgerfold.AuthenticationToken(secured.tokens.of("admin"))
    distrusting = Admin(secured.url, authentication=token, timeout_seconds=5)
    with distrusting, pytest.raises(LedgerfoldError):
        distrusting.list_tenants()
    anyone: dict[str, Any] = {"authentication": token, "tls_allow_insecure_connection": True}
    with Admin(secured.url, **anyone) as admin:
        assert "public" in admin.list_tenants()
    with ledgerfold.Client(secured.url, **anyone) as client:
        assert client.get_topic_partitions("own")


def test_rest_api_and_metrics_with_tls_and_tokens(secured: Secured) -> None:
    tenants = "/admin/v2/tenants"
    assert secured.get("admin", tenants, None) == 401
    assert secured.get("admin", tenants, "nobody") == 403
    assert secured.get("admin", tenants, "admin") == 200
    assert secured.get("admin", "/admin/v2/brokers/health", None) == 200
    for port in ("admin", "metrics"):
        assert secured.get(port, "/metrics", None) == 401
        assert secured.get(port, "/metrics", "nobody") == 403
        assert secured.get(port, "/metrics", "admin") == 200
