"""The HTTP server of the metrics: GET /metrics, in Prometheus' text format.

It has threads of its own. A scrape asks the event loop for readings (broker/metrics/readings.py)
and writes them out in its thread, so that the loop does nothing but what only it can; one scrape is
served at a time. What the process counts by itself (syncs, and its memory, CPU time and open files,
on Linux) is prometheus_client's to count and to write.

A client that sends half a request, or reads no answer, holds a thread until its time is over; there
are CONNECTIONS_MAX of these.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
import time
import zlib
from collections.abc import Iterator
from concurrent.futures import CancelledError
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from prometheus_client import (
    CollectorRegistry,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from ledgerfold.broker.metrics.catalogue import SYNC_BUCKETS_S, SYNC_SECONDS
from ledgerfold.broker.metrics.readings import MetricsReader
from ledgerfold.broker.metrics.text import parts
from ledgerfold.storage.errors import AddressInUse
from ledgerfold.storage.timed_files import TimedFiles

if TYPE_CHECKING:
    from ledgerfold.broker.topics.broker import Broker

PATH = "/metrics"
# Far more than 10,000 topics take; a loop that does not answer for so long is lost.
_TIMEOUT_S = 30.0
# How often the server looks whether it is to stop, and whose time is over.
_POLL_S = 0.1
# At a time; a Prometheus has one.
CONNECTIONS_MAX = 16
# From its beginning to its end.
CONNECTION_S = 60.0
_BUSY = (
    b"HTTP/1.0 503 Too many connections\r\nContent-Type: text/plain\r\n\r\n"
    b"This server has as many connections as it takes. Try again later.\n"
)
_GZIP_LEVEL = 1
_log = logging.getLogger(__name__)


class Metrics:
    """`listen`: "host:port". `files` are for the store, so that its syncs are timed."""

    def __init__(self, listen: str, connection_s: float = CONNECTION_S) -> None:
        # Of a counter nobody asks when it began to count: that is when the process began.
        disable_created_metrics()
        self._listen, self._connection_s = listen, connection_s
        self._registry = CollectorRegistry()
        syncs = Histogram(
            SYNC_SECONDS.name, SYNC_SECONDS.help, buckets=SYNC_BUCKETS_S, registry=self._registry
        )
        ProcessCollector(registry=self._registry)
        self.files = TimedFiles(syncs.observe)
        self._server: _Server | None = None

    def serve(self, broker: Broker) -> str:
        """On the broker's loop, before it starts. Says where: "host:port", with the real port.

        Raises AddressInUse.
        """
        scrape = Scrape(MetricsReader(broker), asyncio.get_running_loop(), self._registry)
        self._server = _bound(self._listen, scrape)
        self._server.connection_s = self._connection_s
        threading.Thread(
            target=self._server.serve_forever, args=(_POLL_S,), name="metrics", daemon=True
        ).start()
        return f"{self._listen.rpartition(':')[0]}:{self._server.server_port}"

    def stop(self) -> None:
        """Takes up to _POLL_S. Scrapes that are on their way end when the process does."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()


class Scrape:
    """Asked by the server's threads, answered by the loop."""

    def __init__(
        self, reader: MetricsReader, loop: asyncio.AbstractEventLoop, registry: CollectorRegistry
    ) -> None:
        self._reader, self._loop, self._registry = reader, loop, registry
        self._one_at_a_time = threading.Lock()

    def body(self, *, zipped: bool) -> bytes:
        """Raises TimeoutError, CancelledError, RuntimeError when the broker is stopping."""
        with self._one_at_a_time:
            chunks = self._chunks()
            return b"".join(_gzip(chunks) if zipped else chunks)

    def _chunks(self) -> Iterator[bytes]:
        reading = asyncio.run_coroutine_threadsafe(self._reader.read(), self._loop)
        readings = reading.result(_TIMEOUT_S)
        yield from (part.encode() for part in parts(readings))
        yield generate_latest(self._registry)


def _gzip(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """As they come: only what is compressed is kept."""
    compressor = zlib.compressobj(_GZIP_LEVEL, wbits=zlib.MAX_WBITS | 16)
    for chunk in chunks:
        yield compressor.compress(chunk)
    yield compressor.flush()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    # Those that are not accepted yet.
    request_queue_size = CONNECTIONS_MAX
    scrape: Scrape
    connection_s = CONNECTION_S

    def __init__(self, *arguments: Any) -> None:
        # When each began.
        self._connections: dict[socket.socket, float] = {}
        self._lock = threading.Lock()
        super().__init__(*arguments)

    def process_request(self, request: Any, client_address: Any) -> None:
        """In a thread of its own, if there is one for it."""
        with self._lock:
            is_one_too_many = len(self._connections) >= CONNECTIONS_MAX
            if not is_one_too_many:
                self._connections[request] = time.monotonic()
        if is_one_too_many:
            _log.debug("A scrape from %s is one too many", client_address)
            with suppress(OSError):
                request.setblocking(False)
                request.send(_BUSY)
            super().shutdown_request(request)
            return
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._connections.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """Between requests, and every _POLL_S: ends connections whose time is over."""
        before = time.monotonic() - self.connection_s
        with self._lock:
            late = [each for each, began in self._connections.items() if began < before]
            for connection in late:
                # Its thread reads the end, or fails to write, and closes it.
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        _log.debug("A scrape from %s failed", client_address, exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
        if urlsplit(self.path).path != PATH:
            self.send_error(404, f"The metrics are at {PATH}")
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

    def log_message(self, format: str, *args: Any) -> None:
        """Scrapes are not worth a line each."""


def _bound(listen: str, scrape: Scrape) -> _Server:
    host, _, port = listen.rpartition(":")
    host = host.strip("[]")
    is_v6 = {"address_family": socket.AF_INET6 if ":" in host else socket.AF_INET}
    kind = type(_Server.__name__, (_Server,), is_v6)
    try:
        server: _Server = kind((host, int(port)), _Handler)
    except OSError as error:
        # The address was free, and could be one, when the start was checked.
        raise AddressInUse(listen, "--metrics-listen") from error
    server.scrape = scrape
    return server
