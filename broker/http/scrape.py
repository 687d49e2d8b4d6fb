"""The metrics at `/metrics` of the admin port, where Pulsar has them.

They are those of `serve --metrics-listen` (broker/metrics), without those of the process.
"""

from __future__ import annotations

import asyncio

from ledgerfold.broker.http.answers import Answer, Request
from ledgerfold.broker.http.routes import Route
from ledgerfold.broker.metrics.readings import MetricsReader
from ledgerfold.broker.metrics.text import parts
from ledgerfold.broker.topics.broker import Broker

# Prometheus' text format (prometheus_client.exposition, which takes long to import).
_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def scrape_routes(broker: Broker) -> list[Route]:
    return [("GET", "/metrics", ScrapeVerb(broker).scrape)]


class ScrapeVerb:
    """One scrape at a time: each may hold the values of all topics."""

    def __init__(self, broker: Broker) -> None:
        self._broker, self._reader = broker, MetricsReader(broker)
        self._turn = asyncio.Lock()

    async def scrape(self, request: Request) -> Answer:
        async with self._turn:
            readings = await self._reader.read()
            body = await self._broker.in_thread(lambda: "".join(parts(readings)).encode())
            return Answer(200, body, _CONTENT_TYPE)
