"""The changes that the page's forms ask for; only with `serve --ui-writes`.

Each is a call that gRPC clients make, too, and ends with the page that shows its effect.
"""

from __future__ import annotations

import asyncio

from ledgerfold.broker.page.page_request import PageRequest, topic_path
from ledgerfold.broker.page.rendering import Page, Redirect
from ledgerfold.broker.rpc.admin import BrokerHandlers
from ledgerfold.broker.rpc.admin_compaction import CompactionHandlers
from ledgerfold.broker.rpc.existing import recorded_name
from ledgerfold.broker.rpc.kafka_cleaner import CleanerHandlers
from ledgerfold.broker.topics.broker import Broker
from ledgerfold.v1 import admin_pb2, kafka_pb2

CLOCK_UNITS_MS = {"seconds": 1000, "minutes": 60_000, "hours": 3_600_000, "days": 86_400_000}
_ADVANCE_MAX = 1_000_000
# After that, a cleaning continues, and the page shows its state.
_CLEANING_S = 2.0


class Changes:
    def __init__(self, broker: Broker, compaction: CompactionHandlers) -> None:
        self._broker, self._compaction = broker, compaction
        self._clock, self._cleaner = BrokerHandlers(broker), CleanerHandlers(broker)

    async def compact(self, request: PageRequest) -> Redirect:
        """Starts a run, or queues it."""
        name = recorded_name(self._broker, request.topic)
        started = await self._compaction.trigger(admin_pb2.TriggerCompactionRequest(topic=name))
        notice = "" if started.run_number else "?notice=nothing-new"
        return Redirect(f"{topic_path(request.topic)}{notice}")

    async def cancel(self, request: PageRequest) -> Redirect:
        name = recorded_name(self._broker, request.topic)
        await self._compaction.cancel(admin_pb2.CancelCompactionRequest(topic=name))
        return Redirect(topic_path(request.topic))

    async def clean(self, request: PageRequest) -> Redirect:
        """Runs a pass of the cleaner on a Kafka topic; a long one continues without the page."""
        name = recorded_name(self._broker, request.topic)
        # It runs to completion whether this waits or not; its errors are in the list of passes.
        cleaning = asyncio.ensure_future(
            self._cleaner.clean(kafka_pb2.CleanTurnRequest(topic=name))
        )
        cleaning.add_done_callback(_retrieve)
        done, _ = await asyncio.wait({cleaning}, timeout=_CLEANING_S)
        if done:
            cleaning.result()
        return Redirect(topic_path(request.topic))

    async def clock(self, request: PageRequest) -> Page:
        """Shows the clock, whose time every page has."""
        return Page("clock.html", "Clock", {"units": CLOCK_UNITS_MS})

    async def advance(self, request: PageRequest) -> Redirect:
        """Moves a manual clock; returns when what became due is done."""
        unit_ms = request.unit("unit", CLOCK_UNITS_MS, "minutes")
        by = request.number("by", 0, most=_ADVANCE_MAX, least=1)
        await self._clock.move(admin_pb2.MoveClockRequest(advance_ms=by * unit_ms))
        return Redirect("/clock")


def _retrieve(cleaning: asyncio.Future[kafka_pb2.CleanTurnResponse]) -> None:
    """Retrieves the error of a cleaning, whose caller may have left."""
    if not cleaning.cancelled():
        cleaning.exception()
