"""The server of the page, `serve --ui`: read-only HTML, unless `--ui-writes` allows changes.

Every request passes PageServer._answer, which checks it (broker/page/guard.py) and, if the broker
authenticates, its caller (broker/page/sign_in.py) before a view looks at it. Its limits, and what
becomes of an error, are those of broker/http/listener.py.
A view calls the handlers of broker/rpc, or reads what stats read; there are no domain rules.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any
from urllib.parse import unquote, urlsplit

from aiohttp import web

from ledgerfold.broker.common.names import DOMAINS
from ledgerfold.broker.http.answers import Answer, Refusal
from ledgerfold.broker.http.listener import REQUEST_S, HttpServer, parameters, read_body
from ledgerfold.broker.page.changes import Changes
from ledgerfold.broker.page.explain import ExplainPage
from ledgerfold.broker.page.guard import Guard
from ledgerfold.broker.page.messages import MessagesPage
from ledgerfold.broker.page.overview import Overview
from ledgerfold.broker.page.page_request import PageRequest, Parameters
from ledgerfold.broker.page.rendering import (
    NOT_FOUND,
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
from ledgerfold.version import __version__

View = Callable[[PageRequest], Awaitable[Page | Redirect]]
_FORM = "application/x-www-form-urlencoded"


class PageServer(HttpServer):
    """The page of one broker. `writes`: whether it allows changes; `names`: see Guard."""

    def __init__(
        self,
        broker: Broker,
        *,
        writes: bool = False,
        names: Sequence[str] = (),
        authentication: security.Guard | None = None,
        certificates: Certificates | None = None,
    ) -> None:
        super().__init__(broker, "--ui", authentication=authentication, certificates=certificates)
        self._writes, self.guard = writes, Guard(names)
        compaction = CompactionHandlers(broker)
        self._overview, self._topic = Overview(broker), TopicPage(broker)
        self._explain = ExplainPage(broker, compaction)
        self._what_if = WhatIfPage(broker, compaction)
        self._messages, self._changes = MessagesPage(broker), Changes(broker, compaction)

    async def _answer(self, request: web.BaseRequest) -> Answer:
        url = urlsplit(request.raw_path)
        self.guard.check(request.headers, has_query=bool(url.query))
        caller = security.proved_caller(self._identity(request, caller_of))
        if self._authentication is not None:
            assert caller is not None
            self._authentication.check(caller, Need.SUPERUSER, security.Target())
        if request.method not in ("GET", "HEAD", "POST"):
            raise Refusal(405, "This page answers GET, and POST from its own forms.")
        parts, is_form = _parts(url.path), request.method == "POST"
        if not is_form and len(parts) == 2 and parts[0] == "static":
            return static_answer(parts[1])
        view = self._change(parts) if is_form else self._view(parts)
        if view is None:
            raise Refusal(404, NOT_FOUND)
        requested = PageRequest(
            parts, await self._form(request) if is_form else parameters(url.query)
        )
        async with asyncio.timeout(REQUEST_S):
            found = await view(requested)
        return await self._html(found) if isinstance(found, Page) else redirect_answer(found)

    async def _refused(self, status: int, reason: str) -> Answer:
        return await self._html(Page("error.html", "Error", {"reason": reason}, status))

    async def _html(self, page: Page) -> Answer:
        common = self._common()
        return await self._broker.in_thread(lambda: html_answer(page, common))

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

    async def _form(self, request: web.BaseRequest) -> Parameters:
        """Returns what a form sends. Raises Refusal unless writes are allowed and it is this
        page's.
        """
        if not self._writes:
            raise Refusal(403, "This page is read-only: start the broker with --ui-writes.")
        kind = request.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        if kind != _FORM:
            raise Refusal(415, f"A form must have the content type {_FORM}.")
        values = parameters(await read_body(request))
        self.guard.check_change(request.headers, values.get("token", [""])[0])
        return values

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
