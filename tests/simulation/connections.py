"""Streams and calls between a client and the broker, without gRPC.

A `Connection` is the context of a stream handler of broker/rpc, and the client's end: frames are
ordered, arrive at any later step, and are lost when the connection breaks or either end dies.
Frames that the broker sends count for the oracle at once (`on_sent`): a client might have received
them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar, cast

import grpc

from ledgerfold.storage.errors import LedgerfoldError, Unavailable
from tests.simulation.jobs import Crash
from tests.simulation.moments import DONE

if TYPE_CHECKING:
    from ledgerfold.broker.topics.broker import Broker
    from tests.simulation.world import World

EOF = cast(Any, grpc.aio).EOF
# Frames in flight to a client; above this number the handler's write waits.
INBOX_MAX = 4
T = TypeVar("T")


class Connection:
    """`error` is set once `closed` is: the error that ended the stream, None if it ended
    normally.
    """

    def __init__(
        self,
        world: World,
        handler: Callable[[Any, Any], Awaitable[None]],
        on_sent: Callable[[bytes], None],
    ) -> None:
        self._world, self._on_sent = world, on_sent
        self.inbox: deque[bytes] = deque()
        self.changed = asyncio.Event()
        self.closed = False
        self.error: LedgerfoldError | None = None
        self._room = asyncio.Event()
        self._requests: deque[Any] = deque()
        self._asked = asyncio.Event()
        self._is_cut = False
        # When the broker ended it; the client is notified later.
        self.served_until_ms: int | None = None
        broker = world.broker
        if broker is None:
            self._end(Unavailable("The broker is not there."))
            return
        self._task = world.in_broker(self._serve(handler, broker))
        self._task.add_done_callback(self._finished)

    async def _serve(self, handler: Callable[[Any, Any], Awaitable[None]], broker: Broker) -> None:
        try:
            await handler(broker, self)
        finally:
            self.served_until_ms = self._world.clock.now_ms()

    # The client's end

    def send(self, frame: Any) -> None:
        self._requests.append(frame)
        self._asked.set()

    def finish(self) -> None:
        """The client will send nothing more."""
        self.send(EOF)

    def cut(self) -> None:
        """The network fails; the handler is cancelled, as by gRPC."""
        self._is_cut = True
        self.inbox.clear()
        if not self.closed:
            self._task.cancel()
            self._end(Unavailable("The connection was cut."))

    def take(self) -> bytes:
        frame = self.inbox.popleft()
        self._room.set()
        return frame

    async def wait(self) -> None:
        """Waits for a frame, or the end."""
        while not (self.inbox or self.closed):
            self.changed.clear()
            await self.changed.wait()

    def _finished(self, task: asyncio.Task[None]) -> None:
        if self.closed:
            return
        if task.cancelled():
            self._end(Unavailable("The broker died."))
            return
        error = task.exception()
        if error is None or isinstance(error, LedgerfoldError):
            self._end(error)
            return
        if not isinstance(error, Crash):
            self._world.oracle.unexpected(error)
        self._end(Unavailable("The broker died."))

    def _end(self, error: LedgerfoldError | None) -> None:
        self.closed, self.error = True, error
        self.changed.set()

    # As a gRPC context

    def peer(self) -> str:
        return "ipv4:127.0.0.1:1"

    async def read(self) -> Any:
        while not self._requests:
            self._asked.clear()
            await self._asked.wait()
        if self._requests[0] is EOF:
            return EOF
        return self._requests.popleft()

    async def send_initial_metadata(self, metadata: tuple[()]) -> None:
        """Headers mean nothing here."""

    async def write(self, frame: bytes) -> None:
        if self._is_cut:
            raise asyncio.CancelledError
        self._on_sent(frame)
        self.inbox.append(frame)
        self.changed.set()
        while len(self.inbox) > INBOX_MAX and not self._is_cut:
            self._room.clear()
            await self._room.wait()


async def call(world: World, work: Callable[[Broker], Awaitable[T]]) -> T:
    """Makes a unary call. Raises the broker's error, Unavailable if it dies."""
    broker = world.broker
    if broker is None:
        raise Unavailable("The broker is not there.")
    task = world.in_broker(work(broker))
    world.calls += 1
    try:
        await asyncio.wait({task})
    finally:
        world.calls -= 1
    if task.cancelled():
        raise Unavailable("The broker died.")
    error = task.exception()
    if error is None:
        answer: T = task.result()
        world.moments.reach(DONE)
        return answer
    if isinstance(error, Crash):
        raise Unavailable("The broker died.")
    if not isinstance(error, LedgerfoldError):
        world.oracle.unexpected(error)
    raise error
