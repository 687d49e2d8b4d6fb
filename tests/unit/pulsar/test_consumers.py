"""Consumers of one connection, without a network."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from ledgerfold.broker.pulsar.errors import error_answer
from ledgerfold.storage.errors import (
    DiskFailure,
    InvalidHashRanges,
    InvalidRequest,
    SubscriptionBusy,
)
from ledgerfold.v1 import pulsar_pb2
from ledgerfold.v1.pulsar_pb2 import BaseCommand
from tests.model.broker_lab import TOPIC, BrokerLab
from tests.model.log_model import Message
from tests.pulsar.recorded import flow, subscribe
from tests.support.pulsar_lab import ConsumerLab

EXCLUSIVE, SHARED, FAILOVER, KEY_SHARED = range(4)


@pytest.fixture
def lab() -> Iterator[BrokerLab]:
    lab = BrokerLab()
    yield lab
    lab.stop()


def opening(type_: int = EXCLUSIVE, **options: object) -> BaseCommand:
    command = subscribe(TOPIC, initial_position=1, **options)
    command.subscribe.sub_type = type_
    return command


def redeliver(epoch: int) -> BaseCommand:
    asked = pulsar_pb2.CommandRedeliver(consumer_id=1, consumer_epoch=epoch)
    return BaseCommand(type=pulsar_pb2.REDELIVER_UNACKNOWLEDGED_MESSAGES, redeliver=asked)


def epochs(commands: list[BaseCommand]) -> list[int]:
    """Returns the epochs of messages; -1: without one."""
    assert all(each.type == pulsar_pb2.MESSAGE for each in commands)
    return [
        each.message.consumer_epoch if each.message.HasField("consumer_epoch") else -1
        for each in commands
    ]


@pytest.mark.parametrize("type_", [EXCLUSIVE, FAILOVER])
def test_messages_in_flight_keep_their_epoch(lab: BrokerLab, type_: int) -> None:
    """A client that requests a redelivery drops them."""
    half = [Message(b"a", b"%d" % n) for n in range(500)]
    lab.publish([(half, True), (half, True)])

    async def redeliver_between() -> None:
        client = ConsumerLab(lab)
        await client.consuming.open(opening(type_, consumer_epoch=3))
        await client.commands(1)
        await client.consuming.flow(flow(3000))
        if type_ == FAILOVER:
            await client.commands(1)
        assert epochs(await client.commands(1)) == [3]
        await client.consuming.redeliver(redeliver(4))
        assert epochs(await client.commands(3)) == [3, 4, 4]
        await client.consuming.redeliver(redeliver(2))
        assert epochs(await client.commands(2)) == [4, 4]
        client.lose()

    lab.run(redeliver_between())


def test_a_reconnected_consumer_keeps_its_epoch(lab: BrokerLab) -> None:
    lab.publish([([Message(b"a", b"1")], False)])

    async def reconnect() -> None:
        client = ConsumerLab(lab)
        for epoch in (0, 7):
            await client.consuming.open(opening(consumer_epoch=epoch))
            await client.commands(1)
        await client.consuming.flow(flow(10))
        assert epochs(await client.commands(1)) == [7]
        client.lose()

    lab.run(reconnect())


@pytest.mark.parametrize("type_", [EXCLUSIVE, SHARED])
def test_a_long_redelivery_lets_other_tasks_run(lab: BrokerLab, type_: int) -> None:
    """No test had requested the redelivery of more than a few messages.

    An ordered subscription delivers all of them again, and looks at none of the ids.
    """
    lab.publish([([Message(b"a", b"1")], False)])
    ids = [pulsar_pb2.MessageIdData(ledger_id=9, entry_id=each) for each in range(10_000)]
    asked = pulsar_pb2.CommandRedeliver(consumer_id=1, message_ids=ids)

    async def redeliver_many() -> int:
        client, turns = ConsumerLab(lab), 0
        await client.consuming.open(opening(type_))
        await client.commands(1)
        asking = asyncio.ensure_future(client.consuming.redeliver(BaseCommand(redeliver=asked)))
        while not asking.done():
            turns += 1
            await asyncio.sleep(0)
        client.lose()
        return turns

    turns = lab.run(redeliver_many())
    assert turns >= 50 if type_ == SHARED else turns < 10


def test_long_ack_sets_let_other_tasks_run(lab: BrokerLab) -> None:
    """Only the number of ids had been bounded, and not that of the words of their ack sets."""
    lab.publish([([Message(b"a", b"1")], False)])
    ids = [pulsar_pb2.MessageIdData(ledger_id=1, entry_id=0, ack_set=[1] * 8192) for _ in range(9)]
    asked = pulsar_pb2.CommandAck(consumer_id=1, ack_type=0, message_id=ids)

    async def acknowledge_many() -> int:
        client, turns = ConsumerLab(lab), 0
        await client.consuming.open(opening(SHARED))
        await client.commands(1)
        asking = asyncio.ensure_future(client.consuming.acknowledge(BaseCommand(ack=asked)))
        while not asking.done():
            turns += 1
            await asyncio.sleep(0)
        client.lose()
        return turns

    assert lab.run(acknowledge_many()) >= 9


def test_the_text_of_a_refusal_is_bounded() -> None:
    """Names of megabytes had only been sent over gRPC."""
    refused: Any = error_answer(1, InvalidRequest("x" * 3_000_000 + " Do something else."))
    assert len(refused.message) < 2_100
    assert refused.message.endswith("Do something else.")


@pytest.mark.parametrize(
    "options",
    [
        {"metadata": [pulsar_pb2.KeyValue(key=b"same", value=b"")] * 101},
        {
            "key_shared_meta": pulsar_pb2.KeySharedMeta(
                key_shared_mode=1, hash_ranges=[pulsar_pb2.IntRange(start=0, end=1)] * 1001
            )
        },
    ],
)
def test_long_lists_of_a_subscribe_are_refused_by_their_length(
    lab: BrokerLab, options: Any
) -> None:
    """They had been made tuples and dicts first: no test had sent pairs that a dict joins."""

    async def refused() -> None:
        client = ConsumerLab(lab)
        with pytest.raises((InvalidRequest, InvalidHashRanges), match=r"properties|hash ranges"):
            await client.consuming.open(opening(KEY_SHARED, **options))
        client.lose()

    lab.run(refused())


@pytest.mark.parametrize("type_", [SHARED, KEY_SHARED])
def test_consumers_that_share_have_no_epoch(lab: BrokerLab, type_: int) -> None:
    lab.publish([([Message(b"a", b"1")], False)])

    async def share() -> None:
        client = ConsumerLab(lab)
        await client.consuming.open(opening(type_, consumer_epoch=1))
        await client.commands(1)
        await client.consuming.flow(flow(10))
        assert epochs(await client.commands(1)) == [-1]
        await client.consuming.redeliver(redeliver(2))
        assert epochs(await client.commands(1)) == [-1]
        client.lose()

    lab.run(share())


def test_a_failed_unsubscribe_closes_the_consumer(lab: BrokerLab) -> None:
    """Its client, which the error tells that it is subscribed, reconnects it."""
    topic: Any = lab.topic

    async def full(*_: object) -> None:
        raise DiskFailure("/d", "write", OSError(28, "No space left on device"))

    async def unsubscribe() -> None:
        client = ConsumerLab(lab)
        asked = pulsar_pb2.CommandUnsubscribe(consumer_id=1, request_id=7)
        await client.consuming.open(opening())
        await client.commands(1)
        topic.delete_cursor = full
        await client.consuming.unsubscribe(
            BaseCommand(type=pulsar_pb2.UNSUBSCRIBE, unsubscribe=asked)
        )
        refused, closed = await client.commands(2)
        assert (refused.error.request_id, refused.error.error) == (7, pulsar_pb2.PERSISTENCE_ERROR)
        assert closed.close_consumer.consumer_id == 1
        await client.consuming.open(opening())
        assert (await client.commands(1))[0].type == pulsar_pb2.SUCCESS
        client.lose()

    lab.run(unsubscribe())


def seek() -> BaseCommand:
    to_earliest = {"ledger_id": -1, "entry_id": -1}
    asked = pulsar_pb2.CommandSeek(consumer_id=1, request_id=8, message_id=to_earliest)
    return BaseCommand(type=pulsar_pb2.SEEK, seek=asked)


@pytest.mark.parametrize("is_lost", [True, False], ids=["lost", "closed"])
def test_a_reader_that_leaves_during_its_seek(lab: BrokerLab, is_lost: bool) -> None:
    """The subscription that the seek keeps for it ends, too."""
    subscriptions = lab.topic.subscriptions

    async def leave() -> None:
        client = ConsumerLab(lab)
        await client.consuming.open(opening(durable=False))
        (subscription,) = subscriptions.values()
        seeking = client.link.spawn(client.consuming.seek(seek()))
        # Its steps: a task, the search, and the end of the consumers.
        for _ in range(10):
            await asyncio.sleep(0)
            if not subscription.consumers:
                break
        assert not subscription.consumers
        assert not seeking.done()
        if is_lost:
            client.lose()
        else:
            closing = pulsar_pb2.CommandCloseConsumer(consumer_id=1, request_id=9)
            await client.consuming.close(
                BaseCommand(type=pulsar_pb2.CLOSE_CONSUMER, close_consumer=closing)
            )

    lab.run(leave())
    lab.settle()
    assert not subscriptions


def test_consumers_share_acknowledgements_after_a_seek(lab: BrokerLab) -> None:
    """Also one that connects before the seek is answered."""
    (position,) = lab.publish([([Message(b"a", b"1"), Message(b"a", b"2")], True)])
    subscriptions = lab.topic.subscriptions

    def acknowledge(left: int) -> BaseCommand:
        at = {"ledger_id": position[0], "entry_id": position[1], "ack_set": [left]}
        ack = pulsar_pb2.CommandAck(consumer_id=1, ack_type=0, message_id=[at])
        return BaseCommand(type=pulsar_pb2.ACK, ack=ack)

    async def share() -> None:
        first = ConsumerLab(lab)
        second, third = (ConsumerLab(lab, first.acks) for _ in range(2))
        await first.consuming.open(opening(SHARED))
        seeking = first.link.spawn(first.consuming.seek(seek()))
        await asyncio.sleep(0)
        while not second.transport.commands():
            await asyncio.sleep(0)
            with suppress(SubscriptionBusy):
                await second.consuming.open(opening(SHARED))
        assert not seeking.done()
        await seeking
        await third.consuming.open(opening(SHARED))
        await second.consuming.acknowledge(acknowledge(0b01))
        await third.consuming.acknowledge(acknowledge(0b10))
        assert subscriptions["s"].backlog_entries() == 0
        for client in (first, second, third):
            client.lose()

    lab.run(share())


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("Pulsar-Java-v4.0.7", [88, 86, 84, 82]),
        ("Pulsar-CPP-v3.7.2", [80, 70, 60, 50]),
        ("Pulsar-Go-v0.12.0", [88, 86, 84, 82]),
        ("Pulsar-Go-v0.12.1", [80, 70, 60, 50]),
        ("Pulsar-Go-v0.19.0", [80, 70, 60, 50]),
        ("Pulsar-Go-version-unknown", [88, 86, 84, 82]),
        ("pulsar-rs-v6.8.0", [80, 70, 60, 50]),
    ],
)
@pytest.mark.parametrize("type_", [EXCLUSIVE, SHARED])
def test_acknowledged_messages_of_a_batch_cost_no_permits(
    lab: BrokerLab, type_: int, version: str, expected: list[int]
) -> None:
    """No test had counted the permits of a batch that is delivered again.

    The Java client does not return permits for messages that the ack set excludes; the C++ client
    does, and the Go client since 0.12.1. The Rust client does not look at the ack set.
    """
    batch = [Message(b"a", b"%d" % n) for n in range(10)]
    (position,) = lab.publish([(batch, True)])
    subscriptions = lab.topic.subscriptions
    at = {"ledger_id": position[0], "entry_id": position[1]}
    ack = pulsar_pb2.CommandAck(consumer_id=1, message_id=[{**at, "ack_set": [0b11]}])
    again = pulsar_pb2.CommandRedeliver(consumer_id=1, message_ids=[at])

    async def redeliver_often() -> list[int]:
        client = ConsumerLab(lab)
        client.link.client_version = version
        await client.consuming.open(opening(type_))
        await client.commands(1)
        await client.consuming.flow(flow(100))
        await client.commands(1)
        await client.consuming.acknowledge(BaseCommand(ack=ack))
        permits = list[int]()
        for _ in range(4):
            await client.consuming.redeliver(BaseCommand(redeliver=again))
            (message,) = await client.commands(1)
            assert list(message.message.ack_set) == [0b11]
            permits.append(subscriptions["s"].consumers[0].state.permits)
        client.lose()
        return permits

    assert lab.run(redeliver_often()) == expected
