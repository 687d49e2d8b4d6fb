"""The calls of AdminService that read and move the broker's clock (broker/ground/clock.py)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import grpc

from ledgerfold.broker.ground.uncancelled import runs_to_its_end
from ledgerfold.broker.wire.errors import rpc_errors
from ledgerfold.storage.errors import InvalidRequest, NotAllowed
from ledgerfold.v1 import admin_pb2
from ledgerfold.v1.admin_pb2_grpc import AdminServiceServicer

if TYPE_CHECKING:
    from ledgerfold.broker.topics.broker import Broker

Context = grpc.aio.ServicerContext[Any, Any]


class ClockCalls(AdminServiceServicer):
    """A part of AdminService (broker/rpc/admin.py)."""

    _broker: Broker

    @rpc_errors
    async def GetClock(  # noqa: N802
        self, request: admin_pb2.GetClockRequest, context: Context
    ) -> admin_pb2.GetClockResponse:
        return admin_pb2.GetClockResponse(
            now_ms=self._broker.clock_ms(), is_manual=self._broker.manual_clock is not None
        )

    @rpc_errors
    @runs_to_its_end
    async def MoveClock(  # noqa: N802
        self, request: admin_pb2.MoveClockRequest, context: Context
    ) -> admin_pb2.MoveClockResponse:
        clock = self._broker.manual_clock
        if clock is None:
            raise NotAllowed("The broker goes by the machine's clock. Start it with --test-clock.")
        move = request.WhichOneof("move")
        if move is None:
            raise InvalidRequest("Say by how much to move the clock, or where to.")
        to_ms = request.to_ms if move == "to_ms" else clock.now_ms() + request.advance_ms
        await clock.move_to(to_ms)
        await self._broker.housekeeping.check_all()
        return admin_pb2.MoveClockResponse(now_ms=clock.now_ms())
