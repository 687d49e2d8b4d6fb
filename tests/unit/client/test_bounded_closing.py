"""Closing has a bound, whatever the broker does: messages without a receipt then fail.

Closing had been tested with brokers that answer, or that are closed at once, but never with one
that is gone or silent.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ledgerfold.broker.client import Client, MessageId, Producer
from ledgerfold.broker.client.asyncio_client import client as aio
from ledgerfold.broker.client.core import producer_core
from ledgerfold.broker.client.core.producer_core import ProducerCore
from ledgerfold.broker.client.streams.read_stream import ReadStream
from ledgerfold.storage.errors import AlreadyClosed, Timeout
from tests.support.fake_broker import QUICK, FakeBroker, ThreadedFakeBroker
from tests.support.waiting import WAIT_S, wait_until


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_core, "CLOSE_GRACE_S", 0.05)


@pytest.fixture
def silent_broker(broker: ThreadedFakeBroker) -> Iterator[ThreadedFakeBroker]:
    """A broker that sends no receipts."""
    broker.do(broker.service.may_answer.clear)
    yield broker
    broker.do(broker.service.may_answer.set)


def in_time(call: Callable[[], object]) -> None:
    """Runs a call in a thread. Raises its error, or AssertionError if it does not end."""
    errors: list[Exception] = []

    def run() -> None:
        try:
            call()
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(WAIT_S)
    assert not thread.is_alive()
    if errors:
        raise errors[0]


def sent(producer: Producer) -> list[str]:
    """Sends a message, and returns the list that its result is added to."""
    results: list[str] = []
    producer.send_async(b"v", lambda result, _: results.append(result.name))
    return results


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("partitions", [0, 2])
@pytest.mark.parametrize("send_timeout_millis", [0, 30_000])
def test_close_does_not_wait_for_a_broker_that_is_gone(
    broker: ThreadedFakeBroker, client: Client, partitions: int, send_timeout_millis: int
) -> None:
    broker.service.partitions["t"] = partitions
    producer = client.create_producer("t", send_timeout_millis=send_timeout_millis)
    broker.stop_now()
    results = sent(producer)
    in_time(producer.close)
    assert results == ["AlreadyClosed"]
    in_time(client.close)


@pytest.mark.usefixtures("impatient")
def test_close_raises_if_a_message_without_a_callback_is_lost(
    broker: ThreadedFakeBroker, client: Client
) -> None:
    """The client is closed all the same."""
    producer = client.create_producer("t", send_timeout_millis=0)
    broker.stop_now()
    producer.send_async(b"v", None)
    with pytest.raises(AlreadyClosed, match="producer"):
        in_time(client.close)
    with pytest.raises(AlreadyClosed, match="client"):
        client.create_producer("t")


def test_close_waits_for_a_broker_that_returns(broker: ThreadedFakeBroker, client: Client) -> None:
    """A restart within the grace loses nothing."""
    producer = client.create_producer("t", send_timeout_millis=0)
    broker.stop_now()
    results = sent(producer)
    closing = threading.Thread(target=producer.close)
    closing.start()
    wait_until(lambda: producer._core.queue._error is not None, "the close")  # type: ignore[union-attr]
    assert results == []
    broker.start_now()
    closing.join(WAIT_S)
    assert results == ["Ok"]


@pytest.mark.usefixtures("impatient")
def test_close_does_not_wait_for_a_silent_broker(silent_broker: ThreadedFakeBroker) -> None:
    """Without a send timeout, the operation timeout is the bound of each receipt."""
    client = Client(silent_broker.address, operation_timeout_seconds=2)
    producer = client.create_producer("t", send_timeout_millis=0)
    results = sent(producer)
    in_time(client.close)
    assert results == ["AlreadyClosed"]


def test_the_send_timeout_bounds_a_close(silent_broker: ThreadedFakeBroker) -> None:
    """A silent broker does not shorten it."""
    client = Client(silent_broker.address, operation_timeout_seconds=2)
    results = sent(client.create_producer("t", send_timeout_millis=3000))
    in_time(client.close)
    assert results == ["Timeout"]


def test_a_client_closes_everything_at_the_same_time(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bounds of several producers do not add up."""
    close, closing = ProducerCore.close, asyncio.Barrier(3)

    async def close_together(core: ProducerCore) -> None:
        await closing.wait()
        await close(core)

    for _ in range(3):
        client.create_producer("t")
    monkeypatch.setattr(ProducerCore, "close", close_together)
    in_time(client.close)


def test_a_shutdown_waits_for_no_reader(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither for one of a table view."""
    graces: list[float] = []
    close = ReadStream.close

    async def recorded(stream: ReadStream, grace_s: float = 5) -> None:
        graces.append(grace_s)
        await close(stream, grace_s)

    client.create_reader("t", MessageId.earliest)
    client.create_table_view("t")
    monkeypatch.setattr(ReadStream, "close", recorded)
    client.shutdown()
    assert graces == [0, 0]


def test_a_shutdown_ends_a_pending_refresh(broker: ThreadedFakeBroker, client: Client) -> None:
    async def never(_: Any) -> None:
        await asyncio.Event().wait()

    view = client.create_table_view("t")
    (follower,) = view._core.cores
    follower.catch_up = lambda: never(None)  # type: ignore[method-assign]
    refreshing = view.refresh_async()
    client.shutdown()
    with pytest.raises(AlreadyClosed, match="table view"):
        refreshing.result(WAIT_S)


@pytest.mark.usefixtures("impatient")
def test_the_asyncio_client_does_not_wait_either() -> None:
    async def run() -> None:
        broker = FakeBroker()
        await broker.start()
        client = aio.Client(broker.address, **QUICK)
        producer = await client.create_producer("t", send_timeout_millis=0)
        await broker.stop()
        sending = asyncio.create_task(producer.send(b"v"))
        await asyncio.sleep(0)
        await client.close()
        with pytest.raises(AlreadyClosed):
            await sending
        with pytest.raises(AlreadyClosed):
            await producer.flush()

    asyncio.run(asyncio.wait_for(run(), WAIT_S))


@pytest.mark.parametrize("partitions", [0, 2])
def test_a_closed_producer_refuses_a_flush(
    broker: ThreadedFakeBroker, client: Client, partitions: int
) -> None:
    """As Pulsar's: what a flush would wait for is not known any more."""
    broker.service.partitions["t"] = partitions
    producer = client.create_producer("t")
    producer.close()
    producer.close()
    for _ in range(2):
        with pytest.raises(AlreadyClosed):
            producer.flush()


def test_flush_is_bounded_by_the_send_timeout(broker: ThreadedFakeBroker, client: Client) -> None:
    producer = client.create_producer("t", send_timeout_millis=50)
    broker.stop_now()
    producer.send_async(b"v", None)
    with pytest.raises(Timeout):
        in_time(producer.flush)
