"""The page of a broker that authenticates: only a superuser sees anything of it."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path

import pytest

from ledgerfold.broker.common.security_settings import SecuritySettings
from tests.support.page_lab import PageLab, T
from tests.support.security_lab import Tokens


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> Tokens:
    return Tokens(tmp_path_factory.mktemp("keys"))


@pytest.fixture
def lab(tokens: Tokens) -> Iterator[PageLab]:
    settings = SecuritySettings(token_secret_key=str(tokens.file), superuser_roles=("admin",))
    lab = PageLab(writes=True, security=settings)
    yield lab
    lab.close()


def basic(token: str, name: str = "anyone") -> dict[str, str]:
    return {"Authorization": "Basic " + b64encode(f"{name}:{token}".encode()).decode()}


def test_a_superuser_signs_in_with_a_token(lab: PageLab, tokens: Tokens) -> None:
    token = tokens.of("admin")
    for headers in (basic(token), basic(token, ""), {"Authorization": f"Bearer {token}"}):
        assert lab.ask("/", headers=headers).status == 200


@pytest.mark.parametrize("path", ["/", T, "/static/page.css", "/nothing"])
def test_other_roles_see_nothing(lab: PageLab, tokens: Tokens, path: str) -> None:
    for headers in ({}, basic("no token"), basic(""), {"Authorization": "Basic ?"}):
        refused = lab.ask(path, headers=headers)
        assert refused.status == 401
        assert refused.headers["www-authenticate"].startswith("Basic ")
        assert "public/default" not in refused.html
    refused = lab.ask(path, headers=basic(tokens.of("reader")))
    assert refused.status == 403
    assert "public/default" not in refused.html


def test_a_form_needs_a_superuser(lab: PageLab, tokens: Tokens) -> None:
    """A session token of the page alone is no proof of a role."""
    fields = f"token={lab.token}&key=k&value=v".encode()
    headers = {
        "Content-Type": "application/x-www-form-urlencoded",
        "Origin": f"http://{lab.address}",
    }
    assert lab.ask(f"{T}/publish", "POST", fields, headers).status == 401
    signed = headers | basic(tokens.of("reader"))
    assert lab.ask(f"{T}/publish", "POST", fields, signed).status == 403


def test_no_sign_in_without_authentication(tmp_path: Path) -> None:
    lab = PageLab()
    try:
        assert lab.ask("/").status == 200
    finally:
        lab.close()
