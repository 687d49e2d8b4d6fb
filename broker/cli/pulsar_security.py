"""The settings of a broker.conf about TLS, authentication and authorization.

As in Pulsar, keys of tokens have an effect only with `authenticationEnabled=true`, and permissions
only if `authorizationEnabled=true` is set, too. With a certificate and its key, all listeners speak
TLS.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ledgerfold.storage.errors import InvalidRequest
from ledgerfold.storage.paths import absolute_path

if TYPE_CHECKING:
    from ledgerfold.broker.common.security_settings import SecuritySettings

_TLS_PROVIDER = "org.apache.pulsar.broker.authentication.AuthenticationProviderTls"
_TOKEN_PROVIDER = "org.apache.pulsar.broker.authentication.AuthenticationProviderToken"
_DAY_S, _INT64_MAX = 86_400, 2**63 - 1
_PROVIDERS = (_TOKEN_PROVIDER, _TLS_PROVIDER)

Parser = Callable[[str, str], Any]


def integer(unit: int = 1, least: int = 0, most: int = _INT64_MAX) -> Callable[[str, str], int]:
    """Returns a parser of whole numbers in `unit`; -1, if it is allowed, stays -1."""
    most //= unit

    def parse(name: str, text: str) -> int:
        try:
            # Python's numbers may contain underscores, Java's may not.
            value = int(text.replace("_", "?"))
        except ValueError:
            raise InvalidRequest(f"{name}={text[:100]}: must be a whole number.") from None
        if not least <= value <= most:
            raise InvalidRequest(f"{name}={text[:100]}: must be {least} to {most}.")
        return value if value < 0 else value * unit

    return parse


def boolean(name: str, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise InvalidRequest(f"{name}={text[:100]}: must be true or false.")
    return text.lower() == "true"


def roles_in(text: str) -> tuple[str, ...]:
    return tuple(each.strip() for each in text.split(",") if each.strip())


def _path(_: str, text: str) -> Path:
    return absolute_path(urlsplit(text).path if text.startswith("file:") else text)


def _text(_: str, text: str) -> str:
    return text


# The field that a setting sets, and the parser of its value.
_FIELDS: dict[str, tuple[str, Parser]] = {
    "authenticateMetricsEndpoint": ("protects_metrics", boolean),
    "authenticationRefreshCheckSeconds": ("refresh_check_s", integer(1, 1, _DAY_S)),
    "tlsCertificateFilePath": ("tls_cert", _path),
    "tlsKeyFilePath": ("tls_key", _path),
    "tokenAllowedClockSkewSeconds": ("token_clock_skew_s", integer(most=_DAY_S)),
    "tokenAudienceClaim": ("token_audience_claim", _text),
    "tokenAuthClaim": ("token_auth_claim", _text),
}
# Those that have an effect only if the broker authenticates.
_AUTHENTICATION: dict[str, tuple[str, Parser]] = {
    "authenticateOriginalAuthData": ("authenticates_originals", boolean),
    "proxyRoles": ("proxy_roles", lambda _, text: roles_in(text)),
    "superUserRoles": ("superuser_roles", lambda _, text: roles_in(text)),
    "tokenAudience": ("token_audience", _text),
    "tokenPublicKey": ("token_public_key", _text),
    "tokenSecretKey": ("token_secret_key", _text),
}
NAMES = (
    *_FIELDS,
    *_AUTHENTICATION,
    "authenticationEnabled",
    "authenticationProviders",
    "authorizationEnabled",
    "tlsRequireTrustedClientCertOnConnect",
    "tlsTrustCertsFilePath",
)


def with_security(settings: SecuritySettings, pairs: Mapping[str, str]) -> SecuritySettings:
    """Returns the settings with Pulsar's, where options of `serve` say nothing.

    Raises InvalidRequest.
    """
    security = {name: value for name in NAMES if (value := pairs.get(name, "").strip())}
    if not security:
        return settings
    changes = parsed(_FIELDS, security) | _client_ca(settings, security)
    if _flag(security, "authenticationEnabled"):
        changes |= _authentication(settings, security)
    return replace(settings, **where_default(settings, type(settings)(), changes))


def parsed(fields_: Mapping[str, tuple[str, Parser]], pairs: Mapping[str, str]) -> dict[str, Any]:
    """Returns the fields that the pairs set. Raises InvalidRequest."""
    return {
        field: parse(name, pairs[name])
        for name, (field, parse) in fields_.items()
        if pairs.get(name)
    }


def where_default(settings: Any, default: Any, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Returns those of the changes whose settings have their defaults."""
    names = {each.name for each in fields(settings)}
    assert names >= changes.keys()
    return {
        name: value
        for name, value in changes.items()
        if getattr(settings, name) == getattr(default, name)
    }


def _client_ca(settings: SecuritySettings, pairs: Mapping[str, str]) -> dict[str, Path]:
    # Otherwise, in Pulsar, the certificate of a client is optional.
    by_certificate = _TLS_PROVIDER in pairs.get("authenticationProviders", "")
    requires = _flag(pairs, "tlsRequireTrustedClientCertOnConnect") or (
        by_certificate and _flag(pairs, "authenticationEnabled")
    )
    if requires and "tlsTrustCertsFilePath" in pairs:
        return {"tls_client_ca": _path("", pairs["tlsTrustCertsFilePath"])}
    if requires and settings.tls_client_ca is None:
        raise InvalidRequest(
            "Client certificates need tlsTrustCertsFilePath, the certificates of their issuers."
        )
    return {}


def _authentication(settings: SecuritySettings, pairs: Mapping[str, str]) -> dict[str, Any]:
    for each in pairs.get("authenticationProviders", "").split(","):
        if each.strip() not in ("", *_PROVIDERS):
            raise InvalidRequest(
                f"authenticationProviders: {each.strip()[:200]} is not emulated; there are "
                f"{' and '.join(_PROVIDERS)}."
            )
    changes = parsed(_AUTHENTICATION, pairs)
    changes["authorizes"] = _flag(pairs, "authorizationEnabled")
    proves = settings.takes_tokens or changes.keys() & {"token_secret_key", "token_public_key"}
    if not proves and _TLS_PROVIDER not in pairs.get("authenticationProviders", ""):
        raise InvalidRequest(
            "authenticationEnabled=true needs tokenSecretKey, tokenPublicKey, or "
            f"authenticationProviders={_TLS_PROVIDER}."
        )
    if changes["authorizes"] and not (changes.get("superuser_roles") or settings.superuser_roles):
        # No client could grant anything; and without tokens, certificates alone prove no role.
        raise InvalidRequest("authorizationEnabled=true needs superUserRoles.")
    return changes


def _flag(pairs: Mapping[str, str], name: str) -> bool:
    return boolean(name, pairs.get(name, "false"))
