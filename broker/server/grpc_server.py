"""The gRPC server: its services, health, reflection, limits.

The streams (Publish, Subscribe, Read) carry raw bytes (broker/wire/frames.py); all other calls use
the generated messages.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import grpc
from grpc_health.v1 import health, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from ledgerfold.broker.rpc.admin import admin_calls
from ledgerfold.broker.rpc.data import data_calls
from ledgerfold.broker.rpc.handlers import service_handlers
from ledgerfold.broker.rpc.health import HealthService
from ledgerfold.broker.rpc.kafka import kafka_calls
from ledgerfold.broker.security.certificates import Certificates, Loaded
from ledgerfold.broker.security.guard import Guard
from ledgerfold.broker.security.listening import HANDSHAKE_S
from ledgerfold.broker.security.tokens import TOKEN_BYTES_MAX
from ledgerfold.broker.topics.broker import Broker
from ledgerfold.broker.wire.frames import FRAME_BYTES_MAX
from ledgerfold.storage.errors import AddressInUse
from ledgerfold.v1 import admin_pb2, data_pb2, kafka_pb2

DATA_SERVICE = data_pb2.DESCRIPTOR.services_by_name["DataService"]
ADMIN_SERVICE = admin_pb2.DESCRIPTOR.services_by_name["AdminService"]
KAFKA_SERVICE = kafka_pb2.DESCRIPTOR.services_by_name["KafkaService"]

CONNECTIONS_MAX = "grpc.max_allowed_incoming_connections"
METADATA_BYTES_MAX = 2 * TOKEN_BYTES_MAX
OPTIONS = [
    ("grpc.max_receive_message_length", FRAME_BYTES_MAX),
    ("grpc.max_send_message_length", FRAME_BYTES_MAX),
    # Clients may ping every 10 s, even without active calls.
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.so_reuseport", 0),
    # Of a call: room for the largest token, with other headers. By default, gRPC refuses calls with
    # more than 8 KiB at random.
    ("grpc.max_metadata_size", METADATA_BYTES_MAX),
    ("grpc.absolute_max_metadata_size", METADATA_BYTES_MAX),
    # For TLS, and for the first bytes of HTTP/2; by default 120 s.
    ("grpc.server_handshake_timeout_ms", int(HANDSHAKE_S * 1000)),
]


def _credentials(certificates: Certificates) -> grpc.ServerCredentials:
    """Returns credentials that gRPC asks for at each new connection, on a thread of its own."""
    used = certificates.current()

    def configuration(loaded: Loaded) -> grpc.ServerCertificateConfiguration:
        pair = (loaded.key, loaded.certificate)
        return grpc.ssl_server_certificate_configuration([pair], loaded.client_ca)

    def fetch() -> grpc.ServerCertificateConfiguration | None:
        nonlocal used
        loaded = certificates.current()
        if loaded is used:
            return None
        used = loaded
        return configuration(loaded)

    # The stubs do not know that None means: as before.
    fetching = cast(Callable[[], grpc.ServerCertificateConfiguration], fetch)
    return grpc.dynamic_ssl_server_credentials(
        configuration(used),
        fetching,
        require_client_authentication=certificates.requires_client_certificate,
    )


class Server:
    """The server of one broker on one port."""

    def __init__(
        self,
        broker: Broker,
        guard: Guard | None = None,
        certificates: Certificates | None = None,
    ) -> None:
        self._broker, self._guard, self._certificates = broker, guard, certificates
        connections = (CONNECTIONS_MAX, broker.settings.streams_max)
        self._server = grpc.aio.server(options=[*OPTIONS, connections])
        self._health = HealthService(broker.outgoing, guard)

    async def start(self) -> str:
        """Listens, and returns "host:port" with the actual port. Raises AddressInUse."""
        broker, guard = self._broker, self._guard
        common = broker.outgoing, guard, broker.rates
        self._server.add_generic_rpc_handlers(
            (
                service_handlers(DATA_SERVICE, data_calls(broker), *common),
                service_handlers(ADMIN_SERVICE, admin_calls(broker), *common),
                service_handlers(KAFKA_SERVICE, kafka_calls(broker), *common),
            )
        )
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        names = DATA_SERVICE.full_name, ADMIN_SERVICE.full_name, KAFKA_SERVICE.full_name
        if guard is None:
            # gRPC's own service, which would answer strangers.
            reflection.enable_server_reflection(
                (*names, health.SERVICE_NAME, reflection.SERVICE_NAME), self._server
            )
        listen = broker.settings.listen
        try:
            if self._certificates is None:
                port = self._server.add_insecure_port(listen)
            else:
                port = self._server.add_secure_port(listen, _credentials(self._certificates))
        except RuntimeError as error:
            # The address was valid and free when the start was checked.
            raise AddressInUse(listen, "--listen") from error
        await self._server.start()
        await self._health.serve("", *names)
        return f"{listen.rpartition(':')[0]}:{port}"

    async def drain(self) -> None:
        """Notifies watchers that this server is stopping."""
        await self._health.drain()

    async def stop(self, grace_s: float) -> None:
        """Gives calls `grace_s` to end, and then the same time for their cancellation.

        NOTE: gRPC itself would wait 20 s for a client that is frozen, or whose machine has failed
        (tests/grpc/test_shutdown.py).
        """
        self._health.stop()
        try:
            await asyncio.wait_for(self._server.stop(grace_s), 2 * grace_s)
        except TimeoutError:
            # The destruction of gRPC's last object would join its thread, which waits for that
            # client, and block the loop: this adds one object that lives as long as the process.
            cast(Any, grpc.aio).init_grpc_aio()
