"""Clients of this package's first version, which do not support entries of Pulsar's clients."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pulsar
import pytest

from ledgerfold.broker.client import Client, MessageId
from ledgerfold.rpc_errors import error_from_rpc
from ledgerfold.storage.errors import IncompatibleFormat
from ledgerfold.v1 import data_pb2
from tests.support.broker_process import BrokerProcess
from tests.support.served_lab import write
from tests.support.waiting import WAIT_MS

EOF: Any = grpc.aio.EOF  # type: ignore[attr-defined]
START = data_pb2.StartPosition(earliest=True)


def opening_of(method: str, topic: str) -> Any:
    """Returns the first request and a request for permits, as that version sends them."""
    if method == "Read":
        read = data_pb2.ReadRequest
        return read(open=data_pb2.ReadOpen(topic=topic, start=START)), read(permits=100)
    subscribe = data_pb2.SubscribeRequest
    opening = data_pb2.SubscribeOpen(topic=topic, subscription="old", durable=True, start=START)
    return subscribe(open=opening), subscribe(permits=100)


@pytest.mark.parametrize("method", ["Read", "Subscribe"])
def test_an_older_client_gets_an_error_about_its_version(
    client: pulsar.Client, native: Client, broker: BrokerProcess, topic: str, method: str
) -> None:
    """Not that the topic is damaged. A current client reads the entry."""
    name = f"persistent://public/default/{topic}"
    producer = client.create_producer(topic)
    producer.send(b"new")
    producer.close()

    async def read() -> None:
        async with grpc.aio.insecure_channel(broker.url) as opened:
            channel: Any = opened
            call = channel.stream_stream(f"/ledgerfold.v1.DataService/{method}")()
            for request in opening_of(method, name):
                # The call may end before the second one.
                await write(call, request.SerializeToString())
            while await call.read() is not EOF:
                pass
            raise AssertionError("the stream ended well")

    with pytest.raises(grpc.aio.AioRpcError) as failed:
        asyncio.run(read())
    error = error_from_rpc(failed.value)
    assert isinstance(error, IncompatibleFormat)
    assert "Use a newer build" in error.message
    with native.create_reader(topic, MessageId.earliest) as reader:
        assert reader.read_next(WAIT_MS).data() == b"new"


def test_a_consumer_gets_all_chunks_of_a_compressed_message(
    client: pulsar.Client, native: Client, topic: str
) -> None:
    """A part of a message that was compressed as a whole."""
    producer = client.create_producer(
        topic, chunking_enabled=True, compression_type=pulsar.CompressionType.LZ4
    )
    consumer = native.subscribe(topic, "s")
    content = bytes(range(256)) * 40_000
    content = b"".join(each.to_bytes(4, "big") for each in range(0, 2**32, 2300)) + content
    producer.send(content)
    chunks = 0
    while consumer.has_message_available():
        message = consumer.receive(WAIT_MS)
        assert message.data()
        consumer.acknowledge(message)
        chunks += 1
    assert chunks > 1
    producer.close()
