"""The HTTP server of the metrics, and clients that hold on to it."""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ledgerfold.broker.metrics import server
from ledgerfold.broker.metrics.process_metrics import ProcessMetrics
from ledgerfold.broker.metrics.server import (
    CONNECTION_S,
    CONNECTIONS_MAX,
    REFUSED_MAX,
    Metrics,
    end_connection,
)
from ledgerfold.broker.security.certificates import Certificates
from ledgerfold.broker.security.hosts import Hosts
from tests.model.broker_lab import BrokerLab
from tests.support.security_lab import Authority
from tests.support.waiting import WAIT_S, wait_until


class Served:
    """The metrics of a lab whose loop runs in a thread."""

    def __init__(self, certificates: Certificates | None = None) -> None:
        self._certificates = certificates
        self._lab = BrokerLab()
        self._metrics = Metrics("127.0.0.1:0", ProcessMetrics())
        self._thread = threading.Thread(target=self._lab.loop.run_forever, daemon=True)
        self.address = self._lab.run(self._serve())
        self._thread.start()

    async def _serve(self) -> tuple[str, int]:
        served = self._metrics.serve(
            self._lab.broker, certificates=self._certificates, hosts=Hosts()
        )
        host, _, port = served.rpartition(":")
        return host, int(port)

    def connect(self) -> socket.socket:
        return socket.create_connection(self.address, timeout=WAIT_S)

    def scrape(self, context: ssl.SSLContext | None = None) -> str:
        """Returns the metrics, or why they are refused."""
        scheme = "http" if context is None else "https"
        url = f"{scheme}://localhost:{self.address[1]}/metrics"
        try:
            with urllib.request.urlopen(url, timeout=WAIT_S, context=context) as answer:
                return str(answer.read().decode())
        except urllib.error.HTTPError as error:
            with error:
                return str(error)

    def limit_connections(self, connection_s: float) -> None:
        """Sets the time limit of all connections, open ones included."""
        assert self._metrics._server is not None
        self._metrics._server.connection_s = connection_s

    def close(self) -> None:
        self._metrics.stop()
        self._lab.loop.call_soon_threadsafe(self._lab.loop.stop)
        self._thread.join()
        self._lab.stop()


@pytest.fixture
def served() -> Iterator[Served]:
    served = Served()
    yield served
    served.close()


def test_a_foreign_host_is_refused(served: Served) -> None:
    """A page of that name, which resolves to this machine, could read the metrics: only the page
    for browsers had been asked under a foreign name.
    """
    for host, status in (("evil.example", 421), ("localhost", 200), ("10.0.0.1:9464", 200)):
        connection = http.client.HTTPConnection(*served.address, timeout=WAIT_S)
        connection.request("GET", "/metrics", headers={"Host": host})
        answer = connection.getresponse()
        assert (answer.status, answer.headers["Server"]) == (status, "ledgerfold")
        connection.close()


def threads() -> int:
    return sum("process_request_thread" in each.name for each in threading.enumerate())


def test_connections_are_limited_in_number_and_time(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Silent ones, half requests, and clients that read no answer; then it serves as before.
    Further scrapes read why they are refused.
    """
    monkeypatch.setattr(server, "REFUSED_S", WAIT_S)
    assert "ledgerfold_build_info" in served.scrape()
    wait_until(lambda: not threads(), "the end of the scrape")
    held = [served.connect() for _ in range(CONNECTIONS_MAX)]
    for number, each in enumerate(held):
        each.sendall((b"", b"GET /metr", b"GET /metrics HTTP/1.1\r\nHost: a\r\n")[number % 3])
    wait_until(lambda: threads() == CONNECTIONS_MAX, "all connections")
    for _ in range(5):
        assert "503: Too many connections" in served.scrape()
    for method in ("HEAD", "POST"):
        connection = http.client.HTTPConnection(*served.address, timeout=WAIT_S)
        connection.request(method, "/metrics")
        assert connection.getresponse().status == 503
        connection.close()
    wait_until(lambda: threads() == CONNECTIONS_MAX, "the end of all refusals")
    refused = [served.connect() for _ in range(REFUSED_MAX)]
    wait_until(lambda: threads() == CONNECTIONS_MAX + REFUSED_MAX, "all refusals")
    with served.connect() as one_too_many:
        assert one_too_many.recv(1) == b""
    monkeypatch.setattr(server, "REFUSED_S", 0.0)
    for each in refused:
        # The end, or the answer to an unfinished request.
        while each.recv(1000):
            continue
        each.close()
    wait_until(lambda: threads() == CONNECTIONS_MAX, "the end of all refusals")
    served.limit_connections(0.0)
    for each in held:
        while each.recv(1000):
            continue
        each.close()
    wait_until(lambda: not threads(), "the end of all connections")
    served.limit_connections(CONNECTION_S)
    assert "ledgerfold_streams 0" in served.scrape()


def test_a_refused_scrape_over_tls_is_answered(tmp_path: Path) -> None:
    """It had been disconnected before the handshake: no test had refused one."""
    authority = Authority(tmp_path)
    pair = authority.sign("localhost")
    trusting = ssl.create_default_context(cafile=str(authority.file))
    served = Served(Certificates(pair.certificate, pair.key))
    held = [served.connect() for _ in range(CONNECTIONS_MAX)]
    wait_until(lambda: threads() == CONNECTIONS_MAX, "all connections")
    assert "503: Too many connections" in served.scrape(trusting)
    for each in held:
        each.close()
    wait_until(lambda: not threads(), "the end of all connections")
    assert "ledgerfold_streams 0" in served.scrape(trusting)
    served.close()


def test_a_tls_connection_that_is_ended_writes_nothing_plain(tmp_path: Path) -> None:
    """Its thread may be writing."""
    authority = Authority(tmp_path)
    pair = authority.sign("localhost")
    context = Certificates(pair.certificate, pair.key).current().context
    trusting = ssl.create_default_context(cafile=str(authority.file))
    ours, theirs = socket.socketpair()
    with ThreadPoolExecutor(1) as thread, ours, theirs:
        connecting = thread.submit(trusting.wrap_socket, theirs, server_hostname="localhost")
        with context.wrap_socket(ours, server_side=True) as served, connecting.result(WAIT_S):
            end_connection(served)
            assert served.version() == "TLSv1.3"
            with pytest.raises(OSError, match=r"EOF|pipe"):
                served.sendall(b"plain")


def test_a_slow_client_is_disconnected(served: Served) -> None:
    """Its time still ends."""
    dripping = served.connect()
    wait_until(lambda: threads() == 1, "the connection")
    served.limit_connections(0.2)
    dripping.settimeout(0.05)

    def is_over() -> bool:
        try:
            dripping.sendall(b"G")
            return not dripping.recv(1)
        except TimeoutError:
            return False
        except OSError:
            return True

    wait_until(is_over, "the end of its time")
    wait_until(lambda: not threads(), "the end of its thread")
    dripping.close()
