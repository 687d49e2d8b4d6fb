"""The Subscribe stream over real gRPC, on a topic in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import pytest

from ledgerfold.broker.common.settings import BrokerSettings
from ledgerfold.broker.rpc.data import data_calls
from ledgerfold.broker.rpc.handlers import service_handlers
from ledgerfold.broker.rpc.subscribe import SLICE_POSITIONS, _frames
from ledgerfold.broker.server.grpc_server import DATA_SERVICE
from ledgerfold.broker.subscriptions.consumer import Delivery, Output
from ledgerfold.broker.subscriptions.cursor import Cursor
from ledgerfold.broker.topics.partitions import Partitions
from ledgerfold.broker.wire.frames import FRAME_BYTES_MAX
from ledgerfold.rpc_errors import error_from_rpc
from ledgerfold.storage.entry import ENTRY_BYTES_MAX, read_header
from ledgerfold.storage.entry import Position as EntryPosition
from ledgerfold.storage.errors import (
    InvalidRequest,
    Moved,
    NotAllowed,
    RequestError,
    SubscriptionBusy,
    SubscriptionNotFound,
    TopicNotFound,
)
from ledgerfold.storage.key_value import MemoryKeyValue
from ledgerfold.storage.metadata import MetadataStore
from ledgerfold.v1 import data_pb2
from ledgerfold.v1.records_pb2 import Position
from tests.support.inline_executor import InlineExecutor
from tests.support.subscription_lab import MemoryTopic
from tests.support.turns import Turns
from tests.support.waiting import WAIT_S

SERVICE = "ledgerfold.v1.DataService"


class TopicsInMemory:
    settings = BrokerSettings(Path("nowhere"))

    def __init__(self) -> None:
        self.topics: dict[str, MemoryTopic] = {}
        self.partitions = Partitions(MetadataStore(MemoryKeyValue()), InlineExecutor, self.clock_ms)

    def clock_ms(self) -> int:
        return 1_000

    async def topic(self, name: str, create: bool = True) -> MemoryTopic:
        if name not in self.topics and not create:
            raise TopicNotFound(name)
        return self.topics.setdefault(name, MemoryTopic(name))

    pulsar_topic = topic


class Stream:
    """A client's end of a Subscribe stream."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        method: Any = channel.stream_stream(
            f"/{SERVICE}/Subscribe",
            request_serializer=data_pb2.SubscribeRequest.SerializeToString,
            response_deserializer=data_pb2.SubscribeResponse.FromString,
        )
        self.call = method()

    async def open(self, **fields: Any) -> str:
        opening = {"topic": "t", "subscription": "s", "durable": True, **fields}
        opening.setdefault("start", data_pb2.StartPosition(earliest=True))
        await self.send(open=data_pb2.SubscribeOpen(**opening))
        response = await self.read()
        self.incarnation = response.ready.incarnation
        return str(response.ready.consumer_name)

    async def send(self, **step: Any) -> None:
        await self.call.write(data_pb2.SubscribeRequest(**step))

    async def read(self) -> data_pb2.SubscribeResponse:
        response = await self.call.read()
        assert isinstance(response, data_pb2.SubscribeResponse), "the stream has ended"
        return response

    async def entries(self, count: int) -> list[tuple[int, int]]:
        """(entry id, redelivery count) of the next deliveries."""
        received: list[tuple[int, int]] = []
        while len(received) < count:
            received += [
                (read_header(each.entry).entry_id, each.redelivery_count)
                for each in (await self.read()).deliveries
            ]
        return received

    async def is_ended(self) -> bool:
        return not isinstance(await self.call.read(), data_pb2.SubscribeResponse)

    async def error(self) -> Exception:
        """Returns the error that ended the stream."""
        try:
            while not await self.is_ended():
                pass
        except grpc.aio.AioRpcError as error:
            return error_from_rpc(error)
        raise AssertionError("the stream ended well")


def run(test: Callable[[TopicsInMemory, grpc.aio.Channel], Awaitable[None]]) -> None:
    async def all_of_it() -> None:
        broker = TopicsInMemory()
        async with asyncio.timeout(WAIT_S), serving(broker) as channel:
            await test(broker, channel)

    asyncio.run(all_of_it())


class serving:  # noqa: N801 - used as a context manager
    def __init__(self, broker: Any) -> None:
        self.server = grpc.aio.server()

        self.server.add_generic_rpc_handlers((service_handlers(DATA_SERVICE, data_calls(broker)),))
        self.port = self.server.add_insecure_port("127.0.0.1:0")

    async def __aenter__(self) -> grpc.aio.Channel:
        await self.server.start()
        self.channel = grpc.aio.insecure_channel(f"127.0.0.1:{self.port}")
        return self.channel

    async def __aexit__(self, *_: object) -> None:
        await self.channel.close(None)
        await self.server.stop(None)


async def until(holds: Callable[[], bool]) -> None:
    """Lets the loop turn until it holds; the test's timeout bounds it."""
    while not holds():  # noqa: ASYNC110 - what is waited for has no event
        await asyncio.sleep(0)


def has_consumers(broker: TopicsInMemory) -> bool:
    subscriptions = broker.topics["persistent://public/default/t"].subscriptions
    return any(each.consumers for each in subscriptions.values())


def test_a_consumer_gets_acknowledges_and_releases_entries() -> None:
    """The life of a consumer: entries, an answered ack, a redelivery, half-close, detached."""

    async def test(broker: TopicsInMemory, channel: grpc.aio.Channel) -> None:
        stream = Stream(channel)
        assert await stream.open(consumer_name="me") == "me"
        await stream.send(permits=10)
        topic = broker.topics["persistent://public/default/t"]
        topic.log.publish("a=1", "b=1", "c=1")
        assert await stream.entries(3) == [(0, 0), (1, 0), (2, 0)]
        ack = data_pb2.Ack(positions=[Position(ledger_id=0, entry_id=0)], request_id=7)
        await stream.send(ack=ack)
        assert list((await stream.read()).acked_request_ids) == [7]
        assert topic.written[-1].mark_delete.entry_id == 0
        assert topic.written[-1].created_ms == 1_000
        await stream.send(redeliver=data_pb2.Redeliver())
        assert await stream.entries(2) == [(1, 0), (2, 0)]
        await stream.call.done_writing()
        assert await stream.is_ended()
        await until(lambda: not topic.subscriptions["s"].consumers)

    run(test)


def test_a_cancelled_streams_entries_go_to_the_next_consumer() -> None:
    """A disconnected client is detached, and a non-durable subscription is deleted with it."""

    async def test(broker: TopicsInMemory, channel: grpc.aio.Channel) -> None:
        one, two = Stream(channel), Stream(channel)
        shared = data_pb2.SUBSCRIPTION_TYPE_SHARED
        await one.open(type=shared)
        topic = broker.topics["persistent://public/default/t"]
        topic.log.publish("a=1", "b=1")
        await one.send(permits=10)
        assert len(await one.entries(2)) == 2
        await two.open(type=shared)
        await two.send(permits=10)
        one.call.cancel()
        assert await two.entries(2) == [(0, 0), (1, 0)]
        passing = Stream(channel)
        await passing.open(subscription="", durable=False)
        assert len(topic.subscriptions) == 2
        passing.call.cancel()
        await until(lambda: list(topic.subscriptions) == ["s"])

    run(test)


def test_failover_consumers_are_notified_of_their_state() -> None:
    """The state is a separate response."""

    async def test(broker: TopicsInMemory, channel: grpc.aio.Channel) -> None:
        one, two = Stream(channel), Stream(channel)
        failover = data_pb2.SUBSCRIPTION_TYPE_FAILOVER
        await one.open(type=failover, consumer_name="one")
        assert (await one.read()).active is True
        await two.open(type=failover, consumer_name="two")
        response = await two.read()
        assert response.HasField("active")
        assert response.active is False
        one.call.cancel()
        assert (await two.read()).active is True

    run(test)


def test_seek_and_unsubscribe_end_streams_with_a_reason() -> None:
    """A seek ends them with Moved, to return to another incarnation; busy without force; not found
    afterwards.
    """

    async def test(broker: TopicsInMemory, channel: grpc.aio.Channel) -> None:
        stub_seek = channel.unary_unary(
            f"/{SERVICE}/Seek",
            data_pb2.SeekRequest.SerializeToString,
            data_pb2.SeekResponse.FromString,
        )
        stub_unsubscribe = channel.unary_unary(
            f"/{SERVICE}/Unsubscribe",
            data_pb2.UnsubscribeRequest.SerializeToString,
            data_pb2.UnsubscribeResponse.FromString,
        )
        stream = Stream(channel)
        await stream.open()
        start = data_pb2.StartPosition(earliest=True)
        answer = await stub_seek(data_pb2.SeekRequest(topic="t", subscription="s", start=start))
        assert isinstance(await stream.error(), Moved)
        again = Stream(channel)
        await again.open()
        assert stream.incarnation != again.incarnation == answer.incarnation
        request = data_pb2.UnsubscribeRequest(topic="t", subscription="s")
        with pytest.raises(grpc.aio.AioRpcError) as busy:
            await stub_unsubscribe(request)
        assert isinstance(error_from_rpc(busy.value), SubscriptionBusy)
        request.force = True
        await stub_unsubscribe(request)
        assert isinstance(await again.error(), SubscriptionNotFound)
        with pytest.raises(grpc.aio.AioRpcError) as missing:
            await stub_unsubscribe(request)
        assert isinstance(error_from_rpc(missing.value), SubscriptionNotFound)
        with pytest.raises(grpc.aio.AioRpcError) as no_topic:
            await stub_seek(data_pb2.SeekRequest(topic="none", subscription="s", start=start))
        assert isinstance(error_from_rpc(no_topic.value), TopicNotFound)

    run(test)


@pytest.mark.parametrize(
    ("opening", "expected"),
    [
        (
            {"type": data_pb2.SUBSCRIPTION_TYPE_SHARED, "read_compacted": True},
            NotAllowed,
        ),
        ({"type": 17}, RequestError),
        ({"subscription": ""}, RequestError),
        ({"topic": "a/b"}, RequestError),
    ],
)
def test_a_refused_opening_creates_nothing(
    opening: dict[str, Any], expected: type[Exception]
) -> None:
    """SUB-01, SUB-05 and malformed requests: an error with its reason, and no topic."""

    async def test(broker: TopicsInMemory, channel: grpc.aio.Channel) -> None:
        stream = Stream(channel)
        fields = {"topic": "t", "subscription": "s", "durable": True, **opening}
        await stream.send(open=data_pb2.SubscribeOpen(**fields))
        assert isinstance(await stream.error(), expected)
        assert broker.topics == {}

    run(test)


def test_requests_in_the_wrong_order_end_the_stream() -> None:
    """The first request opens, and only the first; acks must make sense."""

    async def test(broker: TopicsInMemory, channel: grpc.aio.Channel) -> None:
        first = Stream(channel)
        await first.send(permits=5)
        assert isinstance(await first.error(), RequestError)
        for step in (
            {"open": data_pb2.SubscribeOpen(topic="t", subscription="s")},
            {},
            {"ack": data_pb2.Ack(cumulative=True)},
        ):
            stream = Stream(channel)
            await stream.open()
            await stream.send(**step)
            assert isinstance(await stream.error(), RequestError)
            await until(lambda: not has_consumers(broker))

    run(test)


def test_many_acknowledgements_yield_to_other_tasks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One request that names them all has one answer, when all are durable."""

    async def test(broker: TopicsInMemory, channel: grpc.aio.Channel) -> None:
        acked = list[EntryPosition]()
        acknowledge = Cursor.acknowledge

        def counted(cursor: Cursor, position: EntryPosition) -> bool:
            acked.append(position)
            return acknowledge(cursor, position)

        stream = Stream(channel)
        await stream.open(type=data_pb2.SUBSCRIPTION_TYPE_SHARED)
        topic = broker.topics["persistent://public/default/t"]
        topic.log.publish(*["a=1"] * 2_000)
        await stream.send(permits=2_000)
        await stream.entries(2_000)
        named = [Position(ledger_id=0, entry_id=n) for n in range(2_000)]
        monkeypatch.setattr(Cursor, "acknowledge", counted)
        async with Turns(lambda: len(acked)) as turns:
            await stream.send(ack=data_pb2.Ack(positions=named, request_id=7))
            assert list((await stream.read()).acked_request_ids) == [7]
        assert topic.written[-1].mark_delete.entry_id == 1_999
        assert turns.most <= SLICE_POSITIONS

    run(test)


def test_a_missing_or_too_long_first_request_ends_the_stream() -> None:
    """Both with a sentence."""

    async def test(broker: TopicsInMemory, channel: grpc.aio.Channel) -> None:
        stream = Stream(channel)
        await stream.open()
        named = [Position(ledger_id=2**40, entry_id=2**40)] * 150_000
        await stream.send(ack=data_pb2.Ack(positions=named))
        error = await stream.error()
        assert isinstance(error, InvalidRequest)
        assert "fewer positions" in str(error)
        method: Any = channel.stream_stream
        call = method(f"/{SERVICE}/Subscribe")()
        await call.write(b"\xff")
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await call.read()
        assert isinstance(error_from_rpc(refused.value), InvalidRequest)

    run(test)


def test_a_response_above_the_frame_limit_is_split() -> None:
    """A consumer may be given a small entry and the largest one after it at once."""
    sizes = [1024 * 1024 - 1, ENTRY_BYTES_MAX, *[3] * 10]
    deliveries = [Delivery(EntryPosition(0, n), 1, bytes(size), 1) for n, size in enumerate(sizes)]
    frames = list(_frames(Output(None, list(range(25_000)), deliveries)))
    assert max(map(len, frames)) <= FRAME_BYTES_MAX
    responses = [data_pb2.SubscribeResponse.FromString(frame) for frame in frames]
    assert [id for each in responses for id in each.acked_request_ids] == list(range(25_000))
    sent = [each for response in responses for each in response.deliveries]
    assert [len(each.entry) for each in sent] == sizes
    assert {each.redelivery_count for each in sent} == {1}
    assert len(frames) == 3 + 2
