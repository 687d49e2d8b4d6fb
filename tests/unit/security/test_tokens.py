"""Tokens that are refused: expired, changed, unsigned, of another key, audience or algorithm."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from ledgerfold.broker.security.tokens import (
    TOKEN_BYTES_MAX,
    Caller,
    Key,
    TokenVerifier,
    new_pair,
    new_secret,
    new_token,
    private_key,
    public_key,
    read_key,
    secret_key,
)
from ledgerfold.storage.errors import AuthenticationFailed, InvalidRequest

SECRET = secret_key(b"s" * 32)
VERIFIER = TokenVerifier(SECRET)
LATER_S = 4_000_000_000


def refused(token: str, verifier: TokenVerifier = VERIFIER) -> str:
    with pytest.raises(AuthenticationFailed) as found:
        verifier.verify(token)
    return str(found.value)


def encoded(part: Any) -> str:
    data = part if isinstance(part, bytes) else json.dumps(part).encode()
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def test_a_token_has_a_role_and_an_expiry() -> None:
    assert VERIFIER.verify(new_token(SECRET, "billing")) == Caller("billing", None)
    token = new_token(SECRET, "billing", {"exp": LATER_S})
    assert VERIFIER.verify(token) == Caller("billing", LATER_S * 1000)


def test_an_expired_token() -> None:
    token = new_token(SECRET, "billing", {"exp": 1})
    assert "has expired" in refused(token)
    tolerant = TokenVerifier(SECRET, clock_skew_s=LATER_S)
    assert tolerant.verify(token).role == "billing"


def test_a_token_that_is_not_valid_yet() -> None:
    assert "not yet valid" in refused(new_token(SECRET, "billing", {"nbf": LATER_S}))


def test_a_changed_token() -> None:
    head, claims, signature = new_token(SECRET, "billing").split(".")
    assert "ignature" in refused(f"{head}.{encoded({'sub': 'admin'})}.{signature}")
    assert "ignature" in refused(f"{head}.{claims}.{encoded(b'x' * 32)}")
    refused(f"{head}.{claims}.")
    refused(f"{head}.{claims}")


@pytest.mark.parametrize("name", ["none", "None", "NONE", "nOnE", ""])
def test_an_unsigned_token(name: str) -> None:
    head, claims = encoded({"alg": name, "typ": "JWT"}), encoded({"sub": "admin"})
    refused(f"{head}.{claims}.")
    signature = hmac.digest(b"s" * 32, f"{head}.{claims}".encode(), hashlib.sha256)
    refused(f"{head}.{claims}.{encoded(signature)}")


def test_a_token_of_another_key() -> None:
    assert "ignature" in refused(new_token(secret_key(b"t" * 32), "billing"))


@pytest.mark.parametrize("algorithm", ["RS256", "ES256"])
def test_a_pair_of_keys(algorithm: str) -> None:
    private, public = map(bytes, new_pair(algorithm))
    verifier = TokenVerifier(public_key(public))
    assert verifier.verify(new_token(private_key(private), "billing")).role == "billing"
    other, _ = new_pair(algorithm)
    assert "ignature" in refused(new_token(private_key(other), "billing"), verifier)


@pytest.mark.parametrize("algorithm", ["RS256", "ES256"])
@pytest.mark.parametrize("encoding", ["DER", "PEM"])
def test_a_public_key_is_not_accepted_as_a_secret(algorithm: str, encoding: str) -> None:
    """Algorithm confusion: an attacker may sign with the public key as if it were a secret."""
    _, public = new_pair(algorithm)
    data = public
    if encoding == "PEM":
        loaded = serialization.load_der_public_key(public)
        info = serialization.PublicFormat.SubjectPublicKeyInfo
        data = loaded.public_bytes(serialization.Encoding.PEM, info)
    verifier = TokenVerifier(public_key(data))
    head, claims = encoded({"alg": "HS256", "typ": "JWT"}), encoded({"sub": "admin"})
    signature = hmac.digest(data, f"{head}.{claims}".encode(), hashlib.sha256)
    assert "alg" in refused(f"{head}.{claims}.{encoded(signature)}", verifier)
    # Nor does an operator's slip make it one.
    with pytest.raises(InvalidRequest, match="not a secret key"):
        secret_key(data)


def test_the_header_of_a_token_does_not_choose_its_key() -> None:
    """Headers that name or carry a key are not followed."""
    private = ec.generate_private_key(ec.SECP256R1())
    public = jwt.algorithms.ECAlgorithm.to_jwk(private.public_key(), as_dict=True)
    headers = {"jwk": public, "jku": "http://127.0.0.1:1/keys", "kid": "../../etc/passwd"}
    refused(jwt.encode({"sub": "admin"}, private, "ES256", headers=headers))
    _, mine = new_pair("ES256")
    refused(
        jwt.encode({"sub": "admin"}, private, "ES256", headers=headers),
        TokenVerifier(public_key(mine)),
    )


@pytest.mark.parametrize("audience", [None, "other", ["other"], 5, {}])
def test_a_token_for_another_audience(audience: Any) -> None:
    verifier = TokenVerifier(SECRET, audience="prod")
    claims = {} if audience is None else {"aud": audience}
    assert "audience" in refused(new_token(SECRET, "billing", claims), verifier)


@pytest.mark.parametrize("audience", ["prod", ["other", "prod"]])
def test_a_token_for_this_audience(audience: Any) -> None:
    verifier = TokenVerifier(SECRET, audience="prod", audience_claim="for")
    assert verifier.verify(new_token(SECRET, "billing", {"for": audience})).role == "billing"


@pytest.mark.parametrize("role", [None, "", 5, [], [5], {"a": 1}, "x" * 1025])
def test_a_token_without_a_role(role: Any) -> None:
    verifier = TokenVerifier(SECRET, auth_claim="role")
    assert "no role" in refused(new_token(SECRET, "ignored", {"role": role}), verifier)


def test_the_first_of_several_roles_counts() -> None:
    verifier = TokenVerifier(SECRET, auth_claim="roles")
    assert verifier.verify(new_token(SECRET, "ignored", {"roles": ["a", "b"]})).role == "a"


@pytest.mark.parametrize(
    "text", ["", ".", "..", "a.b.c", "é.é.é", "\x00", "x" * (TOKEN_BYTES_MAX + 1), "[" * 9000]
)
def test_malformed_tokens(text: str) -> None:
    refused(text)


@pytest.mark.parametrize("claims", [b"[]", b"5", b"{", b"\xff", b'{"exp": "x"}', b'{"exp": 1e400}'])
def test_signed_tokens_with_invalid_claims(claims: bytes) -> None:
    head = encoded({"alg": "HS256", "typ": "JWT"})
    signature = hmac.digest(b"s" * 32, f"{head}.{encoded(claims)}".encode(), hashlib.sha256)
    refused(f"{head}.{encoded(claims)}.{encoded(signature)}")


def test_weak_keys_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="31 bytes"):
        secret_key(b"x" * 31)
    for weak in (rsa.generate_private_key(65537, 1024), ec.generate_private_key(ec.SECP384R1())):
        der = weak.private_bytes(
            serialization.Encoding.DER,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        with pytest.raises(InvalidRequest, match="2048 bits"):
            private_key(der)
    for nonsense in (b"", b"nonsense", b"-----BEGIN PUBLIC KEY-----\n"):
        with pytest.raises(InvalidRequest):
            public_key(nonsense)
        with pytest.raises(InvalidRequest):
            private_key(nonsense)


def test_sources_of_keys(tmp_path: Any) -> None:
    secret, file = new_secret(), tmp_path / "hmac.key"
    file.write_bytes(secret)
    text = base64.b64encode(secret).decode()
    for place in (str(file), f"file://{file}", f"data:;base64,{text}"):
        assert secret_key(read_key(place)) == Key("HS256", secret)
    with pytest.raises(InvalidRequest):
        read_key("data:;base64,*")
    with pytest.raises(OSError, match="No such file"):
        read_key(str(tmp_path / "missing"))


def test_token_times_use_the_machines_clock() -> None:
    now_s = time.time_ns() // 10**9
    assert VERIFIER.verify(new_token(SECRET, "a", {"exp": now_s + 3600, "iat": LATER_S}))


def test_a_token_is_verified_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each request had verified its token's signature again. A forged token is never remembered."""
    verified = list[str]()
    decode = jwt.decode

    def counted(token: str, *arguments: Any, **options: Any) -> Any:
        verified.append(token)
        return decode(token, *arguments, **options)

    monkeypatch.setattr(jwt, "decode", counted)
    verifier = TokenVerifier(SECRET)
    token, forged = new_token(SECRET, "billing"), new_token(secret_key(b"t" * 32), "billing")
    assert [verifier.verify(token) for _ in range(3)] == [Caller("billing", None)] * 3
    for _ in range(2):
        refused(forged, verifier)
    assert verified == [token, forged, forged]


def test_a_verified_token_expires() -> None:
    now_s = 0.0
    verifier = TokenVerifier(SECRET, clock_skew_s=10, now_s=lambda: now_s)
    token = new_token(SECRET, "billing", {"exp": LATER_S})
    verifier.verify(token)
    now_s = LATER_S + 9.999
    verifier.verify(token)
    now_s = LATER_S + 10
    assert "has expired" in refused(token, verifier)


@pytest.mark.parametrize("junk", ["=", " ", "\n", "!", "\u00e9"])
def test_a_token_has_one_spelling(junk: str) -> None:
    """Others would take the places of remembered tokens; some versions of PyJWT accept them."""
    token = new_token(SECRET, "billing")
    assert VERIFIER.verify(token).role == "billing"
    assert "base64url" in refused(token + junk)
    assert "base64url" in refused(token.replace(".", f"{junk}.", 1))


@pytest.mark.parametrize("exp", [float("inf"), [1], {"a": 1}, "soon"])
def test_an_invalid_expiry_is_refused(exp: Any) -> None:
    header, payload = encoded({"alg": "HS256", "typ": "JWT"}), encoded({"sub": "a", "exp": exp})
    signed = f"{header}.{payload}"
    signature = hmac.new(b"s" * 32, signed.encode(), hashlib.sha256).digest()
    assert "not valid" in refused(f"{signed}.{encoded(signature)}")
