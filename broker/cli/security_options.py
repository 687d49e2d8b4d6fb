"""The options of `serve` about TLS, authentication and authorization.

ledgerfold serve --data DIR --tls-cert server.pem --tls-key server.key \\
    --token-secret-key hmac.key --superuser-roles admin
"""

from __future__ import annotations

import argparse
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from ledgerfold.broker.cli.verbs import argument, flag, group
from ledgerfold.storage.paths import absolute_path

if TYPE_CHECKING:
    from ledgerfold.broker.common.security_settings import SecuritySettings


def _roles(text: str) -> tuple[str, ...]:
    return tuple(each.strip() for each in text.split(",") if each.strip())


SECURITY = group(
    "TLS and authentication",
    argument(
        "--tls-cert FILE", "serve TLS at every address, with this certificate chain (PEM); it is "
        "read again when it changes", type=absolute_path,
    ),
    argument("--tls-key FILE", "the certificate's private key (PEM)", type=absolute_path),
    argument(
        "--tls-client-ca FILE", "require a client certificate that one of these authorities has "
        "signed (PEM); its common name is the client's role", type=absolute_path,
    ),
    argument(
        "--token-secret-key KEY", "authenticate clients by tokens that are signed with this secret "
        "key: a file, or data:;base64,KEY; `ledgerfold tokens` creates keys and tokens",
    ),
    argument("--token-public-key KEY", "as --token-secret-key, with the public key of a pair"),
    argument("--token-auth-claim NAME", "the claim that holds the role; default sub",
             default="sub"),
    argument("--token-audience TEXT", "refuse tokens that are not for this audience"),
    argument("--token-audience-claim NAME", "the claim that holds the audience; default aud",
             default="aud"),
    argument("--superuser-roles ROLES", "the roles that may do everything, separated by commas",
             type=_roles, default=()),
    argument("--proxy-roles ROLES", "the roles of proxies, separated by commas; a request needs "
             "the permissions of both the proxy and its client", type=_roles, default=()),
    flag("--metrics-for-all", "serve metrics to clients without credentials, too"),
    flag("--insecure", "listen beyond this machine without authentication: any client that reaches "
         "the broker may do everything"),
)  # fmt: skip


def security_of(options: argparse.Namespace) -> SecuritySettings:
    from ledgerfold.broker.common.security_settings import SecuritySettings

    named = options_named_as(SecuritySettings, options)
    return SecuritySettings(**named, protects_metrics=not options.metrics_for_all)


def options_named_as(settings: type[Any], options: argparse.Namespace) -> dict[str, Any]:
    """Returns the options that have the name of a field of `settings`, a dataclass."""
    names = [each.name for each in fields(settings)]
    return {name: getattr(options, name) for name in names if hasattr(options, name)}
