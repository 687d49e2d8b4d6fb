"""The server of the page, `serve --ui`: read-only HTML, unless `--ui-writes` allows changes.

Every request passes PageServer._answer, which checks it (broker/page/guard.py) and, if the broker
authenticates, its caller (broker/page/sign_in.py) before a view looks at it. Its limits are those
of broker/http/listener.py.
A view calls the handlers of broker/rpc, or reads what stats read; there are no domain rules.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any
from urllib.parse import unquote, urlsplit

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from ledgerfold.broker.common.names import DOMAINS
from ledgerfold.broker.http.answers import Answer, Refusal, status_of
from ledgerfold.broker.http.listener import (
    REQUEST_S,
    HttpListener,
    certificate_role,
    read_body,
)
from ledgerfold.broker.page.changes import Changes
from ledgerfold.broker.page.explain import ExplainPage
from ledgerfold.broker.page.guard import Guard
from ledgerfold.broker.page.messages import MessagesPage
from ledgerfold.broker.page.overview import Overview
from ledgerfold.broker.page.page_request import PageRequest, parse
from ledgerfold.broker.page.rendering import (
    Page,
    Redirect,
    html_answer,
    redirect_answer,
    static_answer,
)
from ledgerfold.broker.page.sign_in import caller_of
from ledgerfold.broker.page.topic import TopicPage
from ledgerfold.broker.page.what_if import WhatIfPage
from ledgerfold.broker.rpc.admin_compaction import CompactionHandlers
from ledgerfold.broker.security import guard as security
from ledgerfold.broker.security.certificates import Certificates
from ledgerfold.broker.security.needs import Need
from ledgerfold.broker.topics.broker import Broker
from ledgerfold.storage.error_codec import encode_error
from ledgerfold.storage.errors import LedgerfoldError, StorageError
from ledgerfold.version import __version__

View = Callable[[PageRequest], Awaitable[Page | Redirect]]
_FORM = "application/x-www-form-urlencoded"
_NOT_FOUND = "There is nothing here."
_log = logging.getLogger(__name__)


class PageServer:
    """The page of one broker. `writes`: whether it allows changes; `names`: see Guard.

    `authentication`: decides who may use it; None: any client. `certificates`: for TLS.
    """

    def __init__(
        self,
        broker: Broker,
        *,
        writes: bool = False,
        names: Sequence[str] = (),
        authentication: security.Guard | None = None,
        certificates: Certificates | None = None,
    ) -> None:
        self._broker, self._writes, self._authentication = broker, writes, authentication
        self.guard = Guard(names)
        self._listener = HttpListener(
            self._answer, broker.outgoing, "--ui", certificates=certificates
        )
        compaction = CompactionHandlers(broker)
        self._overview, self._topic = Overview(broker), TopicPage(broker)
        self._explain, self._what_if = (
            ExplainPage(broker, compaction),
            WhatIfPage(broker, compaction),
        )
        self._messages, self._changes = MessagesPage(broker), Changes(broker, compaction)

    async def start(self, listen: str) -> str:
        """Listens, and returns "host:port" with the actual port. Raises AddressInUse."""
        return await self._listener.start(listen)

    async def stop(self) -> None:
        """Stops listening, and ends requests."""
        await self._listener.stop()

    def _admit(self, request: web.BaseRequest) -> None:
        """Counts a request, and checks its caller.

        Raises TooManyRequests, AuthenticationFailed, AuthorizationFailed.
        """
        guard, rates = self._authentication, self._broker.rates
        identity: security.Identity = None
        if guard is not None:
            header, role = request.headers.get("Authorization"), certificate_role(request)
            identity = security.identity_of(lambda: caller_of(guard, header, role))
        if rates is not None:
            rates.take(security.client_of(request.remote or "", identity))
        caller = security.proved_caller(identity)
        if guard is not None:
            assert caller is not None
            guard.check(caller, Need.SUPERUSER, security.Target())

    async def _answer(self, request: web.BaseRequest) -> Answer:
        try:
            url = urlsplit(request.raw_path)
            self.guard.check(request.headers, has_query=bool(url.query))
            self._admit(request)
            found = await self._result(request, _parts(url.path), url.query)
        except Refusal as refusal:
            found = _error(refusal.status, refusal.reason)
        except LedgerfoldError as error:
            if isinstance(error, StorageError):
                _log.error("%s: %s", error.reason, error)
            # An encoded error has a bounded length.
            found = _error(status_of(error), encode_error(error)[1])
        except TimeoutError:
            found = _error(504, f"Not done after {REQUEST_S:g} s. A change that began continues.")
        except HttpProcessingError as error:
            found = _error(400, f"Not a valid HTTP body: {error.message[:200]}")
        except (ConnectionError, asyncio.CancelledError):
            raise
        except Exception as error:
            _log.exception("A request of the page failed with an internal error")
            found = _error(500, f"{type(error).__name__}; the broker's log has the traceback.")
        if isinstance(found, Answer):
            return found
        if isinstance(found, Redirect):
            return redirect_answer(found)
        page, common = found, self._common()
        return await self._broker.in_thread(lambda: html_answer(page, common))

    async def _result(
        self, request: web.BaseRequest, parts: Sequence[str], query: str
    ) -> Answer | Page | Redirect:
        if request.method == "POST":
            return await self._changed(request, parts)
        if request.method not in ("GET", "HEAD"):
            raise Refusal(405, "This page answers GET, and POST from its own forms.")
        if len(parts) == 2 and parts[0] == "static":
            return static_answer(parts[1]) or _error(404, _NOT_FOUND)
        view = self._view(parts)
        if view is None:
            raise Refusal(404, _NOT_FOUND)
        async with asyncio.timeout(REQUEST_S):
            return await view(PageRequest(parts, parse(query)))

    def _view(self, parts: Sequence[str]) -> View | None:
        match parts:
            case []:
                return self._overview.topics
            case ["runs"]:
                return self._overview.runs
            case ["clock"]:
                return self._changes.clock
            case ["topics", domain, _, _, _, *rest] if domain in DOMAINS:
                views: dict[str, View] = {
                    "": self._topic.show,
                    "explain": self._explain.show,
                    "what-if": self._what_if.show,
                }
                if self._writes:
                    views["messages"] = self._messages.show
                return views.get("/".join(rest))
        return None

    async def _changed(
        self, request: web.BaseRequest, parts: Sequence[str]
    ) -> Answer | Page | Redirect:
        """Answers a form. Raises Refusal unless writes are allowed and this page sent it."""
        change = self._change(parts)
        if change is None:
            raise Refusal(404, _NOT_FOUND)
        if not self._writes:
            raise Refusal(403, "This page is read-only: start the broker with --ui-writes.")
        kind = request.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        if kind != _FORM:
            raise Refusal(415, f"A form must have the content type {_FORM}.")
        requested = PageRequest(parts, parse(await read_body(request)))
        self.guard.check_change(request.headers, requested.text("token"))
        async with asyncio.timeout(REQUEST_S):
            return await change(requested)

    def _change(self, parts: Sequence[str]) -> View | None:
        match parts:
            case ["clock"]:
                return self._changes.advance
            case ["topics", domain, _, _, _, verb] if domain in DOMAINS:
                changes: dict[str, View] = {
                    "compact": self._changes.compact,
                    "cancel": self._changes.cancel,
                    "clean": self._changes.clean,
                    "messages": self._messages.publish,
                }
                return changes.get(verb)
        return None

    def _common(self) -> dict[str, Any]:
        """Returns the values that every page has."""
        return {
            "version": __version__,
            "writes": self._writes,
            "token": self.guard.token if self._writes else "",
            "now_ms": self._broker.clock_ms(),
            "is_manual": self._broker.manual_clock is not None,
        }


def _parts(path: str) -> list[str]:
    """Returns the decoded parts of a path. Raises Refusal."""
    try:
        return [unquote(each, errors="strict") for each in path.strip("/").split("/") if each]
    except UnicodeDecodeError:
        raise Refusal(400, "The address is not UTF-8.") from None


def _error(status: int, reason: str) -> Page:
    return Page("error.html", "Error", {"reason": reason}, status)
