"""Producers of Pulsar's clients: the memory that they take, and their duplicates."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ledgerfold.broker.pulsar.connection import Connection
from ledgerfold.broker.pulsar.frames import Splitter, encode, parse
from ledgerfold.broker.pulsar.shared import Shared
from ledgerfold.v1 import pulsar_pb2
from ledgerfold.v1.pulsar_pb2 import BaseCommand
from ledgerfold.v1.records_pb2 import Policies
from tests.model.broker_lab import TOPIC, BrokerLab
from tests.pulsar.recorded import CONNECT, frame_of, metadata, producer, send
from tests.support.pulsar_lab import MemoryTransport

NAMED = producer(TOPIC, producer_name="p", user_provided_producer_name=True)
CLOSE = BaseCommand(
    type=pulsar_pb2.CLOSE_PRODUCER,
    close_producer=pulsar_pb2.CommandCloseProducer(producer_id=1, request_id=2),
)


@pytest.fixture
def lab() -> Iterator[BrokerLab]:
    lab = BrokerLab()
    yield lab
    lab.stop()


class Peer(MemoryTransport):
    """A connected client."""

    @classmethod
    async def connected(cls, shared: Shared) -> Peer:
        peer = cls()
        peer.connection = Connection(shared)
        peer.connection.connection_made(peer)
        await peer.ask(encode(CONNECT))
        return peer

    connection: Connection

    async def ask(self, frame: bytes) -> BaseCommand:
        """Returns the next command."""
        self.connection.data_received(frame)
        data: Any = await self.answers.get()
        (answer,) = Splitter(2**31).feed(data)
        return parse(answer).command

    async def publish(self, sequence_id: int, chunk_id: int | None = None) -> bool:
        """Sends a message, or a chunk of two; returns whether it was stored."""
        chunk: dict[str, Any] = {}
        if chunk_id is not None:
            chunk = {"uuid": b"u", "num_chunks_from_msg": 2, "chunk_id": chunk_id}
        command = send(sequence_id, **({"is_chunk": True} if chunk else {}))
        answer = await self.ask(frame_of(command, metadata(sequence_id, **chunk), b"part"))
        assert answer.send_receipt.sequence_id == sequence_id
        return 0 <= answer.send_receipt.message_id.ledger_id < 2**63


@pytest.mark.parametrize("is_lost", [False, True], ids=["closed", "lost"])
def test_nothing_stays_of_a_producer_that_has_ended(lab: BrokerLab, is_lost: bool) -> None:
    """Otherwise each connected producer would take memory until the broker stops."""

    async def connect() -> None:
        shared = Shared(lab.broker)
        peer = await Peer.connected(shared)
        assert (await peer.ask(encode(NAMED))).HasField("producer_success")
        assert len(shared.producers) == 1
        if not is_lost:
            assert (await peer.ask(encode(CLOSE))).HasField("success")
            assert not shared.producers
        peer.connection.connection_lost(None)
        assert not shared.producers

    lab.run(connect())


def test_a_client_that_uses_a_name_twice_is_refused_at_once(lab: BrokerLab) -> None:
    """Its connection is alive: nobody asks it."""

    async def connect() -> None:
        peer = await Peer.connected(Shared(lab.broker))
        assert (await peer.ask(encode(NAMED))).HasField("producer_success")
        again = BaseCommand.FromString(NAMED.SerializeToString())
        again.producer.producer_id = 2
        refused = await peer.ask(encode(again))
        assert refused.error.error == pulsar_pb2.PRODUCER_BUSY
        peer.connection.connection_lost(None)

    lab.run(connect())


@pytest.mark.parametrize("policies", [Policies(), Policies(deduplication=True)], ids=["", "on"])
def test_a_repeated_chunk_does_not_hide_that_later_messages_are_stored(
    lab: BrokerLab, policies: Policies
) -> None:
    """Only the last chunk of a message is checked. A chunk before it has a lower sequence id."""

    async def publish() -> list[bool]:
        topic = await lab.broker.topic(TOPIC)
        await lab.broker.policies.update_topic(topic, policies, ())
        peer = await Peer.connected(Shared(lab.broker))
        assert (await peer.ask(encode(NAMED))).HasField("producer_success")
        sent = [(5, 0), (5, 1), (6, None), (7, None)]
        stored = [await peer.publish(*each) for each in sent]
        peer.connection.connection_lost(None)
        return stored

    assert lab.run(publish()) == [True, True, True, True]
    # Its client did not get the receipts.
    assert lab.run(publish()) == [True, False, False, False]
    lab.restart()
    assert lab.run(publish()) == [True, False, False, False]
