"""Encrypted messages, chunks, and batches that cannot be opened: stored, read and compacted.

The numbers are those of the catalogue (docs/CASES.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pulsar
import pytest

from ledgerfold.broker.client import Client
from ledgerfold.broker.client import MessageId as OurMessageId
from ledgerfold.broker.client.administration.admin import Admin
from tests.pulsar.conftest import connected
from tests.pulsar.recorded import RawClient, frame_of, metadata, producer, send
from tests.pulsar.test_compacted import compact
from tests.support.broker_process import BrokerProcess
from tests.support.waiting import WAIT_MS

KEYS = Path(__file__).parent / "keys"
READER = pulsar.CryptoKeyReader(str(KEYS / "public.pem"), str(KEYS / "private.pem"))
Pair = tuple[str, bytes]


@pytest.fixture(scope="module")
def broker(broker_with_worker: BrokerProcess) -> BrokerProcess:
    return broker_with_worker


def publish(
    client: pulsar.Client,
    topic: str,
    messages: Sequence[tuple[str, bytes | None]],
    *,
    batched: bool = False,
    encrypted: bool = True,
) -> list[str]:
    options = {"encryption_key": "key", "crypto_key_reader": READER} if encrypted else {}
    producer = client.create_producer(
        topic,
        batching_enabled=batched,
        batching_max_publish_delay_ms=60_000,
        # NOTE: without compression the client does not send the size of an encrypted value.
        compression_type=pulsar.CompressionType.LZ4,
        **options,
    )
    ids: list[str] = []
    for key, value in messages:
        producer.send_async(value, lambda _, each: ids.append(str(each)), partition_key=key)
    producer.flush()
    producer.close()
    return ids


def view(client: pulsar.Client, topic: str) -> list[Pair]:
    reader = client.create_reader(
        topic, pulsar.MessageId.earliest, is_read_compacted=True, crypto_key_reader=READER
    )
    found = []
    while reader.has_message_available():
        message = reader.read_next(WAIT_MS)
        found.append((message.partition_key(), message.data()))
    reader.close()
    return found


def compacted_entries(broker: BrokerProcess, topic: str) -> int:
    with Admin(broker.url) as admin:
        return int(admin.internal_stats(topic)["compactedLedger"]["entries"])


def test_enc_08_unbatched_messages(
    client: pulsar.Client, broker: BrokerProcess, topic: str
) -> None:
    publish(client, topic, [("key1", b"m1"), ("key2", b"m2"), ("key2", b"m3")])
    compact(broker, topic)
    assert view(client, topic) == [("key1", b"m1"), ("key2", b"m3")]


def test_enc_09_a_batch(client: pulsar.Client, broker: BrokerProcess, topic: str) -> None:
    sent = [("key1", b"m1"), ("key2", b"m2"), ("key2", b"m3")]
    ids = publish(client, topic, sent, batched=True)
    compact(broker, topic)
    assert view(client, topic) == sent
    assert compacted_entries(broker, topic) == 1
    assert [each.strip("()").split(",")[3] for each in ids] == ["0", "1", "2"]
    # A second run retains it, too.
    publish(client, topic, [("other", b"m4")], encrypted=False)
    compact(broker, topic)
    assert view(client, topic) == [*sent, ("other", b"m4")]


def test_enc_12_empty_values(client: pulsar.Client, broker: BrokerProcess, topic: str) -> None:
    """An empty value deletes its key if it was published alone; within a batch it is not
    visible.
    """
    publish(client, topic, [("key0", b"m0"), ("key1", b"m1"), ("key1", b"")])
    batch: list[tuple[str, bytes | None]] = [("key2", b"m2"), ("key3", b"m3"), ("key2", b"")]
    publish(client, topic, batch, batched=True)
    publish(client, topic, [("key4", b"m4")])
    compact(broker, topic)
    expected = [("key0", b"m0"), ("key2", b"m2"), ("key3", b"m3"), ("key2", b""), ("key4", b"m4")]
    assert view(client, topic) == expected


def test_enc_14_a_tombstone_of_its_first_key_deletes_a_batch(
    client: pulsar.Client, broker: BrokerProcess, topic: str
) -> None:
    publish(client, topic, [("a", b"1"), ("b", b"1")], batched=True)
    publish(client, topic, [("a", b"")], batched=True, encrypted=False)
    compact(broker, topic)
    assert view(client, topic) == []
    assert compacted_entries(broker, topic) == 0


def test_enc_16_a_new_value_of_another_key_keeps_a_batch(
    client: pulsar.Client, broker: BrokerProcess, topic: str
) -> None:
    publish(client, topic, [("a", b"1"), ("b", b"1")], batched=True)
    publish(client, topic, [("b", b"2")], encrypted=False)
    compact(broker, topic)
    assert view(client, topic) == [("a", b"1"), ("b", b"1"), ("b", b"2")]


def test_tvw_12_a_table_view(client: pulsar.Client, topic: str) -> None:
    """A table view of the C++ client has no key reader: a consumer reads all keys."""
    sent = [(f"k{n}", b"%d" % n) for n in range(10)]
    publish(client, topic, list(sent), batched=True)
    assert view(client, topic) == sent


def test_lst_14_the_last_id(client: pulsar.Client, broker: BrokerProcess, topic: str) -> None:
    """The index of the last message of the batch, empty or not."""
    batch: list[tuple[str, bytes | None]] = [
        ("k0", b"v0"),
        ("k0", b"v1"),
        ("k1", b"v0"),
        ("k1", b""),
    ]
    ids = publish(client, topic, batch, batched=True)
    compact(broker, topic)
    consumer = client.subscribe(topic, "s", is_read_compacted=True, crypto_key_reader=READER)
    assert str(consumer.get_last_message_id()).startswith(ids[-1].rsplit(",", 1)[0])
    assert consumer.get_last_message_id().batch_index() == 3
    consumer.close()
    assert len(view(client, topic)) == 4


def test_this_packages_client_reads_what_is_encrypted(
    client: pulsar.Client, native: Client, topic: str
) -> None:
    publish(client, topic, [("a", b"1"), ("b", b"1")], batched=True)
    publish(client, topic, [("c", b"1")])
    with native.create_reader(topic, OurMessageId.earliest) as reader:
        batch, alone = (reader.read_next(WAIT_MS) for _ in range(2))
        assert not reader.has_message_available()
    assert (batch.partition_key(), batch.message_id().batch_index()) == ("a", -1)
    assert alone.partition_key() == "c"
    assert alone.data() not in (b"1", b"")


def test_acknowledged_messages_of_an_encrypted_batch_stay_acknowledged(
    broker: BrokerProcess, topic: str
) -> None:
    """As for any batch, they are not delivered again."""
    client = connected(str(broker.ready["pulsar"]))
    sent = [("a", b"1"), ("b", b"2"), ("c", b"3")]
    options = {
        "initial_position": pulsar.InitialPosition.Earliest,
        "consumer_type": pulsar.ConsumerType.Shared,
        "crypto_key_reader": READER,
        "batch_index_ack_enabled": True,
    }
    publish(client, topic, list(sent), batched=True)
    consumer = client.subscribe(topic, "s", **options)
    received = [consumer.receive(WAIT_MS) for _ in sent]
    consumer.acknowledge(received[1])
    consumer.close()
    consumer = client.subscribe(topic, "s", **options)
    assert [consumer.receive(WAIT_MS).data() for _ in range(2)] == [b"1", b"3"]
    client.close()


def test_bat_20_a_batch_that_does_not_parse_is_kept(
    client: pulsar.Client, broker: BrokerProcess, native: Client, topic: str
) -> None:
    """Every run keeps it unchanged; its readers discard it."""
    with RawClient(str(broker.ready["pulsar"])) as raw:
        raw.send(producer(topic))
        raw.read()
        described = metadata(0, num_messages_in_batch=3)
        raw.socket.sendall(frame_of(send(0, num_messages=3), described, b"this is not a batch"))
        assert raw.read().send_receipt.sequence_id == 0
    publish(client, topic, [("a", b"1")], encrypted=False)
    for entries in (2, 2):
        compact(broker, topic)
        assert compacted_entries(broker, topic) == entries
        publish(client, topic, [("a", b"1")], encrypted=False)
    with native.create_reader(topic, OurMessageId.earliest) as reader:
        assert reader.read_next(WAIT_MS).data() == b"this is not a batch"
        assert reader.read_next(WAIT_MS).data() == b"1"


def test_chunks_are_compacted_one_by_one(
    client: pulsar.Client, broker: BrokerProcess, topic: str
) -> None:
    """As in Pulsar: only the last chunk of a key remains, and no message."""
    chunked = client.create_producer(topic, chunking_enabled=True)
    chunked.send(bytes(11 * 1024 * 1024), partition_key="large")
    chunked.send(b"v", partition_key="small")
    compact(broker, topic)
    assert compacted_entries(broker, topic) == 2
