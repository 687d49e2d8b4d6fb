"""Entries between the event loop, which receives them, and whoever reads them.

Whole entries cross over, never single messages. `clear` starts a new generation: what was taken
before it is stale (a seek, a redelivery, a subscription that was opened again).
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from storage.entry import EntryHeader
from storage.errors import LedgerfoldError, Timeout


class Delivery(NamedTuple):
    """An entry as it came."""

    header: EntryHeader
    data: memoryview
    redelivery_count: int = 0


class Inbox:
    """A queue from the event loop to one reader, in a thread or on the loop itself."""

    def __init__(self) -> None:
        self.generation = 0
        self._items: deque[Delivery] = deque()
        self._error: LedgerfoldError | None = None
        self._changed = threading.Condition()
        self._changed_async = asyncio.Event()

    def put(self, deliveries: Iterable[Delivery]) -> None:
        """On the event loop."""
        with self._changed:
            self._items.extend(deliveries)
            self._changed.notify_all()
        self._changed_async.set()

    def clear(self) -> int:
        """Drops what is here and begins a new generation. Answers how many messages went."""
        with self._changed:
            messages = sum(delivery.header.message_count for delivery in self._items)
            self._items.clear()
            self.generation += 1
        return messages

    def fail(self, error: LedgerfoldError) -> None:
        """On the event loop: nothing more will come; `take` raises once the queue is empty."""
        with self._changed:
            self._error = self._error or error
            self._changed.notify_all()
        self._changed_async.set()

    @property
    def is_empty(self) -> bool:
        return not self._items

    def take(self) -> tuple[int, Delivery] | None:
        """The next entry and its generation, or None. Raises what `fail` was told."""
        with self._changed:
            if self._items:
                return self.generation, self._items.popleft()
            if self._error is not None:
                raise self._error
            return None

    def wait(self, deadline_s: float | None) -> None:
        """Blocks until there is something to take. `deadline_s` is on the monotonic clock.

        Raises Timeout when it has passed.
        """
        with self._changed:
            while not self._items and self._error is None:
                left_s = None if deadline_s is None else deadline_s - time.monotonic()
                if left_s is not None and left_s <= 0:
                    raise Timeout("No message came in time.")
                self._changed.wait(left_s)

    async def wait_async(self) -> None:
        """The same on the event loop, for as long as the task likes."""
        while not self._items and self._error is None:
            self._changed_async.clear()
            await self._changed_async.wait()


def deadline_after(timeout_millis: int | None) -> float | None:
    """The deadline for `Inbox.wait`; None = never."""
    return None if timeout_millis is None else time.monotonic() + timeout_millis / 1000
