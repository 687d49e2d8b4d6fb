"""A worker's health as reported by grpc.health.v1, followed until the stream ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import Enum
from typing import Any

import grpc
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthStub

SERVICE = "ledgerfold.v1.CompactorService"
STOPPED = "it stopped serving"


class Health(Enum):
    # It has found its dependencies, and Spark is starting.
    WARMING_UP = 1
    READY = 2
    # Its connection stays open for the results of its runs.
    STOPPED = 3


async def follow_health(
    channel: grpc.aio.Channel,
    warm_seconds: float,
    leave_seconds: float,
    on_health: Callable[[Health], object],
) -> str:
    """Follows a worker's health; returns why it ended. `on_health` is called with each change.

    `warm_seconds`: the limit until it serves. `leave_seconds`: the limit from when it stopped
    serving, for the worker's last answers on its connection.
    """
    stub: Any = HealthStub(channel)
    has_served = has_stopped = False
    try:
        async with asyncio.timeout(warm_seconds) as deadline:
            async for response in stub.Watch(HealthCheckRequest(service=SERVICE)):
                if response.status == HealthCheckResponse.SERVING:
                    deadline.reschedule(None)
                    has_served, has_stopped = True, False
                    on_health(Health.READY)
                elif not has_served:
                    on_health(Health.WARMING_UP)
                elif not has_stopped:
                    deadline.reschedule(asyncio.get_running_loop().time() + leave_seconds)
                    has_stopped = True
                    on_health(Health.STOPPED)
    except TimeoutError:
        why = f"it was not ready within {warm_seconds:g} s"
    except grpc.RpcError as error:
        why = f"its health check failed: {error.details()}"
    else:
        why = "its health stream ended"
    return STOPPED if has_stopped else why
