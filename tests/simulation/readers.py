"""Readers that stay open, raw and compacted, from any position; they reconnect when disconnected.

What each must have seen is checked when the broker sends it, and whenever the broker reports that
there is no more (invariants b to g).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ledgerfold.broker.rpc.read import read
from ledgerfold.broker.wire.frames import BULK_FIELD, decode_field, is_bulk
from ledgerfold.storage.codec import decode
from ledgerfold.storage.entry import EARLIEST, LATEST, Position
from ledgerfold.storage.errors import CompactedLedgerDamaged, Corruption, MissingFile, TopicNotFound
from ledgerfold.storage.served_entry import read_served_header
from ledgerfold.v1 import data_pb2
from ledgerfold.v1.records_pb2 import MessageId
from tests.simulation.connections import Connection
from tests.simulation.life import Attempt, Topic
from tests.simulation.moments import DELIVERY

if TYPE_CHECKING:
    from tests.simulation.world import World

_HANDLER = read


class Seen:
    """The messages that one pass of a reader received, of one life of its topic."""

    def __init__(self, start: Position, *, read_compacted: bool) -> None:
        self.start, self.read_compacted = start, read_compacted
        self.last = EARLIEST
        self.entries: dict[Position, int] = {}
        # Key -> the last place at which it was seen, and whether it has a value then.
        self.keys: dict[bytes, tuple[Position, bool]] = {}
        self.takings = -1
        # It was disconnected, and tombstones may have been removed meanwhile.
        self.may_miss_tombstones = False


class Reader:
    """One reader; operations choose the `sizes` of permits."""

    def __init__(
        self, world: World, topic: str, name: str, start: Position, *, read_compacted: bool
    ) -> None:
        self._world, self.topic_name, self.name = world, topic, name
        self.read_compacted = read_compacted
        self._start, self._inclusive = start, True
        self.seen = Seen(start, read_compacted=read_compacted)
        self._topic: Topic | None = None
        self._connection: Connection | None = None
        self._permits = 0
        self._checks: dict[int, tuple[Topic | None, int, int]] = {}
        self._last_check = 0
        self._has_sent = False
        self._is_raw = False
        self._seek: data_pb2.ReadSeek | None = None
        self._seeks = 0
        self._seek_start = EARLIEST
        self._is_closed = False
        # Set when the broker has reported that there is no more, with nothing sent since.
        self.at_end = asyncio.Event()
        self.ended_with: Exception | None = None
        # The broker has reported the end of the topic; and has done so on this connection.
        self.has_ended, self._is_told_end = False, False
        self._task = world.client(self._run())

    @property
    def is_over(self) -> bool:
        return self._is_closed

    @property
    def is_settled(self) -> bool:
        """The broker reported that there is no more, and no question is open."""
        return self.at_end.is_set() and not self._checks and self._connection is not None

    # Operations

    def permit(self, messages: int) -> None:
        self._permits += messages
        self._send(data_pb2.ReadRequest(permits=messages))

    def check(self) -> None:
        """Asks whether there is more."""
        if self._connection is None:
            return
        self._last_check += 1
        topic = self._world.oracle.topics.get(self.topic_name)
        told = 0 if topic is None else len(topic.acked)
        self._checks[self._last_check] = (topic, told, self._seeks)
        self.at_end.clear()
        self._send(data_pb2.ReadRequest(check_id=self._last_check))

    def seek(self, position: Position) -> None:
        if self._connection is None or self._seek is not None:
            return
        self._seeks += 1
        self._seek_start = position
        start = start_at(position, inclusive=True)
        self._seek = data_pb2.ReadSeek(start=start, seek_id=self._seeks)
        self._world.note(f"{self.name} seeks to {position}")
        self._send(data_pb2.ReadRequest(seek=self._seek))

    def cut(self) -> None:
        if self._connection is not None:
            self._connection.cut()

    def close(self) -> None:
        self._is_closed = True
        if self._connection is not None:
            self._connection.finish()

    def _send(self, request: data_pb2.ReadRequest) -> None:
        if self._connection is not None:
            self._connection.send(request.SerializeToString())

    # The stream

    async def _run(self) -> None:
        while not self._is_closed:
            await self._world.is_up.wait()
            if not self._is_closed:
                await self._connect()
            await asyncio.sleep(self._world.random.random() * 0.1)

    async def _connect(self) -> None:
        self._check_life()
        if self.seen.entries:
            self.seen.may_miss_tombstones = True
        self._checks.clear()
        self._seek, self._has_sent, self._is_told_end = None, False, False
        connection = Connection(self._world, _HANDLER, self._on_sent)
        self._connection = connection
        opening = data_pb2.ReadOpen(
            reads_pulsar_entries=True,
            topic=self.topic_name,
            start=start_at(self._start, self._inclusive),
            read_compacted=self.read_compacted,
            is_raw=self._is_raw,
        )
        connection.send(data_pb2.ReadRequest(open=opening).SerializeToString())
        if self._permits > 0:
            self._send(data_pb2.ReadRequest(permits=self._permits))
        while not connection.closed:
            await connection.wait()
            while connection.inbox:
                connection.take()
        self._connection = None
        self.ended_with = connection.error
        if isinstance(connection.error, Corruption | MissingFile | CompactedLedgerDamaged):
            if not self._world.oracle.is_damaged:
                self._world.oracle.fail(f"{self.name} meets damage: {connection.error!r}")
            self._is_closed = True
        elif isinstance(connection.error, TopicNotFound):
            self._is_closed |= self._world.oracle.is_beyond(self.topic_name)

    def _check_life(self) -> None:
        """A deleted and recreated topic is another log."""
        topic = self._world.oracle.topics.get(self.topic_name)
        if topic is not self._topic:
            if self._topic is not None:
                self._start, self._inclusive, self._is_raw = EARLIEST, True, False
            self.has_ended = False
            self._topic = topic
            self.seen = Seen(self._start, read_compacted=self.read_compacted)

    def _on_ready(self) -> None:
        if self._world.oracle.topics.get(self.topic_name) is not self._topic:
            start = self._start if self._inclusive else self._start.next
            self._check_life()
            # It was requested to begin there, in any log.
            self.seen.start = max(start, self.seen.start)

    def _on_sent(self, frame: bytes) -> None:
        if is_bulk(frame):
            for entry in decode_field(frame, BULK_FIELD):
                self._on_entry(bytes(entry))
            return
        response = data_pb2.ReadResponse.FromString(frame)
        if response.HasField("ready"):
            self._on_ready()
        if response.is_raw:
            self._is_raw = True
        if response.seek_id:
            self._seek = None
            self._is_raw = False
            self._start, self._inclusive = self._seek_start, True
            self.seen = Seen(self._seek_start, read_compacted=self.read_compacted)
            self.has_ended = self._is_told_end = False
        if response.end_of_topic:
            self._on_end_of_topic()
        for number in response.more_check_ids:
            if not self._has_sent:
                self._world.oracle.fail(f"{self.name}: more was promised, and nothing came (g)")
            self._checks.pop(number, None)
        for number in response.end_of_data_check_ids:
            self._on_end(number)
        if response.more_check_ids or response.end_of_data_check_ids:
            self._has_sent = False

    # Checks

    def _on_entry(self, data: bytes) -> None:
        """(b), (c), (e)."""
        oracle, seen = self._world.oracle, self.seen
        self._world.moments.reach(DELIVERY)
        header = read_served_header(data)
        position = header.position
        self._has_sent = True
        topic = oracle.topic_of_ledger(position.ledger_id)
        if topic is None:
            oracle.fail(f"{self.name} gets {position}, in a ledger that nobody knows (b)")
            return
        if self._is_told_end:
            oracle.fail(f"{self.name} gets {position} after the end of the topic (g)")
        if self._topic is None:
            self._topic = topic
        batch = decode(data, header)
        attempt = oracle.sent_as(topic, header, batch, read_compacted=self.read_compacted)
        if attempt is None:
            what = f"{position}, {batch.producer_name}#{header.sequence_id}"
            oracle.fail(f"{self.name} gets {what}, which nobody published so (b)")
            return
        oracle.stored(topic, position, attempt)
        messages = list(batch.messages())
        if position <= seen.last and not (position == self._start and not seen.entries):
            if position == seen.last and attempt.is_batch and seen.may_miss_tombstones:
                return
            oracle.fail(f"{self.name} gets {position} after {seen.last} (c)")
        if seen.takings < 0:
            seen.takings = topic.takings
        if seen.start == LATEST:
            seen.start = position
        if not self.read_compacted:
            self._check_gap(topic, position)
        elif oracle.profile == "pulsar-4" and oracle.is_stale(topic, position, self._run_shown()):
            # The other profile's readers continue in the view with which they began.
            oracle.fail(f"{self.name} gets {position}, which is compacted away (d)")
        seen.last = max(position, seen.last)
        seen.entries[position] = len(messages)
        for message in messages:
            if message.key is not None:
                seen.keys[message.key] = (position, bool(message.value))
        self._permits = max(0, self._permits - len(messages))
        self._start, self._inclusive = position, False

    def _run_shown(self) -> int | None:
        """Returns the run whose view reads use: the record's, as the broker has it in memory."""
        broker = self._world.broker
        topic = broker.topics.get(self.topic_name) if broker is not None else None
        return topic.record.compacted.run_number if topic is not None else None

    def _check_gap(self, topic: Topic, position: Position) -> None:
        """A raw reader skips exactly the deleted entries."""
        first = max(self.seen.last.next if self.seen.entries else self.seen.start, self.seen.start)
        for at, attempt in topic.at.items():
            if first <= at < position and not topic.is_gone(at):
                self._world.oracle.fail(
                    f"{self.name} goes to {position} and skips {attempt} at {at} (e)"
                )

    def _on_end(self, number: int) -> None:
        """(g): everything acknowledged when the question was asked was sent before."""
        asked = self._checks.pop(number, None)
        if asked is None:
            return
        topic, told, seeks = asked
        if (
            topic is None
            or seeks != self._seeks
            or (topic is not self._topic and self._topic is not None)
        ):
            return
        self.at_end.set()
        if (
            topic.name not in self._world.oracle.topics
            or self._world.oracle.topics[topic.name] is not topic
        ):
            return
        self._world.oracle.learn(topic)
        due = [(at, attempt) for attempt, at in list(topic.acked.items())[:told] if at is not None]
        due = [(at, attempt) for at, attempt in due if at >= self.seen.start]
        if self.read_compacted:
            self._check_keys(topic, due)
            return
        for at, attempt in due:
            if at not in self.seen.entries and not topic.is_gone(at):
                self._world.oracle.fail(
                    f"{self.name} is at the end, and never got {attempt} at {at} (g)"
                )

    def _on_end_of_topic(self) -> None:
        """(g): reported once, for a durably terminated topic, when all of it was sent."""
        oracle, topic = self._world.oracle, self._topic
        if self._is_told_end:
            oracle.fail(f"{self.name} is told of the end of the topic twice (g)")
        self.has_ended = self._is_told_end = True
        if topic is None or oracle.topics.get(self.topic_name) is not topic:
            return
        if not topic.record.HasField("terminated_at"):
            oracle.fail(f"{self.name} is told of the end of a topic that goes on (g)")
        oracle.learn(topic)
        due = [(at, attempt) for at, attempt in topic.at.items() if at >= self.seen.start]
        if self.read_compacted:
            self._check_keys(topic, due)
            return
        for at, attempt in due:
            if at not in self.seen.entries and not topic.is_gone(at):
                oracle.fail(f"{self.name} is at the end of the topic without {attempt} at {at} (g)")

    def _check_keys(self, topic: Topic, due: list[tuple[Position, Attempt]]) -> None:
        """(e): the last value of each key was seen, and its deletion by a reader that had a
        value.
        """
        seen = self.seen
        if seen.takings >= 0 and topic.takings != seen.takings:
            return
        last: dict[bytes, tuple[Position, bool]] = {}
        for at, attempt in sorted(due, key=lambda each: each[0]):
            for row in attempt.rows:
                if row.key is not None:
                    last[row.key] = (at, bool(row.value))
        for key, (at, has_value) in last.items():
            if at in topic.lost or at < topic.floor or topic.is_left_out(at, key):
                continue
            seen_at, had_value = seen.keys.get(key, (EARLIEST, False))
            if seen_at >= at:
                continue
            gets_tombstones = (
                self._world.oracle.profile == "documented" and not seen.may_miss_tombstones
            )
            if has_value and not self._has_later_write(topic, key, at):
                self._world.oracle.fail(
                    f"{self.name} is at the end, and missed {key!r} at {at}; it has {seen_at} (e)"
                )
            elif had_value and gets_tombstones:
                self._world.oracle.fail(
                    f"{self.name} is at the end, and missed the deletion of {key!r} at {at} (e)"
                )

    def _has_later_write(self, topic: Topic, key: bytes, at: Position) -> bool:
        """Returns whether an entry after `at` may write the key, acknowledged or not."""
        return any(
            any(key == each.key for each in attempt.rows) and topic.place.get(attempt, LATEST) > at
            for (name, _, _), attempt in self._world.oracle.attempts.items()
            if name == topic.name
        )


def start_at(position: Position, inclusive: bool) -> data_pb2.StartPosition:
    if position == EARLIEST:
        return data_pb2.StartPosition(earliest=True)
    if position == LATEST:
        return data_pb2.StartPosition(latest=True)
    message_id = MessageId(
        ledger_id=position.ledger_id, entry_id=position.entry_id, batch_index=-1, partition=-1
    )
    return data_pb2.StartPosition(message_id=message_id, inclusive=inclusive)
