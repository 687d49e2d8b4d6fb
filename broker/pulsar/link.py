"""The sending half of a connection: the state that all commands of one client share.

Bounds: entries are written one frame set at a time, the next when the transport has passed on all
but HIGH_WATER_BYTES; while it has not, no further command is read. At most TASKS_MAX commands of a
client wait for the broker at the same time; a client's schemas are compared one at a time, in turns
with those of other clients. Lists are built one at a time, after the client has received most of
the previous answer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from typing import Any

from ledgerfold.broker.common.given_names import PROPERTIES_MAX
from ledgerfold.broker.common.request_rates import host_of
from ledgerfold.broker.common.traffic import Peer
from ledgerfold.broker.pulsar.errors import is_cpp
from ledgerfold.broker.pulsar.frames import Content, command, encode
from ledgerfold.broker.security.guard import Guard, Target, Use, client_of
from ledgerfold.broker.security.needs import Need
from ledgerfold.broker.security.tokens import Caller
from ledgerfold.broker.topics.broker import Broker
from ledgerfold.storage.errors import (
    AuthenticationFailed,
    InvalidRequest,
    LedgerfoldError,
    NotAllowed,
    Overloaded,
)
from ledgerfold.v1.pulsar_pb2 import CommandSuccess, KeyValue

HIGH_WATER_BYTES = 64 * 1024
# Larger entries are converted on a thread: about a millisecond's work.
THREAD_BYTES = 64 * 1024
THREAD_MESSAGES = 500
TASKS_MAX = 1000
# By so much, Pulsar's clients accept frames that are larger than the largest message.
_CLIENTS_MARGIN_BYTES = 10 * 1024
_log = logging.getLogger(__name__)


class Link:
    """The connection of one client, as its commands use it."""

    def __init__(
        self, broker: Broker, transport: asyncio.Transport, guard: Guard | None = None
    ) -> None:
        self.broker, self._transport, self._guard = broker, transport, guard
        # Set when the client has connected, if the broker authenticates.
        self.caller: Caller | None = None
        # The version that the client states when it connects.
        self.client_version = ""
        self.is_closed = False
        self._writable = asyncio.Event()
        self._writable.set()
        self._turn, self.schema_turn, self._list_turn = (asyncio.Lock() for _ in range(3))
        self._tasks: set[asyncio.Task[Any]] = set()
        transport.set_write_buffer_limits(high=HIGH_WATER_BYTES)
        name = transport.get_extra_info("peername") or ("", 0)
        self.address = f"{name[0]}:{name[1]}"

    def peer(self, metadata: Sequence[KeyValue] = ()) -> Peer:
        now_ms, properties = self.broker.clock_ms(), properties_of(metadata)
        return Peer(self.address, now_ms, properties, self.client_version)

    @property
    def client(self) -> str:
        """The role or the address whose limit of requests the connection's commands count
        towards."""
        return client_of(host_of(self.address), self.caller)

    # Permissions

    def check(self, need: Need, target: Target) -> None:
        """Raises AuthenticationFailed, or AuthorizationFailed: a command needs more."""
        if self._guard is None:
            return
        if self.caller is None:
            raise AuthenticationFailed("The client has sent no credentials.")
        self._guard.check(self.caller, need, target)

    def use(
        self, need: Need, target: Target, end: Callable[[LedgerfoldError], None]
    ) -> AbstractContextManager[object]:
        """Watches over something open. (Credentials that expire are the connection's.)"""
        if self._guard is None or self.caller is None:
            return nullcontext()
        return self._guard.use(Use(self.caller._replace(expires_ms=None), need, target, end))

    # Sending

    def send(self, content: Content) -> None:
        """Sends the command with this content."""
        self.write(encode(command(content)))

    def succeed(self, request_id: int) -> None:
        self.send(CommandSuccess(request_id=request_id))

    def send_list(self, answer: Content) -> None:
        """Sends a list of topics. Raises NotAllowed if its frame is too large for the client.

        The Java and Go clients end a connection with such a frame, and would connect again forever.
        The C++ client has no limit.
        """
        frame = encode(command(answer))
        size_bytes = len(frame)
        bytes_max = self.broker.settings.message_bytes_max + _CLIENTS_MARGIN_BYTES
        if size_bytes > bytes_max and not is_cpp(self.client_version):
            raise NotAllowed(
                f"The list of topics has {size_bytes} bytes; the client accepts {bytes_max}. Use "
                "a pattern that matches fewer topics, or start the broker with a larger "
                "--max-message-size."
            )
        self.write(frame)

    def write(self, frames: bytes) -> None:
        if not self.is_closed:
            self._transport.write(frames)

    async def deliver(self, frames: list[bytes]) -> None:
        """Writes whole frames of entries in turn with other deliveries; waits until they are
        sent.
        """
        async with self._turn:
            await self._writable.wait()
            if not self.is_closed:
                self._transport.writelines(frames)
                frames.clear()
            await self._writable.wait()

    @asynccontextmanager
    async def list_turn(self) -> AsyncIterator[None]:
        """Waits until a list may be made and written; the next one waits for this one."""
        async with self._list_turn:
            await self._writable.wait()
            yield

    @property
    def is_writable(self) -> bool:
        """True if the client has received most of what was written."""
        return self._writable.is_set()

    async def writable(self) -> None:
        """Returns when the client has received most of what was written."""
        await self._writable.wait()

    def pause(self) -> None:
        self._writable.clear()

    def resume(self) -> None:
        self._writable.set()

    # Work

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Runs work of this connection until it ends, or the connection does."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def check_room(self) -> None:
        """Raises Overloaded if too many commands wait for the broker."""
        if len(self._tasks) >= TASKS_MAX + self.broker.settings.streams_max:
            raise Overloaded(f"{len(self._tasks)} commands of this connection are unanswered.")

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            _log.error("A connection of %s is closed", self.address, exc_info=task.exception())
            self.abort()

    # Ending

    def close(self) -> None:
        """Closes the connection once everything written was sent."""
        self._transport.close()

    def abort(self) -> None:
        """Closes the connection at once."""
        self._transport.abort()

    def closed(self, on_closed: Callable[[], None]) -> None:
        """Ends the work of a lost connection."""
        self.is_closed = True
        self._writable.set()
        on_closed()
        for task in tuple(self._tasks):
            task.cancel()


def properties_of(
    metadata: Sequence[KeyValue], properties_max: int = PROPERTIES_MAX
) -> dict[str, str]:
    """Returns the properties that a client sends for its producer, consumer or schema, as shown in
    stats. Raises InvalidRequest if there are too many, before it looks at them.
    """
    if len(metadata) > properties_max:
        raise InvalidRequest(
            f"There are {len(metadata)} properties; the limit is {properties_max}."
        )
    return {
        each.key.decode(errors="replace"): each.value.decode(errors="replace") for each in metadata
    }
