"""The settings of a broker.conf about TLS, authentication and authorization.

As in Pulsar, keys of tokens have an effect only with `authenticationEnabled=true`, and permissions
only if `authorizationEnabled=true` is set, too. With a certificate and its key, all listeners speak
TLS.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ledgerfold.storage.errors import InvalidRequest
from ledgerfold.storage.paths import absolute_path

if TYPE_CHECKING:
    from ledgerfold.broker.common.security_settings import SecuritySettings

_TLS_PROVIDER = "org.apache.pulsar.broker.authentication.AuthenticationProviderTls"
_TOKEN_PROVIDER = "org.apache.pulsar.broker.authentication.AuthenticationProviderToken"
_PROVIDERS = (_TOKEN_PROVIDER, _TLS_PROVIDER)
NAMES = (
    "authenticateMetricsEndpoint",
    "authenticateOriginalAuthData",
    "authenticationEnabled",
    "authenticationProviders",
    "authenticationRefreshCheckSeconds",
    "authorizationEnabled",
    "proxyRoles",
    "superUserRoles",
    "tlsCertificateFilePath",
    "tlsKeyFilePath",
    "tlsRequireTrustedClientCertOnConnect",
    "tlsTrustCertsFilePath",
    "tokenAllowedClockSkewSeconds",
    "tokenAudience",
    "tokenAudienceClaim",
    "tokenAuthClaim",
    "tokenPublicKey",
    "tokenSecretKey",
)


def with_security(settings: SecuritySettings, pairs: Mapping[str, str]) -> SecuritySettings:
    """Returns the settings with Pulsar's, where options of `serve` say nothing.

    Raises InvalidRequest.
    """
    security = {name: value for name in NAMES if (value := pairs.get(name, "").strip())}
    if not security:
        return settings
    changes = _tls(settings, security)
    changes |= _details(security)
    if _flag(security, "authenticationEnabled"):
        changes |= _authentication(settings, security)
    if "authenticateMetricsEndpoint" in security:
        changes["protects_metrics"] = _flag(security, "authenticateMetricsEndpoint")
    default = type(settings)()
    return replace(
        settings,
        **{
            name: value
            for name, value in changes.items()
            if getattr(settings, name) == getattr(default, name)
        },
    )


def _tls(settings: SecuritySettings, pairs: Mapping[str, str]) -> dict[str, Any]:
    changes = dict[str, Any]()
    for name, field in (("tlsCertificateFilePath", "tls_cert"), ("tlsKeyFilePath", "tls_key")):
        if name in pairs:
            changes[field] = _path(pairs[name])
    # Otherwise, in Pulsar, the certificate of a client is optional.
    by_certificate = _TLS_PROVIDER in pairs.get("authenticationProviders", "")
    requires = _flag(pairs, "tlsRequireTrustedClientCertOnConnect") or (
        by_certificate and _flag(pairs, "authenticationEnabled")
    )
    if requires and "tlsTrustCertsFilePath" in pairs:
        changes["tls_client_ca"] = _path(pairs["tlsTrustCertsFilePath"])
    elif requires and settings.tls_client_ca is None:
        raise InvalidRequest(
            "Client certificates need tlsTrustCertsFilePath, the certificates of their issuers."
        )
    return changes


def _details(pairs: Mapping[str, str]) -> dict[str, Any]:
    """Returns the details of authentication, whichever setting turns it on."""
    changes = _texts(
        pairs,
        {"tokenAuthClaim": "token_auth_claim", "tokenAudienceClaim": "token_audience_claim"},
    )
    numbers = {
        "tokenAllowedClockSkewSeconds": ("token_clock_skew_s", 0),
        "authenticationRefreshCheckSeconds": ("refresh_check_s", 1),
    }
    for name, (field, least) in numbers.items():
        if name in pairs:
            changes[field] = _number(name, pairs[name], least)
    return changes


def _texts(pairs: Mapping[str, str], names: Mapping[str, str]) -> dict[str, Any]:
    return {field: pairs[name] for name, field in names.items() if name in pairs}


def _authentication(settings: SecuritySettings, pairs: Mapping[str, str]) -> dict[str, Any]:
    for each in pairs.get("authenticationProviders", "").split(","):
        if each.strip() not in ("", *_PROVIDERS):
            raise InvalidRequest(
                f"authenticationProviders: {each.strip()[:200]} is not emulated; there are "
                f"{' and '.join(_PROVIDERS)}."
            )
    changes: dict[str, Any] = {"authorizes": _flag(pairs, "authorizationEnabled")}
    changes |= _texts(
        pairs,
        {
            "tokenSecretKey": "token_secret_key",
            "tokenPublicKey": "token_public_key",
            "tokenAudience": "token_audience",
        },
    )
    for name, field in (("superUserRoles", "superuser_roles"), ("proxyRoles", "proxy_roles")):
        roles = pairs.get(name, "").split(",")
        changes[field] = tuple(each.strip() for each in roles if each.strip())
    changes["authenticates_originals"] = _flag(pairs, "authenticateOriginalAuthData")
    proves = settings.takes_tokens or changes.keys() & {"token_secret_key", "token_public_key"}
    if not proves and _TLS_PROVIDER not in pairs.get("authenticationProviders", ""):
        raise InvalidRequest(
            "authenticationEnabled=true needs tokenSecretKey, tokenPublicKey, or "
            f"authenticationProviders={_TLS_PROVIDER}."
        )
    if changes["authorizes"] and not (changes["superuser_roles"] or settings.superuser_roles):
        # No client could grant anything; and without tokens, certificates alone prove no role.
        raise InvalidRequest("authorizationEnabled=true needs superUserRoles.")
    return changes


def _path(text: str) -> Path:
    return absolute_path(urlsplit(text).path if text.startswith("file:") else text)


def _flag(pairs: Mapping[str, str], name: str) -> bool:
    text = pairs.get(name, "false").lower()
    if text not in ("true", "false"):
        raise InvalidRequest(f"{name}={text[:100]}: must be true or false.")
    return text == "true"


def _number(name: str, text: str, least: int) -> int:
    if not text.isdecimal() or not least <= int(text) <= 86_400:
        raise InvalidRequest(f"{name}={text[:100]}: must be {least} to 86400.")
    return int(text)
