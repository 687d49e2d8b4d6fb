"""Delayed messages of the client: separate entries in the order of sending."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from ledgerfold.broker.client import BatchingType, Client, CompressionType
from ledgerfold.broker.client.asyncio_client import client as aio
from ledgerfold.broker.client.messages.new_message import NewMessage
from ledgerfold.broker.client.streams.pending import KafkaEntries
from ledgerfold.storage.codec import decode
from ledgerfold.storage.errors import InvalidRequest
from tests.support.fake_broker import FakeBroker, ThreadedFakeBroker


@pytest.mark.parametrize("batching_type", BatchingType)
def test_a_delayed_message_is_not_batched(
    broker: ThreadedFakeBroker, client: Client, batching_type: BatchingType
) -> None:
    """The open batch is sent before it; later messages are in another one."""
    producer = client.create_producer("t", batching_enabled=True, batching_type=batching_type)
    for value in (b"0", b"1"):
        producer.send_async(value, None, partition_key="k")
    producer.send_async(b"2", None, partition_key="k", deliver_at=77)
    for value in (b"3", b"4"):
        producer.send_async(value, None, partition_key="k")
    last = producer.send(b"5", partition_key="k", deliver_at=78)
    entries = [decode(entry) for entry in broker.topic("t").entries]
    values = [[message.value for message in entry.messages()] for entry in entries]
    assert values == [[b"0", b"1"], [b"2"], [b"3", b"4"], [b"5"]]
    assert [entry.deliver_at_ms for entry in entries] == [0, 77, 0, 78]
    headers = broker.topic("t").headers()
    assert [header.is_plain for header in headers] == [False, True, False, True]
    assert [header.sequence_id for header in headers] == [1, 2, 4, 5]
    assert last.batch_index() == -1


def test_delays_of_a_producer_without_batches(broker: ThreadedFakeBroker) -> None:
    """Delays are counted by the client's clock."""
    with Client(broker.address, clock_ms=lambda: 1_000) as client:
        producer = client.create_producer("t")
        producer.send_async(b"0", None, partition_key="k")
        producer.send_async(b"1", None, partition_key="k", deliver_after=timedelta(seconds=1))
        producer.send_async(b"2", None, partition_key="k")
        producer.flush()
    topic = broker.topic("t")
    assert topic.values() == [b"0", b"1", b"2"]
    assert [decode(entry).deliver_at_ms for entry in topic.entries] == [0, 2_000, 0]


def test_a_kafka_topic_refuses_delays() -> None:
    with pytest.raises(InvalidRequest, match="do not delay messages: omit deliver_at"):
        KafkaEntries(CompressionType.NONE).check(NewMessage(b"x", b"k", deliver_at_ms=77))


def test_the_asyncio_client() -> None:
    async def send() -> None:
        broker = FakeBroker()
        await broker.start()
        async with aio.Client(broker.address) as client:
            producer = await client.create_producer("t", batching_enabled=True)
            await producer.send(b"v", deliver_at=77)
            (entry,) = broker.topic("t").entries
            assert decode(entry).deliver_at_ms == 77
        await broker.stop()

    asyncio.run(send())
