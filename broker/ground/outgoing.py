"""What all streams of a broker hold: how many there are, and bytes that were read and not sent yet.

A client that asks for messages and takes none of them costs memory, and so do ten thousand that are
slow for a moment. Both have a bound for the whole broker:

* A stream above `streams_max` is refused (Overloaded).
* Nobody reads on while `bytes_max` are held, and the less room there is, the less is read at once.
  Who wants to read waits for room, in order, while those who have it send: that takes milliseconds.
  Meanwhile what was read ahead of what clients ask for is dropped, to be read again; and whoever
  has been sending for STALLED_S is ended, the longest first: its client takes nothing.

    >>> outgoing = Outgoing(streams_max=1, bytes_max=READ_LEAST)
    >>> share, other = outgoing.share(), outgoing.share()
    >>> share.reserve(READ_LEAST), other.reserve(READ_LEAST)
    (True, False)
    >>> share.hold(0)
    >>> other.reserve(READ_LEAST), other.held == outgoing.unsent_bytes == READ_LEAST
    (True, True)

All of it runs on one event loop.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ledgerfold.storage.errors import Overloaded

STREAMS_MAX = 20_000
BYTES_MAX = 256 * 1024 * 1024
# Of the bound on bytes: an entry of the largest size has room in it.
BYTES_MAX_LEAST = 16 * 1024 * 1024
STALLED_S = 5.0
# A read gets this part of the room that there is, and no less than that.
READ_PART, READ_LEAST = 64, 64 * 1024
# How often those who wait look whether there is somebody to end.
_LOOK_S = 0.5


def _nothing() -> None:
    """A share that has nothing to drop."""


class Share:
    """Of one stream, or of what reads for several. `held`: its bytes."""

    __slots__ = ("_all", "_on_overrun", "error", "held", "sending_since_s", "shed")

    def __init__(self, of: Outgoing, shed: Callable[[], None]) -> None:
        """`shed`: drops what was read ahead, and holds what is left then."""
        self._all, self.shed = of, shed
        self.held = 0
        # Since when what it holds is being sent; None: it waits for its client to ask.
        self.sending_since_s: float | None = None
        # Why it was ended.
        self.error: Overloaded | None = None
        self._on_overrun: Callable[[], object] = _nothing
        of.shares.add(self)

    def hold(self, size_bytes: int) -> None:
        """It holds so many, from now on."""
        given = self.held - size_bytes
        self.held = size_bytes
        self._all.unsent_bytes -= given
        if given > 0 and self._all.waiting:
            self._all.give_room()

    def reserve(self, most: int) -> bool:
        """Holds what may be read next, up to so many bytes, if there is room."""
        self.hold(0)
        size_bytes = 0 if self._all.waiting else self._all.readable(most)
        self.hold(size_bytes)
        return size_bytes > 0

    async def reserve_or(self, most: int, asked: asyncio.Event) -> bool:
        """As reserve(), and waits for room until `asked` is set."""
        if self.reserve(most):
            return True
        room = self._all.room_for(self, most)
        other = asyncio.ensure_future(asked.wait())
        try:
            await asyncio.wait((room, other), return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            # Room may have been given, and nobody reads.
            self.hold(0)
            raise
        finally:
            other.cancel()
            # Without effect when there is room: it is held then.
            room.cancel()
            self._all.give_room()
        return not room.cancelled()

    def sending(self) -> None:
        """What it holds is handed to the client."""
        self.sending_since_s = _now_s()

    def sent(self) -> None:
        """The client has taken it."""
        self.sending_since_s = None

    def on_overrun(self, call: Callable[[], object]) -> None:
        """Called when the stream is to end, though its client takes nothing."""
        self._on_overrun = call

    def overrun(self, error: Overloaded) -> None:
        self.error = error
        self._on_overrun()

    def close(self) -> None:
        self._all.shares.discard(self)
        self.hold(0)


class Outgoing:
    """One per broker."""

    def __init__(self, streams_max: int = STREAMS_MAX, bytes_max: int = BYTES_MAX) -> None:
        self.streams_max, self.bytes_max = streams_max, bytes_max
        self.streams = self.unsent_bytes = 0
        # Since the start: streams that were refused, and that were ended for taking nothing.
        self.streams_refused = self.streams_ended = 0
        self.shares: set[Share] = set()
        self.waiting: deque[tuple[asyncio.Future[None], Share, int]] = deque()
        self._looking: asyncio.Handle | None = None

    @contextmanager
    def stream(self) -> Iterator[None]:
        """A stream, as long as it is open. Raises Overloaded."""
        if self.streams >= self.streams_max:
            self.streams_refused += 1
            raise Overloaded(
                f"The broker serves {self.streams} streams (of producers, consumers, readers and "
                "watchers), and takes no more: serve --streams-max. Close some, or try again later."
            )
        self.streams += 1
        try:
            yield
        finally:
            self.streams -= 1

    def share(self, shed: Callable[[], None] = _nothing) -> Share:
        return Share(self, shed)

    # Of the shares alone

    def readable(self, most: int) -> int:
        """How much somebody may read now, who holds nothing; 0: there is no room."""
        room_bytes = self.bytes_max - self.unsent_bytes
        if room_bytes < READ_LEAST:
            return 0
        return min(most, max(room_bytes // READ_PART, READ_LEAST))

    def room_for(self, share: Share, most: int) -> asyncio.Future[None]:
        """Done when the share holds it. Who cancels it before does not hold it."""
        loop = asyncio.get_running_loop()
        room = loop.create_future()
        self.waiting.append((room, share, most))
        if self._looking is None:
            self._looking = loop.call_soon(self._make_room)
        return room

    def give_room(self) -> None:
        """To those who wait, in order."""
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
        """At once, and every now and then as long as somebody waits."""
        self._looking = None
        self.give_room()
        if self.waiting:
            for share in tuple(self.shares):
                share.shed()
        if self.waiting:
            self._end_stalled()
            self._looking = asyncio.get_running_loop().call_later(_LOOK_S, self._make_room)

    def _end_stalled(self) -> None:
        """As many as hold what those need who wait."""
        wanted = sum(most for room, _, most in self.waiting if not room.done())
        now_s = _now_s()
        stalled = [
            each for each in self.shares if each.held and _sends_for(each, now_s) > STALLED_S
        ]
        for share in sorted(stalled, key=lambda each: each.sending_since_s or 0.0):
            if wanted <= 0:
                return
            if share.error is None:
                self.streams_ended += 1
                share.overrun(self._too_slow(share, now_s))
            wanted -= share.held

    def _too_slow(self, share: Share, now_s: float) -> Overloaded:
        return Overloaded(
            f"The client has taken nothing of {share.held} bytes for "
            f"{_sends_for(share, now_s):.0f} s, and all streams together hold {self.unsent_bytes} "
            f"bytes that were not taken; {self.bytes_max} is the most: serve --unsent-max. Read "
            "what was asked for, or ask for less at once."
        )


def _sends_for(share: Share, now_s: float) -> float:
    return 0.0 if share.sending_since_s is None else now_s - share.sending_since_s


def _now_s() -> float:
    return asyncio.get_running_loop().time()
