"""The admin REST API over a broker in memory (tests/model/broker_lab.py), asked by plain HTTP."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable
from typing import Any, NamedTuple, cast

from ledgerfold.broker.http.listener import CONNECTION_S
from ledgerfold.broker.http.server import AdminServer
from ledgerfold.broker.security.certificates import Certificates
from ledgerfold.broker.security.guard import Guard
from ledgerfold.broker.security.hosts import Hosts
from tests.model.broker_lab import BrokerLab
from tests.support.loop_lab import LoopLab
from tests.support.waiting import WAIT_S, wait_until

ADMIN = "/admin/v2"


class Heard(NamedTuple):
    """An answer. `body` is parsed if it is JSON, else its bytes; None if it is empty."""

    status: int
    body: Any
    headers: dict[str, str]

    @property
    def reason(self) -> str:
        return str(self.body["reason"])


class HttpLab(LoopLab):
    """The lab's loop runs in a thread; a test sends requests from another."""

    def __init__(
        self,
        pulsar_url: str | None = "pulsar://b:6650",
        connection_s: float = CONNECTION_S,
        hosts: Hosts | None = None,
        certificates: Certificates | None = None,
    ) -> None:
        lab = BrokerLab()

        async def serve() -> tuple[AdminServer, str]:
            server = AdminServer(
                lab.broker, pulsar_url, connection_s, hosts=hosts, certificates=certificates
            )
            return server, await server.start("127.0.0.1:0")

        self._server, self.address = lab.run(serve())
        super().__init__(lab, self._stop)

    async def _stop(self) -> None:
        await self._server.stop()

    def refused_connections(self) -> int:
        runner = self._server._runner
        assert runner is not None
        return self.on_loop(lambda: len(cast(Any, runner.server)._refused))

    def serve_again(self, guard: Callable[[], Guard]) -> None:
        """Serves with a guard from now on, which is made in the broker's thread."""

        async def serve() -> tuple[AdminServer, str]:
            await self._server.stop()
            server = AdminServer(self.broker, None, guard=guard())
            return server, await server.start("127.0.0.1:0")

        self._server, self.address = self.run(serve())

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        raw: bytes | None = None,
        headers: dict[str, str] | None = None,
    ) -> Heard:
        """Requests a path below /admin/v2; `raw` is an unencoded body."""
        connection = http.client.HTTPConnection(self.address, timeout=WAIT_S)
        data = raw if body is None else json.dumps(body).encode()
        kind = {} if data is None else {"Content-Type": "application/json"}
        try:
            whole = path if path.startswith(("/lookup", "/metrics")) else ADMIN + path
            connection.request(method, whole, data, kind | (headers or {}))
            answer = connection.getresponse()
            content = answer.read()
        finally:
            connection.close()
        return Heard(answer.status, _parsed(content), dict(answer.getheaders()))

    def status(self, method: str, path: str, body: Any = None) -> int:
        return self.ask(method, path, body).status

    def get(self, path: str) -> Any:
        """The body of a GET that succeeds."""
        answer = self.ask("GET", path)
        assert answer.status == 200, answer
        return answer.body

    def done(self, method: str, path: str, body: Any = None) -> None:
        """A change that succeeds."""
        answer = self.ask(method, path, body)
        assert answer.status == 204, answer

    def wait_for_compaction(self, topic: str) -> None:
        """Until the topic at this path has no running compaction."""
        wait_until(
            lambda: self.get(f"{topic}/compaction")["status"] != "RUNNING", "the compaction's end"
        )


def _parsed(content: bytes) -> Any:
    if not content:
        return None
    try:
        return json.loads(content)
    except ValueError:
        return content
