"""`ledgerfold tokens`, without a broker."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.command_line import Ran, ledgerfold


def tokens(*arguments: str | Path) -> Ran:
    return ledgerfold("tokens", *map(str, arguments))


def printed(*arguments: str | Path) -> str:
    ran = tokens(*arguments)
    assert ran.code == 0, ran.err
    return ran.out.strip()


def test_a_secret_key(tmp_path: Path) -> None:
    key, other = tmp_path / "hmac.key", tmp_path / "other.key"
    printed("create-secret-key", "--output", key)
    printed("create-secret-key", "--output", other)
    assert key.stat().st_mode & 0o777 == 0o600
    token = printed("create", "--secret-key", key, "--subject", "billing", "-e", "1h")
    claims = json.loads(printed("validate", "-sk", key, token))
    assert claims["sub"] == "billing"
    assert claims["exp"] > 1_700_000_000
    kept = tmp_path / "billing.token"
    printed("create", "--secret-key", key, "--subject", "billing", "--output", kept)
    assert kept.stat().st_mode & 0o777 == 0o600
    assert printed("validate", "-sk", key, f"file:{tmp_path / 'billing.token'}")
    piped = ledgerfold("tokens", "validate", "-sk", f"file://{key}", stdin=token.encode())
    assert json.loads(piped.out) == claims
    refused = tokens("validate", "--secret-key", other, token)
    assert refused.code != 0
    assert "not valid" in refused.err
    # A key is not replaced by accident.
    assert tokens("create-secret-key", "--output", key).code != 0
    assert printed("validate", "-sk", key, token)


@pytest.mark.parametrize("algorithm", ["RS256", "ES256"])
def test_a_pair_of_keys(tmp_path: Path, algorithm: str) -> None:
    private, public = tmp_path / "private.key", tmp_path / "public.key"
    pair = ("--output-private-key", private, "--output-public-key", public)
    printed("create-key-pair", *pair, "-a", algorithm)
    assert private.stat().st_mode & 0o777 == 0o600
    token = printed("create", "-pk", private, "-s", "billing", "--audience", "prod")
    assert json.loads(printed("validate", "-pk", public, token)) == {
        "sub": "billing",
        "aud": "prod",
    }


@pytest.mark.parametrize(
    "arguments",
    [
        ("create", "-s", "billing"),
        ("create", "-s", "billing", "-sk", "missing"),
        ("create", "-s", "billing", "-sk", "data:;base64,YWJj"),
        ("create", "-sk", "data:;base64,YWJj"),
        ("validate", "x.y.z"),
        ("create-key-pair", "-a", "HS256", "--output-private-key", "a", "--output-public-key", "b"),
    ],
)
def test_mistakes(
    arguments: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ran = tokens(*arguments)
    assert ran.code in (2, 3), ran
    assert ran.out == ""
