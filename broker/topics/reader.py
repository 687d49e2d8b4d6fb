"""A connected reader: a position in a view of its topic, and nothing that outlives its stream.

Whoever serves the stream hands on what the client asks (permits, checks, seeks), and takes what to
tell it. Whether there is more is answered by what also gives the entries: either entries come
first, or there is none.

What was read ahead of the permits is of a view. When a run puts another one in its place, and the
reader does not keep the one it began with (broker/subscriptions/route.py), it is dropped and read
again.

Bounds: READ_BYTES_MAX of entries are held between the log and the stream, and of all streams what
broker/ground/outgoing.py says. What was read ahead is dropped where others need the room.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple, Protocol

from ledgerfold.broker.ground.clock import Clock
from ledgerfold.broker.ground.names import COMPACTION_CURSOR
from ledgerfold.broker.ground.outgoing import READ_LEAST, Outgoing
from ledgerfold.broker.ground.traffic import Peer, Traffic
from ledgerfold.broker.log.log import TopicLog
from ledgerfold.broker.log.view import RAW
from ledgerfold.broker.policies.profiles import Emulation
from ledgerfold.broker.subscriptions.route import Route, StoredEntry
from ledgerfold.broker.subscriptions.subscription import Subscription
from ledgerfold.storage.entry import EARLIEST, Position
from ledgerfold.storage.errors import LedgerfoldError, NotAllowed, Overloaded, SubscriptionBusy
from ledgerfold.v1.data_pb2 import StartPosition

READ_BYTES_MAX = 1024 * 1024
# Questions for more that have no answer; a client of this package has one.
CHECKS_MAX = 10_000


class ReadTopic(Protocol):
    """What a reader needs of its topic (broker/topics/topic.py)."""

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
    """`is_raw`: it comes back, and had passed the horizon of its view before (Told.IS_RAW)."""

    read_compacted: bool = False
    is_raw: bool = False
    # Stats show it; "": a name is made up.
    name: str = ""
    # Nobody else reads under it meanwhile; "": a name is made up.
    subscription: str = ""


class Entries(NamedTuple):
    """The next ones, at least one."""

    entries: list[StoredEntry]


class Checked(NamedTuple):
    """The answer to these checks."""

    check_ids: list[int]
    has_more: bool


class Sought(NamedTuple):
    """What follows is from where that seek led. `first_offset`: of a Kafka topic."""

    seek_id: int
    first_offset: int = 0


class Told(Enum):
    # It has passed the horizon of its view for good: if it comes back, it is to say so.
    IS_RAW = auto()
    # The topic was terminated: no more will ever come.
    END_OF_TOPIC = auto()


Step = Entries | Checked | Sought | Told


async def open_reader(topic: ReadTopic, start: StartPosition, options: ReaderOptions) -> Reader:
    """Connected until it is detached. Raises NotAllowed, SubscriptionBusy, what the log raises."""
    _check_free(topic, options.subscription)
    reader = Reader(topic, options)
    await reader.move(start)
    # Others may have come meanwhile.
    _check_free(topic, options.subscription)
    topic.readers.add(reader)
    topic.log.on_closed.add(reader.wake)
    return reader


def _check_free(topic: ReadTopic, name: str) -> None:
    """As Pulsar's readers, which have an exclusive subscription that is not durable.

    Raises NotAllowed, SubscriptionBusy.
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
    """Belongs to one stream. Made by open_reader."""

    def __init__(self, topic: ReadTopic, options: ReaderOptions) -> None:
        # Pulsar's readers have a subscription of such a name.
        self.subscription = options.subscription or f"reader-{secrets.token_hex(5)}"
        self.name = options.name or self.subscription
        # Who opened the stream says it.
        self.peer = Peer()
        self.traffic = Traffic()
        self.read_compacted = options.read_compacted
        self.permits = 0
        self._topic, self.log = topic, topic.log
        self._route = self._new_route(is_raw=options.is_raw)
        # After a seek by time that looked at raw ledgers only: what lies before it is passed over.
        self._raw_from = EARLIEST
        # Of what is given next; behind it lies what was read ahead, which is of `_buffer_view`.
        self._position = Position(-1, -1)
        self._checks: list[int] = []
        self._seek: tuple[StartPosition, int] | None = None
        self._buffered: deque[StoredEntry] = deque()
        # What of `share` is for those, and for what is being sent.
        self._ahead_bytes = self._given_bytes = 0
        self.share = topic.outgoing.share(self._shed)
        self._buffer_view, self._behind_buffer = RAW, Position(-1, -1)
        self._asked = asyncio.Event()
        self._is_finished = False
        self._has_told_end = False
        self._error: LedgerfoldError | None = None

    @property
    def held_position(self) -> Position | None:
        """The first raw entry that trimming must leave to it though a run has overtaken it."""
        return self._route.held_position(self._position, self.log.horizon)

    @property
    def read_position(self) -> Position:
        """Of the entry that is given next."""
        return self._position

    # What the client asks

    def add_permits(self, messages: int) -> None:
        self.permits += messages
        self._asked.set()

    def check(self, check_id: int) -> None:
        """Whether there is more: take() answers."""
        if len(self._checks) >= CHECKS_MAX:
            self.end(Overloaded(f"{CHECKS_MAX} questions for more wait for their answer."))
            return
        self._checks.append(check_id)
        self._asked.set()

    def seek(self, start: StartPosition, seek_id: int) -> None:
        """take() tells when it has moved. One that did not come to its turn is forgotten."""
        self._seek = start, seek_id
        self._asked.set()

    def finish(self) -> None:
        """The client has nothing more to say: it is leaving."""
        self._is_finished = True
        self._asked.set()

    # What ends it

    def end(self, error: LedgerfoldError) -> None:
        """The stream is to end with `error`."""
        self._error = self._error or error
        self._asked.set()

    def wake(self) -> None:
        """To look again: the topic may have come to its end."""
        self._asked.set()

    def detach(self) -> None:
        """Disconnects it: nothing is held for it any more."""
        self.share.close()
        self._topic.readers.discard(self)
        self.log.on_closed.discard(self.wake)
        self._route.close()

    # What it is given

    async def take(self) -> list[Step] | None:
        """What to tell the client next, in order: waits for it. None: the stream is to end.

        What it gave before has been sent then. Raises what it was ended with, what closed the log,
        and what the log raises.
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
        """For what is read next; False: there is something else to do before."""
        self._ahead_bytes = 0
        return await self.share.reserve_or(READ_BYTES_MAX, self._asked)

    def _shed(self) -> None:
        """Others need the room: what was read ahead is read again when it is asked for."""
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
        """To a start position, by the rule of the profile (docs/PROFILES.md, rule 8.11)."""
        self._raw_from = EARLIEST
        is_exact = self._topic.emulation().seek_by_time_reads_view
        if start.WhichOneof("at") != "publish_time_ms" or is_exact or not self.read_compacted:
            self._position, _ = await self.log.resolve_start(start, self.read_compacted)
        else:
            self._raw_from, _ = await self.log.resolve_start(start, False)
            self._position = EARLIEST if self.log.horizon is not None else self._raw_from

    async def _next_steps(self) -> list[Step]:
        # Checks that were there before the read are answered by what it finds.
        checks, self._checks = self._checks, []
        if self._buffered and self._route.view(self._position, self.log) is not self._buffer_view:
            self._buffered.clear()
        steps = list[Step]()
        if not self._buffered and await self._fill():
            steps.append(Told.IS_RAW)
        chunk = self._next_chunk()
        if chunk:
            self._count(chunk)
            steps.append(Entries(chunk))
            if self._move_on(len(chunk)):
                steps.append(Told.IS_RAW)
        elif self.log.is_terminated and not self._has_told_end:
            self._has_told_end = True
            steps.append(Told.END_OF_TOPIC)
        if checks:
            steps.append(Checked(checks, has_more=bool(chunk)))
        return steps

    async def _fill(self) -> bool:
        """Reads on until there is an entry, or no more; whether it has passed the horizon."""
        is_over = has_passed = False
        while not (self._buffered or is_over):
            view = self._route.view(self._position, self.log)
            if view.horizon is None or self._position > view.horizon:
                self._position = max(self._position, self._raw_from)
            bytes_max = max(self.share.held, READ_LEAST)
            result, self._buffer_view = await self._route.read(
                self._position, self.log, bytes_max=bytes_max
            )
            self._behind_buffer = result.next_position
            self._buffered.extend(result.entries)
            self._ahead_bytes = bytes_max
            if not self._buffered:
                is_over = result.next_position == self._position
                has_passed |= self._move_on(0)
        return has_passed

    def _move_on(self, count: int) -> bool:
        """Behind `count` entries that go out; whether the reader has passed the horizon by that."""
        was_raw = self._route.is_raw
        buffered = self._buffered
        self._position = buffered[0].header.position if buffered else self._behind_buffer
        self._route.delivered(self._buffer_view, count, self._position)
        return self._route.is_raw and not was_raw

    def _next_chunk(self) -> list[StoredEntry]:
        """Of what was read ahead: as the permits allow, but an entry. A check stands for one."""
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
        # Roughly, for entries are not added up once more: never less than there is.
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
            # Also when the client has gone meanwhile: neither is to wait on.
            for each in waits:
                each.cancel()
            await asyncio.gather(*waits, return_exceptions=True)
        for each in done:
            each.result()
