"""Commands with large schemas that wait for the broker: a connection holds few of them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from ledgerfold.broker.pulsar.connection import READ_AHEAD_BYTES, WAITING_BYTES_MAX, Connection
from ledgerfold.broker.pulsar.frames import encode
from ledgerfold.broker.pulsar.shared import Shared
from tests.model.broker_lab import BrokerLab
from tests.pulsar.recorded import CONNECT, producer
from tests.support.held_executor import HeldExecutor
from tests.support.recording_transport import Client
from tests.support.waiting import WAIT_S

SCHEMA = {"name": b"", "schema_data": b" " * 200_000 + b'"int"', "type": 4}


@pytest.fixture
def lab() -> Iterator[BrokerLab]:
    lab = BrokerLab()
    yield lab
    lab.stop()


def test_a_connection_holds_few_large_commands(lab: BrokerLab) -> None:
    """Nothing more is read while too many of them wait, and all are answered in the end."""
    held = lab.broker.schemas.executor = HeldExecutor()
    held.holds = True

    async def flood() -> None:
        shared, client = Shared(lab.broker), Client()
        connection = Connection(shared)
        connection.connection_made(client)
        connection.data_received(encode(CONNECT))
        await client.answers.get()
        sent_bytes = sent = 0
        while not client.is_paused:
            opening = producer("t", schema=SCHEMA)
            opening.producer.producer_id = opening.producer.request_id = sent
            frame = encode(opening)
            connection.data_received(frame)
            sent, sent_bytes = sent + 1, sent_bytes + len(frame)
            assert sent_bytes < WAITING_BYTES_MAX + READ_AHEAD_BYTES + 2 * len(frame)
            await turns()
        assert shared.held_bytes == connection.held_bytes
        assert WAITING_BYTES_MAX < connection.held_bytes <= sent_bytes
        held.free()
        for _ in range(sent):
            await client.answers.get()
        await turns()
        assert not client.is_paused
        assert shared.held_bytes == 0
        held.holds = True
        opening.producer.producer_id += 1
        connection.data_received(encode(opening))
        assert shared.held_bytes > 0
        await turns()
        connection.connection_lost(None)
        await turns()
        assert shared.held_bytes == 0

    lab.run(asyncio.wait_for(flood(), WAIT_S))


async def turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)
