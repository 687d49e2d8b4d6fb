"""Connections that break, or close, in the middle of a command."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from ledgerfold.broker.client import MessageId
from ledgerfold.broker.client.administration.admin import Admin
from ledgerfold.broker.pulsar.frames import encode
from ledgerfold.v1 import pulsar_pb2
from ledgerfold.v1.pulsar_pb2 import BaseCommand, SingleMessageMetadata
from tests.pulsar.recorded import RawClient, flow, frame_of, metadata, producer, send, subscribe
from tests.support.broker_process import BrokerProcess
from tests.support.waiting import wait_until


def named(topic: str, **options: Any) -> BaseCommand:
    return producer(topic, producer_name=b"own", user_provided_producer_name=True, **options)


def connected_again(client: RawClient, topic: str) -> None:
    """Connects a producer as soon as the broker knows that its earlier connection is lost."""

    def is_connected() -> bool:
        client.send(named(topic))
        return client.read().type == pulsar_pb2.PRODUCER_SUCCESS

    wait_until(is_connected, "the end of the producer before")


def batch(ids: Sequence[int]) -> bytes:
    """Returns the frame of a batch with these sequence ids."""
    payload = b""
    for each in ids:
        single = SingleMessageMetadata(payload_size=1, sequence_id=each).SerializeToString()
        payload += len(single).to_bytes(4, "big") + single + b"v"
    options = {"num_messages_in_batch": len(ids), "highest_sequence_id": ids[-1]}
    sent = send(ids[0], num_messages=len(ids), highest_sequence_id=ids[-1])
    return frame_of(sent, metadata(ids[0], **options), payload)


def test_batches_of_single_keys_survive_a_reconnect(url: str, topic: str) -> None:
    """Their ids are interleaved: a later batch may end before an earlier one."""
    stored = []
    for ids in ((1, 4), (2, 3), (5, 6)):
        with RawClient(url) as client:
            connected_again(client, topic)
            client.socket.sendall(batch(ids))
            stored.append(client.read().send_receipt.message_id.entry_id)
    assert stored == [0, 1, 2]
    with RawClient(url) as client:
        connected_again(client, topic)
        client.socket.sendall(batch((2, 3)))
        # Stored before: no position.
        assert client.read().send_receipt.message_id.entry_id == -1


def test_batches_without_their_highest_sequence_id(url: str, topic: str) -> None:
    """As those of the C++ client: a batch of one key may end after a later one begins."""
    with RawClient(url) as client:
        connected_again(client, topic)
        described = metadata(1, num_messages_in_batch=9)
        client.socket.sendall(frame_of(send(1, num_messages=9), described, b"1, 3 to 10".ljust(54)))
        assert client.read().send_receipt.message_id.entry_id == 0
    for expected in (1, -1):
        with RawClient(url) as client:
            connected_again(client, topic)
            described = metadata(2, num_messages_in_batch=1)
            client.socket.sendall(frame_of(send(2), described, b"only 2"))
            assert client.read().send_receipt.message_id.entry_id in (expected, 2**64 + expected)


def test_chunks_survive_a_reconnect(url: str, topic: str) -> None:
    """All chunks of a message have its id: resent ones are stored, up to the last one."""
    stored = []
    for sent in (2, 3, 3):
        with RawClient(url) as client:
            connected_again(client, topic)
            for number in range(sent):
                chunk = {"uuid": b"u", "num_chunks_from_msg": 3, "chunk_id": number}
                described = metadata(0, **chunk)
                client.socket.sendall(frame_of(send(0, is_chunk=True), described, b"part"))
                stored.append(client.read().send_receipt.message_id.entry_id)
    assert stored[:5] == [0, 1, 2, 3, 4]
    assert stored[5:] == [5, 6, -1]


def test_a_connection_lost_while_a_producer_closes(url: str, topic: str) -> None:
    closing = pulsar_pb2.CommandCloseProducer(producer_id=1, request_id=9)
    close = BaseCommand(type=pulsar_pb2.CLOSE_PRODUCER, close_producer=closing)
    for number in range(10):
        with RawClient(url) as client:
            connected_again(client, topic)
            client.socket.sendall(frame_of(send(number), metadata(number), b"v") + encode(close))


@pytest.mark.parametrize("kind", ["producer", "consumer"])
def test_an_id_is_opened_twice_at_once(url: str, topic: str, kind: str) -> None:
    """The client abandoned the first attempt: the last one is answered, and counts."""
    frames = []
    for request_id in (1, 3):
        opening = named(topic) if kind == "producer" else subscribe(topic)
        (opening.producer if kind == "producer" else opening.subscribe).request_id = request_id
        frames.append(encode(opening))
    if kind == "producer":
        closing = pulsar_pb2.CommandCloseProducer(producer_id=1, request_id=2)
        close = BaseCommand(type=pulsar_pb2.CLOSE_PRODUCER, close_producer=closing)
    else:
        leaving = pulsar_pb2.CommandCloseConsumer(consumer_id=1, request_id=2)
        close = BaseCommand(type=pulsar_pb2.CLOSE_CONSUMER, close_consumer=leaving)
    with RawClient(url) as client:
        client.socket.sendall(frames[0] + encode(close) + frames[1])
        answer = client.read_until(lambda each: _request_of(each) == 3)
    wanted = pulsar_pb2.PRODUCER_SUCCESS if kind == "producer" else pulsar_pb2.SUCCESS
    assert answer.type == wanted


def _request_of(command: BaseCommand) -> int:
    for name in ("success", "producer_success", "error"):
        if command.HasField(name):
            return int(getattr(command, name).request_id)
    return 0


def test_the_compaction_cursor_is_no_initial_subscription(url: str, topic: str) -> None:
    with RawClient(url) as client:
        client.send(producer(topic, initial_subscription_name="__compaction"))
        assert client.read().error.error == pulsar_pb2.NOT_ALLOWED


def test_a_seek_by_an_administrator_resets_partly_acknowledged_batches(
    broker: BrokerProcess, url: str, topic: str
) -> None:
    with RawClient(url) as client:
        client.send(producer(topic))
        client.read()
        client.socket.sendall(batch((1, 2, 3, 4)))
        client.read_until(lambda each: each.type == pulsar_pb2.SEND_RECEIPT)
        delivered = _subscribed(client, topic)
        assert not delivered.ack_set
        part = pulsar_pb2.MessageIdData()
        part.CopyFrom(delivered.message_id)
        part.ack_set.append(0b1100)
        ack = pulsar_pb2.CommandAck(consumer_id=1, ack_type=0, message_id=[part])
        client.send(BaseCommand(type=pulsar_pb2.ACK, ack=ack))
        with Admin(broker.url) as admin:
            admin.reset_cursor(topic, "s", MessageId.earliest)
        client.read_until(lambda each: each.type == pulsar_pb2.CLOSE_CONSUMER)
        assert not _subscribed(client, topic).ack_set


def _subscribed(client: RawClient, topic: str) -> pulsar_pb2.CommandMessage:
    """Returns the first message that a new consumer gets."""
    client.send(subscribe(topic, initial_position=1))
    client.read_until(lambda each: each.type == pulsar_pb2.SUCCESS)
    client.send(flow(10))
    return client.read_until(lambda each: each.type == pulsar_pb2.MESSAGE).message
