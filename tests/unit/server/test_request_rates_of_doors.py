"""The limit of requests a second at each door of a broker."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import grpc
import pytest

from ledgerfold.broker.common.request_rates import RequestRates
from ledgerfold.broker.pulsar.connection import Connection
from ledgerfold.broker.pulsar.frames import Splitter, encode, parse
from ledgerfold.broker.pulsar.shared import Shared
from ledgerfold.broker.rpc.stream import EOF
from ledgerfold.rpc_errors import error_from_rpc
from ledgerfold.storage.errors import TooManyRequests
from ledgerfold.v1 import data_pb2, pulsar_pb2
from ledgerfold.v1.admin_pb2 import GetClockRequest
from ledgerfold.v1.pulsar_pb2 import BaseCommand
from tests.model.broker_lab import BrokerLab
from tests.pulsar.recorded import CONNECT, frame_of, metadata, producer, send
from tests.support.http_lab import HttpLab
from tests.support.page_lab import PageLab
from tests.support.recording_transport import Client
from tests.support.served_lab import ServedLab, end_of, write
from tests.support.waiting import WAIT_S

LIMIT = 3


class Limit(RequestRates):
    """A limit under a clock that stands."""

    def __init__(self) -> None:
        self.now_s = 0.0
        super().__init__(LIMIT, lambda: self.now_s)


@pytest.fixture
def lab() -> Iterator[BrokerLab]:
    lab = BrokerLab()
    yield lab
    lab.stop()


def test_grpc_calls_and_streams_are_limited(lab: BrokerLab) -> None:
    limit = lab.broker.rates = Limit()
    served = ServedLab(lab)
    opening = data_pb2.PublishRequest(open=data_pb2.PublishOpen(topic="t"))

    async def opened() -> Any:
        call = served.channel.stream_stream("/ledgerfold.v1.DataService/Publish")()
        await write(call, opening.SerializeToString())
        return call

    try:
        call = served.run(opened())
        assert served.run(call.read()) is not EOF
        for _ in range(LIMIT - 1):
            served.ask(GetClockRequest())
        with pytest.raises(grpc.RpcError) as error:
            served.ask(GetClockRequest())
        assert isinstance(error_from_rpc(error.value), TooManyRequests)
        refused = served.run(opened())
        assert "requests a second" in served.run(end_of(refused)).details()
        # Probes are answered, and what is open stays so.
        check = served.channel.unary_unary("/grpc.health.v1.Health/Check")
        served.run(check_of(check))
        assert not call.done()
        limit.now_s += 1
        served.ask(GetClockRequest())
        call.cancel()
    finally:
        served.close()


async def check_of(check: Any) -> None:
    await check(b"")


def test_http_requests_are_limited() -> None:
    lab = HttpLab()
    limit = lab.broker.rates = Limit()
    try:
        for _ in range(LIMIT):
            assert lab.status("GET", "/tenants") == 200
        refused = lab.ask("GET", "/tenants")
        assert refused.status == 429
        assert refused.headers["Retry-After"] == "1"
        assert "--max-requests-per-second" in refused.reason
        assert lab.status("GET", "/brokers/health") == 200
        limit.now_s += 0.5
        assert lab.status("GET", "/tenants") == 200
    finally:
        lab.close()


def test_page_requests_are_limited() -> None:
    lab = PageLab()
    lab.broker.rates = Limit()
    try:
        assert [lab.ask("/").status for _ in range(LIMIT + 1)] == [200] * LIMIT + [429]
    finally:
        lab.close()


def test_pulsar_commands_are_limited(lab: BrokerLab) -> None:
    """A connection counts, and so does what asks for something; messages do not."""
    limit = lab.broker.rates = Limit()
    splitter = Splitter(2**20)

    async def scenario() -> None:
        shared, client = Shared(lab.broker), Client()
        connection = Connection(shared)
        connection.connection_made(client)

        async def answer(frame: bytes) -> BaseCommand:
            connection.data_received(frame)
            data: Any = await asyncio.wait_for(client.answers.get(), WAIT_S)
            (found,) = splitter.feed(data)
            return parse(found).command

        assert (await answer(encode(CONNECT))).type == pulsar_pb2.CONNECTED
        assert (await answer(encode(producer("t")))).type == pulsar_pb2.PRODUCER_SUCCESS
        lookup = pulsar_pb2.CommandLookup(topic="t", request_id=9)
        asked = encode(BaseCommand(type=pulsar_pb2.LOOKUP, lookup=lookup))
        assert not (await answer(asked)).lookup_response.HasField("error")
        refused = (await answer(asked)).lookup_response
        assert refused.error == pulsar_pb2.TOO_MANY_REQUESTS
        for number in range(2 * LIMIT):
            sent = await answer(frame_of(send(number), metadata(number), b"x"))
            assert sent.type == pulsar_pb2.SEND_RECEIPT
        # One more connection is refused.
        other = Client()
        connection_of_other = Connection(shared)
        connection_of_other.connection_made(other)
        connection_of_other.data_received(encode(CONNECT))
        data: Any = await asyncio.wait_for(other.answers.get(), WAIT_S)
        (found,) = splitter.feed(data)
        assert parse(found).command.error.error == pulsar_pb2.TOO_MANY_REQUESTS
        limit.now_s += 1
        assert not (await answer(asked)).lookup_response.HasField("error")
        for each in (connection, connection_of_other):
            each.connection_lost(None)
        await asyncio.sleep(0)

    lab.run(asyncio.wait_for(scenario(), WAIT_S))
