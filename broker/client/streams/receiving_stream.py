"""Streams that receive entries, and their permits: the number of messages a broker may still send.

Permits that the broker holds, plus messages that wait to be read, make up the receiver queue size.
An entry is never split: the broker sends while it holds any permit, and the number may then be
negative.

    >>> permits = Permits(10)
    >>> permits.to_grant()
    10
    >>> permits.received(12); permits.on_taken(12); permits.to_grant()
    12

A queue of size 0 prefetches nothing: the broker gets one permit when a caller waits for a message.

    >>> permits = Permits(0)
    >>> permits.to_grant(); permits.want(); permits.to_grant(); permits.to_grant()
    0
    1
    0
"""

from __future__ import annotations

from abc import abstractmethod
from collections import deque

from google.protobuf.message import Message

from ledgerfold.broker.client.streams.connection import Connection
from ledgerfold.broker.client.streams.inbox import Inbox
from ledgerfold.broker.client.streams.reconnecting_stream import ReconnectingStream


class Permits:
    """The permits of one stream. Pure."""

    def __init__(self, queue_size: int) -> None:
        self._queue_size = queue_size
        # The permits, as the broker counts them; negative after a larger entry.
        self._granted = 0
        # Received, and not taken yet.
        self._waiting = 0
        self._is_requested = False

    def received(self, messages: int) -> None:
        self._granted -= messages
        self._waiting += messages

    def on_taken(self, messages: int) -> None:
        self._waiting -= messages

    def want(self) -> None:
        """Lets a queue of size 0 hold the next message."""
        self._is_requested = not self._queue_size

    def got(self) -> None:
        """Ends `want`: the caller has its message."""
        self._is_requested = False

    def disconnected(self) -> None:
        self._granted = 0

    @property
    def missing(self) -> int:
        """The number of permits up to the queue size."""
        return max(self._queue_size + self._is_requested - self._waiting - self._granted, 0)

    def grant(self, messages: int) -> None:
        """Notes that the broker got permits."""
        self._granted += messages

    def to_grant(self) -> int:
        """Grants permits up to the queue size. Returns the number granted."""
        more = self.missing
        self._granted += more
        return more


class ReceivingStream(ReconnectingStream):
    """A stream that receives entries into an inbox. Event loop only, except where stated."""

    def __init__(
        self, connection: Connection, description: str, inbox: Inbox, queue_size: int
    ) -> None:
        super().__init__(connection, description)
        self.inbox = inbox
        self._permits = Permits(queue_size)
        # Serialized, in the order of sending.
        self._requests: deque[bytes] = deque()

    @abstractmethod
    def _grant(self) -> None:
        """Sends the permits that are due."""

    def return_permits(self, messages: int) -> None:
        """Returns permits for messages that a caller took. Thread-safe."""
        self.loop.call_soon_threadsafe(self._on_taken, messages)

    def _on_taken(self, messages: int) -> None:
        self._permits.got()
        self._permits.on_taken(messages)
        self._grant()

    def fetch(self) -> None:
        """Requests the next message for a queue of size 0. Thread-safe, idempotent."""
        self.loop.call_soon_threadsafe(self._fetch)

    def _fetch(self) -> None:
        self._permits.want()
        self._grant()

    def _ask(self, request: Message) -> None:
        self._requests.append(request.SerializeToString())
        self.wake()

    def _next_frame(self) -> bytes | None:
        return self._requests.popleft() if self._requests else None

    def _on_disconnect(self) -> None:
        self._permits.disconnected()
