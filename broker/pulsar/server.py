"""The server of Pulsar's binary protocol: its port, and the closing of its connections.

Connections, producers and consumers count as streams (broker/common/outgoing.py). A connection that
does not answer a ping within SILENT_S is closed, and one whose client has not sent CONNECT within
CONNECT_S.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from ledgerfold.broker.pulsar.connection import Connection
from ledgerfold.broker.pulsar.shared import Member, Shared
from ledgerfold.broker.security.certificates import Certificates
from ledgerfold.broker.security.guard import Guard
from ledgerfold.broker.security.listening import open_port
from ledgerfold.broker.topics.broker import Broker
from ledgerfold.storage.errors import AddressInUse

PING_S, SILENT_S = 30.0, 75.0
_CHECK_S = 5.0
_BACKLOG = 1024
CONNECT_S = 10.0


class PulsarServer:
    """The server of one broker on one port. `advertised`: the address at which clients reach it, if
    it differs.
    """

    def __init__(
        self,
        broker: Broker,
        listen: str,
        advertised: str | None = None,
        *,
        guard: Guard | None = None,
        certificates: Certificates | None = None,
    ) -> None:
        # The requested address, and the actual one, whose port is known once it listens.
        self._listen, self._actual = listen, listen
        self._certificates = certificates
        self._shared = Shared(broker, advertised, guard, uses_tls=certificates is not None)
        self._server: asyncio.Server | None = None
        self._looking: asyncio.Task[None] | None = None

    async def start(self) -> str:
        """Listens, and returns "host:port" with the actual port. Raises AddressInUse."""
        host, _, port = self._listen.rpartition(":")
        loop, shared = asyncio.get_running_loop(), self._shared
        try:
            at = host.strip("[]"), int(port)
            self._server = await open_port(lambda: Connection(shared), *at, self._certificates)
        except OSError as error:
            # The address was valid and free when the start was checked.
            raise AddressInUse(self._listen, "--pulsar-listen") from error
        self._looking = loop.create_task(self._look())
        self._actual = f"{host}:{self._server.sockets[0].getsockname()[1]}"
        return self._actual

    @property
    def service_url(self) -> str:
        """The URL of the advertised address, or of the one that the server listens on."""
        return f"{self._shared.scheme}://{self._shared.advertised or self._actual}"

    def stop_listening(self) -> None:
        if self._server is not None:
            self._server.close()

    async def stop(self, grace_s: float) -> None:
        """Closes all connections; after `grace_s` also those whose clients do not read."""
        self.stop_listening()
        if self._looking is not None:
            self._looking.cancel()
        shared = self._shared
        for connection in tuple(shared.connections):
            connection.close()
        if shared.connections:
            shared.all_closed.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(shared.all_closed.wait(), grace_s)
        for connection in tuple(shared.connections):
            connection.abort("the broker stops")
        await asyncio.sleep(0)

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(_CHECK_S)
            now_s = self._shared.now_s()
            for connection in tuple(self._shared.connections):
                connection.look_for_ends()
                check(connection, now_s)


def check(connection: Member, now_s: float) -> None:
    """Pings an idle client, and closes a silent connection."""
    silent_s = now_s - connection.received_s
    if now_s - connection.began_s > CONNECT_S and not connection.is_connected:
        connection.abort(f"it did not begin within {CONNECT_S:.0f} s")
    elif silent_s > SILENT_S and not connection.is_held_back:
        connection.abort(f"it was silent for {silent_s:.0f} s")
    elif silent_s > PING_S - _CHECK_S:
        connection.ping()
