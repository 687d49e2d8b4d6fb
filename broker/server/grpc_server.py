"""The gRPC server: which handler serves which call, health, reflection, limits.

The streams (Publish, Subscribe, Read) move raw bytes (broker/wire/frames.py); everything else
uses the generated messages.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from ledgerfold.broker.rpc import partitions, publish, read, subscribe
from ledgerfold.broker.rpc.admin import AdminService
from ledgerfold.broker.rpc.health import HealthService
from ledgerfold.broker.topics.broker import Broker
from ledgerfold.broker.wire.frames import FRAME_BYTES_MAX
from ledgerfold.storage.errors import AddressInUse
from ledgerfold.v1 import admin_pb2, data_pb2
from ledgerfold.v1.admin_pb2_grpc import add_AdminServiceServicer_to_server

DATA_SERVICE = data_pb2.DESCRIPTOR.services_by_name["DataService"].full_name
ADMIN_SERVICE = admin_pb2.DESCRIPTOR.services_by_name["AdminService"].full_name

OPTIONS = [
    ("grpc.max_receive_message_length", FRAME_BYTES_MAX),
    ("grpc.max_send_message_length", FRAME_BYTES_MAX),
    # Clients may ping every 10 s, also while nothing goes on.
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.so_reuseport", 0),
]

Handler = Callable[[Broker, Any, Any], Awaitable[Any]]


class Server:
    """Serves one broker on one port."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._server = grpc.aio.server(options=OPTIONS)
        self._health = HealthService()

    async def start(self) -> str:
        """Listens, and says where: "host:port", with the real port. Raises AddressInUse."""
        self._server.add_generic_rpc_handlers((self._data_handlers(),))
        add_AdminServiceServicer_to_server(AdminService(self._broker), self._server)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        names = (DATA_SERVICE, ADMIN_SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME)
        reflection.enable_server_reflection(names, self._server)
        listen = self._broker.settings.listen
        try:
            port = self._server.add_insecure_port(listen)
        except RuntimeError as error:
            # The address was free, and could be one, when the start was checked.
            raise AddressInUse(listen, "--listen") from error
        await self._server.start()
        await self._health.serve("", DATA_SERVICE, ADMIN_SERVICE)
        return f"{listen.rpartition(':')[0]}:{port}"

    async def drain(self) -> None:
        """Tells watchers that this server goes away."""
        await self._health.drain()

    async def stop(self, grace_s: float) -> None:
        """Calls get `grace_s` to end, and as long again to be broken off.

        NOTE: gRPC itself would wait 20 s for a client that is frozen, or whose machine is gone
        (tests/grpc/test_shutdown.py).
        """
        self._health.stop()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._server.stop(grace_s), 2 * grace_s)

    def _data_handlers(self) -> Any:
        def stream(handler: Handler) -> Any:
            async def call(request_iterator: Any, context: Any) -> None:
                await handler(self._broker, request_iterator, context)

            return grpc.stream_stream_rpc_method_handler(call)

        def unary(handler: Handler, request: Any, response: Any) -> Any:
            async def call(message: Any, context: Any) -> Any:
                return await handler(self._broker, message, context)

            return grpc.unary_unary_rpc_method_handler(
                call, request.FromString, response.SerializeToString
            )

        return grpc.method_handlers_generic_handler(
            DATA_SERVICE,
            {
                "Publish": stream(publish.publish),
                "Subscribe": stream(subscribe.subscribe),
                "Read": stream(read.read),
                "GetPartitions": unary(
                    partitions.get_partitions,
                    data_pb2.GetPartitionsRequest,
                    data_pb2.GetPartitionsResponse,
                ),
                "GetLastMessageId": unary(
                    read.get_last_message_id,
                    data_pb2.GetLastMessageIdRequest,
                    data_pb2.GetLastMessageIdResponse,
                ),
                "Seek": unary(subscribe.seek, data_pb2.SeekRequest, data_pb2.SeekResponse),
                "Unsubscribe": unary(
                    subscribe.unsubscribe, data_pb2.UnsubscribeRequest, data_pb2.UnsubscribeResponse
                ),
            },
        )
