"""The server of the admin REST API: broker/http/routes.py finds the verb of a request.

The metrics are at `/metrics`, where Pulsar has them: the same as at `serve --metrics-listen`
(broker/metrics).

Its limits are those of broker/http/listener.py.

A request with an `Origin` header comes from a web page, and is refused: without authentication, any
page in a browser on this machine could delete topics. On a loopback address without authentication,
a request that names a foreign host is refused, too (broker/security/hosts.py).
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from aiohttp import web

from ledgerfold.broker.http.answers import (
    JSON,
    Answer,
    Refusal,
    Request,
    WrittenFloat,
    refused,
    refused_for,
)
from ledgerfold.broker.http.cluster import cluster_routes
from ledgerfold.broker.http.guarded import GuardedVerb, caller_of, guarded, limited
from ledgerfold.broker.http.listener import (
    CONNECTION_S,
    REQUEST_S,
    HttpServer,
    parameters,
    read_body,
)
from ledgerfold.broker.http.messages import message_routes
from ledgerfold.broker.http.new_namespaces import new_namespace_routes
from ledgerfold.broker.http.permissions import permission_routes
from ledgerfold.broker.http.policies import policy_routes
from ledgerfold.broker.http.properties import property_routes
from ledgerfold.broker.http.routes import ADMIN, Route, Routes
from ledgerfold.broker.http.schemas import schema_routes
from ledgerfold.broker.http.subscriptions import subscription_routes
from ledgerfold.broker.http.topics import topic_routes
from ledgerfold.broker.metrics.readings import MetricsReader, Readings
from ledgerfold.broker.metrics.text import parts
from ledgerfold.broker.security.certificates import Certificates
from ledgerfold.broker.security.guard import Guard
from ledgerfold.broker.security.hosts import Hosts
from ledgerfold.broker.topics.broker import Broker
from ledgerfold.storage.errors import LedgerfoldError

if TYPE_CHECKING:
    from ledgerfold.broker.metrics.process_metrics import ProcessMetrics

# They are answered whatever else a client asks for.
_PROBES = (f"{ADMIN}/brokers/health", f"{ADMIN}/brokers/ready")
# Prometheus' text format (prometheus_client.exposition, which takes long to import).
_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def all_routes(
    broker: Broker, url: str, pulsar_url: str | None, process: ProcessMetrics | None = None
) -> list[Route]:
    """Returns all routes. `url`: the one at which they are served, "http://host:port"."""
    routes = cluster_routes(broker, url, pulsar_url)
    for more in (
        topic_routes,
        subscription_routes,
        property_routes,
        policy_routes,
        new_namespace_routes,
        permission_routes,
        schema_routes,
        message_routes,
    ):
        routes += more(broker)
    return [*routes, ("GET", "/metrics", ScrapeVerb(broker, process).scrape)]


class AdminServer(HttpServer):
    """The REST API of one broker. `pulsar_url`: the URL of its binary protocol, if it is served.

    `hosts`: those that requests may name; None: any. `process`: the metrics of its process, which
    are served with the broker's.
    """

    def __init__(
        self,
        broker: Broker,
        pulsar_url: str | None = None,
        connection_s: float = CONNECTION_S,
        *,
        guard: Guard | None = None,
        certificates: Certificates | None = None,
        hosts: Hosts | None = None,
        process: ProcessMetrics | None = None,
    ) -> None:
        super().__init__(
            broker,
            "--admin-listen",
            connection_s,
            authentication=guard,
            certificates=certificates,
        )
        self._pulsar_url, self._hosts, self._process = pulsar_url, hosts, process
        self._scheme = "http" if certificates is None else "https"
        # Known once the port is.
        self._routes: asyncio.Future[Routes] = asyncio.get_running_loop().create_future()

    async def start(self, listen: str) -> str:
        address = await super().start(listen)
        url = f"{self._scheme}://{address}"
        routes = all_routes(self._broker, url, self._pulsar_url, self._process)
        routes = [limited(each) for each in routes]
        guard = self._authentication
        if guard is not None:
            routes = [guarded(guard, each) for each in routes]
        self._routes.set_result(Routes(routes))
        return address

    def _check_program(self, request: web.BaseRequest) -> None:
        """Raises Refusal for a request that a web page has caused."""
        if "Origin" in request.headers:
            raise Refusal(403, "Requests of web pages are refused: this API is for programs.")
        host = request.headers.get("Host")
        # Only a program names none.
        if self._hosts is not None and host is not None and not self._hosts.permit(host):
            raise Refusal(421, self._hosts.refusal(host))

    async def _answer(self, request: web.BaseRequest) -> Answer:
        self._check_program(request)
        path = urlsplit(request.raw_path)
        # The route may not need a caller.
        identity = self._identity(request, caller_of, counts=path.path not in _PROBES)
        verb, names = (await self._routes).find(request.method, path.path)
        # The first one of a name counts, as in Pulsar.
        query = {name: values[0] for name, values in parameters(path.query).items()}
        requested = Request(names, query, None, request.headers, identity)
        if isinstance(verb, GuardedVerb):
            # A body costs time, and memory.
            verb.check(requested)
        whole = replace(requested, body=await _body(request))
        async with asyncio.timeout(REQUEST_S):
            return await verb(whole) or Answer()

    async def _refused(self, status: int, reason: str) -> Answer:
        return refused(status, reason)

    async def _refused_for(self, error: LedgerfoldError) -> Answer:
        return refused_for(error)


async def _body(request: web.BaseRequest) -> Any:
    """Returns the parsed body, None if there is none. Raises Refusal."""
    data = await read_body(request)
    if not data.strip():
        return None
    kind = request.headers.get("Content-Type", JSON).partition(";")[0].strip().lower()
    if kind != JSON and not kind.endswith("+json"):
        raise Refusal(415, f"A body must have the content type {JSON}.")
    try:
        parsed = json.loads(data, parse_float=WrittenFloat, parse_constant=_refuse)
        if b"\\u" in data:
            # A half of a surrogate pair, which JSON can contain, is not text.
            json.dumps(parsed, ensure_ascii=False).encode()
        return parsed
    except (ValueError, RecursionError) as error:
        raise Refusal(400, f"The body is not valid JSON: {error}") from None


def _refuse(constant: str) -> None:
    """Refuses NaN and infinities, which Python parses but JSON does not contain."""
    raise ValueError(f"{constant} is not a number of JSON.")


class ScrapeVerb:
    """One scrape at a time: each may hold the values of all topics."""

    def __init__(self, broker: Broker, process: ProcessMetrics | None) -> None:
        self._broker, self._reader, self._process = broker, MetricsReader(broker), process
        self._turn = asyncio.Lock()

    async def scrape(self, request: Request) -> Answer:
        async with self._turn:
            readings = await self._reader.read()
            body = await self._broker.in_thread(lambda: self._body(readings))
            return Answer(200, body, _CONTENT_TYPE)

    def _body(self, readings: Readings) -> bytes:
        of_process = b"" if self._process is None else self._process.text()
        return "".join(parts(readings)).encode() + of_process
