"""A worker's health as reported by grpc.health.v1, observer until the stream ends."""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

import grpc
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse
from grpc_health.v1.health_pb2_grpc import HealthStub

SERVICE = "ledgerfold.v1.CompactorService"
STOPPED = "it stopped serving"


class HealthObserver(Protocol):
    """The receiver of health changes."""

    def warming_up(self) -> None: ...
    def became_ready(self) -> None: ...
    def stopped_serving(self) -> None: ...


async def follow_health(
    channel: grpc.aio.Channel,
    warm_seconds: float,
    leave_seconds: float,
    observer: HealthObserver,
) -> str:
    """Follows a worker's health; returns why it ended.

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
                    observer.became_ready()
                elif not has_served:
                    observer.warming_up()
                elif not has_stopped:
                    deadline.reschedule(asyncio.get_running_loop().time() + leave_seconds)
                    has_stopped = True
                    observer.stopped_serving()
    except TimeoutError:
        why = f"it was not ready within {warm_seconds:g} s"
    except grpc.RpcError as error:
        why = f"its health check failed: {error.details()}"
    else:
        why = "its health stream ended"
    return STOPPED if has_stopped else why
