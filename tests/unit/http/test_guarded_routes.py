"""Roles at the door of the REST API, and its verbs about permissions."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import pytest

from ledgerfold.broker.common.security_settings import SecuritySettings
from ledgerfold.broker.http.listener import BODY_BYTES_MAX
from ledgerfold.broker.http.server import all_routes
from ledgerfold.broker.security.guard import Guard
from ledgerfold.broker.security.needs import ROUTES, Need
from ledgerfold.v1.records_pb2 import Action
from tests.support.http_lab import HttpLab
from tests.support.security_lab import Tokens
from tests.support.waiting import WAIT_S

TOPIC = "/persistent/public/default/orders"
NAMES = {
    "domain": "persistent", "tenant": "public", "namespace": "default", "topic": "orders",
    "cluster": "standalone", "subscription": "s", "role": "r", "count": "1", "timestamp": "1",
    "seconds": "1", "position": "1", "ledger": "1", "entry": "1", "version": "0",
}  # fmt: skip
OWN = {
    "reader": {Need.ROLE, Need.LOOKUP, Need.CONSUME},
    "writer": {Need.ROLE, Need.LOOKUP, Need.PRODUCE},
    "nobody": {Need.ROLE},
}


class GuardedHttp:
    def __init__(self, tokens: Tokens) -> None:
        self.tokens, self.lab = tokens, HttpLab()
        settings = SecuritySettings(
            token_secret_key=str(tokens.file), superuser_roles=("admin",), proxy_roles=("proxy",)
        )
        lab = self.lab
        lab.serve_again(lambda: Guard(settings, lab.broker.namespaces, lambda: 0))
        permissions = lab.broker.namespaces.permissions
        topic = f"persistent:/{TOPIC.removeprefix('/persistent')}"
        lab.run(lab.broker.create_topic(topic))
        lab.run(permissions.grant("public/default", topic, "reader", [Action.ACTION_CONSUME]))
        for role in ("writer", "proxy"):
            lab.run(permissions.grant("public/default", topic, role, [Action.ACTION_PRODUCE]))

    def connect(self) -> socket.socket:
        host, _, port = self.lab.address.rpartition(":")
        return socket.create_connection((host, int(port)), timeout=WAIT_S)

    def status(self, method: str, path: str, role: str | None, body: Any = None) -> int:
        headers = {} if role is None else {"Authorization": f"Bearer {self.tokens.of(role)}"}
        return self.lab.ask(method, path, body, headers=headers).status


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedHttp]:
    guarded = GuardedHttp(Tokens(tmp_path_factory.mktemp("keys")))
    yield guarded
    guarded.lab.close()


def test_each_role_at_each_route(guarded: GuardedHttp) -> None:
    lab = guarded.lab
    routes = lab.on_loop(lambda: all_routes(lab.broker, "http://h:1", None))
    assert len(routes) > 80
    for method, path, _ in routes:
        need, filled = ROUTES[method, path], path.format(**NAMES)
        asked = filled.removeprefix("/admin/v2")
        stranger = guarded.status(method, asked, None)
        assert (stranger == 401) == (need is not Need.NOTHING), (method, path, stranger)
        for role, own in OWN.items():
            status = guarded.status(method, asked, role)
            is_refused = need not in own and need is not Need.NOTHING
            assert (status == 403) == is_refused, (method, path, role, status)


@pytest.mark.parametrize(("role", "status"), [(None, 401), ("nobody", 403), ("admin", 413)])
def test_a_request_is_authorized_before_its_body_is_read(
    guarded: GuardedHttp, role: str | None, status: int
) -> None:
    """No test had sent a body of a client that is refused: it was read and parsed first."""
    with guarded.connect() as connection:
        token = "" if role is None else f"Authorization: Bearer {guarded.tokens.of(role)}\r\n"
        length = f"Content-Length: {BODY_BYTES_MAX + 1}\r\n"
        head = f"PUT /admin/v2/tenants/x HTTP/1.1\r\nHost: x\r\n{length}{token}\r\n"
        connection.sendall(head.encode())
        assert f" {status} " in connection.recv(4096).decode().partition("\r\n")[0]


@pytest.mark.parametrize("header", ["Bearer", "Bearer x.y.z", "Basic YTpi", "bearer  ", "é"])
def test_invalid_tokens_are_refused(guarded: GuardedHttp, header: str) -> None:
    answer = guarded.lab.ask("GET", "/tenants", headers={"Authorization": header})
    assert answer.status == 401
    assert answer.headers["WWW-Authenticate"] == "Bearer"
    assert "token" in answer.reason


@pytest.mark.parametrize(
    ("role", "original", "status"),
    [
        ("proxy", "writer", 200),
        ("proxy", "nobody", 403),
        ("proxy", None, 403),
        ("proxy", "proxy", 403),
        ("writer", "admin", 403),
        # A proxy that forwards the credentials of its client names that client, too.
        ("writer", "writer", 200),
    ],
)
def test_a_request_of_a_proxy_needs_the_permission_of_both_roles(
    guarded: GuardedHttp, role: str, original: str | None, status: int
) -> None:
    headers = {"Authorization": f"Bearer {guarded.tokens.of(role)}"}
    if original is not None:
        headers["X-Original-Principal"] = original
    answer = guarded.lab.ask("GET", f"{TOPIC}/partitions", headers=headers)
    assert answer.status == status


@pytest.mark.parametrize("scheme", ["bearer", "BEARER", "Bearer  "])
def test_the_case_of_a_scheme_does_not_matter(guarded: GuardedHttp, scheme: str) -> None:
    headers = {"Authorization": f"{scheme} {guarded.tokens.of('admin')}"}
    assert guarded.lab.ask("GET", "/tenants", headers=headers).status == 200


def test_no_path_bypasses_the_permission_of_a_topic(guarded: GuardedHttp) -> None:
    for path in (
        "/persistent/public/default/orders%2F..%2Fother/stats",
        "/persistent/public/default/other/stats",
        "/persistent/public/default/orders-partition-x/stats",
        "/non-persistent/public/default/orders/stats",
    ):
        assert guarded.status("GET", path, "reader") in (403, 412), path


def test_permissions_as_in_pulsar(lab: HttpLab) -> None:
    lab.done("PUT", TOPIC)
    for path, of in (("/namespaces/public/default", "namespace"), (TOPIC, "topic")):
        permissions = f"{path}/permissions"
        lab.done("POST", f"{permissions}/{of}%20role", ["consume", "produce"])
        lab.done("POST", f"{permissions}/second", ["consume"])
        found = lab.get(permissions)
        assert found[f"{of} role"] == ["produce", "consume"]
        assert found["second"] == ["consume"]
        lab.done("DELETE", f"{permissions}/second")
        assert lab.status("POST", f"{permissions}/r", ["functions"]) == 501
        assert lab.status("POST", f"{permissions}/r", "consume") == 400
        assert lab.status("POST", f"{permissions}/r", []) == 412
    # Those of the namespace apply to the topic, too, and are not revoked there.
    assert "namespace role" in lab.get(f"{TOPIC}/permissions")
    lab.done("DELETE", f"{TOPIC}/permissions/namespace%20role")
    assert "namespace role" in lab.get(f"{TOPIC}/permissions")
    assert lab.status("GET", "/namespaces/no/where/permissions") == 404


def test_permissions_of_a_topic_need_the_topic(lab: HttpLab) -> None:
    """Every test had created the topic first."""
    lab.done("PUT", f"{TOPIC}-parted/partitions", 2)
    lab.done("POST", f"{TOPIC}-parted/permissions/r", ["consume"])
    assert lab.get(f"{TOPIC}-parted-partition-1/permissions") == {"r": ["consume"]}
    missing = (f"{TOPIC}-none", f"{TOPIC}-parted-partition-2", "/non-persistent/public/default/np")
    for topic in missing:
        assert lab.status("GET", f"{topic}/permissions") == 404
        assert lab.status("POST", f"{topic}/permissions/r", ["produce"]) == 404
        assert lab.status("DELETE", f"{topic}/permissions/r") == 404
