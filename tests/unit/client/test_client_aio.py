"""The asyncio API: the same rules on the caller's loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from ledgerfold.broker.client import (
    ConsumerType,
    InitialPosition,
    MessageId,
    ProducerAccessMode,
)
from ledgerfold.broker.client.asyncio_client.client import Client
from ledgerfold.broker.client.core.producer_core import ProducerCore
from ledgerfold.storage.errors import AlreadyClosed, InvalidRequest, Overloaded, Timeout
from ledgerfold.strategies import Numeric
from tests.support.fake_broker import QUICK, FakeBroker
from tests.support.fake_data_service import BreakAt
from tests.support.fake_topics import LEDGER_ID
from tests.support.waiting import WAIT_MS

Scenario = Callable[[FakeBroker, Client], Awaitable[None]]


def play(scenario: Scenario) -> None:
    """Runs a scenario with a broker and a client on one loop."""

    async def run() -> None:
        broker = FakeBroker()
        await broker.start()
        try:
            async with Client(broker.address, **QUICK) as client:
                await scenario(broker, client)
        finally:
            await broker.stop()

    asyncio.run(run())


def test_a_table_view_takes_a_strategy() -> None:
    async def scenario(broker: FakeBroker, client: Client) -> None:
        producer = await client.create_producer("t")
        for value in (b"5", b"7", b"6"):
            await producer.send(value, partition_key="a")
        async with await client.create_table_view("t", strategy=Numeric()) as view:
            assert view.snapshot() == {"a": b"7"}

    play(scenario)


async def fill(client: Client, count: int, **options: Any) -> None:
    producer = await client.create_producer("t", **options)
    await asyncio.gather(
        *(producer.send(b"%d" % number, partition_key="k") for number in range(count))
    )
    await producer.close()


def test_sends_at_the_same_time_share_batches() -> None:
    """Every task gets its message's id."""

    async def scenario(broker: FakeBroker, client: Client) -> None:
        producer = await client.create_producer("t", batching_max_messages=10)
        ids = await asyncio.gather(*(producer.send(b"%d" % number) for number in range(20)))
        assert ids == [
            MessageId(-1, LEDGER_ID, entry, index) for entry in (0, 1) for index in range(10)
        ]
        assert producer.last_sequence_id() == 19
        assert (producer.topic(), producer.is_connected()) == (
            "persistent://public/default/t",
            True,
        )

    play(scenario)


def test_a_lost_connection_causes_no_loss_or_duplicates() -> None:
    """As in the synchronous API."""

    async def scenario(broker: FakeBroker, client: Client) -> None:
        broker.service.after_store = BreakAt(3)
        await fill(client, 50, batching_max_messages=5)
        assert broker.topic("t").values() == [b"%d" % number for number in range(50)]

    play(scenario)


def test_senders_wait_for_space_or_are_refused() -> None:
    """The bound of pending messages holds for tasks, too."""

    async def scenario(broker: FakeBroker, client: Client) -> None:
        await fill(
            client,
            100,
            max_pending_messages=3,
            block_if_queue_full=True,
            batching_enabled=False,
        )
        assert len(broker.topic("t").values()) == 100
        broker.service.may_answer.clear()
        producer = await client.create_producer(
            "u", max_pending_messages=1, block_if_queue_full=False, batching_enabled=False
        )
        first = asyncio.create_task(producer.send(b"1"))
        await asyncio.sleep(0)
        with pytest.raises(Overloaded):
            await producer.send(b"2")
        broker.service.may_answer.set()
        await first

    play(scenario)


def test_errors_are_raised_in_the_task_that_sent() -> None:
    """Only that one."""

    async def scenario(broker: FakeBroker, client: Client) -> None:
        producer = await client.create_producer("t")
        good, bad = await asyncio.gather(
            producer.send(b"1"), producer.send(b"x" * 300_000), return_exceptions=True
        )
        assert good == MessageId(-1, LEDGER_ID, 0, 0)
        assert isinstance(bad, InvalidRequest)

    play(scenario)


def test_reading() -> None:
    """To the end, by seek, and with a timeout."""

    async def scenario(broker: FakeBroker, client: Client) -> None:
        await fill(client, 12, batching_max_messages=4)
        reader = await client.create_reader("t", MessageId.earliest, receiver_queue_size=3)
        assert [int(message.data()) async for message in reader] == list(range(12))
        assert not await reader.has_message_available()
        with pytest.raises(Timeout):
            await reader.read_next(timeout_millis=20)
        await reader.seek(MessageId(-1, LEDGER_ID, 2, 1))
        assert (await reader.read_next()).data() == b"10"
        await reader.close()
        with pytest.raises(AlreadyClosed):
            await reader.read_next()

    play(scenario)


def test_reading_continues_after_a_restart() -> None:
    """Nothing skipped, nothing repeated."""

    async def scenario(broker: FakeBroker, client: Client) -> None:
        await fill(client, 40, batching_max_messages=4)
        reader = await client.create_reader("t", MessageId.earliest, receiver_queue_size=5)
        seen = [int((await reader.read_next()).data()) for _ in range(6)]
        await broker.stop()
        await broker.start()
        seen += [int(message.data()) async for message in reader]
        assert seen == list(range(40))

    play(scenario)


def test_consuming() -> None:
    """Receive, acknowledge, redeliver, seek, unsubscribe."""

    async def scenario(broker: FakeBroker, client: Client) -> None:
        await fill(client, 6, batching_max_messages=3)
        consumer = await client.subscribe(
            "t",
            "s",
            ConsumerType.Shared,
            initial_position=InitialPosition.Earliest,
            negative_ack_redelivery_delay_ms=10,
        )
        messages = [await consumer.receive(WAIT_MS) for _ in range(6)]
        assert [int(message.data()) for message in messages] == list(range(6))
        await consumer.acknowledge(messages[0])
        await consumer.negative_acknowledge(messages[1])
        assert [int((await consumer.receive(WAIT_MS)).data()) for _ in range(2)] == [1, 2]
        await consumer.redeliver_unacknowledged_messages()
        assert int((await consumer.receive(WAIT_MS)).data()) == 1
        await consumer.seek(MessageId(-1, LEDGER_ID, 1, 1))
        assert int((await consumer.receive(WAIT_MS)).data()) == 5
        assert not await consumer.has_message_available()
        assert (await consumer.get_last_message_id()).entry_id() == 1
        with pytest.raises(Timeout):
            await consumer.receive(20)
        await consumer.unsubscribe()
        assert broker.topic("t").subscriptions == {}

    play(scenario)


def test_a_cancelled_receive_loses_no_message() -> None:
    """A cancelled call does not take a message."""

    async def scenario(broker: FakeBroker, client: Client) -> None:
        consumer = await client.subscribe("t", "s", initial_position=InitialPosition.Earliest)
        waiting = asyncio.create_task(consumer.receive())
        await asyncio.sleep(0)
        waiting.cancel()
        await fill(client, 1)
        assert (await consumer.receive(WAIT_MS)).data() == b"0"

    play(scenario)


def test_tasks_share_the_rest_of_an_entry() -> None:
    """Each task that takes from an entry wakes the next one, even if nothing more arrives."""

    async def scenario(broker: FakeBroker, client: Client) -> None:
        consumer = await client.subscribe("t", "s", ConsumerType.Shared)
        waiting = [asyncio.create_task(consumer.receive(timeout_millis=WAIT_MS)) for _ in range(4)]
        await asyncio.sleep(0)
        await fill(client, 4, batching_max_messages=4)
        messages = await asyncio.gather(*waiting)
        assert sorted(int(message.data()) for message in messages) == [0, 1, 2, 3]

    play(scenario)


def test_a_closed_client_refuses_new_objects() -> None:
    """Use after close is an error."""

    async def scenario(broker: FakeBroker, client: Client) -> None:
        await client.close()
        with pytest.raises(AlreadyClosed):
            await client.create_producer("t")
        with pytest.raises(AlreadyClosed):
            await client.get_topic_partitions("t")

    play(scenario)


def test_a_producer_is_closed_if_its_opening_is_cancelled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nobody would close it any more."""
    open_one = ProducerCore.open

    async def scenario(broker: FakeBroker, client: Client) -> None:
        async def open_and_cancel(*arguments: Any) -> ProducerCore:
            core = await open_one(*arguments)
            asyncio.get_running_loop().call_soon(caller.cancel)
            return core

        monkeypatch.setattr(ProducerCore, "open", open_and_cancel)
        caller = asyncio.create_task(client.create_producer("t", "me"))
        with pytest.raises(asyncio.CancelledError):
            await caller
        monkeypatch.undo()
        # Its name is free.
        await client.create_producer("t", "me")

    play(scenario)


def test_cancelling_an_opening_while_the_client_closes_raises_cancelled_error() -> None:
    """The cancellation is passed on, not reported as an error of the client.

    The command line printed that error for an interrupted `produce`. No test had cancelled and
    closed at the same time.
    """

    async def scenario(broker: FakeBroker, client: Client) -> None:
        await client.create_producer("t", access_mode=ProducerAccessMode.Exclusive)
        other = Client(broker.address)
        waiting = asyncio.create_task(
            other.create_producer("t", access_mode=ProducerAccessMode.WaitForExclusive)
        )
        while not other._core._opening:  # noqa: ASYNC110 - the client has no event for it
            await asyncio.sleep(0)
        waiting.cancel()
        await other.close()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    play(scenario)


def test_table_views() -> None:
    """The rules are the same; listeners run on the loop; closing fails waiting calls (TVW-10)."""

    async def scenario(broker: FakeBroker, client: Client) -> None:
        producer = await client.create_producer("t", batching_max_messages=4)
        await asyncio.gather(*(producer.send(b"%d" % n, partition_key=f"k{n}") for n in range(9)))
        async with await client.create_table_view("t") as view:
            assert view.snapshot() == {f"k{n}": b"%d" % n for n in range(9)}
            heard: list[tuple[str, object]] = []
            view.listen(lambda key, value: heard.append((key, value)))
            await asyncio.gather(
                producer.send(b"new", partition_key="k0"), producer.send(None, partition_key="k1")
            )
            await view.refresh()
            assert heard == [("k0", b"new"), ("k1", None)]
            assert (len(view), "k1" in view) == (8, False)
            await broker.stop()
            refreshing = asyncio.create_task(view.refresh())
            await asyncio.sleep(0)
            await view.close()
            with pytest.raises(AlreadyClosed):
                await refreshing
        await broker.start()

    play(scenario)
