"""The queue and the permits of Pulsar's Java client, on the consumers of one connection.

Commands of the broker wait until the client reads them: they are in flight.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from ledgerfold.broker.pulsar.from_native import bits_of, words_of
from ledgerfold.storage.entry import Position
from ledgerfold.storage.errors import LedgerfoldError
from ledgerfold.v1 import pulsar_pb2
from ledgerfold.v1.pulsar_pb2 import BaseCommand, CommandMessage
from tests.pulsar.recorded import flow
from tests.support.pulsar_lab import ConsumerLab

CONSUMER = 1
EXCLUSIVE, SHARED, FAILOVER, KEY_SHARED = range(4)
_ORDERED = (EXCLUSIVE, FAILOVER)


@dataclass(eq=False)
class Delivered:
    """One message as the application gets it. `left`: the messages of its delivery not acked."""

    position: Position
    index: int
    left: set[int]
    size: int


@dataclass(eq=False)
class JavaConsumer:
    """One consumer. `sizes`: the number of messages of each entry. `acks_indexes`: it acknowledges
    messages of a batch, not only whole batches.
    """

    lab: ConsumerLab
    opening: BaseCommand
    queue_size: int
    sizes: Mapping[Position, int]
    acks_indexes: bool
    permits: int = 0
    epoch: int = 0
    is_connected: bool = False
    wire: deque[BaseCommand] = field(default_factory=deque)
    queue: deque[Delivered] = field(default_factory=deque)
    held: list[Delivered] = field(default_factory=list)
    acked: set[tuple[Position, int]] = field(default_factory=set)

    @property
    def is_ordered(self) -> bool:
        return self.opening.subscribe.sub_type in _ORDERED

    def connect(self) -> None:
        self.opening.subscribe.consumer_epoch = self.epoch
        self.lab.link.spawn(self._open())

    async def _open(self) -> None:
        try:
            await self.lab.consuming.open(self.opening)
        except LedgerfoldError:
            # The subscription is busy, or being moved: the client tries again.
            self.wire.append(BaseCommand(type=pulsar_pb2.ERROR))

    # What arrives

    async def read(self, count: int) -> bool:
        """Reads up to `count` commands; returns whether there was one."""
        self.wire.extend(self.lab.transport.commands())
        had_any = bool(self.wire)
        for _ in range(min(count, len(self.wire))):
            await self._take(self.wire.popleft())
        return had_any

    async def _take(self, command: BaseCommand) -> None:
        if command.type == pulsar_pb2.MESSAGE:
            await self._arrive(command.message)
        elif command.type == pulsar_pb2.CLOSE_CONSUMER:
            self._forget()
            self.connect()
        elif command.type == pulsar_pb2.ERROR:
            self.connect()
        elif command.type == pulsar_pb2.SUCCESS and not self.is_connected:
            self._forget()
            self.is_connected = True
            await self._add(self.queue_size)

    def _forget(self) -> None:
        self.permits, self.is_connected = 0, False
        self.queue.clear()
        self.held.clear()

    async def _arrive(self, message: CommandMessage) -> None:
        position = Position(message.message_id.ledger_id, message.message_id.entry_id)
        size = self.sizes[position]
        if self.is_ordered and message.consumer_epoch < self.epoch:
            # Its messages count one by one, as if they had been received.
            await self._add(size)
            return
        left = set(range(size))
        live = bits_of(message.ack_set) if message.ack_set else (1 << size) - 1
        self.queue += [Delivered(position, each, left, size) for each in left if live >> each & 1]

    # What the application does

    async def receive(self, count: int) -> None:
        for _ in range(min(count, len(self.queue))):
            self.held.append(self.queue.popleft())
            await self._add(1)

    async def acknowledge(self, at: int) -> None:
        if not (self.held and self.is_connected):
            return
        done = self.held.pop(at % len(self.held))
        done.left.discard(done.index)
        self.acked.add((done.position, done.index))
        named = pulsar_pb2.MessageIdData(ledger_id=done.position[0], entry_id=done.position[1])
        if done.left and not self.acks_indexes:
            return
        if done.left:
            named.ack_set.extend(words_of(sum(1 << each for each in done.left), done.size))
        ack = pulsar_pb2.CommandAck(consumer_id=CONSUMER, message_id=[named])
        await self.lab.consuming.acknowledge(BaseCommand(ack=ack))

    async def reject(self, at: int) -> None:
        """Requests the redelivery of one entry. What the queue has of it is dropped."""
        if not (self.held and self.is_connected):
            return
        if self.is_ordered:
            await self.redeliver()
            return
        position = self.held[at % len(self.held)].position
        self.held = [each for each in self.held if each.position != position]
        kept = deque(each for each in self.queue if each.position != position)
        dropped, self.queue = len(self.queue) - len(kept), kept
        named = pulsar_pb2.MessageIdData(ledger_id=position[0], entry_id=position[1])
        asked = pulsar_pb2.CommandRedeliver(consumer_id=CONSUMER, message_ids=[named])
        await self.lab.consuming.redeliver(BaseCommand(redeliver=asked))
        await self._add(dropped)

    async def redeliver(self) -> None:
        """Requests the redelivery of everything."""
        if not self.is_connected:
            return
        asked = pulsar_pb2.CommandRedeliver(consumer_id=CONSUMER)
        if self.is_ordered:
            self.epoch += 1
            asked.consumer_epoch = self.epoch
        dropped = len(self.queue)
        self.queue.clear()
        self.held.clear()
        await self.lab.consuming.redeliver(BaseCommand(redeliver=asked))
        await self._add(dropped)

    async def reopen(self) -> None:
        """Closes the consumer, and opens another one."""
        if not self.is_connected:
            return
        self._forget()
        closing = pulsar_pb2.CommandCloseConsumer(consumer_id=CONSUMER, request_id=9)
        await self.lab.consuming.close(BaseCommand(close_consumer=closing))
        # Nothing arrives for it after the answer, which is the last.
        self.lab.transport.commands()
        self.wire.clear()
        self.connect()

    async def _add(self, permits: int) -> None:
        self.permits += permits
        if self.is_connected and self.permits >= max(1, self.queue_size // 2):
            permits, self.permits = self.permits, 0
            await self.lab.consuming.flow(flow(permits))
