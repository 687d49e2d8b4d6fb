"""Consumers of each type: permits, acknowledgements, redeliveries; they reconnect when
disconnected.

An acknowledgement without an answer when the connection breaks is sent again on the next one,
unless the cursor was moved meanwhile (the broker sends its incarnation), as by the client library.
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

from ledgerfold.broker.rpc.subscribe import subscribe
from ledgerfold.broker.wire.frames import decode_deliveries, is_bulk
from ledgerfold.storage.codec import decode
from ledgerfold.storage.entry import EARLIEST, Position
from ledgerfold.storage.errors import CompactedLedgerDamaged, Corruption, MissingFile, TopicNotFound
from ledgerfold.storage.served_entry import read_served_header
from ledgerfold.v1 import data_pb2
from tests.simulation.connections import Connection
from tests.simulation.life import Topic
from tests.simulation.moments import ANSWER, DELIVERY
from tests.simulation.subscriptions import Subscription, covers

if TYPE_CHECKING:
    from tests.simulation.world import World

_HANDLER = subscribe
EXCLUSIVE = data_pb2.SUBSCRIPTION_TYPE_EXCLUSIVE
FAILOVER = data_pb2.SUBSCRIPTION_TYPE_FAILOVER
TYPES = (
    EXCLUSIVE,
    FAILOVER,
    data_pb2.SUBSCRIPTION_TYPE_SHARED,
    data_pb2.SUBSCRIPTION_TYPE_KEY_SHARED,
)


class _Ack(NamedTuple):
    positions: tuple[Position, ...]
    cumulative: bool
    subscription: Subscription
    moves: int


class Consumer:
    """One consumer of a durable subscription, or the only one of a non-durable one."""

    def __init__(
        self,
        world: World,
        topic: str,
        subscription: str,
        name: str,
        type_: Any,
        *,
        read_compacted: bool,
        from_earliest: bool = True,
        durable: bool = True,
    ) -> None:
        self._world, self.topic_name, self.subscription_name = world, topic, subscription
        self.name, self.type = name, type_
        self.read_compacted, self._from_earliest = read_compacted, from_earliest
        self.is_durable = durable
        # The current connection, and the one that is not answered yet.
        self._connection: Connection | None = None
        self._opening: Connection | None = None
        self._permits = 0
        self._incarnation: int | None = None
        # Received on this connection, and not acknowledged.
        self.received: list[Position] = []
        self.got: set[Position] = set()
        # On this connection.
        self.got_here: set[Position] = set()
        self._acks: dict[int, _Ack] = {}
        self._last_request = 0
        self._connected_step = self.connected_ms = 0
        self._last = EARLIEST
        self._has_rewound = False
        self._is_closed = False
        self._sub: Subscription | None = None
        self._topic: Topic | None = None
        self._task = world.client(self._run())

    @property
    def is_ordered(self) -> bool:
        return self.type in (EXCLUSIVE, FAILOVER)

    @property
    def is_connected(self) -> bool:
        return self._sub is not None and self._connection is not None

    @property
    def is_over(self) -> bool:
        return self._is_closed

    @property
    def unanswered(self) -> int:
        """Acknowledgements that requested an answer."""
        return len(self._acks)

    # Operations

    def permit(self, messages: int) -> None:
        self._permits += messages
        self._send(data_pb2.SubscribeRequest(permits=messages))

    def acknowledge(self, random: Random) -> None:
        """Acknowledges some of its messages; usually requests an answer."""
        sub = self._sub
        if not self.received or sub is None:
            return
        cumulative = self.is_ordered and random.random() < 0.5
        if cumulative:
            upto = random.randrange(len(self.received))
            positions: tuple[Position, ...] = (max(self.received[: upto + 1]),)
            self.received = [each for each in self.received if each > positions[0]]
        else:
            count = random.randrange(1, min(4, len(self.received)) + 1)
            positions = tuple(sorted(random.sample(self.received, count)))
            self.received = [each for each in self.received if each not in positions]
        ack = _Ack(positions, cumulative, sub, sub.moves)
        request = 0
        if random.random() < 0.8:
            self._last_request += 1
            request = self._last_request
            self._acks[request] = ack
        self._send_ack(ack, request)

    def _send_ack(self, ack: _Ack, request: int) -> None:
        ack.subscription.acknowledge(ack.positions, cumulative=ack.cumulative)
        message = data_pb2.Ack(cumulative=ack.cumulative, request_id=request)
        for position in ack.positions:
            message.positions.add(ledger_id=position.ledger_id, entry_id=position.entry_id)
        self._send(data_pb2.SubscribeRequest(ack=message))

    def redeliver(self, random: Random) -> None:
        message = data_pb2.Redeliver()
        if random.random() < 0.5 and self.received:
            position = random.choice(self.received)
            message.positions.add(ledger_id=position.ledger_id, entry_id=position.entry_id)
        self._has_rewound = True
        self._send(data_pb2.SubscribeRequest(redeliver=message))

    def cut(self) -> None:
        for connection in (self._connection, self._opening):
            if connection is not None:
                connection.cut()

    def close(self) -> None:
        self._is_closed = True
        for connection in (self._connection, self._opening):
            if connection is not None:
                connection.finish()

    def _send(self, request: Any) -> None:
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
        connection = Connection(self._world, _HANDLER, self._on_sent)
        self._opening = connection
        self._world.oracle.subscribed.add(self.topic_name)
        if self.is_durable:
            names = self.topic_name, self.subscription_name
            self._world.oracle.begins_early[names] = self._from_earliest
        self._sub = None
        self.received, self._last, self._has_rewound = [], EARLIEST, False
        self.got_here = set()
        opening = data_pb2.SubscribeOpen(
            reads_pulsar_entries=True,
            topic=self.topic_name,
            subscription=self.subscription_name,
            type=self.type,
            durable=self.is_durable,
            start=data_pb2.StartPosition(earliest=self._from_earliest or None),
            read_compacted=self.read_compacted,
            consumer_name=self.name,
        )
        connection.send(data_pb2.SubscribeRequest(open=opening).SerializeToString())
        await connection.wait()
        self._connection, self._opening = connection, None
        while not connection.closed:
            await connection.wait()
            while connection.inbox and not connection.closed:
                self._receive(connection.take())
        self._connection = None
        if isinstance(connection.error, Corruption | MissingFile | CompactedLedgerDamaged):
            if not self._world.oracle.is_damaged:
                self._world.oracle.fail(f"{self.name} meets damage: {connection.error!r}")
            self._is_closed = True
        elif isinstance(connection.error, TopicNotFound):
            self._is_closed = True

    def _receive(self, frame: bytes) -> None:
        """Handles frames at the client's end."""
        if is_bulk(frame):
            for entry, _ in decode_deliveries(frame):
                self.received.append(read_served_header(entry).position)
            return
        response = data_pb2.SubscribeResponse.FromString(frame)
        if response.HasField("ready"):
            incarnation = response.ready.incarnation
            if incarnation != self._incarnation:
                self._acks.clear()
            self._incarnation = incarnation
            if self._permits > 0:
                self._send(data_pb2.SubscribeRequest(permits=self._permits))
            for request, ack in self._acks.items():
                self._send_ack(ack, request)
        for request in response.acked_request_ids:
            self._acks.pop(request, None)

    # The broker's end: sent frames

    def _on_sent(self, frame: bytes) -> None:
        if is_bulk(frame):
            for entry, _ in decode_deliveries(frame):
                self._on_entry(bytes(entry))
            return
        response = data_pb2.SubscribeResponse.FromString(frame)
        if response.HasField("ready"):
            self._on_ready()
        for request in response.acked_request_ids:
            self._on_answer(request)

    def _on_ready(self) -> None:
        topic = self._world.oracle.topics.get(self.topic_name)
        if topic is None:
            return
        step = self._world.loop.steps
        self._connected_step, self._topic = step, topic
        self.connected_ms = self._world.clock.now_ms()
        name = self.subscription_name
        if not self.is_durable:
            # Each connection starts over.
            self._sub = Subscription(name, from_earliest=self._from_earliest, step=step)
            return
        sub = topic.subscriptions.get(name)
        if sub is None:
            sub = Subscription(name, from_earliest=self._from_earliest, step=step)
            topic.subscriptions[name] = sub
            for move in self._world.oracle.moves.get((self.topic_name, name), ()):
                move.may_find(sub)
        if name not in topic.cursors:
            self._world.oracle.fail(f"{self.name} is connected to {name}, which has no record")
        sub.has_compacted |= self.read_compacted
        self._sub = sub

    def _on_answer(self, request: int) -> None:
        """An answered acknowledgement is in the cursor's record."""
        ack = self._acks.get(request)
        topic, sub = self._topic, self._sub
        if ack is None or topic is None or sub is not ack.subscription:
            return
        if (
            sub.is_moving
            or ack.moves != sub.moves
            or self._world.oracle.topics.get(self.topic_name) is not topic
        ):
            return
        record = topic.cursors.get(sub.name)
        for position in set(ack.positions) - topic.excused:
            if self.is_durable and (record is None or not covers(record, position)):
                self._world.oracle.fail(
                    f"{self.name} is told that {position} is acknowledged durably, and it is not"
                )
        self._world.moments.reach(ANSWER)
        step = self._world.loop.steps
        sub.answered(ack.positions, cumulative=ack.cumulative, step=step)

    def _on_entry(self, data: bytes) -> None:
        """(b), (c), and no durably acknowledged message is redelivered."""
        oracle, header = self._world.oracle, read_served_header(data)
        self._world.moments.reach(DELIVERY)
        position = header.position
        topic = oracle.topic_of_ledger(position.ledger_id)
        batch = decode(data, header)
        what = f"{position}, {batch.producer_name}#{header.sequence_id}"
        attempt = None
        if topic is not None:
            attempt = oracle.sent_as(topic, header, batch, read_compacted=self.read_compacted)
        if topic is None or attempt is None:
            oracle.fail(f"{self.name} gets {what}, which nobody published so (b)")
            return
        oracle.stored(topic, position, attempt)
        self._permits = max(0, self._permits - header.message_count)
        self._check_gap(topic, position)
        self.got.add(position)
        self.got_here.add(position)
        sub = self._sub
        if sub is None:
            return
        if self.type == EXCLUSIVE and not self._has_rewound and position <= self._last:
            oracle.fail(f"{self.name} gets {position} after {self._last} (c)")
        self._last = position
        is_exempt = oracle.profile == "pulsar-4" and sub.has_compacted
        if sub.was_durable(position, self._connected_step) and not (is_exempt or sub.is_moving):
            oracle.fail(f"{self.name} gets {position} again, which was acknowledged durably")

    def _check_gap(self, topic: Topic, position: Position) -> None:
        """(e): alone, and from the beginning, it skips exactly the deleted messages."""
        is_alone = not self.is_durable and self.type == EXCLUSIVE and not self.read_compacted
        if not is_alone or not self._from_earliest:
            return
        oracle = self._world.oracle
        for at, attempt in topic.at.items():
            is_missed = at < position and at not in self.got_here and not topic.is_gone(at)
            if is_missed and not oracle.may_be_passed(topic, self.subscription_name, at):
                self._world.oracle.fail(
                    f"{self.name} goes to {position} and skips {attempt} at {at} (e)"
                )
