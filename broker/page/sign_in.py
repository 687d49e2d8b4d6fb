"""Signing in to the page of a broker that authenticates: for superusers.

A browser asks its user for a name and a password, and sends both (Basic authentication, RFC 7617):
the password is a token, the name is ignored. Programs may send `Authorization: Bearer TOKEN`; a
client certificate is sufficient, if the broker accepts one.

    >>> from base64 import b64encode
    >>> token_of("Basic " + b64encode(b"anyone:abc").decode()), token_of("Bearer abc")
    ('abc', 'abc')
    >>> token_of("bearer abc"), token_of("basic " + b64encode(b"anyone:abc").decode())
    ('abc', 'abc')
    >>> token_of("Basic ?"), token_of(None)
    (None, None)
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping

from ledgerfold.broker.security.guard import Credentials, Guard, parameter_of
from ledgerfold.broker.security.tokens import Caller

CHALLENGE = 'Basic realm="ledgerfold: the password is a token", charset="UTF-8"'


def caller_of(guard: Guard, headers: Mapping[str, str], certificate_role: str | None) -> Caller:
    """Returns the caller of a request. Raises AuthenticationFailed, AuthorizationFailed."""
    return guard.caller(Credentials(token_of(headers.get("Authorization")), certificate_role))


def token_of(header: str | None) -> str | None:
    """Returns the token in an `Authorization` header; None if it has none."""
    bearer, basic = parameter_of(header, "bearer"), parameter_of(header, "basic")
    if bearer is not None or basic is None:
        return bearer
    try:
        pair = b64decode(basic, validate=True).decode()
    except ValueError:
        return None
    return pair.partition(":")[2] or None
