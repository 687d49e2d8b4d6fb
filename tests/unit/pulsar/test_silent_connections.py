"""Connections that are silent, because the client is or because the broker does not read."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from ledgerfold.broker.pulsar.connection import READ_AHEAD_BYTES, Connection
from ledgerfold.broker.pulsar.frames import encode
from ledgerfold.broker.pulsar.server import SILENT_S, check
from ledgerfold.broker.pulsar.shared import Shared
from tests.model.broker_lab import BrokerLab
from tests.pulsar.recorded import CONNECT, frame_of, metadata, send
from tests.support.pulsar_lab import MemoryTransport


@pytest.fixture
def lab() -> Iterator[BrokerLab]:
    lab = BrokerLab()
    yield lab
    lab.stop()


class HeldConnection:
    """A connection that is not read from: a message waits for room in the log."""

    def __init__(self, lab: BrokerLab) -> None:
        self.shared, self.client, self.room = Shared(lab.broker), MemoryTransport(), asyncio.Event()
        self.connection = Connection(self.shared)
        self.connection.connection_made(self.client)

    async def hold(self) -> None:
        producing: Any = self.connection._producing
        producing.send = self._send
        self.connection.data_received(encode(CONNECT))
        await turns()
        self.connection.data_received(frame_of(send(1), metadata(1), bytes(READ_AHEAD_BYTES)))
        await turns()
        assert self.client.is_paused
        # Since before the loop's clock began.
        self.connection.received_s = -2 * SILENT_S

    async def _send(self, frame: object) -> None:
        await self.room.wait()

    def is_closed(self, after_s: float = 0.0) -> bool:
        check(self.connection, self.shared.now_s() + after_s)
        return self.client.is_aborted


def test_a_client_that_is_held_back_is_not_silent(lab: BrokerLab) -> None:
    async def hold() -> None:
        held = HeldConnection(lab)
        await held.hold()
        assert not held.is_closed()
        held.room.set()
        await turns()
        assert not held.client.is_paused
        assert not held.is_closed(SILENT_S - 1)
        assert held.is_closed(SILENT_S + 1)
        held.connection.connection_lost(None)

    lab.run(hold())


def test_a_client_that_does_not_read_is_silent(lab: BrokerLab) -> None:
    """The broker may read from it or not."""

    async def hold() -> None:
        held = HeldConnection(lab)
        await held.hold()
        held.connection.pause_writing()
        assert held.is_closed()
        held.connection.connection_lost(None)

    lab.run(hold())


async def turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)
