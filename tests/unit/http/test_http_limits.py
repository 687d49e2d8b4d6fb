"""Requests that are too large, malformed or hostile each get a specific answer."""

from __future__ import annotations

import contextlib
import gc
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from ledgerfold.broker.http import listener, server
from ledgerfold.broker.http.listener import BODY_BYTES_MAX, CONNECTIONS_MAX
from ledgerfold.broker.security.certificates import Certificates
from ledgerfold.broker.security.hosts import Hosts
from tests.support.http_lab import HttpLab
from tests.support.security_lab import Authority
from tests.support.waiting import WAIT_S, wait_until

T = "/persistent/public/default/t"
TENANT = "/tenants/acme"
NEW = "/namespaces/public/new"
# Creates a namespace.
LATE = b"PUT /admin/v2/namespaces/public/late HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"


def connect(lab: HttpLab) -> socket.socket:
    host, _, port = lab.address.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=WAIT_S)


@pytest.mark.parametrize(
    ("raw", "headers", "status", "reason"),
    [
        (b"{bad", {}, 400, "not valid JSON"),
        (b"\xff\xfe\xfd", {}, 400, "not valid JSON"),
        (b"[" * 60_000, {}, 400, "not valid JSON"),
        (b"1" * 60_000, {}, 400, "not valid JSON"),
        (rb'{"allowedClusters": ["\ud800"]}', {}, 400, "not valid JSON"),
        (b" " * (BODY_BYTES_MAX + 1), {}, 413, f"larger than {BODY_BYTES_MAX} bytes"),
        (b"{}", {"Content-Type": "text/plain"}, 415, "application/json"),
        (b"{}", {"Origin": "https://example.org"}, 403, "web pages"),
        (b"", {"Origin": "null"}, 403, "web pages"),
        (b"\x1f\x8b\x08\x00", {"Content-Encoding": "gzip"}, 400, "not valid JSON"),
    ],
)
def test_invalid_bodies_are_refused(
    lab: HttpLab, raw: bytes, headers: dict[str, str], status: int, reason: str
) -> None:
    answer = lab.ask("PUT", TENANT, raw=raw, headers={"Content-Type": "application/json"} | headers)
    assert (answer.status, reason in answer.reason) == (status, True), answer
    assert lab.get("/tenants") == ["public"]


@pytest.mark.parametrize(
    "body",
    [
        {"adminRoles": ["r" * 20_000], "allowedClusters": ["standalone"]},
        {"adminRoles": [""] * 10_001, "allowedClusters": ["standalone"]},
        {str(each): [[0] * 3] * 3 for each in range(5_000)},
    ],
)
def test_strings_and_lists_of_bodies_have_the_limits_of_grpc(lab: HttpLab, body: object) -> None:
    """Bodies had been bounded in bytes only: no test had sent a long string or list in one."""
    answer = lab.ask("PUT", TENANT, body)
    assert (answer.status, "allowed" in answer.reason) == (412, True), answer
    assert len(answer.reason) < 400


def test_a_foreign_host_is_refused() -> None:
    """A page of that name, which resolves to this machine, sends no `Origin` with what it reads.
    Only the page for browsers had been asked under a foreign name.
    """
    lab = HttpLab(hosts=Hosts(["box.lan"]))
    for host, status in (
        ("evil.example:80", 421),
        ("", 421),
        ("localhost:1", 200),
        ("BOX.lan", 200),
    ):
        assert lab.ask("GET", "/tenants", headers={"Host": host}).status == status, host
    with connect(lab) as connection:
        connection.sendall(b"GET /admin/v2/tenants HTTP/1.0\r\n\r\n")
        assert b" 200 " in connection.recv(4096).partition(b"\r\n")[0]
    lab.close()


def test_a_body_of_unknown_length_is_bounded(lab: HttpLab) -> None:
    with connect(lab) as connection:
        head = f"PUT /admin/v2{TENANT} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
        connection.sendall(head.encode())
        chunk = b"8000\r\n" + b" " * 0x8000 + b"\r\n"
        connection.sendall((BODY_BYTES_MAX // 0x8000 + 1) * chunk)
        assert b" 413 " in connection.recv(4096).partition(b"\r\n")[0]


@pytest.mark.parametrize(
    ("path", "status"),
    [
        (f"/persistent/public/default/{'x' * 1024}", 204),
        (f"/persistent/public/default/{'x' * 1025}", 412),
        (f"/persistent/public/default/{'%F0%9F%90%98' * 1024}", 204),
        ("/persistent/public/default/%00", 412),
        ("/persistent/public/default/a%0Ab", 412),
        ("/persistent/public/default/%FF", 400),
        ("/persistent/public/default/%E2%80%A8", 412),
        ("/persistent/../default/t", 404),
        ("/namespaces/public/..", 412),
        (f"/{'x/' * 1000}", 501),
        ("/nothing", 501),
        ("/persistent/public/default/t/nothing", 501),
    ],
)
def test_unusual_paths(lab: HttpLab, path: str, status: int) -> None:
    answer = lab.ask("PUT", path)
    assert answer.status == status, answer


def test_a_too_long_path_is_refused(lab: HttpLab) -> None:
    assert lab.status("PUT", f"{T}{'x' * 40_000}") == 400
    assert lab.get("/brokers/health") == b"ok"


@pytest.mark.parametrize(
    "sent",
    [
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
        b"\x16\x03\x01\xff\xff\r\n\r\n",
        b"GET /\nforged HTTP/1.1\r\n\r\n",
    ],
)
def test_what_is_not_http_fills_no_log(
    lab: HttpLab, sent: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """No test had looked at the log: each such request left a traceback there."""
    host, _, port = lab.address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=WAIT_S) as connection:
        connection.sendall(sent)
        answer = connection.recv(1000)
    assert b" 400 " in answer
    # It had named the versions of Python and aiohttp.
    assert b"\r\nServer: ledgerfold\r\n" in answer
    assert not caplog.records


def test_too_many_parameters(lab: HttpLab) -> None:
    assert lab.status("GET", f"{T}/stats?{'&'.join(f'a{at}=1' for at in range(60))}") == 400


def test_unknown_verbs_are_refused_with_a_sentence(lab: HttpLab) -> None:
    answer = lab.ask("DELETE", f"{T}/stats")
    assert (answer.status, answer.reason) == (
        501,
        f"DELETE admin/v2{T}/stats is not emulated, and nothing was changed. This path answers "
        "GET. docs/NOT_EMULATED.md lists what is not.",
    )


def test_paths_outside_of_the_api_are_not_found(lab: HttpLab) -> None:
    assert lab.ask("GET", "/../../status.html").status in (404, 501)
    assert lab.status("GET", "/lookup/v1/x") == 404


def test_a_head_is_a_get_without_its_body(lab: HttpLab) -> None:
    answer = lab.ask("HEAD", "/clusters")
    assert (answer.status, answer.body) == (200, None)


@contextlib.contextmanager
def crowded(lab: HttpLab) -> Iterator[list[socket.socket]]:
    """As many idle connections as are served; then there is room again."""
    with contextlib.ExitStack() as held:
        yield [held.enter_context(connect(lab)) for _ in range(CONNECTIONS_MAX)]

    def has_room() -> bool:
        with contextlib.suppress(OSError):
            return lab.status("GET", "/clusters") == 200
        return False

    wait_until(has_room, "room for a connection")


def test_connections_are_bounded(
    lab: HttpLab, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Further clients read a reason, without an error in the log; others stay. A client had been
    disconnected before it sent its request, and often saw a reset: the test had sent none.
    """
    monkeypatch.setattr(listener, "REFUSED_S", WAIT_S)
    with crowded(lab) as idle:
        for raw in (b"", b" " * BODY_BYTES_MAX) * 5:
            answer = lab.ask("PUT", TENANT, raw=raw)
            assert (answer.status, answer.headers["Server"]) == (503, "ledgerfold")
            assert f"{CONNECTIONS_MAX} connections" in answer.reason
        idle[0].sendall(b"GET /admin/v2/clusters HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b'["standalone"]' in idle[0].recv(4096)
    assert lab.get("/tenants") == ["public"]
    # asyncio logs the error of a task that is collected.
    lab.on_loop(gc.collect)
    assert not caplog.records


def is_closed(connection: socket.socket) -> bool:
    """Waits for the end of a connection, which may be a reset."""
    with contextlib.suppress(ConnectionResetError):
        return connection.recv(1) == b""
    return True


def test_refused_connections_are_bounded_in_number(
    lab: HttpLab, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(listener, "REFUSED_MAX", 1)
    monkeypatch.setattr(listener, "REFUSED_S", WAIT_S)
    with crowded(lab), connect(lab) as refused, connect(lab) as further:
        assert is_closed(further)
        refused.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert refused.recv(4096).startswith(b"HTTP/1.1 503 ")
    lab.on_loop(gc.collect)
    assert not caplog.records


def test_refused_connections_are_bounded_in_time(
    lab: HttpLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "REFUSED_S", 0.05)
    with crowded(lab), connect(lab) as silent:
        assert is_closed(silent)


def test_a_refused_request_is_not_handled_after_its_time(
    lab: HttpLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It arrives while the broker stalls until the connection's time is over. It was carried out.

    No test had sent a request between the end of the time and its discovery.
    """
    monkeypatch.setattr(listener, "REFUSED_S", 0.2)
    with crowded(lab), connect(lab) as refused:
        wait_until(lambda: lab.refused_connections() == 1, "the refused connection")

        def stall() -> None:
            refused.sendall(LATE)
            threading.Event().wait(0.3)

        lab.on_loop(stall)
        assert is_closed(refused)
    assert lab.get("/namespaces/public") == ["public/default"]


def test_a_request_that_ends_a_handshake_above_the_limits_is_not_handled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It arrives with the last message of the handshake, before the connection is ended."""
    monkeypatch.setattr(listener, "REFUSED_MAX", 0)
    authority = Authority(tmp_path)
    pair = authority.sign("localhost")
    trusting = ssl.create_default_context(cafile=str(authority.file))
    lab = HttpLab(certificates=Certificates(pair.certificate, pair.key))
    with contextlib.ExitStack() as held:
        for _ in range(CONNECTIONS_MAX):
            plain = held.enter_context(connect(lab))
            held.enter_context(trusting.wrap_socket(plain, server_hostname="localhost"))
        refused = held.enter_context(connect(lab))
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = trusting.wrap_bio(incoming, outgoing, server_hostname="localhost")
        with pytest.raises(ssl.SSLWantReadError):
            tls.do_handshake()
        while True:
            refused.sendall(outgoing.read())
            incoming.write(refused.recv(65_536))
            with contextlib.suppress(ssl.SSLWantReadError):
                tls.do_handshake()
                break
        tls.write(LATE)
        refused.sendall(outgoing.read())
        while not is_closed(refused):
            continue
    assert lab.on_loop(lambda: lab.broker.metadata.namespace("public/late")) is None
    lab.close()


def test_a_silent_connection_is_closed() -> None:
    lab = HttpLab(connection_s=0.2)
    with connect(lab) as silent, connect(lab) as half:
        assert silent.recv(1) == b""
        # A reset, if it was closed before these bytes arrived.
        with contextlib.suppress(ConnectionResetError, BrokenPipeError):
            half.sendall(b"GET /admin/v2/clu")
            assert half.recv(1) == b""
    lab.close()


@pytest.mark.parametrize("path", [NEW, T, f"{T}/subscription/s"])
def test_concurrent_requests(lab: HttpLab, path: str) -> None:
    """Each gets its answer; a resource is created once."""
    statuses = list[int]()
    threads = [
        threading.Thread(target=lambda: statuses.append(lab.status("PUT", path))) for _ in range(8)
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert sorted(statuses) == [204, *[409] * 7]


def test_json_is_compact_as_pulsars(lab: HttpLab) -> None:
    """Shell scripts compare it as text."""
    lab.done("PUT", T)
    for path, expected in (
        ("/admin/v2/clusters", b'["standalone"]'),
        (f"/admin/v2{T}/compaction", b'{"status":"NOT_RUN","lastError":""}'),
        (f"/admin/v2{T}/partitions", b'{"partitions":0,"deleted":false}'),
        ("/admin/v2/tenants/nope", b'{"reason":"Tenant does not exist"}'),
    ):
        with connect(lab) as connection:
            request = f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
            connection.sendall(request.encode())
            found = b"".join(iter(lambda: connection.recv(4096), b""))
        assert found.partition(b"\r\n\r\n")[2] == expected


def test_a_missing_body_is_timed_out(lab: HttpLab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "BODY_S", 0.1)
    with connect(lab) as connection:
        head = f"PUT /admin/v2{TENANT} HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n"
        connection.sendall(head.encode())
        assert connection.recv(4096).startswith(b"HTTP/1.1 408 ")


def test_a_slow_change_continues_after_its_response(
    lab: HttpLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client gets an answer that says so, and may ask later."""
    monkeypatch.setattr(server, "REQUEST_S", 0.1)
    turn = lab.on_loop(lambda: lab.broker.policies.turn)
    lab.run(turn.acquire())
    answer = lab.ask("PUT", NEW)
    assert (answer.status, "continues" in answer.reason) == (504, True)
    assert lab.get("/namespaces/public") == ["public/default"]
    lab.on_loop(turn.release)
    wait_until(lambda: "public/new" in lab.get("/namespaces/public"), "the namespace")


def test_a_defect_is_reported_without_details(
    lab: HttpLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are in the log."""

    def broken(namespace: str) -> list[str]:
        raise KeyError("secret")

    monkeypatch.setattr(lab.broker.names, "listed", broken)
    answer = lab.ask("GET", "/persistent/public/default")
    assert answer.status == 500
    assert answer.reason == "Internal error: KeyError; the broker's log has the traceback."


def test_answers_that_are_not_read_count_as_unsent(
    lab: HttpLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """64 clients could each hold a list of all topics. Tests had read every answer."""
    names = [f"persistent://public/default/{at:01000}" for at in range(20_000)]
    path, outgoing = "/persistent/public/default", lab.broker.outgoing
    request = f"GET /admin/v2{path} HTTP/1.1\r\nHost: x\r\n\r\n".encode()
    monkeypatch.setattr(lab.broker.names, "listed", lambda _: list(names))
    monkeypatch.setattr(outgoing, "bytes_max", 30_000_000)
    assert lab.get(path) == names
    wait_until(lambda: outgoing.unsent_bytes == 0, "the end of the answer")
    with connect(lab) as silent:
        silent.sendall(request)
        wait_until(lambda: outgoing.unsent_bytes > 20_000_000, "the answer")
        answer = lab.ask("GET", path)
        assert (answer.status, "serve --unsent-max" in answer.reason) == (503, True), answer
        assert lab.get("/tenants") == ["public"]
        (share,) = lab.on_loop(lambda: tuple(outgoing.shares))
        lab.on_loop(lambda: share.overrun(outgoing.no_room_for(1)))
        wait_until(lambda: outgoing.unsent_bytes == 0, "the end of the silent client")
    assert lab.get(path) == names
