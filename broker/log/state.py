"""What has become of a topic's log: how far it is durable, whether it failed, or is closed.

One per loaded topic, on the event loop, shared by the parts of its log. Each says what it has done
or met here, and nobody asks another part why it cannot go on. Producers, readers and the topic hear
of it: the last durable position rises, a failure ends the writing, a close ends the reading, too.

    >>> state = LogState("persistent://public/default/orders")
    >>> state.on_durable.add(lambda: print("durable up to", state.last_durable))
    >>> state.advance(Position(3, 0))
    durable up to 3:0
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from ledgerfold.storage.entry import Position
from ledgerfold.storage.errors import LedgerfoldError, Moved

_log = logging.getLogger(__name__)


class LogState:
    """Attributes are for everybody to read; they are changed by the methods, and by a load."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.last_durable: Position | None = None
        # Why nothing can be appended any more.
        self.failure: LedgerfoldError | None = None
        # Why nothing can be read any more: the topic was unloaded.
        self.closed: LedgerfoldError | None = None
        # More is durable, or nothing will be / nothing is read any more.
        self.on_durable: set[Callable[[], None]] = set()
        self.on_closed: set[Callable[[], None]] = set()
        self._waiters: set[asyncio.Future[None]] = set()

    def advance(self, durable: Position) -> None:
        """All up to there is durable."""
        self.last_durable = durable
        self._tell()

    def fail(self, error: LedgerfoldError) -> None:
        """Nothing more will be durable. The first failure is the one that counts."""
        self.failure = self.failure or error
        self._tell()

    def cause(self, error: Exception) -> LedgerfoldError:
        """What others are told of it: whatever it was, nobody is to wait for ever."""
        if isinstance(error, LedgerfoldError):
            return error
        _log.error("The log of %s", self.topic, exc_info=error)
        return LedgerfoldError(f"The log of {self.topic} failed: {error!r}")

    def close(self) -> None:
        """Ends all reads with Moved."""
        self.closed = Moved(f"{self.topic} was unloaded; connect again.")
        self.fail(self.closed)
        for callback in tuple(self.on_closed):
            callback()

    def _tell(self) -> None:
        self.wake()
        for callback in tuple(self.on_durable):
            callback()

    def wake(self) -> None:
        """What changed() waits for has come."""
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def changed(self) -> None:
        """Returns when more is durable, or the log failed, ended or was closed."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        try:
            await waiter
        finally:
            self._waiters.discard(waiter)
