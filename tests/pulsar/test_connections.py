"""Connections that no correct client makes, and brokers that end in the middle."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pulsar
import pytest

from ledgerfold.broker.client.administration.admin import Admin
from ledgerfold.broker.pulsar.frames import encode
from ledgerfold.v1 import pulsar_pb2
from ledgerfold.v1.pulsar_pb2 import BaseCommand
from tests.conftest import MakeBroker
from tests.pulsar.conftest import Connect
from tests.pulsar.recorded import (
    RawClient,
    flow,
    frame_of,
    metadata,
    producer,
    send,
    subscribe,
)
from tests.support.broker_process import BrokerProcess
from tests.support.ports import free_port
from tests.support.waiting import WAIT_MS, WAIT_S, wait_until

PING = BaseCommand(type=pulsar_pb2.PING, ping=pulsar_pb2.CommandPing())


def test_connect(url: str) -> None:
    with RawClient(url, is_connected=False) as client:
        connect = pulsar_pb2.CommandConnect(client_version=b"x", protocol_version=12)
        client.send(BaseCommand(type=pulsar_pb2.CONNECT, connect=connect))
        answer = client.read().connected
        assert (answer.protocol_version, answer.max_message_size) == (12, 5 * 1024 * 1024)
        client.send(PING)
        assert client.read().type == pulsar_pb2.PONG


def test_credentials_are_ignored(url: str) -> None:
    """As by a Pulsar without authentication."""
    with RawClient(url, is_connected=False) as client:
        connect = pulsar_pb2.CommandConnect(client_version=b"x", auth_method_name="token")
        client.send(BaseCommand(type=pulsar_pb2.CONNECT, connect=connect))
        assert client.read().HasField("connected")


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x00\x00\x00\x00",
        b"\xff\xff\xff\xff",
        b"\x00\x00\x00\x08\x00\x00\x00\x04\xff\xff\xff\xff",
        b"\x00\x00\x00\x06\x00\x00\x00\xff\x08\x12",
        encode(BaseCommand(type=pulsar_pb2.FLOW)),
        frame_of(BaseCommand(type=pulsar_pb2.SEND), metadata(1), b""),
        (6 * 1024 * 1024).to_bytes(4, "big"),
    ],
)
@pytest.mark.parametrize("is_connected", [True, False])
def test_a_malformed_frame_closes_only_its_connection(
    url: str, raw: RawClient, data: bytes, is_connected: bool
) -> None:
    with RawClient(url, is_connected=is_connected) as client:
        client.socket.sendall(data)
        assert client.is_closed()
    raw.send(PING)
    assert raw.read().type == pulsar_pb2.PONG


def test_a_damaged_message_is_refused_alone(raw: RawClient, topic: str) -> None:
    raw.send(producer(topic))
    assert raw.read().producer_success.producer_name
    raw.send(send(0), metadata(0))
    damaged = bytearray(frame_of(send(1), metadata(1), b"payload"))
    damaged[-1] ^= 1
    raw.socket.sendall(damaged)
    raw.send(send(2), metadata(2, num_messages_in_batch=0))
    raw.send(send(3), metadata(3))
    assert raw.read().send_receipt.sequence_id == 0
    assert raw.read().send_error.error == pulsar_pb2.CHECKSUM_ERROR
    refused = raw.read().send_error
    assert (refused.sequence_id, refused.error) == (2, pulsar_pb2.NOT_ALLOWED)
    assert refused.message == "The batch has 0 messages; it needs at least 1."
    assert raw.read().send_receipt.sequence_id == 3


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"txnid_least_bits": 1, "txnid_most_bits": 1}, "no transactions"),
        ({"marker_type": 0}, "Markers"),
        ({"compression": 9}, "Unknown compression"),
        ({"num_messages_in_batch": 1, "compacted_batch_indexes": [0]}, "Only a compaction sets"),
    ],
)
def test_unsupported_messages_are_refused(
    raw: RawClient, topic: str, options: dict[str, object], sentence: str
) -> None:
    raw.send(producer(topic))
    raw.read()
    raw.socket.sendall(frame_of(send(1), metadata(1, **options), b"payload"))
    assert sentence in raw.read().send_error.message


def test_a_connection_beyond_the_limit_is_refused(broker_process: MakeBroker) -> None:
    broker = broker_process("--pulsar-listen", "127.0.0.1:0", "--streams-max", "3")
    url = str(broker.ready["pulsar"])
    with RawClient(url) as client, RawClient(url) as other:
        client.send(producer("t", producer_name="1"))
        assert client.read().producer_success.producer_name == "1"
        other.send(producer("t"))
        refused = other.read().error
        assert refused.error == pulsar_pb2.TOO_MANY_REQUESTS
        assert "--streams-max" in refused.message
        with RawClient(url, is_connected=False) as third:
            assert third.is_closed()


@pytest.mark.parametrize("batching", [False, True], ids=["single", "batched"])
def test_clients_reconnect_to_a_killed_broker(
    broker_process: MakeBroker, connect: Connect, batching: bool
) -> None:
    """Clients reconnect; every message is stored once, in order."""
    broker = broker_process("--pulsar-listen", f"127.0.0.1:{free_port()}")
    client = connect(str(broker.ready["pulsar"]))
    sender = client.create_producer("t", batching_enabled=batching, block_if_queue_full=True)
    consumer = client.subscribe("t", "s")
    outcomes: list[pulsar.Result] = []
    for number in range(3000):
        sender.send_async(b"%d" % number, lambda result, _: outcomes.append(result))
        if number == 1500:
            broker.kill()
            broker.start()
    sender.flush()
    assert outcomes == [pulsar.Result.Ok] * 3000
    found: list[int] = []
    while not found or found[-1] != 2999:
        message = consumer.receive(WAIT_MS)
        found.append(int(message.data()))
        consumer.acknowledge(message)
    assert sorted(set(found)) == list(range(3000))
    reader = client.create_reader("t", pulsar.MessageId.earliest)
    stored = []
    while reader.has_message_available():
        stored.append(int(reader.read_next(WAIT_MS).data()))
    assert stored == list(range(3000))
    client.close()


@pytest.mark.parametrize("advertised", ["broker.example:6650", None])
def test_the_advertised_address(broker_process: MakeBroker, advertised: str | None) -> None:
    options = () if advertised is None else ("--pulsar-advertise", advertised)
    broker = broker_process("--insecure", "--pulsar-listen", "0.0.0.0:0", *options)
    came_by = str(broker.ready["pulsar"]).replace("0.0.0.0", "127.0.0.1")
    with RawClient(came_by) as client:
        asked = pulsar_pb2.CommandLookup(topic="t", request_id=7)
        client.send(BaseCommand(type=pulsar_pb2.LOOKUP, lookup=asked))
        answer = client.read().lookup_response
        assert answer.broker_service_url == f"pulsar://{advertised or came_by}"
        assert answer.broker_service_url_tls == f"pulsar+ssl://{advertised or came_by}"
        # As by a standalone Pulsar: a client that connected through a container's port keeps using
        # it.
        assert answer.proxy_through_service_url == (advertised is None)
        assert answer.request_id == 7


def test_the_address_of_a_listener(broker_process: MakeBroker) -> None:
    listeners = "in:pulsar://10.0.0.1:6650,out:pulsar://b.org:6650"
    options = ("--pulsar-config", f"advertisedListeners={listeners}")
    broker = broker_process("--pulsar-listen", "127.0.0.1:0", *options)
    with RawClient(str(broker.ready["pulsar"])) as client:
        for name, url in (("", "pulsar://10.0.0.1:6650"), ("out", "pulsar://b.org:6650")):
            asked = pulsar_pb2.CommandLookup(topic="t", request_id=7, advertised_listener_name=name)
            client.send(BaseCommand(type=pulsar_pb2.LOOKUP, lookup=asked))
            assert client.read().lookup_response.broker_service_url == url
        asked = pulsar_pb2.CommandLookup(topic="t", request_id=8, advertised_listener_name="no")
        client.send(BaseCommand(type=pulsar_pb2.LOOKUP, lookup=asked))
        assert client.read().lookup_response.error == pulsar_pb2.NOT_ALLOWED


def test_the_end_of_a_topic(raw: RawClient, broker: BrokerProcess, topic: str) -> None:
    raw.send(producer(topic))
    raw.read()
    raw.send(send(1), metadata(1))
    at = raw.read().send_receipt.message_id
    raw.send(subscribe(topic, initial_position=1))
    assert raw.read().type == pulsar_pb2.SUCCESS
    raw.send(flow(10))
    raw.read_until(lambda each: each.type == pulsar_pb2.MESSAGE)
    with Admin(broker.url) as admin:
        admin.terminate(topic)
    raw.read_until(lambda each: each.type == pulsar_pb2.CLOSE_PRODUCER)
    raw.send(producer(topic))
    assert raw.read().error.error == pulsar_pb2.TOPIC_TERMINATED
    ack = pulsar_pb2.CommandAck(consumer_id=1, ack_type=0, message_id=[at], request_id=0)
    raw.send(BaseCommand(type=pulsar_pb2.ACK, ack=ack))
    kinds = {raw.read().type, raw.read().type}
    assert kinds == {pulsar_pb2.REACHED_END_OF_TOPIC, pulsar_pb2.ACK_RESPONSE}


def test_a_connected_consumer_may_subscribe_again(url: str, raw: RawClient, topic: str) -> None:
    """It is still connected: Pulsar's Go client does this if it has lost nothing."""
    for _ in range(2):
        raw.send(subscribe(topic))
        assert raw.read().success.request_id == 2


@pytest.mark.parametrize(("version", "last"), [("Pulsar-CPP-v4.2.0", 0), ("Pulsar-Go", -1)])
def test_the_first_sequence_id_of_a_new_producer(
    url: str, topic: str, version: str, last: int
) -> None:
    with RawClient(url, is_connected=False) as client:
        connect = pulsar_pb2.CommandConnect(client_version=version.encode())
        client.send(BaseCommand(type=pulsar_pb2.CONNECT, connect=connect))
        client.read()
        client.send(producer(topic))
        assert client.read().producer_success.last_sequence_id == last


def test_clients_are_notified_late_that_they_are_active(raw: RawClient, topic: str) -> None:
    """After they have requested messages, or after a second: Pulsar's Go client expects it then."""
    # On the ring, a is the next one of this topic.
    failover = subscribe(topic, consumer_name="a")
    failover.subscribe.sub_type = 2
    began_s = time.monotonic()
    raw.send(failover)
    assert raw.read().type == pulsar_pb2.SUCCESS
    raw.send(PING)
    raw.send(flow(1))
    told = [raw.read(), raw.read()]
    assert {each.type for each in told} == {pulsar_pb2.PONG, pulsar_pb2.ACTIVE_CONSUMER_CHANGE}
    if told[0].type != pulsar_pb2.PONG:
        # The second was over first, on a busy machine.
        assert time.monotonic() - began_s >= 1
    assert any(each.active_consumer_change.is_active for each in told)
    failover.subscribe.consumer_id, failover.subscribe.request_id = 2, 3
    failover.subscribe.consumer_name = "b"
    raw.send(failover)
    assert raw.read().success.request_id == 3
    change = raw.read().active_consumer_change
    assert (change.consumer_id, change.is_active) == (2, False)


def test_stats_show_the_version_of_a_client(
    raw: RawClient, broker: BrokerProcess, topic: str
) -> None:
    raw.send(producer(topic))
    raw.read()
    with Admin(broker.url) as admin:
        assert admin.stats(topic)["publishers"][0]["clientVersion"] == "raw"


def test_a_producer_reconnects_beside_its_earlier_connection(
    url: str, raw: RawClient, topic: str
) -> None:
    """Its earlier connection may still exist: messages that it sends late are not stored."""
    raw.send(producer(topic, user_provided_producer_name=False))
    name = raw.read().producer_success.producer_name
    raw.send(send(1), metadata(1))
    assert raw.read().send_receipt.message_id.entry_id == 0
    again = {"producer_name": name, "user_provided_producer_name": False}
    with RawClient(url) as other, ThreadPoolExecutor() as pool:
        # It answers the broker, which asks for a sign of life.
        earlier = pool.submit(raw.read)
        other.send(producer(topic, epoch=0, **again))
        assert other.read().error.error == pulsar_pb2.PRODUCER_BUSY
        other.send(producer(topic, epoch=1, **again))
        assert other.read().producer_success.last_sequence_id == 1
        raw.send(send(2), metadata(2))
        raw.send(PING)
        assert earlier.result(WAIT_S).type == pulsar_pb2.PONG
        for sequence_id, entry_id in ((1, -1), (2, 1)):
            other.send(send(sequence_id), metadata(sequence_id))
            receipt = other.read().send_receipt
            assert (receipt.sequence_id, receipt.message_id.entry_id) == (sequence_id, entry_id)
        other.send(producer(topic, epoch=2, **again))
        assert other.read().producer_success.producer_name == name


def test_a_reader_seeks_and_disconnects(
    url: str, raw: RawClient, broker: BrokerProcess, topic: str
) -> None:
    """Its subscription waits for its return, and ends with its connection."""
    with RawClient(url) as reader, Admin(broker.url) as admin:
        reader.send(subscribe(topic, durable=False))
        assert reader.read().type == pulsar_pb2.SUCCESS
        seek = pulsar_pb2.CommandSeek(
            consumer_id=1, request_id=3, message_id={"ledger_id": -1, "entry_id": -1}
        )
        reader.send(BaseCommand(type=pulsar_pb2.SEEK, seek=seek))
        closed = reader.read().close_consumer
        assert (closed.consumer_id, closed.request_id) == (1, 2**64 - 1)
        assert reader.read().success.request_id == 3
        assert list(admin.stats(topic)["subscriptions"]) == ["s"]
        reader.socket.close()
        wait_until(lambda: not admin.stats(topic)["subscriptions"], "its end")


def test_bytes_have_no_schema_version(raw: RawClient, topic: str) -> None:
    """The Go client requests it with each message: there is none, and no refusal."""
    raw.send(producer(topic))
    raw.read()
    schema = {"name": b"", "schema_data": b"", "type": 0}
    bytes_ = {"request_id": 9, "topic": topic, "schema": schema}
    raw.send(BaseCommand(type=39, get_or_create_schema=bytes_))
    answer = raw.read().get_or_create_schema_response
    assert not answer.HasField("error_code")
    assert not answer.HasField("schema_version")


SCHEMA = {"name": b"", "schema_data": b"", "type": 1}
NEW = {"request_id": 1, "topic": "t", "schema": SCHEMA}


@pytest.mark.parametrize(
    "command",
    [
        BaseCommand(type=34, get_schema={"request_id": 1, "topic": "t"}),
        BaseCommand(type=39, get_or_create_schema=NEW),
        BaseCommand(type=62, tc_client_connect_request={"request_id": 1}),
    ],
)
def test_an_unknown_id_is_refused_in_its_own_answer(raw: RawClient, command: BaseCommand) -> None:
    raw.send(command)
    answer = raw.read()
    assert answer.type == command.type + 1
    raw.send(BaseCommand(type=999))
    raw.send(PING)
    assert raw.read().type == pulsar_pb2.PONG
