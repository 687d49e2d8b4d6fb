"""The HTTP server of the metrics: GET /metrics, in Prometheus' text format.

It has its own threads. A scrape requests readings from the event loop (broker/metrics/readings.py)
and formats them in its thread, so that the loop does as little as possible; one scrape is served at
a time. The metrics of the process follow (broker/metrics/process_metrics.py).

On a broker that authenticates, a scrape needs a superuser's token or certificate, unless the broker
was started with --metrics-for-all.

A client that sends an incomplete request, delays a TLS handshake, or does not read its response,
holds a thread until its time limit; there are CONNECTIONS_MAX of these. REFUSED_MAX further
connections have a thread for REFUSED_S, which reads their request and answers 503. A client that is
disconnected before it sent its request may see a reset. More are closed without an answer.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import threading
import time
import zlib
from collections.abc import Iterator
from concurrent.futures import CancelledError
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from ledgerfold.broker.metrics.process_metrics import ProcessMetrics
from ledgerfold.broker.metrics.readings import MetricsReader
from ledgerfold.broker.metrics.text import parts
from ledgerfold.broker.security.certificates import Certificates, common_name
from ledgerfold.broker.security.guard import Credentials, Guard, Target
from ledgerfold.broker.security.hosts import Hosts
from ledgerfold.broker.security.listening import SERVER
from ledgerfold.broker.security.needs import Need
from ledgerfold.storage.errors import AddressInUse, AuthenticationFailed, AuthorizationFailed

if TYPE_CHECKING:
    from ledgerfold.broker.topics.broker import Broker

PATH = "/metrics"
# Much longer than 10,000 topics take; a loop that is silent for so long is stuck.
_TIMEOUT_S = 30.0
# The interval of the checks for a stop and for time limits.
_POLL_S = 0.1
# Concurrent connections; a Prometheus server uses one.
CONNECTIONS_MAX = 16
# The time limit of a connection.
CONNECTION_S = 60.0
REFUSED_MAX = 16
REFUSED_S = 5.0
_GZIP_LEVEL = 1
_log = logging.getLogger(__name__)


class Metrics:
    """The metrics server. `listen`: "host:port". `process`: the metrics of its process."""

    def __init__(self, listen: str, process: ProcessMetrics) -> None:
        self._listen, self._process = listen, process
        self._server: _Server | None = None

    def serve(
        self,
        broker: Broker,
        guard: Guard | None = None,
        certificates: Certificates | None = None,
        hosts: Hosts | None = None,
    ) -> str:
        """Starts serving; returns "host:port" with the actual port. Raises AddressInUse.

        Called on the broker's loop, before the broker starts.
        """
        scrape = Scrape(MetricsReader(broker), asyncio.get_running_loop(), self._process)
        self._server = _bound(self._listen, scrape)
        self._server.guard, self._server.certificates = guard, certificates
        self._server.hosts = hosts
        threading.Thread(
            target=self._server.serve_forever, args=(_POLL_S,), name="metrics", daemon=True
        ).start()
        return f"{self._listen.rpartition(':')[0]}:{self._server.server_port}"

    def stop(self) -> None:
        """Stops within _POLL_S. Scrapes in progress end with the process."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()


class Scrape:
    """The exchange of a scrape between the server's threads and the loop."""

    def __init__(
        self, reader: MetricsReader, loop: asyncio.AbstractEventLoop, process: ProcessMetrics
    ) -> None:
        self._reader, self._loop, self._process = reader, loop, process
        self._one_at_a_time = threading.Lock()

    def body(self, *, zipped: bool) -> bytes:
        """Returns a response body. Raises TimeoutError, CancelledError, RuntimeError (stopping)."""
        with self._one_at_a_time:
            chunks = self._chunks()
            return b"".join(_gzip(chunks) if zipped else chunks)

    def _chunks(self) -> Iterator[bytes]:
        reading = asyncio.run_coroutine_threadsafe(self._reader.read(), self._loop)
        readings = reading.result(_TIMEOUT_S)
        yield from (part.encode() for part in parts(readings))
        yield self._process.text()


def _gzip(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Compresses chunk by chunk, so that only compressed data is kept."""
    compressor = zlib.compressobj(_GZIP_LEVEL, wbits=zlib.MAX_WBITS | 16)
    for chunk in chunks:
        yield compressor.compress(chunk)
    yield compressor.flush()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    # The backlog of connections not accepted yet.
    request_queue_size = CONNECTIONS_MAX
    scrape: Scrape
    guard: Guard | None = None
    certificates: Certificates | None = None
    # The hosts that requests may name; None: any.
    hosts: Hosts | None = None
    connection_s = CONNECTION_S

    def __init__(self, *arguments: Any) -> None:
        # The start time of each.
        self._connections: dict[socket.socket, float] = {}
        self._refused: set[socket.socket] = set()
        self._lock = threading.Lock()
        super().__init__(*arguments)

    def get_request(self) -> tuple[socket.socket, Any]:
        connection, address = super().get_request()
        if self.certificates is None:
            return connection, address
        # The handshake is done by the first read, in the connection's own thread.
        context = self.certificates.current().context
        wrapped = context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
        return wrapped, address

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serves or refuses a request in a new thread, or closes it if there are too many."""
        with self._lock:
            is_refused = len(self._connections) - len(self._refused) >= CONNECTIONS_MAX
            is_answered = not is_refused or len(self._refused) < REFUSED_MAX
            if is_answered:
                self._connections[request] = time.monotonic()
            if is_answered and is_refused:
                self._refused.add(request)
        if is_refused:
            _log.debug("A scrape from %s exceeds the limit of connections", client_address)
        if is_answered:
            super().process_request(request, client_address)
        else:
            super().shutdown_request(request)

    def is_refused(self, connection: socket.socket) -> bool:
        with self._lock:
            return connection in self._refused

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._connections.pop(request, None)
            self._refused.discard(request)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """Ends connections over their time limit; called between requests, and every _POLL_S."""
        now = time.monotonic()
        with self._lock:
            for connection, began in self._connections.items():
                if now - began > (REFUSED_S if connection in self._refused else self.connection_s):
                    # Its thread reads the end, or fails to write, and then closes it.
                    with suppress(OSError):
                        end_connection(connection)

    def handle_error(self, request: Any, client_address: Any) -> None:
        _log.debug("A scrape from %s failed", client_address, exc_info=True)


def end_connection(connection: socket.socket) -> None:
    """Ends a connection that another thread uses. Raises OSError.

    NOTE: the method of `ssl.SSLSocket` would first drop the TLS of the connection, and what its
    thread writes in between would be sent as it is.
    """
    socket.socket.shutdown(connection, socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def parse_request(self) -> bool:
        """Parses a request; if its connection is one too many, answers it."""
        is_good = super().parse_request()
        if is_good and self.server.is_refused(self.connection):
            self.send_error(503, "Too many connections", f"{CONNECTIONS_MAX} are served at a time")
            return False
        return is_good

    def do_GET(self) -> None:
        hosts, host = self.server.hosts, self.headers.get("Host")
        if hosts is not None and host is not None and not hosts.permit(host):
            self.send_error(421, "Misdirected Request", hosts.refusal(host))
            return
        if urlsplit(self.path).path != PATH:
            self.send_error(404, f"The metrics are at {PATH}")
            return
        try:
            self._check_caller()
        except AuthenticationFailed as error:
            self.send_error(401, "Unauthorized", str(error))
            return
        except AuthorizationFailed as error:
            self.send_error(403, "Forbidden", str(error))
            return
        zipped = "gzip" in self.headers.get("Accept-Encoding", "")
        try:
            body = self.server.scrape.body(zipped=zipped)
        except (TimeoutError, CancelledError, RuntimeError) as error:
            self.send_error(503, "The broker is stopping, or too busy", str(error))
            return
        self.send_response(200)
        self.send_header("Content-Type", CONTENT_TYPE_PLAIN_0_0_4)
        self.send_header("Content-Length", str(len(body)))
        if zipped:
            self.send_header("Content-Encoding", "gzip")
        self.end_headers()
        self.wfile.write(body)

    def _check_caller(self) -> None:
        """Raises AuthenticationFailed, AuthorizationFailed."""
        guard = self.server.guard
        if guard is not None:
            is_tls = isinstance(self.connection, ssl.SSLSocket)
            certificate = self.connection.getpeercert() if is_tls else None
            header = self.headers.get("Authorization")
            caller = guard.caller(Credentials.of_header(header, common_name(certificate)))
            guard.check(caller, Need.SUPERUSER, Target())

    def version_string(self) -> str:
        """Returns the header `Server`."""
        return SERVER

    def log_message(self, format: str, *args: Any) -> None:
        """Does nothing: scrapes are not logged."""


def _bound(listen: str, scrape: Scrape) -> _Server:
    host, _, port = listen.rpartition(":")
    host = host.strip("[]")
    is_v6 = {"address_family": socket.AF_INET6 if ":" in host else socket.AF_INET}
    kind = type(_Server.__name__, (_Server,), is_v6)
    try:
        server: _Server = kind((host, int(port)), _Handler)
    except OSError as error:
        # The address was valid and free when the start was checked.
        raise AddressInUse(listen, "--metrics-listen") from error
    server.scrape = scrape
    return server
