"""The grpc.health.v1 service of the broker.

It is gRPC's own service, except that the broker ends its watches when it stops. Otherwise watchers
would delay the end of the broker.
"""

from __future__ import annotations

import asyncio
from typing import Any, cast

from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from ledgerfold.broker.common.outgoing import Outgoing
from ledgerfold.broker.rpc.guarded import GuardedMethod
from ledgerfold.broker.security.guard import Guard
from ledgerfold.rpc_errors import abort_on_error
from ledgerfold.rpc_texts import take_request

_WATCH = health_pb2.DESCRIPTOR.services_by_name["Health"].methods_by_name["Watch"]


class HealthService(health_pb2_grpc.HealthServicer):
    """The health of the services named by serve(): SERVING, and NOT_SERVING after drain()."""

    def __init__(self, outgoing: Outgoing, guard: Guard | None = None) -> None:
        self._outgoing, self._guarded = outgoing, GuardedMethod(guard, _WATCH)
        self._servicer = cast(Any, health).aio.HealthServicer()
        self._watches: set[asyncio.Task[None]] = set()
        self._is_stopping = False

    async def serve(self, *services: str) -> None:
        for name in services:
            await self._servicer.set(name, health_pb2.HealthCheckResponse.SERVING)

    async def drain(self) -> None:
        """Notifies watchers that this server is stopping."""
        await self._servicer.enter_graceful_shutdown()

    def stop(self) -> None:
        """Ends the watches."""
        self._is_stopping = True
        for watch in self._watches:
            watch.cancel()

    async def Check(self, request: Any, context: Any) -> Any:  # noqa: N802
        return await self._servicer.Check(request, context)

    async def Watch(self, request: Any, context: Any) -> None:  # noqa: N802
        # A watcher counts as a stream: strangers could use them up.
        async with abort_on_error(context), self._guarded.watched(context) as opened:
            opened(request)
            take_request(request)
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
