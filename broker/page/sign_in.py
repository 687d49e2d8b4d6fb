"""Signing in to the page of a broker that authenticates: for superusers.

A browser asks its user for a name and a password, and sends both (Basic authentication, RFC 7617):
the password is a token, the name is ignored. Programs may send `Authorization: Bearer TOKEN`; a
client certificate is proof enough, where the broker takes one.

    >>> from base64 import b64encode
    >>> token_of("Basic " + b64encode(b"anyone:abc").decode()), token_of("Bearer abc")
    ('abc', 'abc')
    >>> token_of("Basic ?"), token_of(None)
    (None, None)
"""

from __future__ import annotations

from base64 import b64decode

from ledgerfold.broker.security.guard import BEARER, Credentials, Guard, Target
from ledgerfold.broker.security.needs import Need

CHALLENGE = 'Basic realm="ledgerfold: the password is a token", charset="UTF-8"'
_BASIC = "Basic "


def check_superuser(guard: Guard, header: str | None, certificate_role: str | None) -> None:
    """Raises AuthenticationFailed, AuthorizationFailed."""
    caller = guard.caller(Credentials(token_of(header), certificate_role))
    guard.check(caller, Need.SUPERUSER, Target())


def token_of(header: str | None) -> str | None:
    """Returns the token in an `Authorization` header; None if it has none."""
    if header is None:
        return None
    if header.startswith(BEARER):
        return header.removeprefix(BEARER).strip()
    if not header.startswith(_BASIC):
        return None
    try:
        pair = b64decode(header.removeprefix(_BASIC), validate=True).decode()
    except ValueError:
        return None
    return pair.partition(":")[2] or None
