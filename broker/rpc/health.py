"""grpc.health.v1: whether the broker serves.

gRPC's own service, but for one thing: its watches go on until the server breaks them off. These end
when they are told to, so that who watches does not hold up the broker's end.
"""

from __future__ import annotations

import asyncio
from typing import Any, cast

from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from ledgerfold.broker.ground.outgoing import Outgoing
from ledgerfold.rpc_errors import errors_told_to


class HealthService(health_pb2_grpc.HealthServicer):
    """Says SERVING of the services that `serve` names, and NOT_SERVING after `drain`."""

    def __init__(self, outgoing: Outgoing) -> None:
        self._outgoing = outgoing
        self._servicer = cast(Any, health).aio.HealthServicer()
        self._watches: set[asyncio.Task[None]] = set()
        self._is_stopping = False

    async def serve(self, *services: str) -> None:
        for name in services:
            await self._servicer.set(name, health_pb2.HealthCheckResponse.SERVING)

    async def drain(self) -> None:
        """Tells watchers that this server goes away."""
        await self._servicer.enter_graceful_shutdown()

    def stop(self) -> None:
        """Ends the watches."""
        self._is_stopping = True
        for watch in self._watches:
            watch.cancel()

    async def Check(self, request: Any, context: Any) -> Any:  # noqa: N802
        return await self._servicer.Check(request, context)

    async def Watch(self, request: Any, context: Any) -> None:  # noqa: N802
        async with errors_told_to(context):
            with self._outgoing.stream():
                await self._watch(request, context)

    async def _watch(self, request: Any, context: Any) -> None:
        watch = asyncio.create_task(self._servicer.Watch(request, context))
        self._watches.add(watch)
        try:
            await watch
        except asyncio.CancelledError:
            if not self._is_stopping:
                raise
        finally:
            self._watches.discard(watch)
