"""A named producer or an Exclusive consumer whose client may be gone, and the next one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from ledgerfold.broker.pulsar import connection as connection_module
from ledgerfold.broker.pulsar.connection import Connection
from ledgerfold.broker.pulsar.frames import Splitter, encode, parse
from ledgerfold.broker.pulsar.shared import Shared
from ledgerfold.v1 import pulsar_pb2
from ledgerfold.v1.pulsar_pb2 import BaseCommand
from tests.model.broker_lab import TOPIC, BrokerLab
from tests.pulsar.recorded import CONNECT, producer, subscribe
from tests.support.pulsar_lab import MemoryTransport

PONG = BaseCommand(type=pulsar_pb2.PONG, pong=pulsar_pb2.CommandPong())


@pytest.fixture
def lab() -> Iterator[BrokerLab]:
    lab = BrokerLab()
    yield lab
    lab.stop()


class Peer(MemoryTransport):
    """A client with a connection of its own; `port` makes its address."""

    def __init__(self, shared: Shared, port: int) -> None:
        super().__init__()
        self.port, self.connection = port, Connection(shared)
        self.connection.connection_made(self)

    def get_extra_info(self, name: str, default: object = None) -> object:
        return ("127.0.0.1", self.port)

    def abort(self) -> None:
        super().abort()
        asyncio.get_running_loop().call_soon(self.connection.connection_lost, None)

    async def ask(self, command: BaseCommand) -> int:
        """Returns the type of the next command."""
        self.connection.data_received(encode(command))
        return await self.next()

    async def next(self) -> int:
        data: Any = await self.answers.get()
        (frame,) = Splitter(2**31).feed(data)
        return parse(frame).command.type


CLIENTS = {
    "consumer": (subscribe(TOPIC), pulsar_pb2.SUCCESS),
    "producer": (
        producer(TOPIC, producer_name="p", user_provided_producer_name=True),
        pulsar_pb2.PRODUCER_SUCCESS,
    ),
}


@pytest.mark.parametrize("kind", CLIENTS)
@pytest.mark.parametrize("is_alive", [True, False], ids=["alive", "gone"])
def test_the_next_client_waits_for_a_sign_of_life(
    lab: BrokerLab, is_alive: bool, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Source: AbstractTopic.tryOverwriteOldProducer, and the dispatchers of one consumer."""
    opening, opened = CLIENTS[kind]
    monkeypatch.setattr(connection_module, "ALIVE_S", 5.0 if is_alive else 0.01)

    async def succeed() -> None:
        shared = Shared(lab.broker)
        holder, successor = (Peer(shared, port) for port in (1, 2))
        for each in (holder, successor):
            assert await each.ask(CONNECT) == pulsar_pb2.CONNECTED
        assert await holder.ask(opening) == opened
        successor.connection.data_received(encode(opening))
        assert await holder.next() == pulsar_pb2.PING
        if is_alive:
            holder.connection.data_received(encode(PONG))
            assert await successor.next() == pulsar_pb2.ERROR
            holder.connection.connection_lost(None)
        else:
            assert await successor.next() == opened
        assert holder.is_aborted is not is_alive
        successor.connection.connection_lost(None)

    lab.run(succeed())


@pytest.mark.parametrize("kind", CLIENTS)
def test_the_next_client_does_not_wait_for_a_lost_connection(lab: BrokerLab, kind: str) -> None:
    """The PING shows that the other end is gone."""
    opening, opened = CLIENTS[kind]

    async def succeed() -> None:
        shared = Shared(lab.broker)
        holder, successor = (Peer(shared, port) for port in (1, 2))
        for each in (holder, successor):
            assert await each.ask(CONNECT) == pulsar_pb2.CONNECTED
        assert await holder.ask(opening) == opened
        successor.connection.data_received(encode(opening))
        assert await holder.next() == pulsar_pb2.PING
        async with asyncio.timeout(connection_module.ALIVE_S / 2):
            holder.connection.connection_lost(ConnectionResetError())
            assert await successor.next() == opened
        assert not holder.is_aborted
        successor.connection.connection_lost(None)

    lab.run(succeed())
