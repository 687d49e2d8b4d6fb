"""Producers of Pulsar's client, and the messages that both clients read."""

from __future__ import annotations

from typing import Any

import pulsar
import pytest

from ledgerfold.broker.client import Client
from ledgerfold.broker.client import MessageId as OurMessageId
from ledgerfold.broker.client.administration.admin import Admin
from ledgerfold.v1.records_pb2 import Policies
from tests.support.broker_process import BrokerProcess
from tests.support.waiting import WAIT_MS

CODECS = ("NONE", "LZ4", "ZLib", "ZSTD", "SNAPPY")


def read_all(client: pulsar.Client, topic: str, **options: Any) -> list[pulsar.Message]:
    reader = client.create_reader(topic, pulsar.MessageId.earliest, **options)
    found = []
    while reader.has_message_available():
        found.append(reader.read_next(WAIT_MS))
    reader.close()
    return found


def send_all(producer: pulsar.Producer, messages: list[dict[str, Any]]) -> list[str]:
    """Sends without waiting between messages; returns their ids."""
    outcomes: list[tuple[pulsar.Result, pulsar.MessageId]] = []
    for message in messages:
        producer.send_async(callback=lambda *outcome: outcomes.append(outcome), **message)
    producer.flush()
    assert {result for result, _ in outcomes} == {pulsar.Result.Ok}
    return [str(each) for _, each in outcomes]


@pytest.mark.parametrize("batching", [False, True], ids=["single", "batched"])
def test_an_event_time_may_have_any_64_bits(
    client: pulsar.Client, native: Client, topic: str, batching: bool
) -> None:
    """No test had sent one of 2^63 or more: outside a batch, it was refused. The Rust client's own
    tests send random ones.
    """
    producer = client.create_producer(topic, batching_enabled=batching)
    times = [2**64 - 5, 2**63, 2**63 - 1]
    send_all(producer, [{"content": b"x", "event_timestamp": each} for each in times])
    assert [each.event_timestamp() for each in read_all(client, topic)] == times
    with native.create_reader(topic, OurMessageId.earliest) as reader:
        found = [reader.read_next(WAIT_MS).event_timestamp() for _ in times]
    # As the Java client reads them.
    assert found == [-5, -(2**63), 2**63 - 1]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("batching", [False, True], ids=["single", "batched"])
def test_both_clients_read_all_sent_fields(
    client: pulsar.Client, native: Client, topic: str, codec: str, batching: bool
) -> None:
    """Values, keys, properties, times, ordering keys and ids; nulls stay nulls."""
    producer = client.create_producer(
        topic,
        compression_type=getattr(pulsar.CompressionType, codec),
        batching_enabled=batching,
        batching_max_publish_delay_ms=60_000,
    )
    messages: list[dict[str, Any]] = [
        {"content": b"all", "partition_key": "k", "properties": {"a": "1", "ü": "ö"}}
        | {"event_timestamp": 1_700_000_000_000, "ordering_key": "o"},
        {"content": b"no key"},
        {"content": b"", "partition_key": "empty"},
        {"content": None, "partition_key": "gone"},
        {"content": b"long " * 20_000, "partition_key": ""},
    ]
    if codec == "ZLib" and not batching:
        # NOTE: the client compresses an empty value, and then cannot decompress it.
        messages = [each for each in messages if each["content"]]
    ids = send_all(producer, messages)
    assert len(set(ids)) == len(messages)
    found = read_all(client, topic)
    assert [str(each.message_id()) for each in found] == ids
    with native.create_reader(topic, OurMessageId.earliest) as reader:
        for sent, theirs in zip(messages, found, strict=True):
            ours = reader.read_next(WAIT_MS)
            value = sent["content"]
            assert (theirs.data(), theirs.has_null_value()) == (value or b"", value is None)
            assert (ours.data(), ours.has_null_value()) == (value or b"", value is None)
            assert theirs.partition_key() == ours.partition_key() == sent.get("partition_key", "")
            assert theirs.properties() == ours.properties() == sent.get("properties", {})
            assert theirs.event_timestamp() == sent.get("event_timestamp", 0)
            assert theirs.ordering_key() == sent.get("ordering_key", "")
            assert theirs.publish_timestamp() == ours.publish_timestamp()
            assert theirs.producer_name() == producer.producer_name()
            at, same = theirs.message_id(), ours.message_id()
            assert (at.ledger_id(), at.entry_id(), at.partition(), at.batch_index()) == (
                *(same.ledger_id(), same.entry_id(), same.partition()),
                same.batch_index(),
            )


def test_pulsars_client_reads_batches_of_this_package(
    client: pulsar.Client, native: Client, topic: str
) -> None:
    with native.create_producer(topic, batching_enabled=True) as producer:
        for number in range(100):
            producer.send_async(
                b"%d" % number, None, partition_key=f"k{number % 7}", properties={"n": str(number)}
            )
        producer.flush()
    found = read_all(client, topic)
    assert [each.data() for each in found] == [b"%d" % number for number in range(100)]
    assert found[8].partition_key() == "k1"
    assert found[8].properties() == {"n": "8"}


def test_key_based_batches(client: pulsar.Client, topic: str) -> None:
    producer = client.create_producer(
        topic,
        batching_enabled=True,
        batching_type=pulsar.BatchingType.KeyBased,
        batching_max_publish_delay_ms=60_000,
    )
    send_all(producer, [{"content": b"%d" % n, "partition_key": f"k{n % 3}"} for n in range(30)])
    found = read_all(client, topic)
    assert sorted(int(each.data()) for each in found) == list(range(30))
    assert {(each.partition_key(), int(each.data()) % 3) for each in found} == {
        ("k0", 0),
        ("k1", 1),
        ("k2", 2),
    }


def test_large_messages(client: pulsar.Client, topic: str) -> None:
    producer = client.create_producer(topic)
    largest = bytes(5 * 1024 * 1024 - 1024)
    producer.send(largest)
    with pytest.raises(pulsar.MessageTooBig):
        producer.send(largest + bytes(2048))
    assert [len(each.data()) for each in read_all(client, topic)] == [len(largest)]


def test_chunks(client: pulsar.Client, native: Client, topic: str) -> None:
    """Each chunk is an entry; the client joins them. The client of this package does not."""
    producer = client.create_producer(topic, chunking_enabled=True)
    values = [bytes((n,)) * (11 * 1024 * 1024) for n in range(2)]
    ids = [producer.send(value, partition_key=f"k{n}") for n, value in enumerate(values)]
    producer.send(b"small")
    found = read_all(client, topic)
    assert [each.data() for each in found] == [*values, b"small"]
    assert [str(each.message_id()) for each in found[:2]] == [str(each) for each in ids]
    with native.create_reader(topic, OurMessageId.earliest) as reader:
        sizes = [len(reader.read_next(WAIT_MS).data()) for _ in range(7)]
    assert (sum(sizes[:3]), sum(sizes[3:6]), sizes[6]) == (len(values[0]), len(values[1]), 5)


def test_a_second_producer_of_a_name_is_refused(client: pulsar.Client, topic: str) -> None:
    producer = client.create_producer(topic, producer_name="one")
    with pytest.raises(pulsar.ProducerBusy):
        client.create_producer(topic, producer_name="one")
    producer.close()
    client.create_producer(topic, producer_name="one").close()


def test_a_message_sent_twice_is_stored_once(client: pulsar.Client, topic: str) -> None:
    """On different connections: ids may be reused on the same one."""
    producer = client.create_producer(topic, producer_name="p", initial_sequence_id=10)
    producer.send(b"11")
    producer.send(b"20", sequence_id=20)
    producer.send(b"20 again", sequence_id=20)
    producer.close()
    producer = client.create_producer(topic, producer_name="p")
    assert producer.last_sequence_id() == 20
    assert str(producer.send(b"20 sent again", sequence_id=20)) == "(-1,-1,-1,-1)"
    producer.send(b"21", sequence_id=21)
    producer.send(b"22")
    found = [each.data() for each in read_all(client, topic)]
    assert found == [b"11", b"20", b"20 again", b"21", b"22"]


@pytest.mark.parametrize("is_on", [True, False])
def test_deduplication_as_a_policy(
    broker: BrokerProcess, client: pulsar.Client, topic: str, is_on: bool
) -> None:
    """Tests reused ids, on one connection and on the next one, as in Pulsar."""
    with Admin(broker.url) as admin:
        admin.create_topic(topic)
        admin.update_policies(topic=topic, values=Policies(deduplication=is_on))
    for value in (b"first", b"second"):
        producer = client.create_producer(topic, producer_name="p")
        assert producer.last_sequence_id() == (8 if is_on and value == b"second" else -1)
        producer.send(value, sequence_id=7)
        producer.send(value, sequence_id=7)
        producer.send(value, sequence_id=8)
        producer.close()
    found = [each.data() for each in read_all(client, topic)]
    assert found == ([b"first"] * 2 if is_on else [b"first"] * 3 + [b"second"] * 3)


def test_invalid_topic_names_are_refused(client: pulsar.Client, native: Client) -> None:
    with pytest.raises(pulsar.PulsarException):
        client.create_producer("persistent://public/default/a/b/c")
