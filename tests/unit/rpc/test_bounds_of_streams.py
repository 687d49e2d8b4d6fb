"""All streams together have bounds, over a real connection."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest

from ledgerfold.broker.common import outgoing as outgoing_module
from ledgerfold.broker.rpc.stream import EOF, sever
from ledgerfold.broker.wire.frames import is_bulk
from ledgerfold.rpc_errors import error_from_rpc
from ledgerfold.storage.errors import LedgerfoldError, Overloaded
from ledgerfold.v1 import admin_pb2, data_pb2
from tests.model.broker_lab import TOPIC, BrokerLab
from tests.model.log_model import Message
from tests.support.served_lab import ServedLab, end_of, write

DATA = "/ledgerfold.v1.DataService"
EARLIEST = data_pb2.StartPosition(earliest=True)
ENTRY_BYTES, ENTRIES = 2**20, 24
PERMITS = 2**31


@pytest.fixture
def served() -> Iterator[ServedLab]:
    lab = BrokerLab()
    served = ServedLab(lab)
    yield served
    served.close()
    lab.stop()


async def opened(channel: Any, kind: str, name: str = "s") -> Any:
    """Returns a connected stream that requests all entries."""
    call = channel.stream_stream(f"{DATA}/{kind}")()
    if kind == "Read":
        opening: Any = data_pb2.ReadRequest(open=data_pb2.ReadOpen(topic=TOPIC, start=EARLIEST))
        permits: Any = data_pb2.ReadRequest(permits=PERMITS)
    else:
        subscribe = data_pb2.SubscribeOpen(topic=TOPIC, subscription=name, start=EARLIEST)
        opening = data_pb2.SubscribeRequest(open=subscribe)
        permits = data_pb2.SubscribeRequest(permits=PERMITS)
    await call.write(opening.SerializeToString())
    assert await call.read() is not EOF
    await call.write(permits.SerializeToString())
    return call


async def ended(call: Any) -> LedgerfoldError:
    """Returns how the call ended."""
    error = await end_of(call)
    assert error is not None
    return error_from_rpc(error)


async def until(condition: Callable[[], bool]) -> None:
    """Others have their turns, gRPC's threads, too."""
    while not condition():  # noqa: ASYNC110 - there is no event for it
        await asyncio.sleep(0.001)


def another_connection(served: ServedLab) -> Any:
    options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", -1)]
    return grpc.aio.insecure_channel(served.address, options=options)


def test_a_stream_beyond_the_limit_is_refused(served: ServedLab) -> None:
    """Streams of any kind are rejected with a text; shown by info, and accepted again when another
    one ends.
    """

    async def body() -> None:
        outgoing = served.lab.broker.outgoing
        outgoing.streams_max = 2
        calls = [await opened(served.channel, kind) for kind in ("Read", "Subscribe")]
        watch = served.channel.unary_stream("/grpc.health.v1.Health/Watch")(b"")
        for refused in (served.channel.stream_stream(f"{DATA}/Publish")(), watch):
            error = await ended(refused)
            assert isinstance(error, Overloaded)
            assert error.message.startswith("The broker has 2 streams (of producers, consumers")
            assert await refused.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        info = await served.asking(admin_pb2.GetBrokerInfoRequest())
        assert (info.streams, info.streams_max, info.streams_refused) == (2, 2, 2)
        calls[0].cancel()
        await until(lambda: outgoing.streams < 2)
        calls.append(await opened(served.channel, "Read"))
        for call in calls:
            call.cancel()

    served.run(body())


@pytest.mark.parametrize("kind", ["Read", "Subscribe"])
def test_clients_that_read_nothing_are_disconnected(
    served: ServedLab, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their entries stay within the limit; when others need the space, they are ended and the
    others served.
    """
    monkeypatch.setattr(outgoing_module, "STALLED_S", 0.3)
    monkeypatch.setattr(outgoing_module, "_CHECK_S", 0.05)
    served.lab.publish([([Message(b"k", b"v" * ENTRY_BYTES)], False)] * ENTRIES)
    outgoing = served.lab.broker.outgoing
    outgoing.bytes_max = 4 * ENTRY_BYTES

    async def body() -> None:
        channels = [another_connection(served) for _ in range(6)]
        stuck = [
            await opened(channel, kind, f"s{number}") for number, channel in enumerate(channels)
        ]
        await until(lambda: bool(outgoing.waiting))
        # The last ones were let in while there was room for the least.
        assert outgoing.unsent_bytes <= outgoing.bytes_max + len(stuck) * ENTRY_BYTES
        stats = await served.asking(admin_pb2.GetTopicStatsRequest(topic=TOPIC))
        told = json.loads(stats.json)["subscriptions"].values()
        unsent = [each["unsentBytes"] for one in told for each in one["consumers"]]
        assert max(unsent) >= ENTRY_BYTES

        call, received = await opened(served.channel, kind, "reads"), 0
        while received < ENTRIES:
            received += is_bulk(frame := await call.read()) and frame.count(b"v" * ENTRY_BYTES)
        call.cancel()
        assert outgoing.streams_ended > 0
        assert (await served.asking(admin_pb2.GetBrokerInfoRequest())).streams_ended > 0
        over = [each for each in stuck if each.done()]
        assert over
        for each in over:
            # Its connection went; or it took the error at the last moment.
            assert await end_of(each) is not None
        for channel in channels:
            await channel.close()
        await until(lambda: not (outgoing.streams or outgoing.unsent_bytes))

    served.run(body())


def test_a_reader_without_permits_frees_its_space(served: ServedLab) -> None:
    """Entries read ahead for it are dropped, and read again on request: it stays connected."""
    served.lab.publish([([Message(b"k", b"%d" % number * 1000)], False) for number in range(90)])
    outgoing = served.lab.broker.outgoing
    outgoing.bytes_max = outgoing_module.READ_LEAST

    async def body() -> None:
        idle = served.channel.stream_stream(f"{DATA}/Read")()
        opening = data_pb2.ReadRequest(open=data_pb2.ReadOpen(topic=TOPIC, start=EARLIEST))
        await idle.write(opening.SerializeToString())
        await idle.read()
        await idle.write(data_pb2.ReadRequest(permits=1).SerializeToString())
        first = await idle.read()
        call, received = await opened(served.channel, "Read"), b""
        while b"89" * 1000 not in received:
            received += await call.read()
        call.cancel()
        await idle.write(data_pb2.ReadRequest(permits=PERMITS).SerializeToString())
        while b"89" * 1000 not in first:
            first += await idle.read()
        assert first.count(b"8" * 1000) == received.count(b"8" * 1000)
        idle.cancel()
        assert outgoing.streams_ended == 0

    served.run(body())


def test_pending_questions_of_a_client_are_bounded(
    served: ServedLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client sends many requests without reading the answers."""
    monkeypatch.setattr("ledgerfold.broker.topics.stream_reader.CHECKS_MAX", 3)
    outgoing = served.lab.broker.outgoing
    assert outgoing.share().reserve(outgoing.bytes_max)
    outgoing.bytes_max = 0

    async def body() -> None:
        call = await opened(served.channel, "Read")
        for number in range(1, 6):
            # The last one may find the call ended.
            await write(call, data_pb2.ReadRequest(check_id=number).SerializeToString())
        error = await ended(call)
        assert isinstance(error, Overloaded)
        assert "3 checks for more entries are unanswered" in error.message

    served.run(body())


@pytest.mark.parametrize("peer", ["unix:/run/x", "ipv4:127.0.0.1:", "ipv4:127.0.0.1:1", "", "a:b"])
def test_a_missing_connection_is_unavailable(peer: str) -> None:
    assert not sever(peer)
