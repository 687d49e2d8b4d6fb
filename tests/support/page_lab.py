"""The page of a broker in memory, asked by plain HTTP as a browser asks."""

from __future__ import annotations

import http.client
import re
from collections.abc import Mapping
from html import unescape
from typing import NamedTuple
from urllib.parse import urlencode

from ledgerfold.broker.common.security_settings import SecuritySettings
from ledgerfold.broker.page.server import PageServer
from ledgerfold.broker.security.guard import Guard
from tests.model.broker_lab import BrokerLab
from tests.support.kafka_lab import KafkaLab
from tests.support.loop_lab import LoopLab
from tests.support.waiting import WAIT_S

T = "/topics/persistent/public/default/t"


class Seen(NamedTuple):
    """An answer. `html`: its body."""

    status: int
    html: str
    headers: Mapping[str, str]

    @property
    def text(self) -> str:
        """The words that a reader sees, with single spaces."""
        without = re.sub(r"<[^>]*>", " ", re.sub(r"<title>.*?</title>", "", self.html))
        return re.sub(r"\s+", " ", unescape(without))


class PageLab(LoopLab):
    """`kafka`: the settings of the lab's topic, if it is a Kafka topic. `security`: those of a
    broker that authenticates.
    """

    def __init__(
        self,
        *,
        writes: bool = False,
        names: tuple[str, ...] = (),
        kafka: dict[str, str] | None = None,
        security: SecuritySettings | None = None,
    ) -> None:
        lab = BrokerLab() if kafka is None else KafkaLab(kafka)

        async def serve() -> tuple[PageServer, str]:
            guard = None
            if security is not None:
                guard = Guard(security, lab.broker.namespaces, lambda: 0)
            server = PageServer(lab.broker, writes=writes, names=names, authentication=guard)
            return server, await server.start("127.0.0.1:0")

        self.server, self.address = lab.run(serve())
        super().__init__(lab, self.server.stop)

    @property
    def token(self) -> str:
        return self.server.guard.token

    def ask(
        self,
        path: str,
        method: str = "GET",
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Seen:
        connection = http.client.HTTPConnection(self.address, timeout=WAIT_S)
        try:
            connection.request(method, path, body, dict(headers or {}))
            answer = connection.getresponse()
            content = answer.read().decode()
        finally:
            connection.close()
        return Seen(answer.status, content, {k.lower(): v for k, v in answer.getheaders()})

    def look(self, path: str) -> Seen:
        """A page that is there."""
        seen = self.ask(path)
        assert seen.status == 200, seen.text
        return seen

    def send(self, path: str, fields: Mapping[str, str], **headers: str) -> Seen:
        """A form of the page itself."""
        usual = {
            "Content-Type": "application/x-www-form-urlencoded",
            "Origin": f"http://{self.address}",
        }
        body = urlencode({"token": self.token, **fields}).encode()
        return self.ask(path, "POST", body, usual | headers)
