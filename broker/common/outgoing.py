"""Limits over all streams of a broker: their number, and the bytes read for them but not yet sent.

A client that requests messages and reads none of them uses memory, and so do ten thousand clients
that are slow for a moment. Both are bounded for the whole broker:

* A stream above `streams_max` is refused (Overloaded).
* While `bytes_max` are held, no stream reads; near that limit, each read is smaller. Readers wait
  for room in order, usually for milliseconds, until other streams have sent their bytes. Meanwhile,
  entries that were read ahead of clients' requests are dropped, to be read again later. Streams
  that have been sending for STALLED_S are ended, the longest first, because their clients do not
  read.
* Entries that are held back until they are due (broker/subscriptions/delayed.py): DELAYED_ALL_MAX.

  >>> outgoing = Outgoing(streams_max=1, bytes_max=READ_LEAST)
  >>> share, other = outgoing.share(), outgoing.share()
  >>> share.reserve(READ_LEAST), other.reserve(READ_LEAST)
  (True, False)
  >>> share.hold(0)
  >>> other.reserve(READ_LEAST), other.size_bytes == outgoing.unsent_bytes == READ_LEAST
  (True, True)

It runs on one event loop.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ledgerfold.broker.common.places import Places
from ledgerfold.storage.errors import Overloaded

STREAMS_MAX = 20_000
BYTES_MAX = 256 * 1024 * 1024
STALLED_S = 5.0
DELAYED_ALL_MAX = 1_000_000
# A read gets 1/READ_PART of the free room, at least READ_LEAST.
READ_PART, READ_LEAST = 64, 64 * 1024
# The interval of the search for stalled streams while a share waits.
_CHECK_S = 0.5


def _nothing() -> None:
    """Does nothing, for a share without data to drop."""


class Share:
    """The part of one stream, or of a reader for several streams. `size_bytes`: its bytes."""

    __slots__ = ("_all", "_on_overrun", "error", "sending_since_s", "shed", "size_bytes")

    def __init__(self, of: Outgoing, shed: Callable[[], None]) -> None:
        """Adds a share. `shed`: drops what was read ahead, and holds the rest."""
        self._all, self.shed = of, shed
        self.size_bytes = 0
        # The start of the current write; None: it waits for a request of its client.
        self.sending_since_s: float | None = None
        # The error with which it was ended.
        self.error: Overloaded | None = None
        self._on_overrun: Callable[[], object] = _nothing
        of.shares.add(self)

    def hold(self, size_bytes: int) -> None:
        """Sets the bytes that it holds."""
        released = self.size_bytes - size_bytes
        self.size_bytes = size_bytes
        self._all.unsent_bytes -= released
        if released > 0 and self._all.waiting:
            self._all.serve_waiting()

    def reserve(self, most: int) -> bool:
        """Holds up to `most` bytes for the next read; returns whether there is room."""
        self.hold(0)
        size_bytes = 0 if self._all.waiting else self._all.readable(most)
        self.hold(size_bytes)
        return size_bytes > 0

    async def reserve_or(self, most: int, signal: asyncio.Event) -> bool:
        """Reserves like reserve(), and waits for room until `signal` is set."""
        if self.reserve(most):
            return True
        room = self._all.room_for(self, most)
        other = asyncio.ensure_future(signal.wait())
        try:
            await asyncio.wait((room, other), return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            # Room may have been given that is not used.
            self.hold(0)
            raise
        finally:
            other.cancel()
            # No effect if room was given: then it is held.
            room.cancel()
            self._all.serve_waiting()
        return not room.cancelled()

    def sending(self) -> None:
        """Notes that its bytes are being sent to the client."""
        self.sending_since_s = _now_s()

    def sent(self) -> None:
        """Notes that the client has received them."""
        self.sending_since_s = None

    def on_overrun(self, call: Callable[[], object]) -> None:
        """Sets the callback that ends the stream of a stalled client."""
        self._on_overrun = call

    def overrun(self, error: Overloaded) -> None:
        self.error = error
        self._on_overrun()

    def close(self) -> None:
        self._all.shares.discard(self)
        self.hold(0)


class Outgoing:
    """The limits of one broker."""

    def __init__(self, streams_max: int = STREAMS_MAX, bytes_max: int = BYTES_MAX) -> None:
        self.streams_max, self.bytes_max = streams_max, bytes_max
        self.streams = self.unsent_bytes = 0
        # Since the start: refused streams, and stalled streams that were ended.
        self.streams_refused = self.streams_ended = 0
        self.delayed = Places(DELAYED_ALL_MAX)
        self.shares: set[Share] = set()
        self.waiting: deque[tuple[asyncio.Future[None], Share, int]] = deque()
        self._looking: asyncio.Handle | None = None

    @contextmanager
    def stream(self) -> Iterator[None]:
        """Counts a stream while it is open. Raises Overloaded."""
        if self.streams >= self.streams_max:
            self.streams_refused += 1
            raise Overloaded(
                f"The broker has {self.streams} streams (of producers, consumers, readers and "
                "watchers), its limit: serve --streams-max. Close some, or try again later."
            )
        self.streams += 1
        try:
            yield
        finally:
            self.streams -= 1

    def share(self, shed: Callable[[], None] = _nothing) -> Share:
        return Share(self, shed)

    @property
    def has_room(self) -> bool:
        """Returns whether more may be held, and no stream waits for space."""
        return not self.waiting and self.readable(1) > 0

    def permits(self, size_bytes: int) -> bool:
        """Returns whether an answer of this size may be held. One that is alone always may."""
        return not self.unsent_bytes or self.unsent_bytes + size_bytes <= self.bytes_max

    def no_room_for(self, size_bytes: int) -> Overloaded:
        return Overloaded(
            f"The answer has {size_bytes} bytes, and clients have not read {self.unsent_bytes} "
            f"bytes; the limit is {self.bytes_max}: serve --unsent-max. Try again later."
        )

    # Called by shares only

    def readable(self, most: int) -> int:
        """Returns how much a share that holds nothing may read now; 0: there is no room."""
        room_bytes = self.bytes_max - self.unsent_bytes
        if room_bytes < READ_LEAST:
            return 0
        return min(most, max(room_bytes // READ_PART, READ_LEAST))

    def room_for(self, share: Share, most: int) -> asyncio.Future[None]:
        """Returns a future that is done when the share holds room, unless it is cancelled
        before.
        """
        loop = asyncio.get_running_loop()
        room = loop.create_future()
        self.waiting.append((room, share, most))
        if self._looking is None:
            self._looking = loop.call_soon(self._make_room)
        return room

    def serve_waiting(self) -> None:
        """Gives room to waiting shares, in order."""
        while self.waiting:
            room, share, most = self.waiting[0]
            if not room.done():
                size_bytes = self.readable(most)
                if not size_bytes:
                    return
                share.hold(size_bytes)
                room.set_result(None)
            self.waiting.popleft()

    def _make_room(self) -> None:
        """Makes room at once, then periodically while a share waits."""
        self._looking = None
        self.serve_waiting()
        if self.waiting:
            for share in tuple(self.shares):
                share.shed()
        if self.waiting:
            self._end_stalled()
            self._looking = asyncio.get_running_loop().call_later(_CHECK_S, self._make_room)

    def _end_stalled(self) -> None:
        """Ends as many stalled streams as the waiting ones need."""
        waiting_bytes = sum(most for room, _, most in self.waiting if not room.done())
        now_s = _now_s()
        stalled = [
            each for each in self.shares if each.size_bytes and _sends_for(each, now_s) > STALLED_S
        ]
        for share in sorted(stalled, key=lambda each: each.sending_since_s or 0.0):
            if waiting_bytes <= 0:
                return
            if share.error is None:
                self.streams_ended += 1
                share.overrun(self._too_slow(share, now_s))
            waiting_bytes -= share.size_bytes

    def _too_slow(self, share: Share, now_s: float) -> Overloaded:
        return Overloaded(
            f"The client has read none of {share.size_bytes} bytes for "
            f"{_sends_for(share, now_s):.0f} s, and all streams together hold {self.unsent_bytes} "
            f"unread bytes; the limit is {self.bytes_max}: serve --unsent-max. Read "
            "the requested messages, or request fewer at once."
        )


def _sends_for(share: Share, now_s: float) -> float:
    return 0.0 if share.sending_since_s is None else now_s - share.sending_since_s


def _now_s() -> float:
    return asyncio.get_running_loop().time()
