"""Requests that another site's page causes get nothing, and change nothing."""

from __future__ import annotations

import pytest

from tests.model.log_model import Message
from tests.support.page_lab import PageLab, T

COMPACT = f"{T}/compact"


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "127.0.0.1:7680",
        "localhost:1",
        "LocalHost",
        "[::1]:7680",
        "10.1.2.3",
        "box.lan",
    ],
)
def test_allowed_host_names_are_served(host: str) -> None:
    lab = PageLab(names=("Box.LAN",))
    assert lab.ask("/", headers={"Host": host}).status == 200
    lab.close()


@pytest.mark.parametrize(
    "host",
    ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:7680", "", "[::1", "@"],
)
def test_other_host_names_are_refused(page: PageLab, host: str) -> None:
    """A foreign name may resolve to this machine: DNS rebinding."""
    for path in ("/", T, "/static/page.js"):
        seen = page.ask(path, headers={"Host": host})
        assert (seen.status, "--ui-host" in seen.text) == (421, True), path


@pytest.mark.parametrize("site", ["cross-site", "same-site", "whatever"])
def test_another_site_may_only_link(page: PageLab, site: str) -> None:
    page.publish(([Message(b"k", b"v")], False))
    link = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "navigate"}
    assert page.ask(T, headers=link).status == 200
    assert page.ask(f"{T}/explain?of=k", headers=link).status == 403
    assert page.ask(T, headers={"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "no-cors"}).status == 403
    assert page.ask(f"{T}/explain?of=k", headers={"Sec-Fetch-Site": "same-origin"}).status == 200


@pytest.mark.parametrize(
    ("headers", "fields"),
    [
        ({"Origin": "https://evil.example"}, {}),
        ({"Origin": "null"}, {}),
        ({"Origin": ""}, {}),
        ({"Origin": "http://127.0.0.1:1"}, {}),
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}, {"token": "x"}),
        ({}, {"token": ""}),
        ({}, {"token": "é" * 43}),
        ({"Content-Type": "text/plain"}, {}),
        ({"Content-Type": "multipart/form-data; boundary=x"}, {}),
    ],
)
def test_a_form_of_another_site_changes_nothing(
    written: PageLab, headers: dict[str, str], fields: dict[str, str]
) -> None:
    written.publish(([Message(b"k", b"v")], False))
    seen = written.send(COMPACT, fields, **headers)
    assert seen.status in (403, 415), seen.text
    assert written.broker.compaction.history.runs() == []


def test_a_read_only_page_changes_nothing(page: PageLab) -> None:
    page.publish(([Message(b"k", b"v")], False))
    for path in ("compact", "cancel", "clean", "messages"):
        assert page.send(f"{T}/{path}", {"key": "k", "value": "v"}).status == 403
    assert page.send("/clock", {"by": "1", "unit": "hours"}).status == 403
    assert page.ask(f"{T}/messages").status == 404
    assert page.broker.compaction.history.runs() == []
    assert "<form" not in page.look(T).html
    assert page.token not in page.look(T).html


def test_other_methods_are_refused(written: PageLab) -> None:
    for method in ("PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"):
        assert written.ask("/", method).status == 405
    head = written.ask("/", "HEAD")
    assert (head.status, head.html) == (200, "")


def test_every_response_has_security_headers(written: PageLab) -> None:
    for path in ("/", "/nothing", "/static/page.css", "/static/page.js", "/static/icon.svg"):
        headers = written.ask(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
    assert written.ask("/static/../server.py").status == 404
    assert written.ask("/static/server.py").status == 404
    assert written.ask("/static/%2e%2e%2fserver.py").status == 404
