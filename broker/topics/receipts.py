"""What a connected producer is told: a receipt for each entry, in order, once it is durable.

Bounds: what a producer has in flight, what was refused or is a duplicate among it, stays under
IN_FLIGHT_BYTES_MAX plus an entry and what is appended at once (broker/rpc/publish.py); above it the
stream is not read on, which holds the client back.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import NamedTuple

from ledgerfold.broker.common.traffic import Peer
from ledgerfold.broker.log.state import LogState
from ledgerfold.storage.entry import Position
from ledgerfold.storage.errors import LedgerfoldError

IN_FLIGHT_BYTES_MAX = 8 * 1024 * 1024
# Given at once: about a millisecond's work, and a message that any client takes.
RECEIPTS_MAX = 1000
NOWHERE = Position(-1, -1)


class Receipt(NamedTuple):
    """Of one entry, and what it waits for. `position`: NOWHERE, if nothing was stored."""

    position: Position
    sequence_id: int
    size_bytes: int
    # Durable from here on; None: nothing was ever appended to wait for.
    durable_at: Position | None
    # Why this entry was refused, where that ends nothing.
    refusal: LedgerfoldError | None = None


class ReceiptQueue:
    """Belongs to one stream, which takes what a producer of either kind of topic adds."""

    def __init__(self, state: LogState) -> None:
        # Who opened the stream says it.
        self.peer = Peer()
        self._waiting: deque[Receipt] = deque()
        self._in_flight_bytes = 0
        self._changed = asyncio.Event()
        self._room = asyncio.Event()
        self._error: LedgerfoldError | None = None
        self._is_finished = False
        self._log_state = state
        state.on_durable.add(self._changed.set)

    def check(self) -> None:
        """Raises what ended the producer."""
        if self._error is not None:
            raise self._error

    def add(self, receipt: Receipt, *, is_new: bool = True) -> None:
        """`is_new`: something was appended, and the log will tell when it is durable."""
        self._waiting.append(receipt)
        self._in_flight_bytes += receipt.size_bytes
        if not is_new:
            self._changed.set()

    async def has_room(self) -> None:
        """Returns when the next frame may be read."""
        while self._in_flight_bytes >= IN_FLIGHT_BYTES_MAX and self._error is None:
            self._room.clear()
            await self._room.wait()

    async def receipts(self) -> list[Receipt]:
        """The next ones, 1 to RECEIPTS_MAX; none when the stream is finished and all were given.

        Raises what ended the producer or made the log fail.
        """
        while True:
            ready = self._take_durable()
            if ready:
                return ready
            error = self._error or self._log_state.failure
            if error is not None:
                self.end(error)
                raise error
            if self._is_finished and not self._waiting:
                return []
            self._changed.clear()
            await self._changed.wait()

    def _take_durable(self) -> list[Receipt]:
        durable, ready = self._log_state.last_durable, list[Receipt]()
        while self._waiting and len(ready) < RECEIPTS_MAX:
            waiting = self._waiting[0]
            if waiting.durable_at is not None and (durable is None or waiting.durable_at > durable):
                break
            self._waiting.popleft()
            self._in_flight_bytes -= waiting.size_bytes
            ready.append(waiting)
        if ready:
            self._room.set()
        return ready

    def finish(self) -> None:
        """The client sends no more: receipts() ends once all are given."""
        self._is_finished = True
        self._changed.set()

    def end(self, error: LedgerfoldError) -> None:
        """Ends the stream with `error`."""
        self._error = self._error or error
        self._room.set()
        self._changed.set()

    def close(self) -> None:
        self._log_state.on_durable.discard(self._changed.set)
