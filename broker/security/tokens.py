"""Tokens: JSON Web Tokens as Pulsar's, whose subject is a role, and their keys.

  >>> secret = new_secret()
  >>> verifier = TokenVerifier(secret_key(secret))
  >>> verifier.verify(new_token(secret_key(secret), "billing")).role
  'billing'
  >>> verifier.verify("e30.e30.e30")
  Traceback (most recent call last):
    ...
  ledgerfold.errors.AuthenticationFailed: The token is not valid: ...

A key has one algorithm, and a token of another one is refused, whatever its header says: so a
public key never serves as a secret. Secrets are raw bytes, as Pulsar's; other keys are in DER or
PEM. Source: Pulsar's AuthTokenUtils and AuthenticationProviderToken.

Bounds: a token has TOKEN_BYTES_MAX, a key file KEY_BYTES_MAX. The REMEMBERED_MAX valid tokens that
were used last are remembered, because verifying a signature costs half as much as a small call.
"""

from __future__ import annotations

import base64
import re
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote_to_bytes, urlsplit

from ledgerfold.storage.errors import AuthenticationFailed, InvalidRequest

TOKEN_BYTES_MAX = 16 * 1024
KEY_BYTES_MAX = 64 * 1024
ROLE_CHARACTERS_MAX = 1024
REMEMBERED_MAX = 1000
# A valid token has one spelling, so that each takes one of the remembered places.
_TOKEN = re.compile(r"[A-Za-z0-9_.-]+")
_EXPIRED = "The token has expired: use a new one."
SECRET_BYTES_LEAST = 32
_RSA_BITS_LEAST, _RSA_BITS = 2048, 2048
_PEM, _DER_SEQUENCE = b"-----BEGIN ", b"\x30"


class Caller(NamedTuple):
    """A role that a client has proved. `expires_ms`: the time after which the proof is void.

    `original`: the role of the client of a proxy, whose own role is `role`.
    """

    role: str
    expires_ms: int | None = None
    original: str | None = None


@dataclass(frozen=True)
class Key:
    """A key and the only algorithm that it is used for. `value`: as PyJWT takes it."""

    algorithm: str
    value: Any


def read_key(source: str) -> bytes:
    """Reads a key from a path, a `file` URL or a `data` URL. Raises InvalidRequest, OSError."""
    if source.startswith("data:"):
        head, comma, text = source.removeprefix("data:").partition(",")
        try:
            if not comma:
                raise ValueError("no comma")
            data = unquote_to_bytes(text)
            data = base64.b64decode(data, validate=True) if head.endswith(";base64") else data
        except ValueError as error:
            raise InvalidRequest("This URL is not a key: use data:;base64,KEY.") from error
        return data
    path = Path(urlsplit(source).path if source.startswith("file:") else source)
    if path.stat().st_size > KEY_BYTES_MAX:
        raise InvalidRequest(f"{path} has more than {KEY_BYTES_MAX} bytes: it is not a key.")
    return path.read_bytes()


def secret_key(data: bytes) -> Key:
    """Returns the key for HS256. Raises InvalidRequest: it is too short, or no secret."""
    if len(data) < SECRET_BYTES_LEAST:
        raise InvalidRequest(
            f"The secret key has {len(data)} bytes; HS256 needs {SECRET_BYTES_LEAST} or more. "
            "`ledgerfold tokens create-secret-key` creates one."
        )
    if data.startswith(_PEM) or _is_public(data):
        raise InvalidRequest(
            "This key is one of a pair, not a secret key: use the option for pairs."
        )
    return Key("HS256", data)


def public_key(data: bytes) -> Key:
    """Returns a key that verifies. Raises InvalidRequest."""
    from cryptography.hazmat.primitives.serialization import (
        load_der_public_key,
        load_pem_public_key,
    )

    load = load_pem_public_key if data.startswith(_PEM) else load_der_public_key
    try:
        return _of_pair(load(data))
    except ValueError as error:
        raise InvalidRequest(f"Not a public key, in DER or PEM: {error}") from error


def private_key(data: bytes) -> Key:
    """Returns a key that signs. Raises InvalidRequest."""
    from cryptography.hazmat.primitives.serialization import (
        load_der_private_key,
        load_pem_private_key,
    )

    load: Any = load_pem_private_key if data.startswith(_PEM) else load_der_private_key
    try:
        return _of_pair(load(data, password=None))
    except (ValueError, TypeError) as error:
        raise InvalidRequest(f"Not an unencrypted private key, in DER or PEM: {error}") from error


def _of_pair(key: Any) -> Key:
    from cryptography.hazmat.primitives.asymmetric import ec, rsa

    if isinstance(key, rsa.RSAPublicKey | rsa.RSAPrivateKey) and key.key_size >= _RSA_BITS_LEAST:
        return Key("RS256", key)
    is_ec = isinstance(key, ec.EllipticCurvePublicKey | ec.EllipticCurvePrivateKey)
    if is_ec and isinstance(key.curve, ec.SECP256R1):
        return Key("ES256", key)
    raise InvalidRequest(f"Use an RSA key of {_RSA_BITS_LEAST} bits or more, or one of P-256.")


def _is_public(data: bytes) -> bool:
    from cryptography.hazmat.primitives.serialization import load_der_public_key

    if not data.startswith(_DER_SEQUENCE):
        return False
    try:
        load_der_public_key(data)
    except ValueError:
        return False
    return True


def new_secret() -> bytes:
    return secrets.token_bytes(SECRET_BYTES_LEAST)


def new_pair(algorithm: str) -> tuple[bytes, bytes]:
    """Returns a new private and public key, in DER. Raises InvalidRequest."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec, rsa

    private: Any
    if algorithm == "RS256":
        private = rsa.generate_private_key(public_exponent=65537, key_size=_RSA_BITS)
    elif algorithm == "ES256":
        private = ec.generate_private_key(ec.SECP256R1())
    else:
        raise InvalidRequest(f"{algorithm}: a pair of keys is for RS256 or ES256.")
    der, nothing = serialization.Encoding.DER, serialization.NoEncryption()
    pkcs8 = serialization.PrivateFormat.PKCS8
    spki = serialization.PublicFormat.SubjectPublicKeyInfo
    public = private.public_key().public_bytes(der, spki)
    return private.private_bytes(der, pkcs8, nothing), public


def new_token(key: Key, role: str, claims: Mapping[str, Any] | None = None) -> str:
    """Returns a token for a role. `claims`: further ones, such as `exp`, in s since the epoch."""
    import jwt

    return jwt.encode({"sub": role, **(claims or {})}, key.value, key.algorithm)


class TokenVerifier:
    """Verifies tokens. Thread-safe."""

    def __init__(
        self,
        key: Key,
        *,
        auth_claim: str = "sub",
        audience: str | None = None,
        audience_claim: str = "aud",
        clock_skew_s: int = 0,
        now_s: Callable[[], float] = time.time,
    ) -> None:
        self._key, self._auth_claim, self._clock_skew_s = key, auth_claim, clock_skew_s
        self._audience, self._audience_claim = audience, audience_claim
        self._now_s = now_s
        # Only valid tokens: an error is not remembered.
        self._verified = lru_cache(REMEMBERED_MAX)(self._verify)

    def verify(self, token: str) -> Caller:
        """Returns the role and the expiry of a token, whose signature is verified at its first use.

        Raises AuthenticationFailed.
        """
        if _TOKEN.fullmatch(token) is None:
            raise AuthenticationFailed("The token is not valid: it is not base64url with dots.")
        caller = self._verified(token)
        if caller.expires_ms is not None and caller.expires_ms <= self._now_s() * 1000:
            raise AuthenticationFailed(_EXPIRED)
        return caller

    def _verify(self, token: str) -> Caller:
        claims = self.claims(token)
        expires_s = claims.get("exp")
        skew_s = self._clock_skew_s
        expires_ms = None if expires_s is None else (int(expires_s) + skew_s) * 1000
        return Caller(self._role(claims.get(self._auth_claim)), expires_ms)

    def claims(self, token: str) -> dict[str, Any]:
        """Returns the claims of a valid token. Raises AuthenticationFailed."""
        import jwt

        if len(token) > TOKEN_BYTES_MAX:
            raise AuthenticationFailed(f"A token has at most {TOKEN_BYTES_MAX} bytes.")
        # As Pulsar: the time of issue is not checked, and the audience below.
        options: Any = {
            "verify_iat": False, "verify_aud": False, "verify_sub": False, "verify_jti": False
        }  # fmt: skip
        try:
            claims: dict[str, Any] = jwt.decode(
                token,
                self._key.value,
                algorithms=[self._key.algorithm],
                options=options,
                leeway=self._clock_skew_s,
            )
        except jwt.ExpiredSignatureError:
            raise AuthenticationFailed(_EXPIRED) from None
        except (jwt.PyJWTError, ValueError, TypeError, OverflowError, RecursionError) as error:
            raise AuthenticationFailed(f"The token is not valid: {error}"[:300]) from None
        self._check_audience(claims.get(self._audience_claim))
        return claims

    def _check_audience(self, claim: Any) -> None:
        if self._audience is None:
            return
        if self._audience not in ([claim] if isinstance(claim, str) else _list_of(claim)):
            raise AuthenticationFailed(
                f"The token is for another audience: its claim {self._audience_claim!r} must "
                f"contain {self._audience!r}."
            )

    def _role(self, claim: Any) -> str:
        role = next(iter(_list_of(claim)), None) if isinstance(claim, list) else claim
        if not isinstance(role, str) or not 0 < len(role) <= ROLE_CHARACTERS_MAX:
            raise AuthenticationFailed(f"The token has no role in its claim {self._auth_claim!r}.")
        return role


def _list_of(claim: Any) -> list[Any]:
    return claim if isinstance(claim, list) else []
