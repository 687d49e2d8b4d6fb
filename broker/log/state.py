"""The state of a topic's log: its durable position, failure and closing.

One exists per loaded topic, on the event loop, shared by the parts of its log. Each part records
here what it has done or found, and reads here why the log cannot continue. Producers, readers and
the topic are notified when the last durable position rises, when a failure ends all writing, and
when a close also ends all reading.

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
    """The shared state.

    Attributes may be read by all; only the methods, and a load, change them.
    """

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.last_durable: Position | None = None
        # The error after which nothing can be appended.
        self.failure: LedgerfoldError | None = None
        # The error after which nothing can be read: the topic was unloaded.
        self.closed: LedgerfoldError | None = None
        # Called when more is durable or nothing more will be, and when reads have ended.
        self.on_durable: set[Callable[[], None]] = set()
        self.on_closed: set[Callable[[], None]] = set()
        self._changed = asyncio.Event()

    def advance(self, durable: Position) -> None:
        """Records that everything through `durable` is durable."""
        self.last_durable = durable
        self._notify()

    def fail(self, error: LedgerfoldError) -> None:
        """Records that nothing more will be durable. Only the first failure is kept."""
        self.failure = self.failure or error
        self._notify()

    def cause(self, error: Exception) -> LedgerfoldError:
        """Converts any error to one that can be reported, so that no caller waits forever."""
        if isinstance(error, LedgerfoldError):
            return error
        _log.error("The log of %s failed with an internal error", self.topic, exc_info=error)
        return LedgerfoldError(f"The log of {self.topic} failed: {error!r}")

    def close(self) -> None:
        """Ends all reads with Moved."""
        self.closed = Moved(f"{self.topic} was unloaded; connect again.")
        self.fail(self.closed)
        for callback in tuple(self.on_closed):
            callback()

    def _notify(self) -> None:
        self.wake()
        for callback in tuple(self.on_durable):
            callback()

    def wake(self) -> None:
        """Wakes the waiters of changed()."""
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def changed(self) -> None:
        """Returns when more is durable, or the log failed, ended or was closed."""
        await self._changed.wait()
