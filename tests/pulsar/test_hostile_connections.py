"""Clients that damage, truncate, repeat or never read frames: no other client notices."""

from __future__ import annotations

import re
import socket
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ledgerfold.broker.client.administration.admin import Admin
from ledgerfold.broker.pulsar.frames import encode, message_id
from ledgerfold.v1 import pulsar_pb2
from ledgerfold.v1.pulsar_pb2 import BaseCommand
from tests.conftest import MakeBroker
from tests.pulsar.recorded import (
    CONNECT,
    RawClient,
    flow,
    frame_of,
    metadata,
    producer,
    send,
    subscribe,
)
from tests.support.broker_process import BrokerProcess
from tests.support.waiting import wait_until

# The memory of an idle connection, with its share of the libraries' buffers.
CONNECTION_BYTES_MAX = 64 * 1024
PING = BaseCommand(type=pulsar_pb2.PING, ping=pulsar_pb2.CommandPing())


def test_a_client_that_never_reads(url: str, raw: RawClient, topic: str) -> None:
    """Its entries wait in the log, not in memory; its requests wait, too."""
    raw.send(producer(topic))
    raw.read()
    for number in range(40):
        raw.socket.sendall(frame_of(send(number), metadata(number), bytes(1024 * 1024)))
        assert raw.read().send_receipt.sequence_id == number
    with RawClient(url) as lazy:
        lazy.send(subscribe(topic, initial_position=1))
        assert lazy.read().type == pulsar_pb2.SUCCESS
        lazy.send(flow(1_000_000))
        lazy.socket.settimeout(0.5)
        with pytest.raises(TimeoutError):
            lazy.socket.sendall(encode(PING) * 5_000_000)
        raw.send(PING)
        assert raw.read().type == pulsar_pb2.PONG
    raw.send(subscribe(topic, initial_position=1))
    raw.read_until(lambda each: each.type in (pulsar_pb2.SUCCESS, pulsar_pb2.ERROR))


def resident_bytes(pid: int) -> int:
    """Returns the memory of a process; 0 without /proc."""
    try:
        found = re.search(r"VmRSS:\s*(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    except FileNotFoundError:
        return 0
    assert found is not None
    return int(found[1]) * 1024


def test_many_idle_connections_use_little_memory(
    url: str, raw: RawClient, broker: BrokerProcess
) -> None:
    """Idle ones, and ones that have sent half a frame: they use little memory, and others are
    served.
    """
    before_bytes = resident_bytes(broker.pid)
    many = [RawClient(url, is_connected=False) for _ in range(1000)]
    for client in many:
        client.send(CONNECT)
    for client in many:
        assert client.read().type == pulsar_pb2.CONNECTED
    for client in many[:500]:
        client.socket.sendall((5 * 1024 * 1024).to_bytes(4, "big") + bytes(1000))
    raw.send(PING)
    assert raw.read().type == pulsar_pb2.PONG
    with Admin(broker.url) as admin:
        assert admin.broker_info().streams >= 1000
        assert resident_bytes(broker.pid) - before_bytes < 1000 * CONNECTION_BYTES_MAX
        for client in many:
            client.socket.close()
        wait_until(lambda: admin.broker_info().streams <= 1, "the end of all connections")


def test_incomplete_frames_are_bounded(broker_process: MakeBroker) -> None:
    """In total: the one that has waited the longest is closed."""
    broker = broker_process("--pulsar-listen", "127.0.0.1:0", "--unsent-max", "16M")
    url = str(broker.ready["pulsar"])
    half = (5 * 1024 * 1024).to_bytes(4, "big") + bytes(4 * 1024 * 1024)
    many = [RawClient(url) for _ in range(6)]
    with RawClient(url) as other:
        for client in many:
            client.socket.sendall(half)
            # At each turn of its loop the broker reads a part of what has arrived. It should have
            # read all of this before it gets something of the next one.
            for _ in range(100):
                other.send(PING)
                assert other.read().type == pulsar_pb2.PONG
    assert many[0].is_closed()
    many[-1].socket.settimeout(0.3)
    with pytest.raises(TimeoutError):
        many[-1].read()
    for client in many:
        client.socket.close()


RECORD = {
    "name": b"",
    "schema_data": b'{"type":"record","name":"A","fields":[{"name":"x","type":"int"}]}',
    "type": 4,
    "properties": [{"key": b"p", "value": b"q"}],
}
SESSION = (
    encode(producer("fuzz")),
    frame_of(send(1), metadata(1), b"value"),
    encode(subscribe("fuzz", initial_position=1)),
    encode(flow(100)),
    encode(
        BaseCommand(
            type=pulsar_pb2.ACK,
            ack={"consumer_id": 1, "ack_type": 1, "message_id": [message_id(1, 0)]},
        )
    ),
    encode(BaseCommand(type=28, seek={"consumer_id": 1, "request_id": 4})),
    encode(BaseCommand(type=29, get_last_message_id={"consumer_id": 1, "request_id": 5})),
    encode(BaseCommand(type=20, redeliver={"consumer_id": 1})),
    encode(BaseCommand(type=12, unsubscribe={"consumer_id": 1, "request_id": 6})),
    encode(BaseCommand(type=15, close_producer={"producer_id": 1, "request_id": 7})),
    encode(producer("fuzz", schema=RECORD)),
    encode(subscribe("fuzz", schema=RECORD)),
    encode(BaseCommand(type=34, get_schema={"request_id": 8, "topic": "fuzz"})),
    encode(
        BaseCommand(
            type=39, get_or_create_schema={"request_id": 9, "topic": "fuzz", "schema": RECORD}
        )
    ),
)


@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.lists(st.sampled_from(SESSION), max_size=20),
    st.integers(0, 2**16),
    st.integers(0, 255),
    st.integers(0, 2**16),
)
def test_a_session_with_damaged_cut_and_reordered_frames(
    broker: BrokerProcess, frames: list[bytes], at: int, flip: int, cut: int
) -> None:
    """Another client is served meanwhile, and the broker logs no defect."""
    url = str(broker.ready["pulsar"])
    data = bytearray(b"".join(frames))
    if data:
        data[at % len(data)] ^= flip
    with RawClient(url) as client, RawClient(url) as other:
        client.socket.sendall(bytes(data[: len(data) - cut % (len(data) + 1)]))
        # The end of the connection would end work in progress: some turns of the loop first.
        for _ in range(5):
            other.send(PING)
            assert other.read().type == pulsar_pb2.PONG
        client.socket.shutdown(socket.SHUT_WR)
        assert client.is_closed()
    assert "Traceback" not in broker.stderr, broker.stderr


@pytest.mark.parametrize("at", range(len(SESSION)))
def test_each_frame_of_a_session_damaged(broker: BrokerProcess, at: int) -> None:
    """Truncated, sent twice, too early, and with each of its bytes changed: no other client
    notices.
    """
    url, before, frame = str(broker.ready["pulsar"]), b"".join(SESSION[:at]), SESSION[at]
    spoiled = [before + frame[: len(frame) // 2], before + frame + frame, frame + before]
    step = max(1, len(frame) // 16)
    for number in range(0, len(frame), step):
        changed = bytearray(frame)
        changed[number] ^= 0x55
        spoiled.append(before + bytes(changed))
    with RawClient(url) as other:
        for data in spoiled:
            with RawClient(url) as client:
                client.socket.sendall(data)
                other.send(PING)
                assert other.read().type == pulsar_pb2.PONG
                client.socket.shutdown(socket.SHUT_WR)
                assert client.is_closed()
    assert "Traceback" not in broker.stderr, broker.stderr
