"""The receipts of a connected producer, in order, once its entries are durable.

One for each entry, or for several that were appended together if the client accepts that.

Bounds: a producer's bytes in flight, refused entries and duplicates included, stay under
IN_FLIGHT_BYTES_MAX plus one entry plus one batch of appends (broker/rpc/publish.py). Above that the
stream is not read, which holds the client back.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from ledgerfold.broker.common.clock import ManualClock
from ledgerfold.broker.common.traffic import Peer
from ledgerfold.broker.log.state import LogState
from ledgerfold.broker.topics.loaded_topic import ServedTopic
from ledgerfold.storage.entry import Position
from ledgerfold.storage.errors import LedgerfoldError

IN_FLIGHT_BYTES_MAX = 8 * 1024 * 1024
# Returned at once: about a millisecond's work, and a message size that any client accepts.
RECEIPTS_MAX = 1000
NOWHERE = Position(-1, -1)


class Receipt(NamedTuple):
    """The receipt for an entry, or for `entries` at consecutive positions, and what it waits for.

    `position`: the first one's; NOWHERE if nothing was stored. `sequence_id`: the last one's.
    """

    position: Position
    sequence_id: int
    size_bytes: int
    # Due once this position is durable; None: at once, since nothing was ever appended.
    durable_at: Position | None
    # The reason for refusing this entry if that does not end the stream.
    refusal: LedgerfoldError | None = None
    entries: int = 1


class ReceiptQueue:
    """The pending receipts of one stream, and what producers of all kinds of topics share.

    `on_detached`: called with the producer when it is disconnected.
    """

    def __init__(
        self, topic: ServedTopic, state: LogState, name: str, on_detached: Callable[[Any], object]
    ) -> None:
        self.name = name
        self._topic, self._on_detached = topic, on_detached
        self._entry_bytes_max = topic.entry_bytes_max
        # On a manual clock the producer's own time has no meaning.
        self._manual_clock = topic.clock if isinstance(topic.clock, ManualClock) else None
        # Set by the stream handler.
        self.peer = Peer()
        self._waiting: deque[Receipt] = deque()
        self._in_flight_bytes = 0
        self._changed = asyncio.Event()
        self._room = asyncio.Event()
        self._error: LedgerfoldError | None = None
        self._is_finished = False
        self._log_state = state
        state.on_durable.add(self._changed.set)

    def emulated_now_ms(self) -> int | None:
        """Returns the publish time of new entries; None: their producer's."""
        return None if self._manual_clock is None else self._manual_clock.now_ms()

    def check(self) -> None:
        """Raises the error that ended the producer."""
        if self._error is not None:
            raise self._error

    def add(self, receipt: Receipt, *, is_new: bool = True) -> None:
        """Queues a receipt.

        `is_new`: an entry was appended, and the log signals when it is durable.
        """
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
        """Returns the next 1 to RECEIPTS_MAX receipts.

        None once the stream is finished and all were sent.
        Raises the error that ended the producer or failed the log.
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
        """Notes that the client sends no more: receipts() ends once all are sent."""
        self._is_finished = True
        self._changed.set()

    def end(self, error: LedgerfoldError) -> None:
        """Ends the stream with `error`."""
        self._error = self._error or error
        self._room.set()
        self._changed.set()

    def detach(self) -> None:
        """Disconnects the producer."""
        self._log_state.on_durable.discard(self._changed.set)
        self._on_detached(self)
