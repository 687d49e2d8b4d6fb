"""The state that all connections of the protocol share, with the limit of their received bytes.

The received bytes of all connections that are not handled yet are limited to the number of bytes
that may wait to be sent. Above that, the connection with such bytes that has been silent the
longest is closed.
"""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from typing import Protocol

from ledgerfold.broker.pulsar.consuming import AllBatchAcks
from ledgerfold.broker.pulsar.frames import COMMAND_BYTES_MAX, FRAME_MARGIN_BYTES
from ledgerfold.broker.pulsar.producing import Attached
from ledgerfold.broker.pulsar.topic_lists import TopicLists
from ledgerfold.broker.security.guard import Guard
from ledgerfold.broker.topics.broker import Broker
from ledgerfold.storage.errors import Overloaded


class Member(Protocol):
    """A connection.

    `began_s`: when it began. `received_s`: when its last byte arrived, or reading was resumed.
    """

    began_s: float
    received_s: float

    @property
    def is_connected(self) -> bool:
        """True once the client has introduced itself."""
        ...

    @property
    def held_bytes(self) -> int:
        """The size of the received bytes that are not handled yet."""
        ...

    @property
    def is_held_back(self) -> bool:
        """True while its silence is the broker's doing, which does not read from it."""
        ...

    @property
    def address(self) -> str: ...

    def look_for_ends(self) -> None: ...
    async def end_silent(self) -> bool: ...
    def ping(self) -> None: ...
    def close(self) -> None: ...
    def abort(self, why: str) -> None: ...


class Shared:
    """The connections of one broker.

    `advertised`: "host:port" as clients reach it. Without it: the address of the first named
    listener, or the one that each client connected to.
    """

    def __init__(
        self,
        broker: Broker,
        advertised: str | None = None,
        guard: Guard | None = None,
        *,
        uses_tls: bool = False,
    ) -> None:
        self.guard, self.scheme = guard, "pulsar+ssl" if uses_tls else "pulsar"
        first = next(iter(broker.settings.pulsar_listeners.values()), None)
        self.broker, self.advertised = broker, advertised or first
        self.frame_bytes_max = (
            max(broker.settings.message_bytes_max, COMMAND_BYTES_MAX) + FRAME_MARGIN_BYTES
        )
        self.producers, self.batch_acks = Attached(), AllBatchAcks()
        self.topic_lists = TopicLists(broker)
        # The bytes received by all connections that are not handled yet.
        self.held_bytes = 0
        self.connections: dict[Member, ExitStack] = {}
        self.all_closed = asyncio.Event()

    def url(self, transport: asyncio.Transport) -> str:
        """Returns the URL for the client of a connection."""
        if self.advertised is not None:
            return f"{self.scheme}://{self.advertised}"
        host, port = transport.get_extra_info("sockname")[:2]
        return (
            f"{self.scheme}://[{host}]:{port}" if ":" in host else f"{self.scheme}://{host}:{port}"
        )

    def now_s(self) -> float:
        return asyncio.get_running_loop().time()

    def opened(self, connection: Member) -> None:
        resources = self.connections[connection] = ExitStack()
        try:
            resources.enter_context(self.broker.outgoing.stream())
        except Overloaded as error:
            connection.abort(str(error))

    def closed(self, connection: Member) -> None:
        self.connections.pop(connection).close()
        if not self.connections:
            self.all_closed.set()

    async def end_silent(self, address: str) -> bool:
        """Closes the connection of that client if it is silent; returns whether it has ended."""
        connection = next((each for each in self.connections if each.address == address), None)
        return connection is not None and await connection.end_silent()

    def check_held(self) -> None:
        """Closes a connection with unhandled bytes if their total exceeds the limit."""
        if self.held_bytes <= self.broker.settings.unsent_bytes_max:
            return
        holding = [each for each in self.connections if each.held_bytes]
        if holding:
            # The rest of a frame does not arrive, or the client does not read its answers.
            oldest = min(holding, key=lambda each: each.received_s)
            oldest.abort(f"its frames wait, and all have sent {self.held_bytes} bytes")
