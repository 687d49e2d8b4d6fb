"""Errors as seen by a program that imports only `ledgerfold`."""

from __future__ import annotations

import asyncio

import pytest

import ledgerfold
from ledgerfold.storage.entry import ENTRY_BYTES_MAX
from tests.support.broker_process import BrokerProcess


@pytest.fixture
def broker_arguments() -> list[str]:
    return ["--durability", "os"]


def test_a_receive_timeout(client: ledgerfold.Client) -> None:
    """Is a Timeout, and a TimeoutError of Python; the broker reported nothing."""
    consumer = client.subscribe("t", "s")
    reader = client.create_reader("t", ledgerfold.MessageId.earliest)
    for wait in (consumer.receive, reader.read_next):
        with pytest.raises(ledgerfold.Timeout) as caught:
            wait(timeout_millis=10)
        assert isinstance(caught.value, TimeoutError)
        assert not caught.value.from_broker


def test_a_receive_timeout_of_asyncio(broker: BrokerProcess) -> None:
    """The same."""

    async def body() -> None:
        async with ledgerfold.aio.Client(broker.url) as client:
            consumer = await client.subscribe("t", "s")
            with pytest.raises(ledgerfold.Timeout):
                await consumer.receive(timeout_millis=10)

    asyncio.run(body())


def test_requests_that_the_broker_rejects(client: ledgerfold.Client) -> None:
    """Under Pulsar's names; each shows that the broker reported it."""
    client.subscribe("t", "s")
    with pytest.raises(ledgerfold.ConsumerBusy) as busy:
        client.subscribe("t", "s")
    producer = client.create_producer("t", "me")
    with pytest.raises(ledgerfold.ProducerBusy) as taken:
        client.create_producer("t", "me")
    with pytest.raises(ledgerfold.InvalidTopicName) as wrong:
        client.create_producer("a/b")
    with pytest.raises(ledgerfold.NotAllowedError) as refused:
        client.subscribe("t", "u", ledgerfold.ConsumerType.Shared, is_read_compacted=True)
    assert [each.value.from_broker for each in (busy, taken, wrong)] == [True] * 3
    assert not refused.value.from_broker
    producer.close()
    with pytest.raises(ledgerfold.AlreadyClosed) as closed:
        producer.send(b"x")
    assert not closed.value.from_broker


def test_a_closed_producer_is_named(client: ledgerfold.Client) -> None:
    """By the name that the broker gave it. Tests had named their producers themselves."""
    producer = client.create_producer("t")
    name = producer.producer_name()
    producer.close()
    with pytest.raises(ledgerfold.AlreadyClosed, match=f"producer {name!r} of topic t is closed"):
        producer.send(b"x")


def test_a_missing_broker_is_reported_by_the_client() -> None:
    """The library itself reports this."""
    with ledgerfold.admin.Admin("127.0.0.1:1") as admin:
        with pytest.raises(ledgerfold.ConnectError) as away:
            admin.list_topics()
        assert not away.value.from_broker


def test_a_message_above_the_limit_is_rejected_by_the_client(client: ledgerfold.Client) -> None:
    """The library knows the broker's limit, and does not send the message."""
    producer = client.create_producer("t")
    with pytest.raises(ledgerfold.MessageTooBig) as caught:
        producer.send(b"x" * ENTRY_BYTES_MAX)
    assert not caught.value.from_broker
    assert producer.send(b"x") is not None
