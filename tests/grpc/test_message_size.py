"""`serve --max-message-size`: the accepted sizes, and the errors for larger messages."""

from __future__ import annotations

import random
from typing import Any

import grpc
import pytest

from ledgerfold.broker.client import Client, MessageId, PartitionsRoutingMode
from ledgerfold.broker.wire.frames import encode_entries
from ledgerfold.rpc_errors import error_from_rpc
from ledgerfold.storage.errors import InvalidRequest, MessageTooLarge
from ledgerfold.storage.native import NativeBatchBuilder
from ledgerfold.v1 import data_pb2
from tests.conftest import MakeBroker
from tests.support.command_line import ledgerfold
from tests.support.waiting import WAIT_S

MIB = 1024 * 1024
# Incompressible.
NOISE = random.Random(0).randbytes(16 * MIB)


def test_the_default_is_pulsars(broker_process: MakeBroker) -> None:
    """5 MiB, with room for key and properties; only a message one byte larger is refused."""
    with Client(broker_process().url) as client:
        producer = client.create_producer("t", batching_enabled=False)
        producer.send(NOISE[: 5 * MIB], partition_key="k" * 1000, properties={"a": "b" * 1000})
        with pytest.raises(MessageTooLarge, match=r"up to 5253120: .*--max-message-size") as caught:
            producer.send(NOISE[: 5 * MIB + 10 * 1024])
        assert isinstance(caught.value, InvalidRequest)
        producer.send(b"next")
        reader = client.create_reader("t", MessageId.earliest)
        assert [len(message.data()) for message in reader] == [5 * MIB, 4]


def test_the_client_splits_batches_above_the_limit(broker_process: MakeBroker) -> None:
    """The client gets the limit, and divides larger batches into several entries."""
    with Client(broker_process("--max-message-size", "100K").url) as client:
        producer = client.create_producer(
            "t",
            batching_enabled=True,
            batching_max_allowed_size_in_bytes=MIB,
            batching_max_publish_delay_ms=10_000,
            message_routing_mode=PartitionsRoutingMode.UseSinglePartition,
        )
        for number in range(40):
            producer.send_async(NOISE[number * 10_000 : (number + 1) * 10_000], None)
        producer.flush()
        messages = list(client.create_reader("t", MessageId.earliest))
        assert b"".join(message.data() for message in messages) == NOISE[:400_000]
        entries = {message.message_id().entry_id() for message in messages}
        assert 400_000 / 112_640 < len(entries) < 40


def test_a_bare_frame_counts_as_a_whole(broker_process: MakeBroker) -> None:
    """An entry counts completely, with the bytes that a compaction may add to it."""
    builder = NativeBatchBuilder("p")
    for number in range(11):
        builder.add(NOISE[number * 10_000 : (number + 1) * 10_000], b"%d" % number)
    entry = builder.build(sequence_id=10, publish_time_ms=0)
    assert 100_000 < len(entry) < 112_640
    with grpc.insecure_channel(broker_process("--max-message-size", "90K").url) as channel:
        method: Any = channel.stream_stream
        call = method("/ledgerfold.v1.DataService/Publish")
        opening = data_pb2.PublishRequest(open=data_pb2.PublishOpen(topic="t"))
        with pytest.raises(grpc.RpcError) as failure:
            list(call(iter([opening.SerializeToString(), encode_entries([entry])]), timeout=WAIT_S))
    error = error_from_rpc(failure.value)
    assert failure.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert isinstance(error, MessageTooLarge)
    assert "--max-message-size" in str(error)


def test_the_largest_size_is_the_limit_of_an_entry(broker_process: MakeBroker) -> None:
    """Tests the limit of an entry's size."""
    with Client(broker_process("--max-message-size", "16M").url) as client:
        client.create_producer("t").send(NOISE[: 16 * MIB - 1000])
        reader = client.create_reader("t", MessageId.earliest)
        assert [len(message.data()) for message in reader] == [16 * MIB - 1000]
    for size, says in (("16777217", "must be at most 16 MiB"), ("0", "must be 1 or more")):
        ran = ledgerfold("serve", "--data", "d", "--max-message-size", size)
        assert ran.code == 2
        assert says in ran.err
