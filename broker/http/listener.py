"""An HTTP server on the broker's own event loop, with its limits: of the REST API and of the page.

aiohttp parses and writes HTTP. The limits: CONNECTIONS_MAX connections, each closed when
CONNECTION_S pass without a new request; LINE_BYTES_MAX of a request line or header; BODY_BYTES_MAX
of a body, which must arrive within BODY_S; REQUEST_S for a request, whose change continues after
that. Large answers that clients have not read count as unsent (broker/common/outgoing.py).

REFUSED_MAX further connections get a status and a reason for their first request. They are closed
after it, or after REFUSED_S. A client that is disconnected before it sent its request would often
see a reset, and not what was written to it. Connections above both limits are reset.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Any
from urllib.parse import parse_qs

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.web_protocol import RequestHandler

from ledgerfold.broker.common.outgoing import READ_LEAST, Outgoing
from ledgerfold.broker.http.answers import (
    NO_CONTENT,
    Answer,
    Refusal,
    refused,
    refused_for,
    status_of,
)
from ledgerfold.broker.security.certificates import Certificates, common_name
from ledgerfold.broker.security.guard import Guard, Identity, client_of, identity_of
from ledgerfold.broker.security.listening import SERVER, open_port
from ledgerfold.broker.security.tokens import Caller
from ledgerfold.broker.topics.broker import Broker
from ledgerfold.storage.error_codec import encode_error
from ledgerfold.storage.errors import AddressInUse, LedgerfoldError, StorageError

CONNECTIONS_MAX = 64
CONNECTION_S = 120.0
REFUSED_MAX = 64
REFUSED_S = 5.0
# A name of 1024 characters may take 12 KiB in a path.
LINE_BYTES_MAX = 32 * 1024
# The definition of a schema is the largest body.
BODY_BYTES_MAX = 512 * 1024
BODY_S = 10.0
REQUEST_S = 60.0
# The time for requests in progress when the broker stops.
GRACE_S = 0.5
PARAMETERS_MAX = 50
_log = logging.getLogger(__name__)
_BUSY = refused(503, f"There are {CONNECTIONS_MAX} connections; try again later.")


def is_of_broker(record: logging.LogRecord) -> bool:
    """Returns whether a record is no traceback about a request that is not HTTP.

    Anyone who reaches the port could fill the log with these; the answer says what is wrong.
    """
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, HttpProcessingError)


_log.addFilter(is_of_broker)


class HttpServer(ABC):
    """A server at one address. `option`: names the address; `connection_s`: as CONNECTION_S.

    `authentication`: decides who may use it; None: any client. `certificates`: for TLS.
    """

    def __init__(
        self,
        broker: Broker,
        option: str,
        connection_s: float = CONNECTION_S,
        *,
        authentication: Guard | None,
        certificates: Certificates | None,
    ) -> None:
        self._broker, self._option, self._connection_s = broker, option, connection_s
        self._authentication, self._certificates = authentication, certificates
        self._runner: web.ServerRunner | None = None
        self._listening: asyncio.Server | None = None

    async def start(self, listen: str) -> str:
        """Listens, and returns "host:port" with the actual port. Raises AddressInUse."""
        host, _, port = listen.rpartition(":")
        connections = _Connections(
            self._respond,
            self._connection_s,
            access_log=None,
            logger=_log,
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
            raise AddressInUse(listen, self._option) from error
        return f"{host}:{self._listening.sockets[0].getsockname()[1]}"

    async def stop(self) -> None:
        """Stops listening, and gives requests GRACE_S to end."""
        if self._listening is not None:
            self._listening.close()
        if self._runner is not None:
            await self._runner.cleanup()

    @abstractmethod
    async def _answer(self, request: web.BaseRequest) -> Answer:
        """Answers a request. Raises Refusal, LedgerfoldError, TimeoutError after REQUEST_S."""

    @abstractmethod
    async def _refused(self, status: int, reason: str) -> Answer: ...

    async def _refused_for(self, error: LedgerfoldError) -> Answer:
        # An encoded error has a bounded length.
        return await self._refused(status_of(error), encode_error(error)[1])

    def _identity(
        self,
        request: web.BaseRequest,
        caller_of: Callable[[Guard, Mapping[str, str], str | None], Caller],
        *,
        counts: bool = True,
    ) -> Identity:
        """Verifies the caller, and counts its request. Raises TooManyRequests.

        `caller_of`: takes the headers and the role of the certificate.
        """
        guard, rates, identity = self._authentication, self._broker.rates, None
        if guard is not None:
            role = certificate_role(request)
            identity = identity_of(lambda: caller_of(guard, request.headers, role))
        if rates is not None and counts:
            rates.take(client_of(request.remote or "", identity))
        return identity

    async def _answer_or_refusal(self, request: web.BaseRequest) -> Answer:
        try:
            return await self._answer(request)
        except Refusal as refusal:
            return await self._refused(refusal.status, refusal.reason)
        except LedgerfoldError as error:
            if isinstance(error, StorageError):
                _log.error("%s: %s", error.reason, error)
            return await self._refused_for(error)
        except TimeoutError:
            what = f"Not done after {REQUEST_S:g} s. A change that began continues."
            return await self._refused(504, what)
        except HttpProcessingError as error:
            return await self._refused(400, f"Not a valid HTTP body: {error.message[:200]}")
        except (ConnectionError, asyncio.CancelledError):
            raise
        except Exception as error:
            _log.exception("A request at the address of %s failed", self._option)
            what = f"Internal error: {type(error).__name__}; the broker's log has the traceback."
            return await self._refused(500, what)

    async def _respond(self, request: web.BaseRequest) -> web.StreamResponse:
        answer, outgoing = await self._answer_or_refusal(request), self._broker.outgoing
        is_large = len(answer.body) > READ_LEAST
        if is_large and not outgoing.permits(len(answer.body)):
            answer = refused_for(outgoing.no_room_for(len(answer.body)))
            is_large = False
        headers = {"Server": SERVER, **answer.headers}
        if answer.status != NO_CONTENT:
            headers["Content-Type"] = answer.content_type
        options: Any = {"status": answer.status, "body": answer.body, "headers": headers}
        if is_large and request.transport is not None:
            return _LargeResponse(outgoing, request.transport, **options)
        return web.Response(**options)


class _LargeResponse(web.Response):
    """A response whose body counts as unsent until the client has read most of it."""

    def __init__(self, outgoing: Outgoing, transport: asyncio.Transport, **options: Any) -> None:
        super().__init__(**options)
        self._outgoing, self._transport = outgoing, transport

    async def write_eof(self, data: bytes = b"") -> None:
        with closing(self._outgoing.share()) as share:
            share.on_overrun(self._transport.abort)
            share.hold(self.content_length or 0)
            share.sending()
            await super().write_eof(data)


class _Handler(RequestHandler):
    # Decided once: it holds for requests that are handled after the end of their connection.
    is_served = False

    def handle_error(self, *args: Any, **named: Any) -> web.StreamResponse:
        """Answers what is not HTTP. Strangers do not learn the versions of Python and aiohttp."""
        response = super().handle_error(*args, **named)
        response.headers["Server"] = SERVER
        return response


class _Connections(web.Server):
    """The open connections, and those that are refused."""

    def __init__(self, handler: Any, connection_s: float, **options: Any) -> None:
        super().__init__(self._armed, **options)
        self._handler, self._connection_s = handler, connection_s
        self._timers: dict[RequestHandler, asyncio.TimerHandle] = {}
        self._refused: set[RequestHandler] = set()

    def __call__(self) -> RequestHandler:
        return _Handler(self, loop=self._loop, **self._kwargs)

    def connection_made(self, handler: Any, transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        handler.is_served = len(self._timers) - len(self._refused) < CONNECTIONS_MAX
        if handler.is_served:
            self._arm(handler, transport, self._connection_s)
        elif len(self._refused) < REFUSED_MAX:
            self._refused.add(handler)
            self._arm(handler, transport, REFUSED_S)
        else:
            # NOTE: not at once: on Python 3.11, the handler's task would begin after the end of its
            # connection, and fail.
            asyncio.get_running_loop().call_soon(transport.abort)

    def connection_lost(self, handler: Any, exc: BaseException | None = None) -> None:
        super().connection_lost(handler, exc)
        self._refused.discard(handler)
        if (timer := self._timers.pop(handler, None)) is not None:
            timer.cancel()

    def _arm(self, handler: Any, transport: asyncio.Transport, seconds: float) -> None:
        if (timer := self._timers.pop(handler, None)) is not None:
            timer.cancel()
        loop = asyncio.get_running_loop()
        self._timers[handler] = loop.call_later(seconds, transport.abort)

    async def _armed(self, request: web.BaseRequest) -> web.StreamResponse:
        """Handles a request. Its connection gets its full time again."""
        handler = request.protocol
        assert isinstance(handler, _Handler)
        if not handler.is_served:
            return _last_response(_BUSY)
        if handler in self._timers and isinstance(request.transport, asyncio.Transport):
            self._arm(handler, request.transport, self._connection_s)
        response: web.StreamResponse = await self._handler(request)
        return response


def _last_response(answer: Answer) -> web.Response:
    """Returns a response after which aiohttp reads the rest of the request, and then closes."""
    response = web.Response(
        status=answer.status,
        body=answer.body,
        headers={"Server": SERVER, "Content-Type": answer.content_type},
    )
    response.force_close()
    return response


def certificate_role(request: web.BaseRequest) -> str | None:
    """Returns the common name of the client's certificate, if the broker has verified one."""
    transport = request.transport
    return common_name(None if transport is None else transport.get_extra_info("peercert"))


def parameters(text: str | bytes) -> dict[str, list[str]]:
    """Parses a query or the body of a form: the values of each name. Raises Refusal."""
    try:
        query = text if isinstance(text, str) else text.decode("ascii")
        return parse_qs(query, True, errors="strict", max_num_fields=PARAMETERS_MAX)
    except ValueError:
        raise Refusal(400, "The parameters are not UTF-8, or too many.") from None


async def read_body(request: web.BaseRequest) -> bytes:
    """Returns the bytes of the body. Raises Refusal."""
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
    return bytes(data)
