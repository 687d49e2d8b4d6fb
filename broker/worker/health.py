"""A worker's health as reported by grpc.health.v1, followed until the stream ends, and the
supervisor's time limits for a worker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

import grpc
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthStub

SERVICE = "ledgerfold.v1.CompactorService"
STOPPED = "it stopped serving"
PAUSE_MIN_MS = 500
PAUSE_MAX_MS = 30_000
HEALTHY_MS = 60_000


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


@dataclass(frozen=True)
class SupervisorLimits:
    """Time limits in seconds."""

    # A run waits this long for a ready worker.
    ready: float = 120.0
    # A new process reports its port within this time.
    listening: float = 60.0
    # Spark is ready within this time after that.
    warm: float = 300.0
    # The wait for a worker and for its check of a strategy that is being set.
    check: float = 25.0
    # A worker that does not end a cancelled run within this time is killed.
    cancel: float = 10.0
    # The time between SIGTERM and SIGKILL.
    stop: float = 10.0
    # A worker that stopped serving ends its runs, then itself, within this time.
    leave: float = 20.0


def pause_after_ms(previous_ms: int, healthy_ms: int) -> int:
    """Returns the pause before the next start. `healthy_ms`: how long the last worker was ready."""
    if previous_ms == 0 or healthy_ms >= HEALTHY_MS:
        return PAUSE_MIN_MS
    return min(previous_ms * 2, PAUSE_MAX_MS)
