"""A worker's health, as grpc.health.v1 tells it: followed until it cannot be any more."""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

import grpc
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthStub

SERVICE = "ledgerfold.v1.CompactorService"
STOPPED = "it stopped serving"


class Followed(Protocol):
    """Who is told of it."""

    def warming_up(self) -> None: ...
    def became_ready(self) -> None: ...
    def stopped_serving(self) -> None: ...


async def follow_health(
    channel: grpc.aio.Channel,
    warm_seconds: float,
    leave_seconds: float,
    followed: Followed,
) -> str:
    """Why it ended. `warm_seconds`: until it serves. `leave_seconds`: from when it stopped serving,
    for what the worker still has to say over its connection.
    """
    stub: Any = HealthStub(channel)
    has_served = has_stopped = False
    try:
        async with asyncio.timeout(warm_seconds) as deadline:
            async for response in stub.Watch(HealthCheckRequest(service=SERVICE)):
                if response.status == HealthCheckResponse.SERVING:
                    deadline.reschedule(None)
                    has_served, has_stopped = True, False
                    followed.became_ready()
                elif not has_served:
                    followed.warming_up()
                elif not has_stopped:
                    deadline.reschedule(asyncio.get_running_loop().time() + leave_seconds)
                    has_stopped = True
                    followed.stopped_serving()
    except TimeoutError:
        why = f"it was not ready within {warm_seconds:g} s"
    except grpc.RpcError as error:
        why = f"its health cannot be asked for: {error.details()}"
    else:
        why = "its health stream ended"
    return STOPPED if has_stopped else why
