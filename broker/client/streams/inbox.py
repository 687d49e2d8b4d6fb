"""Entries between the event loop, which receives them, and those who read them.

Whole entries cross over, never single messages. `clear` starts a new generation: what was taken
before it is stale (a seek, a redelivery, a subscription that was opened again).

A reader of several partitions has an inbox for each and waits for all of them: they ring one bell.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import NamedTuple

from ledgerfold.storage.entry import EntryHeader
from ledgerfold.storage.errors import LedgerfoldError, Timeout


class Delivery(NamedTuple):
    """An entry as it came."""

    header: EntryHeader
    data: memoryview
    redelivery_count: int = 0
    # Kafka topics: records before this offset are not the reader's.
    first_offset: int = 0


class Bell:
    """Wakes those who wait for a condition, in a thread or on the event loop."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._changed_async = asyncio.Event()
        self._waiting = self._waiting_async = 0

    def ring(self) -> None:
        """On the event loop: the conditions are worth another look."""
        with self._changed:
            self._changed.notify_all()
        self._changed_async.set()

    @property
    def is_heard(self) -> bool:
        """Whether anyone waits."""
        return self._waiting > 0 or self._waiting_async > 0

    def pass_on(self) -> None:
        """Where a message was taken: what is left is for another one that waits."""
        if self._waiting:
            with self._changed:
                self._changed.notify()
        if self._waiting_async:
            self._changed_async.set()

    def wait(self, is_met: Callable[[], bool], deadline_s: float | None) -> None:
        """Blocks until it is. `deadline_s` is on the monotonic clock. Raises Timeout."""
        with self._changed:
            # NOTE: counted before the look, so that whoever passes on later does not miss it.
            self._waiting += 1
            try:
                while not is_met():
                    left_s = None if deadline_s is None else deadline_s - time.monotonic()
                    if left_s is not None and left_s <= 0:
                        raise Timeout("No message came in time.")
                    self._changed.wait(left_s)
            finally:
                self._waiting -= 1

    async def wait_async(self, is_met: Callable[[], bool]) -> None:
        """The same on the event loop, for as long as the task likes."""
        self._waiting_async += 1
        try:
            while not is_met():
                self._changed_async.clear()
                await self._changed_async.wait()
        finally:
            self._waiting_async -= 1


class Inbox:
    """A queue from the event loop to one reader, in a thread or on the loop itself."""

    def __init__(self) -> None:
        self.generation = 0
        self._items: deque[Delivery] = deque()
        self._error: LedgerfoldError | None = None
        # How many messages of the entry taken last are left; who takes says so.
        self.rest: Callable[[], int] = int
        self._lock = threading.Lock()
        self._bell = Bell()

    def put(self, deliveries: Iterable[Delivery]) -> None:
        """On the event loop."""
        with self._lock:
            self._items.extend(deliveries)
        self._bell.ring()

    def clear(self) -> int:
        """Drops what is here and begins a new generation. Answers how many messages went."""
        with self._lock:
            messages = sum(delivery.header.message_count for delivery in self._items)
            self._items.clear()
            self.generation += 1
        return messages

    def fail(self, error: LedgerfoldError) -> None:
        """On the event loop: nothing more will come; `take` raises once the queue is empty."""
        with self._lock:
            self._error = self._error or error
        self._bell.ring()

    def recover(self) -> None:
        """On the event loop: more will come after all."""
        with self._lock:
            self._error = None

    @property
    def is_empty(self) -> bool:
        return not self._items

    def has_news(self) -> bool:
        """Whether there is something to hand out, or `take` raises."""
        return bool(self._items) or self.rest() > 0 or self._error is not None

    def pass_on(self) -> None:
        """The caller that took a message wakes the next one, if there is one, for what is left."""
        if self._bell.is_heard and self.has_news():
            self._bell.pass_on()

    def take(self) -> tuple[int, Delivery] | None:
        """The next entry and its generation, or None. Raises what `fail` was told."""
        with self._lock:
            if self._items:
                return self.generation, self._items.popleft()
            if self._error is not None:
                raise self._error
            return None

    def share_bell(self, bell: Bell) -> None:
        """On the event loop: this bell rings from now on, and once at once."""
        self._bell = bell
        bell.ring()

    def wait(self, deadline_s: float | None) -> None:
        """Blocks until there is something to take. Raises Timeout when the deadline has passed."""
        self._bell.wait(self.has_news, deadline_s)

    async def wait_async(self) -> None:
        """The same on the event loop."""
        await self._bell.wait_async(self.has_news)


class MergedInbox:
    """Several inboxes, for waiting only: what comes is taken from each."""

    def __init__(self) -> None:
        self._bell = Bell()
        self._inboxes: tuple[Inbox, ...] = ()

    def add(self, inbox: Inbox) -> None:
        """On the event loop."""
        self._inboxes += (inbox,)
        inbox.share_bell(self._bell)

    def has_news(self) -> bool:
        return any(inbox.has_news() for inbox in self._inboxes)

    def wait(self, deadline_s: float | None) -> None:
        """As Inbox.wait: until there is something in one of them."""
        self._bell.wait(self.has_news, deadline_s)

    async def wait_async(self) -> None:
        await self._bell.wait_async(self.has_news)


def deadline_after(timeout_millis: int | None) -> float | None:
    """The deadline for `Inbox.wait`; None = never."""
    return None if timeout_millis is None else time.monotonic() + timeout_millis / 1000
