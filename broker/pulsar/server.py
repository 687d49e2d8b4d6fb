"""The server of Pulsar's binary protocol: its port, its connections, their limits.

Bounds: connections, producers and consumers count as streams (broker/common/outgoing.py). What all
connections have sent and the broker has not handled is at most as much as what may wait to be sent:
above that, the connection that has sent part of a frame and then nothing for longest is closed. So
is one that is silent for SILENT_S, in spite of a ping.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import ExitStack, suppress

from ledgerfold.broker.pulsar.connection import Connection
from ledgerfold.broker.pulsar.consuming import AllBatchAcks
from ledgerfold.broker.pulsar.frames import COMMAND_BYTES_MAX, FRAME_MARGIN_BYTES
from ledgerfold.broker.pulsar.producing import Attached
from ledgerfold.broker.topics.broker import Broker
from ledgerfold.storage.errors import AddressInUse, Overloaded

PING_S, SILENT_S = 30.0, 75.0
_LOOK_S = 5.0
_BACKLOG = 1024
_log = logging.getLogger(__name__)


class PulsarServer:
    """The server of one broker on one port. `advertised`: where clients reach it, if not there."""

    def __init__(self, broker: Broker, listen: str, advertised: str | None = None) -> None:
        self.broker, self._listen = broker, listen
        self._advertised = advertised
        self.service_url = ""
        self.frame_bytes_max = (
            max(broker.settings.message_bytes_max, COMMAND_BYTES_MAX) + FRAME_MARGIN_BYTES
        )
        self.producers, self.batch_acks = Attached(), AllBatchAcks()
        # Received by all connections and not yet handled.
        self.held_bytes = 0
        self._connections: dict[Connection, ExitStack] = {}
        self._all_closed = asyncio.Event()
        self._server: asyncio.Server | None = None
        self._looking: asyncio.Task[None] | None = None

    async def start(self) -> str:
        """Listens, and returns "host:port" with the actual port. Raises AddressInUse."""
        host, _, port = self._listen.rpartition(":")
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(
                lambda: Connection(self),
                host.strip("[]"),
                int(port),
                backlog=_BACKLOG,
            )
        except OSError as error:
            # The address was valid and free when the start was checked.
            raise AddressInUse(self._listen, "--pulsar-listen") from error
        actual = f"{host}:{self._server.sockets[0].getsockname()[1]}"
        self.service_url = f"pulsar://{self._advertised or actual}"
        self._looking = loop.create_task(self._look())
        return actual

    def stop_listening(self) -> None:
        if self._server is not None:
            self._server.close()

    async def stop(self, grace_s: float) -> None:
        """Closes all connections; after `grace_s` also those whose clients read nothing."""
        self.stop_listening()
        if self._looking is not None:
            self._looking.cancel()
        for connection in tuple(self._connections):
            connection.close()
        if self._connections:
            self._all_closed.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._all_closed.wait(), grace_s)
        for connection in tuple(self._connections):
            connection.abort("the broker stops")
        await asyncio.sleep(0)

    # Called by connections

    def now_s(self) -> float:
        return asyncio.get_running_loop().time()

    def opened(self, connection: Connection) -> None:
        resources = self._connections[connection] = ExitStack()
        try:
            resources.enter_context(self.broker.outgoing.stream())
        except Overloaded as error:
            connection.abort(str(error))

    def closed(self, connection: Connection) -> None:
        self._connections.pop(connection).close()
        if not self._connections:
            self._all_closed.set()

    def check_held(self) -> None:
        """Closes a connection that sent part of a frame, if all together have sent too much."""
        if self.held_bytes <= self.broker.settings.unsent_bytes_max:
            return
        idle = [each for each in self._connections if each.is_in_frame]
        if idle:
            oldest = min(idle, key=lambda each: (each.heard_s, each.waits_since_s))
            oldest.abort(f"it sent part of a frame, and all sent {self.held_bytes} bytes")

    async def _look(self) -> None:
        """Pings idle clients, closes connections that stay silent, tells of terminated topics."""
        while True:
            await asyncio.sleep(_LOOK_S)
            now_s = self.now_s()
            for connection in tuple(self._connections):
                connection.look_for_ends()
                silent_s = now_s - connection.heard_s
                if silent_s > SILENT_S:
                    connection.abort(f"it was silent for {silent_s:.0f} s")
                elif silent_s > PING_S - _LOOK_S:
                    connection.ping()
