"""Access modes of this package's clients, also together with Pulsar's client."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pulsar
import pytest

from ledgerfold.broker.client import Client, Producer, ProducerAccessMode, Result
from ledgerfold.broker.client.administration.admin import Admin
from ledgerfold.broker.client.asyncio_client import client as aio
from ledgerfold.broker.client.sync.io_thread import IoThread
from ledgerfold.storage.errors import AlreadyClosed, ProducerBusy, ProducerFenced
from tests.pulsar.test_exclusive_producers import is_refused
from tests.pulsar.test_pulsar_producers import read_all
from tests.support.broker_process import BrokerProcess
from tests.support.waiting import WAIT_MS, WAIT_S, wait_until

MODES = ProducerAccessMode


def stream_of(producer: Producer) -> Any:
    return vars(producer)["_core"].stream


def test_exclusive_producers_of_both_clients_compete(
    client: pulsar.Client, native: Client, topic: str
) -> None:
    by_name: Any = "exclusive"
    only = native.create_producer(topic, access_mode=by_name)
    only.send(b"1")
    with pytest.raises(pulsar.ProducerFenced):
        client.create_producer(topic, access_mode=pulsar.ProducerAccessMode.Exclusive)
    with pytest.raises(ProducerFenced, match="other producers are connected"):
        native.create_producer(topic, access_mode=MODES.Exclusive)
    with pytest.raises(ProducerBusy, match="exclusive access"):
        native.create_producer(topic)
    fencing = pulsar.ProducerAccessMode.ExclusiveWithFencing
    client.create_producer(topic, access_mode=fencing).send(b"2")
    with pytest.raises(ProducerFenced, match="another one took exclusive access"):
        only.send(b"fenced out")
    with pytest.raises(ProducerFenced):
        only.send_async(b"fenced out", None)
    taking = native.create_producer(topic, access_mode=MODES.ExclusiveWithFencing)
    taking.send(b"3")
    assert [each.data() for each in read_all(client, topic)] == [b"1", b"2", b"3"]


def test_a_producer_waits_for_exclusive_access(
    broker: BrokerProcess, native: Client, topic: str
) -> None:
    """It waits longer than the operation timeout, and is connected when the other producer
    leaves.
    """
    shared = native.create_producer(topic)
    with (
        Client(broker.url, operation_timeout_seconds=2) as quick,
        ThreadPoolExecutor(1) as pool,
    ):
        waiting = pool.submit(quick.create_producer, topic, access_mode=MODES.WaitForExclusive)
        wait_until(lambda: is_refused(native, topic), "a producer waits")
        with pytest.raises(TimeoutError):
            waiting.result(2.5)
        shared.close()
        waiting.result(WAIT_S).send(b"v")


def test_a_waiting_producer_is_closed_with_its_client(
    broker: BrokerProcess, native: Client, topic: str
) -> None:
    """It leaves the queue: others are no longer refused."""
    with native.create_producer(topic), ThreadPoolExecutor(1) as pool:
        leaving = Client(broker.url)
        waiting = pool.submit(leaving.create_producer, topic, access_mode=MODES.WaitForExclusive)
        wait_until(lambda: is_refused(native, topic), "a producer waits")
        leaving.close()
        with pytest.raises(AlreadyClosed, match="The client is closed"):
            waiting.result(WAIT_S)
        wait_until(lambda: not is_refused(native, topic), "nobody waits")


def test_a_waiting_producer_of_asyncio_is_cancelled(
    broker: BrokerProcess, native: Client, topic: str
) -> None:
    async def scenario() -> None:
        async with aio.Client(broker.url) as client:
            opening = asyncio.create_task(
                client.create_producer(topic, access_mode=MODES.WaitForExclusive)
            )
            while not await asyncio.to_thread(is_refused, native, topic):
                assert not opening.done()
            opening.cancel()
            with pytest.raises(asyncio.CancelledError):
                await opening
            while await asyncio.to_thread(is_refused, native, topic):
                pass

    with native.create_producer(topic):
        asyncio.run(asyncio.wait_for(scenario(), WAIT_S))


@pytest.mark.parametrize("mode", [each for each in MODES if each != MODES.Shared])
def test_an_exclusive_producer_reconnects(
    native: Client, topic: str, mode: ProducerAccessMode
) -> None:
    """It keeps its epoch, even while the broker still has its earlier stream."""
    producer = native.create_producer(topic, access_mode=mode)
    for number in range(5):
        producer.send(b"%d" % number)
        IoThread.shared().call(dropped(stream_of(producer)))
    producer.send(b"5")
    reader = native.create_reader(topic, start_time_ms=0)
    assert [int(reader.read_next(WAIT_MS).data()) for _ in range(6)] == list(range(6))


async def dropped(stream: Any) -> None:
    stream.drop()


def test_another_producer_had_access_meanwhile(native: Client, topic: str) -> None:
    """Messages without a receipt fail: the other producer may have published meanwhile."""
    producer = native.create_producer(topic, access_mode=MODES.Exclusive)
    producer.send(b"1")
    stream = stream_of(producer)
    IoThread.shared().call(stream.pause())
    results: list[Result] = []
    producer.send_async(b"lost", lambda result, _: results.append(result))

    def taken() -> bool:
        try:
            native.create_producer(topic, access_mode=MODES.Exclusive).close()
        except ProducerFenced:
            return False
        return True

    wait_until(taken, "another one had access")
    IoThread.shared().call(resumed(stream))
    wait_until(lambda: results == [Result.ProducerFenced], "the message fails")
    with pytest.raises(ProducerFenced, match=r"it has epoch 1; this producer had epoch 0"):
        producer.send(b"2")


async def resumed(stream: Any) -> None:
    stream.resume()


def test_partitions_are_exclusive(broker: BrokerProcess, native: Client, topic: str) -> None:
    with Admin(broker.url) as admin:
        admin.create_partitioned_topic(topic, 2)
    only = native.create_producer(topic, access_mode=MODES.Exclusive)
    only.send(b"v")
    with pytest.raises(ProducerBusy):
        native.create_producer(topic)
    with pytest.raises(ProducerFenced):
        native.create_producer(topic, access_mode=MODES.Exclusive)
