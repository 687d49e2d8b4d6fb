"""A server around the fake data service, for tests of the client.

It runs on the client's event loop (gRPC wants one per process).

    >>> from ledgerfold.broker.client import Client
    >>> with running_broker() as broker:
    ...     client = Client(broker.address)
    ...     sent = client.create_producer("t").send(b"v")
    ...     client.close()
    >>> broker.topic("t").values()
    [b'v']
"""

from __future__ import annotations

import socket
import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import grpc

from ledgerfold.broker.client.sync.io_thread import IoThread
from ledgerfold.storage.entry import Position
from ledgerfold.v1 import admin_pb2_grpc, data_pb2_grpc
from tests.support.fake_data_service import FakeAdminService, FakeDataService
from tests.support.fake_topics import FakeTopic
from tests.support.waiting import WAIT_S

# Options of a client that soon connects again, and of one that also finds new partitions soon. What
# must end by itself does not end by the timeout while a test waits for it.
QUICK: dict[str, Any] = {
    "operation_timeout_seconds": 2 * WAIT_S,
    "starting_backoff_interval_ms": 10,
    "max_backoff_interval_ms": 50,
}
WATCHFUL: dict[str, Any] = QUICK | {"partitions_update_interval_seconds": 0.02}


class FakeBroker:
    """A server around the service; stops and starts again on the same port, with its data."""

    def __init__(self) -> None:
        self.service = FakeDataService()
        self.port = 0
        if sys.platform == "linux":
            self.port = self._reserved_port()
        self._server: Any = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def _reserved_port(self) -> int:
        """Binds a socket that does not listen: nobody else gets the port while the server is
        stopped. (Other systems than Linux would refuse it to the server, too.)
        """
        reservation = socket.socket()
        weakref.finalize(self, reservation.close)
        reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reservation.bind(("127.0.0.1", 0))
        return int(reservation.getsockname()[1])

    async def start(self) -> None:
        options = (("grpc.so_reuseport", 0), ("grpc.max_receive_message_length", -1))
        self._server = grpc.aio.server(options=options)
        data_pb2_grpc.add_DataServiceServicer_to_server(self.service, self._server)
        admin_pb2_grpc.add_AdminServiceServicer_to_server(
            FakeAdminService(self.service), self._server
        )
        self.port = self._server.add_insecure_port(f"127.0.0.1:{self.port}")
        await self._server.start()

    async def stop(self) -> None:
        """At once: streams break off."""
        await self._server.stop(None)

    def topic(self, name: str) -> FakeTopic:
        return self.service.topic(name)


class ThreadedFakeBroker(FakeBroker):
    """The same for synchronous tests: runs on the clients' I/O thread."""

    def start_now(self) -> None:
        IoThread.shared().call(self.start())

    def stop_now(self) -> None:
        IoThread.shared().call(self.stop())

    def store(self, name: str, entry: bytes) -> Position:
        async def store() -> Position:
            return self.topic(name).store(entry)

        return IoThread.shared().call(store())

    def do(self, action: Callable[[], object]) -> None:
        """Runs it on the broker's event loop."""

        async def run() -> None:
            action()

        IoThread.shared().call(run())


@contextmanager
def running_broker() -> Iterator[ThreadedFakeBroker]:
    broker = ThreadedFakeBroker()
    broker.start_now()
    try:
        yield broker
    finally:
        broker.service.refusal = None
        broker.stop_now()
