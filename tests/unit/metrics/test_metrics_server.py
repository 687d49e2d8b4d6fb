"""The port of the metrics, and clients that hold on to it."""

from __future__ import annotations

import gzip
import http.client
import socket
from collections.abc import Iterator

import pytest

from ledgerfold.broker.http.listener import Limits
from ledgerfold.broker.http.server import METRICS_LIMITS, MetricsServer
from ledgerfold.broker.metrics.process_metrics import ProcessMetrics
from ledgerfold.broker.security.hosts import Hosts
from tests.model.broker_lab import BrokerLab
from tests.support.loop_lab import LoopLab
from tests.support.waiting import WAIT_S, wait_until

# Between a client that says nothing and its end; long enough to open all of them before.
CONNECTION_S = 2.0


class Served(LoopLab):
    """The metrics of a lab whose loop runs in a thread."""

    def __init__(self) -> None:
        lab = BrokerLab()

        async def serve() -> tuple[MetricsServer, str]:
            server = MetricsServer(
                lab.broker,
                limits=Limits(METRICS_LIMITS.connections_max, CONNECTION_S),
                hosts=Hosts(),
                process=ProcessMetrics(),
            )
            return server, await server.start("127.0.0.1:0")

        self._server, address = lab.run(serve())
        host, _, port = address.rpartition(":")
        self.address = host, int(port)
        super().__init__(lab, self._server.stop)

    def connect(self) -> socket.socket:
        return socket.create_connection(self.address, timeout=WAIT_S)

    def ask(self, path: str = "/metrics", **headers: str) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection(*self.address, timeout=WAIT_S)
        try:
            connection.request("GET", path, headers=headers)
            answer = connection.getresponse()
            assert answer.headers["Server"] == "ledgerfold"
            return answer.status, answer.read()
        finally:
            connection.close()

    def has_room(self) -> bool:
        """Returns whether a connection is served, not refused."""
        return self.ask()[0] == 200


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
        assert served.ask(Host=host)[0] == status


def test_nothing_else_is_served(served: Served) -> None:
    for path in ("/", "/admin/v2/clusters", "/admin/v2/brokers/health"):
        assert served.ask(path) == (404, b'{"reason":"The metrics are at /metrics"}')


def test_an_answer_is_compressed_for_clients_that_accept_it(served: Served) -> None:
    status, zipped = served.ask(**{"Accept-Encoding": "deflate, gzip"})
    assert status == 200
    assert b"ledgerfold_build_info" in gzip.decompress(zipped)
    assert b"ledgerfold_build_info" in served.ask()[1]


def test_connections_are_limited_in_number_and_time(served: Served) -> None:
    """Silent ones, half requests, and clients that read no answer; then it serves as before."""
    assert b"ledgerfold_build_info" in served.ask()[1]
    held = [served.connect() for _ in range(METRICS_LIMITS.connections_max)]
    for number, each in enumerate(held):
        each.sendall((b"", b"GET /metr", b"GET /metrics HTTP/1.1\r\nHost: a\r\n")[number % 3])
    with served.connect() as one_too_many:
        answer = one_too_many.recv(1000)
    assert answer.startswith(b"HTTP/1.1 503")
    assert b"There are 16 connections; try again later." in answer
    for each in held:
        while each.recv(1000):
            continue
        each.close()
    wait_until(served.has_room, "the end of all connections")
    assert b"ledgerfold_streams 0" in served.ask()[1]


def test_a_slow_client_is_disconnected(served: Served) -> None:
    """Its time still ends."""
    dripping = served.connect()
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
    dripping.close()
