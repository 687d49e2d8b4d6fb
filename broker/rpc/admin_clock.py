"""The calls of AdminService that read and move the broker's clock (broker/common/clock.py)."""

from __future__ import annotations

from ledgerfold.broker.common.shielding import runs_to_completion
from ledgerfold.broker.topics.broker import Broker
from ledgerfold.storage.errors import InvalidRequest, NotAllowed
from ledgerfold.v1.admin_pb2 import (
    GetClockRequest,
    GetClockResponse,
    MoveClockRequest,
    MoveClockResponse,
)


class ClockHandlers:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    async def get(self, request: GetClockRequest) -> GetClockResponse:
        return GetClockResponse(
            now_ms=self._broker.clock_ms(), is_manual=self._broker.manual_clock is not None
        )

    @runs_to_completion
    async def move(self, request: MoveClockRequest) -> MoveClockResponse:
        clock = self._broker.manual_clock
        if clock is None:
            raise NotAllowed("The broker uses the machine's clock. Start it with --test-clock.")
        move = request.WhichOneof("move")
        if move is None:
            raise InvalidRequest("Set the time to move the clock to, or by.")
        to_ms = request.to_ms if move == "to_ms" else clock.now_ms() + request.advance_ms
        await clock.move_to(to_ms)
        await self._broker.housekeeping.check_all()
        return MoveClockResponse(now_ms=clock.now_ms())
