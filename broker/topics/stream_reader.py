"""The common part of readers of both kinds of topics: requests, permits, room and steps.

The stream handler passes on the client's requests (permits, checks, seeks) and takes the steps to
send. The entries and the answer to "is there more?" come from the same read: either entries are
sent first, or there are none.

Bounds: at most READ_BYTES_MAX of entries are held between the log and the stream, and over all
streams the limit of broker/common/outgoing.py. Entries read ahead are dropped when others need the
room.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from enum import Enum, auto
from typing import Generic, NamedTuple, TypeVar

from ledgerfold.broker.common.traffic import Peer, Traffic
from ledgerfold.broker.log.state import LogState
from ledgerfold.broker.topics.loaded_topic import ServedTopic
from ledgerfold.storage.errors import LedgerfoldError, Overloaded
from ledgerfold.storage.ledger import StoredEntry
from ledgerfold.v1.data_pb2 import StartPosition

READ_BYTES_MAX = 1024 * 1024
# Unanswered checks; a client of this package has one at a time.
CHECKS_MAX = 10_000
Read = TypeVar("Read")


class Entries(NamedTuple):
    """The next entries, at least one."""

    entries: list[StoredEntry]


class Checked(NamedTuple):
    """The answer to the checks `check_ids`."""

    check_ids: list[int]
    has_more: bool


class Sought(NamedTuple):
    """A completed seek: later steps are from its target. `first_offset`: on a Kafka topic."""

    seek_id: int
    first_offset: int = 0


class Notice(Enum):
    # It has passed the horizon of its view permanently, and must report this when it reconnects.
    IS_RAW = auto()
    # The topic was terminated: no more entries will follow.
    END_OF_TOPIC = auto()


Step = Entries | Checked | Sought | Notice


class StreamReader(ABC, Generic[Read]):
    """A reader that belongs to one stream. `Read`: the type of read-ahead data."""

    def __init__(self, topic: ServedTopic, state: LogState, name: str) -> None:
        self.name = name
        # Set by the stream handler.
        self.peer = Peer()
        self.traffic = Traffic()
        self.permits = 0
        # On a Kafka topic: earlier records of the first batch are not the reader's.
        self.first_offset = 0
        self._topic, self._state = topic, state
        self._checks: list[int] = []
        self._seek: tuple[StartPosition, int] | None = None
        self._buffered: deque[Read] = deque()
        # The parts of `share` for entries read ahead and for entries being sent.
        self._ahead_bytes = self._given_bytes = 0
        self.share = topic.outgoing.share(self._shed)
        self._requested = asyncio.Event()
        self._is_finished = False
        self._error: LedgerfoldError | None = None

    # Requests of the client

    def add_permits(self, messages: int) -> None:
        self.permits += messages
        self.traffic.last_flow_ms = self._topic.clock.now_ms()
        self._requested.set()

    def check(self, check_id: int) -> None:
        """Asks whether more entries exist; take() returns the answer."""
        if len(self._checks) >= CHECKS_MAX:
            self.end(Overloaded(f"{CHECKS_MAX} checks for more entries are unanswered."))
            return
        self._checks.append(check_id)
        self._requested.set()

    def seek(self, start: StartPosition, seek_id: int) -> None:
        """Requests a seek; take() reports it when done. A new seek replaces a pending one."""
        self._seek = start, seek_id
        self._requested.set()

    def finish(self) -> None:
        """Notes that the client has finished sending: it is leaving."""
        self._is_finished = True
        self._requested.set()

    # Ending

    def end(self, error: LedgerfoldError) -> None:
        """Makes the stream end with `error`."""
        self._error = self._error or error
        self._requested.set()

    def wake(self) -> None:
        """Makes take() check again: the topic may have ended."""
        self._requested.set()

    def detach(self) -> None:
        """Disconnects the reader and releases what is held for it."""
        self.share.close()
        self._state.on_closed.discard(self.wake)

    # Steps for the client

    async def take(self) -> list[Step] | None:
        """Waits for and returns the next steps for the client, in order.

        None if the stream is to end.
        Everything returned before has been sent by then. Raises the error of end(), the error that
        closed the log, and what the log raises.
        """
        self.share.sent()
        self._given_bytes = 0
        while not self._is_finished:
            self.share.hold(self._ahead_bytes)
            error = self._error or self._state.closed
            if error is not None:
                raise error
            # Data that become readable from here on may wake it, even while it reads.
            self._requested.clear()
            if self._seek is not None:
                return [await self._do_seek(*self._seek)]
            if self.permits > 0 or self._checks:
                if not (self._buffered or await self._has_room()):
                    continue
                steps = await self._next_steps()
                if steps:
                    self.share.sending()
                    return steps
                self.share.hold(0)
                await self._wait_for_more()
            else:
                await self._requested.wait()
        return None

    async def _has_room(self) -> bool:
        """Reserves room for the next read; returns False if there is something else to do first."""
        self._ahead_bytes = 0
        return await self.share.reserve_or(READ_BYTES_MAX, self._requested)

    def _shed(self) -> None:
        """Drops what was read ahead, because others need the room; it is read again when needed."""
        self._drop_ahead()
        self.share.hold(self._given_bytes)

    def _drop_ahead(self) -> None:
        self._buffered.clear()
        self._ahead_bytes = 0

    async def _do_seek(self, start: StartPosition, seek_id: int) -> Step:
        self._seek = None
        self._drop_ahead()
        await self.move(start)
        return Sought(seek_id, self.first_offset)

    @abstractmethod
    async def move(self, start: StartPosition) -> None:
        """Moves to a start position. Raises what the log raises."""

    @abstractmethod
    async def _next_steps(self) -> list[Step]:
        """Reads, and returns entries, answers to checks and notices; none if there is no more."""

    async def _wait_for_more(self) -> None:
        """Returns when there may be more, or a request has arrived."""
        await self._requested.wait()

    def _count(self, messages: int, entries: int, size_bytes: int) -> None:
        """Counts entries that are sent next."""
        now_ms = self._topic.clock.now_ms()
        sent = Traffic(messages, entries, size_bytes, last_sent_ms=now_ms)
        self.traffic = self.traffic.plus(sent)
        self._topic.count_out(sent)
        # An upper estimate: the remaining entries are not summed again.
        self._ahead_bytes = max(0, self._ahead_bytes - size_bytes) if self._buffered else 0
        self._given_bytes = size_bytes
        self.share.hold(self._ahead_bytes + size_bytes)
