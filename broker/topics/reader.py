"""A connected reader: a position in a view of its topic, with no state after its stream ends.

The stream handler passes on the client's requests (permits, checks, seeks) and takes the steps to
send. The entries and the answer to "is there more?" come from the same read: either entries are
sent first, or there are none.

Entries read ahead of the permits belong to one view. When a run replaces the view, and the reader
does not keep the old one (broker/subscriptions/route.py), they are dropped and read again.

Bounds: at most READ_BYTES_MAX of entries are held between the log and the stream, and over all
streams the limit of broker/common/outgoing.py. Entries read ahead are dropped when others need the
room.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple, Protocol

from ledgerfold.broker.common.clock import Clock
from ledgerfold.broker.common.names import COMPACTION_CURSOR
from ledgerfold.broker.common.outgoing import READ_LEAST, Outgoing
from ledgerfold.broker.common.traffic import Peer, Traffic
from ledgerfold.broker.log.log import TopicLog
from ledgerfold.broker.log.view import RAW
from ledgerfold.broker.policies.profiles import Emulation
from ledgerfold.broker.subscriptions.route import Route, StoredEntry
from ledgerfold.broker.subscriptions.subscription import Subscription
from ledgerfold.storage.entry import EARLIEST, Position
from ledgerfold.storage.errors import LedgerfoldError, NotAllowed, Overloaded, SubscriptionBusy
from ledgerfold.v1.data_pb2 import StartPosition

READ_BYTES_MAX = 1024 * 1024
# Unanswered checks; a client of this package has one at a time.
CHECKS_MAX = 10_000


class ReadTopic(Protocol):
    """The part of a topic that a reader uses (broker/topics/topic.py)."""

    @property
    def name(self) -> str: ...
    @property
    def subscriptions(self) -> Mapping[str, Subscription]: ...
    @property
    def log(self) -> TopicLog: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def readers(self) -> set[Reader]: ...
    @property
    def outgoing(self) -> Outgoing: ...
    def emulation(self) -> Emulation: ...
    def count_out(self, sent: Traffic) -> None: ...


@dataclass(frozen=True)
class ReaderOptions:
    """The options of a reader.

    `is_raw`: a reconnecting reader that has passed the horizon of its view (Notice.IS_RAW).
    """

    read_compacted: bool = False
    is_raw: bool = False
    # Shown in stats; "": a name is generated.
    name: str = ""
    # Exclusive while connected; "": a name is generated.
    subscription: str = ""


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
    # It has passed the horizon of its view permanently and must say so when it reconnects.
    IS_RAW = auto()
    # The topic was terminated: no more entries will follow.
    END_OF_TOPIC = auto()


Step = Entries | Checked | Sought | Notice


async def open_reader(topic: ReadTopic, start: StartPosition, options: ReaderOptions) -> Reader:
    """Connects a reader until it is detached.

    Raises NotAllowed, SubscriptionBusy, and what the log raises.
    """
    _check_free(topic, options.subscription)
    reader = Reader(topic, options)
    await reader.move(start)
    # Another reader may have connected meanwhile.
    _check_free(topic, options.subscription)
    topic.readers.add(reader)
    topic.log.on_closed.add(reader.wake)
    return reader


def _check_free(topic: ReadTopic, name: str) -> None:
    """Checks that a reader may use the subscription name.

    Pulsar's readers have an exclusive, non-durable subscription. Raises NotAllowed,
    SubscriptionBusy.
    """
    subscription = topic.subscriptions.get(name)
    if name == COMPACTION_CURSOR or (subscription is not None and subscription.is_durable):
        raise NotAllowed(
            f"{name!r} is a durable subscription of {topic.name}: a reader or table view needs "
            "another name."
        )
    if subscription is not None:
        raise SubscriptionBusy(topic.name, name, "a consumer is connected.")
    if any(each.subscription == name for each in topic.readers):
        why = "another reader or table view is connected under that name."
        raise SubscriptionBusy(topic.name, name, why)


class Reader:
    """A reader that belongs to one stream. Created by open_reader()."""

    def __init__(self, topic: ReadTopic, options: ReaderOptions) -> None:
        # Pulsar's readers have a subscription with a name like this.
        self.subscription = options.subscription or f"reader-{secrets.token_hex(5)}"
        self.name = options.name or self.subscription
        # Set by the stream handler.
        self.peer = Peer()
        self.traffic = Traffic()
        self.read_compacted = options.read_compacted
        self.permits = 0
        self._topic, self.log = topic, topic.log
        self._route = self._new_route(is_raw=options.is_raw)
        # Set by a seek by time in raw ledgers only: earlier raw entries are skipped.
        self._raw_from = EARLIEST
        # The next position; entries read ahead follow it and belong to `_buffer_view`.
        self._position = Position(-1, -1)
        self._checks: list[int] = []
        self._seek: tuple[StartPosition, int] | None = None
        self._buffered: deque[StoredEntry] = deque()
        # The parts of `share` for entries read ahead and for entries being sent.
        self._ahead_bytes = self._given_bytes = 0
        self.share = topic.outgoing.share(self._shed)
        self._buffer_view, self._after_buffer = RAW, Position(-1, -1)
        self._asked = asyncio.Event()
        self._is_finished = False
        self._has_told_end = False
        self._error: LedgerfoldError | None = None

    @property
    def held_position(self) -> Position | None:
        """The first raw entry that trimming must keep for it although a run has overtaken it."""
        return self._route.held_position(self._position, self.log.horizon)

    @property
    def read_position(self) -> Position:
        """The position of the next entry."""
        return self._position

    # Requests of the client

    def add_permits(self, messages: int) -> None:
        self.permits += messages
        self._asked.set()

    def check(self, check_id: int) -> None:
        """Asks whether more entries exist; take() returns the answer."""
        if len(self._checks) >= CHECKS_MAX:
            self.end(Overloaded(f"{CHECKS_MAX} checks for more entries are unanswered."))
            return
        self._checks.append(check_id)
        self._asked.set()

    def seek(self, start: StartPosition, seek_id: int) -> None:
        """Requests a seek; take() reports it when done. A new seek replaces a pending one."""
        self._seek = start, seek_id
        self._asked.set()

    def finish(self) -> None:
        """Notes that the client has finished sending: it is leaving."""
        self._is_finished = True
        self._asked.set()

    # Ending

    def end(self, error: LedgerfoldError) -> None:
        """Makes the stream end with `error`."""
        self._error = self._error or error
        self._asked.set()

    def wake(self) -> None:
        """Makes take() look again: the topic may have ended."""
        self._asked.set()

    def detach(self) -> None:
        """Disconnects the reader and releases what is held for it."""
        self.share.close()
        self._topic.readers.discard(self)
        self.log.on_closed.discard(self.wake)
        self._route.close()

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
            error = self._error or self.log.closed
            if error is not None:
                raise error
            self._asked.clear()
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
                await self._asked.wait()
        return None

    async def _has_room(self) -> bool:
        """Reserves room for the next read; returns False if there is something else to do first."""
        self._ahead_bytes = 0
        return await self.share.reserve_or(READ_BYTES_MAX, self._asked)

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
        self._route.close()
        self._has_told_end = False
        self._route = self._new_route()
        await self.move(start)
        return Sought(seek_id)

    def _new_route(self, *, is_raw: bool = False) -> Route:
        return Route(self._topic.emulation(), read_compacted=self.read_compacted, is_raw=is_raw)

    async def move(self, start: StartPosition) -> None:
        """Moves to a start position by the profile's rule (docs/PROFILES.md, rule 8.11)."""
        self._raw_from = EARLIEST
        is_exact = self._topic.emulation().seek_by_time_reads_view
        if start.WhichOneof("at") != "publish_time_ms" or is_exact or not self.read_compacted:
            self._position, _ = await self.log.resolve_start(start, self.read_compacted)
        else:
            self._raw_from, _ = await self.log.resolve_start(start, False)
            self._position = EARLIEST if self.log.horizon is not None else self._raw_from

    async def _next_steps(self) -> list[Step]:
        # The read answers the checks that arrived before it.
        checks, self._checks = self._checks, []
        if self._buffered and self._route.view(self._position, self.log) is not self._buffer_view:
            self._buffered.clear()
        steps = list[Step]()
        if not self._buffered and await self._fill():
            steps.append(Notice.IS_RAW)
        chunk = self._next_chunk()
        if chunk:
            self._count(chunk)
            steps.append(Entries(chunk))
            if self._move_on(len(chunk)):
                steps.append(Notice.IS_RAW)
        elif self.log.is_terminated and not self._has_told_end:
            self._has_told_end = True
            steps.append(Notice.END_OF_TOPIC)
        if checks:
            steps.append(Checked(checks, has_more=bool(chunk)))
        return steps

    async def _fill(self) -> bool:
        """Reads until an entry or the end is found; returns whether it passed the horizon."""
        is_over = has_passed = False
        while not (self._buffered or is_over):
            view = self._route.view(self._position, self.log)
            if view.horizon is None or self._position > view.horizon:
                self._position = max(self._position, self._raw_from)
            bytes_max = max(self.share.held, READ_LEAST)
            result, self._buffer_view = await self._route.read(
                self._position, self.log, bytes_max=bytes_max
            )
            self._after_buffer = result.next_position
            self._buffered.extend(result.entries)
            self._ahead_bytes = bytes_max
            if not self._buffered:
                is_over = result.next_position == self._position
                has_passed |= self._move_on(0)
        return has_passed

    def _move_on(self, count: int) -> bool:
        """Moves past `count` entries to be sent; returns whether that passed the horizon."""
        was_raw = self._route.is_raw
        buffered = self._buffered
        self._position = buffered[0].header.position if buffered else self._after_buffer
        self._route.delivered(self._buffer_view, count, self._position)
        return self._route.is_raw and not was_raw

    def _next_chunk(self) -> list[StoredEntry]:
        """Takes entries read ahead while permits last. A check alone yields one entry."""
        chunk: list[StoredEntry] = []
        while self._buffered and (self.permits > 0 or not chunk):
            entry = self._buffered.popleft()
            self.permits -= entry.header.message_count
            chunk.append(entry)
        return chunk

    def _count(self, chunk: list[StoredEntry]) -> None:
        sent = Traffic(
            messages=sum(entry.header.message_count for entry in chunk),
            entries=len(chunk),
            bytes=sum(len(entry.data) for entry in chunk),
            last_sent_ms=self._topic.clock.now_ms(),
        )
        self.traffic = self.traffic.plus(sent)
        self._topic.count_out(sent)
        # An upper estimate: the remaining entries are not summed again.
        self._ahead_bytes = max(0, self._ahead_bytes - sent.bytes) if self._buffered else 0
        self._given_bytes = sent.bytes
        self.share.hold(self._ahead_bytes + sent.bytes)

    async def _wait_for_more(self) -> None:
        waits = {
            asyncio.ensure_future(self._asked.wait()),
            asyncio.ensure_future(self.log.wait_beyond(self._position)),
        }
        try:
            done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            # Even if the client has disconnected, neither may keep waiting.
            for each in waits:
                each.cancel()
            await asyncio.gather(*waits, return_exceptions=True)
        for each in done:
            each.result()
