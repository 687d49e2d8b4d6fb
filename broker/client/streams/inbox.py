"""Queues of entries from the event loop, which receives them, to their readers.

The queues hold whole entries, never single messages. `clear` starts a new generation: entries
taken before are stale (after a seek, a redelivery, or a reopened subscription).

A reader of several partitions has an inbox for each and waits for all of them: they share a bell.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import NamedTuple

from ledgerfold.broker.client.messages.argument_types import TIMEOUT_TYPES, check_type
from ledgerfold.storage.entry import EntryHeader
from ledgerfold.storage.errors import LedgerfoldError, Timeout
from ledgerfold.storage.plain_entries import PlainRows


class Delivery(NamedTuple):
    """An entry as received."""

    header: EntryHeader
    data: memoryview
    redelivery_count: int = 0
    # Kafka topics: records before this offset are not the reader's.
    first_offset: int = 0

    @property
    def messages(self) -> int:
        return self.header.message_count


class DeliveredRun(NamedTuple):
    """Entries of one message each, as received."""

    rows: PlainRows

    @property
    def messages(self) -> int:
        return len(self.rows.entries)


AnyDelivery = Delivery | DeliveredRun


class Bell:
    """A condition variable for threads and for tasks on the event loop."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._changed_async = asyncio.Event()
        self._waiting = self._waiting_async = 0

    def ring(self) -> None:
        """Wakes all waiters, which check their conditions again. Event loop only."""
        with self._changed:
            self._changed.notify_all()
        self._changed_async.set()

    @property
    def has_waiters(self) -> bool:
        """True if there is a waiter."""
        return self._waiting > 0 or self._waiting_async > 0

    def pass_on(self) -> None:
        """Wakes another waiter, after a message was taken and more are left."""
        if self._waiting:
            with self._changed:
                self._changed.notify()
        if self._waiting_async:
            self._changed_async.set()

    def wait(self, is_met: Callable[[], bool], deadline_s: float | None) -> None:
        """Blocks until `is_met`. `deadline_s` is on the monotonic clock. Raises Timeout."""
        with self._changed:
            # NOTE: counted before the check, so that a later `pass_on` does not miss it.
            self._waiting += 1
            try:
                while not is_met():
                    left_s = None if deadline_s is None else deadline_s - time.monotonic()
                    if left_s is not None and left_s <= 0:
                        raise Timeout("No message was received in time.")
                    self._changed.wait(left_s)
            finally:
                self._waiting -= 1

    async def wait_async(self, is_met: Callable[[], bool]) -> None:
        """Waits until `is_met`, without a deadline. Event loop only."""
        self._waiting_async += 1
        try:
            while not is_met():
                self._changed_async.clear()
                await self._changed_async.wait()
        finally:
            self._waiting_async -= 1


class Inbox:
    """A queue from the event loop to one reader, in a thread or on the loop."""

    def __init__(self) -> None:
        self.generation = 0
        self._items: deque[AnyDelivery] = deque()
        self._error: LedgerfoldError | None = None
        # Returns the number of messages left in the entry taken last; set by the receiver.
        self.rest: Callable[[], int] = int
        self._lock = threading.Lock()
        self._bell = Bell()

    def put(self, deliveries: Iterable[AnyDelivery]) -> None:
        """Adds entries. Event loop only."""
        with self._lock:
            self._items.extend(deliveries)
        self._bell.ring()

    def clear(self) -> int:
        """Drops all entries and begins a new generation. Returns the number of messages dropped."""
        with self._lock:
            messages = sum(delivery.messages for delivery in self._items)
            self._items.clear()
            self.generation += 1
        return messages

    def fail(self, error: LedgerfoldError) -> None:
        """Marks the end: `take` raises `error` once the queue is empty. Event loop only."""
        with self._lock:
            self._error = self._error or error
        self._bell.ring()

    def recover(self) -> None:
        """Revokes `fail`: more entries will be received. Event loop only."""
        with self._lock:
            self._error = None

    @property
    def is_empty(self) -> bool:
        return not self._items

    def has_news(self) -> bool:
        """Returns whether there is a message to return, or `take` raises."""
        return bool(self._items) or self.rest() > 0 or self._error is not None

    def pass_on(self) -> None:
        """Wakes the next waiter, if any, for the messages left. Called after taking a message."""
        if self._bell.has_waiters and self.has_news():
            self._bell.pass_on()

    def take(self) -> tuple[int, AnyDelivery] | None:
        """Returns the next entry and its generation, or None. Raises the error given to `fail`."""
        with self._lock:
            if self._items:
                return self.generation, self._items.popleft()
            if self._error is not None:
                raise self._error
            return None

    def share_bell(self, bell: Bell) -> None:
        """Replaces the bell, and rings it. Event loop only."""
        self._bell = bell
        bell.ring()

    def wait(self, deadline_s: float | None) -> None:
        """Blocks until there is something to take. Raises Timeout when the deadline has passed."""
        self._bell.wait(self.has_news, deadline_s)

    async def wait_async(self) -> None:
        """Waits until there is something to take. Event loop only."""
        await self._bell.wait_async(self.has_news)


class MergedInbox:
    """A group of inboxes to wait for; entries are taken from each inbox."""

    def __init__(self) -> None:
        self._bell = Bell()
        self._inboxes: tuple[Inbox, ...] = ()

    def add(self, inbox: Inbox) -> None:
        """Adds an inbox. Event loop only."""
        self._inboxes += (inbox,)
        inbox.share_bell(self._bell)

    def remove(self, inbox: Inbox) -> None:
        """Removes an inbox. Event loop only."""
        self._inboxes = tuple(each for each in self._inboxes if each is not inbox)

    def has_news(self) -> bool:
        return any(inbox.has_news() for inbox in self._inboxes)

    def wait(self, deadline_s: float | None) -> None:
        """Blocks until one of the inboxes has something to take. Raises Timeout."""
        self._bell.wait(self.has_news, deadline_s)

    async def wait_async(self) -> None:
        await self._bell.wait_async(self.has_news)


def deadline_after(timeout_millis: int | None) -> float | None:
    """Returns the deadline for `Inbox.wait`; None: no deadline. Raises InvalidRequest."""
    check_type(timeout_millis, TIMEOUT_TYPES, "timeout_millis")
    return None if timeout_millis is None else time.monotonic() + timeout_millis / 1000
