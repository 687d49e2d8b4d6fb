"""The HTTP server of the admin REST API, on the broker's own event loop.

aiohttp parses and writes HTTP; broker/http/routes.py finds the verb. Its limits: CONNECTIONS_MAX
connections, each closed when CONNECTION_S pass without a new request; LINE_BYTES_MAX of a request
line or header; BODY_BYTES_MAX of a body, which must arrive within BODY_S; REQUEST_S for a verb,
whose change goes on after that.

A request with an `Origin` header comes from a web page, and is refused: without authentication, any
page in a browser on this machine could delete topics.
"""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.web_protocol import RequestHandler

from ledgerfold.broker.http.answers import (
    JSON,
    NO_CONTENT,
    Answer,
    Refusal,
    Request,
    refused,
    refused_for,
)
from ledgerfold.broker.http.cluster import cluster_routes
from ledgerfold.broker.http.guarded import guarded
from ledgerfold.broker.http.messages import message_routes
from ledgerfold.broker.http.permissions import permission_routes
from ledgerfold.broker.http.policies import policy_routes
from ledgerfold.broker.http.routes import Route, Routes
from ledgerfold.broker.http.schema_policies import schema_policy_routes
from ledgerfold.broker.http.schemas import schema_routes
from ledgerfold.broker.http.scrape import scrape_routes
from ledgerfold.broker.http.subscriptions import subscription_routes
from ledgerfold.broker.http.topics import topic_routes
from ledgerfold.broker.security.certificates import Certificates, common_name
from ledgerfold.broker.security.guard import Guard
from ledgerfold.broker.security.listening import open_port
from ledgerfold.broker.topics.broker import Broker
from ledgerfold.storage.errors import AddressInUse, LedgerfoldError, StorageError

CONNECTIONS_MAX = 64
CONNECTION_S = 120.0
# A name of 1024 characters may take 12 KiB in a path.
LINE_BYTES_MAX = 32 * 1024
# The definition of a schema is the largest body.
BODY_BYTES_MAX = 512 * 1024
BODY_S = 10.0
REQUEST_S = 60.0
# For requests in progress when the broker stops.
GRACE_S = 0.5
_PARAMETERS_MAX = 50
_BUSY_BODY = json.dumps({"reason": f"There are {CONNECTIONS_MAX} connections; try again later."})
_BUSY = (
    "HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Type: application/json\r\n"
    f"Content-Length: {len(_BUSY_BODY)}\r\n\r\n{_BUSY_BODY}"
).encode()
_log = logging.getLogger(__name__)


def all_routes(broker: Broker, url: str, pulsar_url: str | None) -> list[Route]:
    """Returns all routes. `url`: the one at which they are served, "http://host:port"."""
    routes = cluster_routes(broker, url, pulsar_url)
    for more in (
        topic_routes,
        subscription_routes,
        policy_routes,
        permission_routes,
        schema_policy_routes,
        schema_routes,
        message_routes,
        scrape_routes,
    ):
        routes += more(broker)
    return routes


class AdminServer:
    """The REST API of one broker. `pulsar_url`: that of its binary protocol, if it is served."""

    def __init__(
        self,
        broker: Broker,
        pulsar_url: str | None = None,
        connection_s: float = CONNECTION_S,
        *,
        guard: Guard | None = None,
        certificates: Certificates | None = None,
    ) -> None:
        self._broker, self._pulsar_url, self._connection_s = broker, pulsar_url, connection_s
        self._guard, self._certificates = guard, certificates
        self._runner: web.ServerRunner | None = None
        self._listening: asyncio.Server | None = None
        # Known once the port is.
        self._routes: asyncio.Future[Routes] = asyncio.get_running_loop().create_future()

    async def start(self, listen: str) -> str:
        """Listens, and returns "host:port" with the actual port. Raises AddressInUse."""
        host, _, port = listen.rpartition(":")
        connections = _Connections(
            self._respond,
            self._connection_s,
            access_log=None,
            auto_decompress=False,
            max_line_size=LINE_BYTES_MAX,
            max_field_size=LINE_BYTES_MAX,
        )
        self._runner = web.ServerRunner(connections, shutdown_timeout=GRACE_S)
        await self._runner.setup()
        factory = self._runner.server
        assert factory is not None
        try:
            at = host.strip("[]"), int(port)
            self._listening = await open_port(factory, *at, self._certificates)
        except OSError as error:
            await self.stop()
            # The address was valid and free when the start was checked.
            raise AddressInUse(listen, "--admin-listen") from error
        address = f"{host}:{self._listening.sockets[0].getsockname()[1]}"
        scheme = "http" if self._certificates is None else "https"
        routes = all_routes(self._broker, f"{scheme}://{address}", self._pulsar_url)
        guard = self._guard
        if guard is not None:
            routes = [guarded(guard, each) for each in routes]
        self._routes.set_result(Routes(routes))
        return address

    async def stop(self) -> None:
        """Stops listening, and gives requests GRACE_S to end."""
        if self._listening is not None:
            self._listening.close()
        if self._runner is not None:
            await self._runner.cleanup()

    async def _respond(self, request: web.BaseRequest) -> web.StreamResponse:
        answer = await self._answer(request)
        headers = {"Server": "ledgerfold", **answer.headers}
        if answer.status != NO_CONTENT:
            headers["Content-Type"] = answer.content_type
        return web.Response(status=answer.status, body=answer.body, headers=headers)

    async def _answer(self, request: web.BaseRequest) -> Answer:
        try:
            if "Origin" in request.headers:
                raise Refusal(403, "Requests of web pages are refused: this API is for programs.")
            path = urlsplit(request.raw_path)
            verb, names = (await self._routes).find(request.method, path.path)
            query, body = _query(path.query), await _body(request)
            transport = request.transport
            certificate = None if transport is None else transport.get_extra_info("peercert")
            parsed = Request(names, query, body, request.headers, common_name(certificate))
            async with asyncio.timeout(REQUEST_S):
                return await verb(parsed)
        except Refusal as refusal:
            return refused(refusal.status, refusal.reason)
        except LedgerfoldError as error:
            if isinstance(error, StorageError):
                _log.error("%s: %s", error.reason, error)
            return refused_for(error)
        except TimeoutError:
            return refused(504, f"Not done after {REQUEST_S:g} s. A change that began goes on.")
        except HttpProcessingError as error:
            return refused(400, f"Not a valid HTTP body: {error.message[:200]}")
        except (ConnectionError, asyncio.CancelledError):
            raise
        except Exception as error:
            _log.exception("A request of the admin API failed with an internal error")
            what = f"Internal error: {type(error).__name__}; the broker's log has the traceback."
            return refused(500, what)


class _Connections(web.Server):
    """The open connections. One above the limit is told so and closed."""

    def __init__(self, handler: Any, connection_s: float, **options: Any) -> None:
        super().__init__(self._armed, **options)
        self._handler, self._connection_s = handler, connection_s
        self._timers: dict[RequestHandler, asyncio.TimerHandle] = {}

    def connection_made(self, handler: Any, transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        if len(self._timers) >= CONNECTIONS_MAX:
            transport.write(_BUSY)
            transport.close()
            return
        self._arm(handler, transport)

    def connection_lost(self, handler: Any, exc: BaseException | None = None) -> None:
        super().connection_lost(handler, exc)
        if (timer := self._timers.pop(handler, None)) is not None:
            timer.cancel()

    def _arm(self, handler: Any, transport: asyncio.Transport) -> None:
        if (timer := self._timers.pop(handler, None)) is not None:
            timer.cancel()
        loop = asyncio.get_running_loop()
        self._timers[handler] = loop.call_later(self._connection_s, transport.abort)

    async def _armed(self, request: web.BaseRequest) -> web.StreamResponse:
        """Handles a request. Its connection has its full time again."""
        if request.protocol in self._timers and isinstance(request.transport, asyncio.Transport):
            self._arm(request.protocol, request.transport)
        response: web.StreamResponse = await self._handler(request)
        return response


def _query(text: str) -> dict[str, str]:
    try:
        pairs = parse_qsl(text, True, errors="strict", max_num_fields=_PARAMETERS_MAX)
    except ValueError:
        raise Refusal(400, "The parameters are not UTF-8, or too many.") from None
    return dict(pairs)


async def _body(request: web.BaseRequest) -> Any:
    """Returns the parsed body, None if there is none. Raises Refusal."""
    too_large = Refusal(413, f"The body is larger than {BODY_BYTES_MAX} bytes.")
    if (request.content_length or 0) > BODY_BYTES_MAX:
        raise too_large
    data = bytearray()
    try:
        async with asyncio.timeout(BODY_S):
            async for chunk in request.content.iter_any():
                data += chunk
                if len(data) > BODY_BYTES_MAX:
                    raise too_large
    except TimeoutError:
        raise Refusal(408, f"The body did not arrive within {BODY_S:g} s.") from None
    if not data.strip():
        return None
    kind = request.headers.get("Content-Type", JSON).partition(";")[0].strip().lower()
    if kind != JSON and not kind.endswith("+json"):
        raise Refusal(415, f"A body must have the content type {JSON}.")
    try:
        parsed = json.loads(data)
        if b"\\u" in data:
            # A half of a surrogate pair, which JSON can name, is no text.
            json.dumps(parsed, ensure_ascii=False).encode()
        return parsed
    except (ValueError, RecursionError) as error:
        raise Refusal(400, f"The body is not valid JSON: {error}") from None
