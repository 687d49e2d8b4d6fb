"""A start says which options about security cannot work, and does not expose what is open."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ledgerfold.broker.common.security_settings import SecuritySettings
from ledgerfold.broker.common.settings import BrokerSettings
from ledgerfold.broker.server.protection import check_protection, hosts_of, is_loopback
from ledgerfold.storage.errors import InvalidRequest
from tests.support.command_line import ledgerfold
from tests.support.security_lab import Authority, Pair, Tokens

LOCAL, EXPOSED = {"--listen": "127.0.0.1:0"}, {"--listen": "0.0.0.0:0", "--admin-listen": "[::]:1"}


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    return Authority(tmp_path).sign("broker")


def test_without_security_the_broker_listens_only_on_this_machine() -> None:
    check_protection(SecuritySettings(), LOCAL)
    with pytest.raises(InvalidRequest, match=r"--listen 0\.0\.0\.0:0, --admin-listen") as refused:
        check_protection(SecuritySettings(), EXPOSED)
    assert "--insecure" in str(refused.value)
    check_protection(SecuritySettings(insecure=True), EXPOSED)


def test_tls_without_authentication_admits_everyone(pair: Pair, tmp_path: Path) -> None:
    tls: dict[str, Any] = {"tls_cert": pair.certificate, "tls_key": pair.key}
    with pytest.raises(InvalidRequest, match="any client that reaches it"):
        check_protection(SecuritySettings(**tls), EXPOSED)
    check_protection(SecuritySettings(**tls, tls_client_ca=tmp_path / "authority.pem"), EXPOSED)


def test_tokens_without_tls_cause_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = SecuritySettings(
        token_secret_key=str(Tokens(tmp_path).file), superuser_roles=("admin",)
    )
    check_protection(settings, LOCAL)
    assert not caplog.messages
    check_protection(settings, EXPOSED)
    assert "unencrypted" in caplog.text


def test_hosts_are_checked_where_everybody_on_this_machine_is_served() -> None:
    """A container, and a broker for other machines, is reached by names that it does not know."""
    settings = BrokerSettings(
        data_dir=Path("data"),
        ui_names=["page.example"],
        pulsar_advertise="broker.example:6650",
        pulsar_listeners={"in": "in.example:6650"},
    )
    hosts = hosts_of(settings, None, "localhost:8080")
    assert hosts is not None
    for name in ("page.example", "broker.example:1", "in.example", "127.0.0.1:8080", "localhost"):
        assert hosts.permit(name)
    assert not hosts.permit("evil.example")
    assert not hosts.permit("")
    assert hosts_of(settings, None, "0.0.0.0:8080") is None
    guard: Any = object()
    assert hosts_of(settings, guard, "127.0.0.1:8080") is None


@pytest.mark.parametrize(
    ("host", "is_local"),
    [("127.0.0.1", True), ("127.9.9.9", True), ("[::1]", True), ("localhost", True),
     ("0.0.0.0", False), ("[::]", False), ("nohost.invalid", False)],
)  # fmt: skip
def test_loopback_addresses_are_recognized(host: str, is_local: bool) -> None:
    assert is_loopback(f"{host}:1") is is_local


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("--tls-cert", "broker.pem"), "must be used together"),
        (("--tls-client-ca", "authority.pem"), "needs --tls-cert"),
        (("--token-secret-key", "a", "--token-public-key", "b"), "not both"),
        (("--token-secret-key", "hmac.key"), "--superuser-roles"),
        (("--superuser-roles", "admin"), "needs proof of roles"),
        (("--proxy-roles", "proxy"), "needs --superuser-roles"),
        (("--token-audience", "prod"), "needs --token-secret-key"),
        (("--token-secret-key", "data:;base64,YWJj", "--superuser-roles", "a"), "3 bytes"),
        (("--token-public-key", "hmac.key", "--superuser-roles", "a"), "Not a public key"),
        (("--tls-cert", "broker.pem", "--tls-key", "hmac.key"), "Not usable for TLS"),
        (("--tls-cert", "broker.pem", "--tls-key", "missing"), "No such file"),
        (("--token-secret-key", "missing", "--superuser-roles", "a"), "No such file"),
        (("--listen", "0.0.0.0:0"), "--insecure"),
    ],
)
def test_an_unprotected_start_creates_nothing(
    tmp_path: Path,
    pair: Pair,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    why: str,
) -> None:
    Tokens(tmp_path)
    monkeypatch.chdir(tmp_path)
    given = ("--data", str(tmp_path / "data"), "--compactor", "off", *arguments)
    listen = () if "--listen" in arguments else ("--listen", "127.0.0.1:0")
    ran = ledgerfold("serve", *given, *listen)
    assert ran.code in (2, 3), ran
    assert why in ran.err
    assert ran.err.count("\n") == 1
    assert not (tmp_path / "data").exists()
