"""A defect in a stream's source: the client gets an error, the broker logs it, nothing is left."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any, NoReturn, cast

import grpc
import pytest

from ledgerfold.broker.rpc import stream
from ledgerfold.broker.rpc.data import data_calls
from ledgerfold.broker.rpc.handlers import service_handlers
from ledgerfold.broker.server.grpc_server import DATA_SERVICE
from ledgerfold.broker.subscriptions.subscription import Subscription
from ledgerfold.broker.topics.producer import Producer
from ledgerfold.broker.topics.reader import Reader
from ledgerfold.broker.wire.frames import encode_entries
from ledgerfold.rpc_errors import error_from_rpc
from ledgerfold.storage.errors import LedgerfoldError
from ledgerfold.v1 import data_pb2
from tests.model.broker_lab import TOPIC, BrokerLab
from tests.model.log_model import Message

START = data_pb2.StartPosition(earliest=True)
OPENINGS: dict[str, Any] = {
    "Publish": data_pb2.PublishRequest(open=data_pb2.PublishOpen(topic=TOPIC)),
    "Subscribe": data_pb2.SubscribeRequest(
        open=data_pb2.SubscribeOpen(topic=TOPIC, subscription="s", durable=True, start=START)
    ),
    "Read": data_pb2.ReadRequest(open=data_pb2.ReadOpen(topic=TOPIC, start=START)),
}


@pytest.fixture
def lab() -> Iterator[BrokerLab]:
    lab = BrokerLab()
    yield lab
    lab.stop()


def served() -> list[str]:
    """The tasks that are in a stream's handler."""
    found = [cast(Any, task.get_coro()).cr_code for task in asyncio.all_tasks()]
    return [code.co_qualname for code in found if "/broker/rpc/" in code.co_filename]


async def until(holds: Callable[[], bool]) -> None:
    """Lets the loop turn until it holds; the lab's timeout bounds it."""
    while not holds():  # noqa: ASYNC110 - what is waited for has no event
        await asyncio.sleep(0)


async def read_all(call: Any) -> None:
    while await call.read() is not stream.EOF:
        pass


async def end_of(lab: BrokerLab, method: str, step: bytes | None) -> grpc.aio.AioRpcError:
    """Returns the end of a stream that a defect ends, which `step` raises unless it is None."""
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((service_handlers(DATA_SERVICE, data_calls(lab.broker)),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            method_of: Any = channel.stream_stream
            call = method_of(f"/ledgerfold.v1.DataService/{method}")()
            await call.write(OPENINGS[method].SerializeToString())
            if step is not None:
                await call.read()
                assert len(served()) == 2
                await call.write(step)
            with pytest.raises(grpc.aio.AioRpcError) as raised:
                await read_all(call)
            await until(lambda: not served())
            return raised.value
    finally:
        await server.stop(None)


@pytest.mark.parametrize("method", OPENINGS)
def test_a_defect_ends_the_stream_with_an_error(
    lab: BrokerLab, method: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """INTERNAL, and a traceback in the broker's log; the stream's space is freed."""

    def broken(*_: object) -> NoReturn:
        raise KeyError("not thought of")

    steps = {
        "Publish": encode_entries([lab.entry([Message(b"k", b"v")], is_batch=False)]),
        "Subscribe": data_pb2.SubscribeRequest(permits=1).SerializeToString(),
        "Read": data_pb2.ReadRequest(permits=1).SerializeToString(),
    }
    monkeypatch.setattr(Producer, "append_all", broken)
    monkeypatch.setattr(Subscription, "add_permits", broken)
    monkeypatch.setattr(Reader, "add_permits", broken)
    ended = lab.run(end_of(lab, method, steps[method]))
    assert ended.code() is grpc.StatusCode.INTERNAL
    error = error_from_rpc(ended)
    assert type(error) is LedgerfoldError
    assert "KeyError" in error.message
    assert "not thought of" in caplog.text
    assert "Traceback" in caplog.text
    topic = lab.topic
    assert (topic.producers, topic.readers) == ({}, set())
    assert not any(each.consumers for each in topic.subscriptions.values())


@pytest.mark.parametrize("method", OPENINGS)
def test_a_defect_while_the_first_answer_is_written(
    lab: BrokerLab, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The status follows the answer. Tests had read the answer before they sent what fails, and
    met this only on a busy machine.
    """

    async def broken(*_: object) -> NoReturn:
        raise KeyError("not thought of")

    monkeypatch.setattr(stream, "feed", broken)
    ended = lab.run(end_of(lab, method, None))
    assert ended.code() is grpc.StatusCode.INTERNAL
    assert "KeyError" in error_from_rpc(ended).message
