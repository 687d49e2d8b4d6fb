"""Settings of a broker.conf about TLS, authentication and authorization."""

from __future__ import annotations

from pathlib import Path

import pytest

from ledgerfold.broker.cli.pulsar_config import configured, without_effect
from ledgerfold.broker.cli.pulsar_security import NAMES, with_security
from ledgerfold.broker.common.security_settings import SecuritySettings
from ledgerfold.broker.common.settings import BrokerSettings
from ledgerfold.storage.errors import InvalidRequest

NOTHING = SecuritySettings()
TLS_PROVIDER = "org.apache.pulsar.broker.authentication.AuthenticationProviderTls"
TOKENS = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "tokenSecretKey": "file:///keys/hmac.key",
    "superUserRoles": "admin, proxy",
    "proxyRoles": "proxy,",
    "authenticateOriginalAuthData": "true",
}


def test_tokens() -> None:
    found = with_security(NOTHING, TOKENS)
    assert found.token_secret_key == "file:///keys/hmac.key"
    assert found.superuser_roles == ("admin", "proxy")
    assert (found.proxy_roles, found.authenticates_originals) == (("proxy",), True)
    assert found.authenticates
    assert found.authorizes
    assert not with_security(NOTHING, {**TOKENS, "authorizationEnabled": "false"}).authorizes


def test_keys_without_authentication_have_no_effect() -> None:
    assert with_security(NOTHING, {**TOKENS, "authenticationEnabled": "false"}) == NOTHING
    assert with_security(NOTHING, dict.fromkeys(NAMES, "")) == NOTHING


def test_options_override_settings() -> None:
    given = SecuritySettings(token_secret_key="mine", superuser_roles=("me",))
    found = with_security(given, {**TOKENS, "tokenAudience": "prod"})
    assert (found.token_secret_key, found.superuser_roles) == ("mine", ("me",))
    assert found.token_audience == "prod"


def test_certificates() -> None:
    files = {
        "tlsCertificateFilePath": "/tls/broker.pem",
        "tlsKeyFilePath": "/tls/broker.key",
        "tlsTrustCertsFilePath": "/tls/ca.pem",
    }
    found = with_security(NOTHING, files)
    assert (found.tls_cert, found.tls_key) == (Path("/tls/broker.pem"), Path("/tls/broker.key"))
    assert found.tls_client_ca is None
    required = with_security(NOTHING, {**files, "tlsRequireTrustedClientCertOnConnect": "true"})
    assert required.tls_client_ca == Path("/tls/ca.pem")
    roles = {"authenticationEnabled": "true", "authenticationProviders": TLS_PROVIDER}
    by_certificate = with_security(NOTHING, {**files, **roles, "superUserRoles": "admin"})
    assert by_certificate.tls_client_ca == Path("/tls/ca.pem")
    assert by_certificate.authenticates


def test_listeners_of_a_broker_with_tls() -> None:
    listeners = "in:pulsar://a:6650,in:pulsar+ssl://a:6651,out:pulsar+ssl://b:6651"
    pairs = {"advertisedListeners": listeners}
    plain = configured(BrokerSettings(Path("d")), pairs)
    assert plain.pulsar_listeners == {"in": "a:6650"}
    files = {"tlsCertificateFilePath": "c", "tlsKeyFilePath": "k", "internalListenerName": "out"}
    secure = configured(BrokerSettings(Path("d")), pairs | files)
    assert list(secure.pulsar_listeners.items()) == [("out", "b:6651"), ("in", "a:6651")]


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"authenticationEnabled": "yes"}, "true or false"),
        ({"authenticationProviders": "org.example.Sasl"}, "is not emulated"),
        ({"tokenSecretKey": ""}, "needs tokenSecretKey"),
        # None of these may leave the broker open.
        ({"superUserRoles": ""}, "needs superUserRoles"),
        ({"tlsRequireTrustedClientCertOnConnect": "true"}, "need tlsTrustCertsFilePath"),
        ({"authenticationProviders": TLS_PROVIDER}, "need tlsTrustCertsFilePath"),
        (
            {
                "authenticationProviders": TLS_PROVIDER,
                "tlsTrustCertsFilePath": "/tls/ca.pem",
                "tokenSecretKey": "",
                "superUserRoles": "",
            },
            "needs superUserRoles",
        ),
        ({"authenticationRefreshCheckSeconds": "0"}, "must be 1"),
        ({"tokenAllowedClockSkewSeconds": "-1"}, "must be 0"),
    ],
)
def test_contradictory_settings_are_refused(changes: dict[str, str], why: str) -> None:
    with pytest.raises(InvalidRequest, match=why):
        with_security(NOTHING, {**TOKENS, **changes})


def test_security_settings_are_not_reported_as_without_effect() -> None:
    assert without_effect(TOKENS) == []
    assert "saslJaasClientAllowedIds" in without_effect({"saslJaasClientAllowedIds": "x"})[0]
