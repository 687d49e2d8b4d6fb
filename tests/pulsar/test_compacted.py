"""Read-compacted, and table views, of Pulsar's own client."""

from __future__ import annotations

import pulsar
import pytest
from pulsar.schema import AvroSchema, Integer, Record, String

from ledgerfold.broker.client import Client
from ledgerfold.broker.client.administration.admin import Admin
from ledgerfold.v1 import explain_pb2
from ledgerfold.v1.records_pb2 import Emulation, Policies
from tests.support.broker_process import BrokerProcess
from tests.support.waiting import WAIT_MS, wait_until


@pytest.fixture(scope="module")
def broker(broker_with_worker: BrokerProcess) -> BrokerProcess:
    return broker_with_worker


def compact(broker: BrokerProcess, topic: str) -> None:
    with Admin(broker.url) as admin:
        admin.trigger_compaction(topic)
        for _ in admin.watch_compaction(topic):
            pass


def view(client: pulsar.Client, topic: str) -> dict[str, tuple[bytes, str]]:
    reader = client.create_reader(topic, pulsar.MessageId.earliest, is_read_compacted=True)
    found = {}
    while reader.has_message_available():
        message = reader.read_next(WAIT_MS)
        assert message.partition_key() not in found
        found[message.partition_key()] = message.data(), str(message.message_id())
    reader.close()
    return found


@pytest.mark.parametrize("codec", ["NONE", "LZ4", "ZSTD"])
@pytest.mark.parametrize("batching", [False, True], ids=["single", "batched"])
def test_remaining_messages_keep_their_ids(
    client: pulsar.Client, broker: BrokerProcess, topic: str, batching: bool, codec: str
) -> None:
    """Some messages of a batch remain: no reader sees the others, not even as empty ones."""
    producer = client.create_producer(
        topic,
        batching_enabled=batching,
        batching_max_publish_delay_ms=60_000,
        compression_type=getattr(pulsar.CompressionType, codec),
    )
    ids: list[str] = []
    values: list[bytes | None] = [b"%d" % number for number in range(20)]
    values += [None, b""]
    for number, value in enumerate(values):
        key = f"k{number % 10 if number < 20 else number - 20}"
        producer.send_async(value, lambda _, each: ids.append(str(each)), partition_key=key)
    producer.flush()
    compact(broker, topic)
    expected = {f"k{number - 10}": (b"%d" % number, ids[number]) for number in range(12, 20)}
    assert view(client, topic) == expected
    table = client.create_table_view(topic)
    assert {key: table.get(key) for key in expected} == {
        key: value for key, (value, _) in expected.items()
    }
    assert table.get("k0") is None
    assert len(table) == 8
    # NOTE: send() would wait for the batch's delay.
    producer.send_async(b"new", None, partition_key="k0")
    producer.flush()
    wait_until(lambda: table.get("k0") == b"new", "the table view's update")
    assert view(client, topic)["k0"][0] == b"new"
    consumer = client.subscribe(
        topic,
        "s",
        initial_position=pulsar.InitialPosition.Earliest,
        is_read_compacted=True,
        consumer_type=pulsar.ConsumerType.Failover,
    )
    keys = set()
    for _ in range(9):
        message = consumer.receive(WAIT_MS)
        keys.add(message.partition_key())
        consumer.acknowledge(message)
    assert keys == {"k0", *expected}


def test_a_compaction_that_removes_everything(
    client: pulsar.Client, broker: BrokerProcess, topic: str
) -> None:
    producer = client.create_producer(topic)
    producer.send(b"1", partition_key="k")
    producer.send(None, partition_key="k")
    compact(broker, topic)
    assert view(client, topic) == {}
    assert len(client.create_table_view(topic)) == 0


def test_the_compacted_view_ends_within_a_batch(
    client: pulsar.Client, broker: BrokerProcess, topic: str
) -> None:
    """The last id is that of the last remaining message."""
    producer = client.create_producer(
        topic, batching_enabled=True, batching_max_publish_delay_ms=60_000
    )
    for key, value in (("a", b"1"), ("b", b"2"), ("a", b"3"), ("c", b"4"), ("c", None)):
        producer.send_async(value, None, partition_key=key)
    producer.flush()
    compact(broker, topic)
    assert {key: value for key, (value, _) in view(client, topic).items()} == {
        "b": b"2",
        "a": b"3",
    }


@pytest.mark.parametrize("inclusive", [False, True])
def test_a_consumer_seeks_to_an_id_whose_raw_ledger_is_gone(
    client: pulsar.Client, broker: BrokerProcess, topic: str, inclusive: bool
) -> None:
    """RTE-19 and RTE-19b. No test had let a consumer of Pulsar's clients seek inclusively."""
    producer = client.create_producer(topic, batching_enabled=False)
    ids = [producer.send(b"1", partition_key=f"k{number}") for number in range(10)]
    compact(broker, topic)
    with Admin(broker.url) as admin:
        admin.unload(topic)
        admin.trim(topic)
        assert admin.internal_stats(topic)["numberOfEntries"] == 0
    consumer = client.subscribe(
        topic, "s", is_read_compacted=True, start_message_id_inclusive=inclusive
    )
    consumer.seek(ids[4])
    first = 4 if inclusive else 5
    found = [consumer.receive(WAIT_MS).partition_key() for _ in range(first, 10)]
    assert found == [f"k{number}" for number in range(first, 10)]


def test_both_protocols_read_one_view(
    client: pulsar.Client, broker: BrokerProcess, native: Client, topic: str
) -> None:
    with native.create_producer(topic, batching_enabled=True) as producer:
        for number in range(500):
            producer.send_async(b"%d" % number, None, partition_key=f"k{number % 90}")
        producer.flush()
    compact(broker, topic)
    found = view(client, topic)
    assert len(found) == 90
    with native.create_table_view(topic) as table:
        assert {key: value for key, (value, _) in found.items()} == {
            key: table.get(key) for key in found
        }


class Stock(Record):  # type: ignore[misc]
    left = Integer(required=True)


class MoreOfStock(Record):  # type: ignore[misc]
    left = Integer(required=True)
    place = String(default="?", required=True, required_default=True)


@pytest.mark.parametrize("batching", [False, True], ids=["single", "batched"])
def test_schema_versions_survive(
    client: pulsar.Client, broker: BrokerProcess, topic: str, batching: bool
) -> None:
    """Messages in the view, of both versions, are decoded by a reader of the newer one."""
    for kind, keys in ((Stock, "ab"), (MoreOfStock, "bc")):
        producer = client.create_producer(
            topic,
            schema=AvroSchema(kind),
            batching_enabled=batching,
            batching_max_publish_delay_ms=60_000,
        )
        for key in keys:
            value = Stock(left=1) if kind is Stock else MoreOfStock(left=2, place="here")
            producer.send_async(value, lambda result, message_id: None, partition_key=key)
        producer.flush()
        producer.close()
    compact(broker, topic)
    with Admin(broker.url) as admin:
        admin.unload(topic)
    reader = client.create_reader(
        topic, pulsar.MessageId.earliest, schema=AvroSchema(MoreOfStock), is_read_compacted=True
    )
    found = {}
    while reader.has_message_available():
        message = reader.read_next(WAIT_MS)
        value = message.value()
        version = message.schema_version().encode()[-1]
        found[message.partition_key()] = version, value.left, value.place
    assert found == {"a": (0, 1, "?"), "b": (1, 2, "here"), "c": (1, 2, "here")}


@pytest.mark.parametrize("batching", [False, True], ids=["single", "batched"])
def test_explain_and_what_if_read_pulsars_entries(
    client: pulsar.Client, broker: BrokerProcess, topic: str, batching: bool
) -> None:
    """They read the keys of entries from Pulsar's clients, before and after a run."""
    producer = client.create_producer(
        topic, batching_enabled=batching, batching_max_publish_delay_ms=60_000
    )
    ids: list[str] = []
    for number in range(9):
        value = b"%d" % number
        key = f"k{number % 3}"
        producer.send_async(value, lambda _, each: ids.append(str(each)), partition_key=key)
    producer.flush()
    with Admin(broker.url) as admin:
        (foretold,) = admin.what_if(topic)
        assert {each.messages for each in foretold.forecasts} == {3}
        for has_run in (False, True):
            found = admin.explain(topic, key="k1").versions
            assert [each.value_bytes for each in found] == [1, 1, 1]
            shown = [
                f"({each.id.ledger_id},{each.id.entry_id},-1,{each.id.batch_index})"
                for each in found
            ]
            assert shown == ids[1::3]
            assert [each.HasField("by") for each in found] == [has_run, has_run, False]
            compact(broker, topic)


@pytest.mark.parametrize("profile", ["documented", "pulsar-4"])
@pytest.mark.parametrize("codec", ["NONE", "LZ4"])
def test_empty_values_without_a_size(
    client: pulsar.Client, broker: BrokerProcess, topic: str, profile: str, codec: str
) -> None:
    producer = client.create_producer(
        topic, compression_type=getattr(pulsar.CompressionType, codec)
    )
    for key, value in (("a", b"1"), ("b", b"1"), ("c", b"1"), ("a", None), ("b", b"")):
        producer.send(value, partition_key=key)
    with Admin(broker.url) as admin:
        values = Policies(emulation=Emulation(profile=profile))
        admin.update_policies(topic=topic, values=values)
        (foretold,) = admin.what_if(topic)
    compact(broker, topic)
    survive = profile == "pulsar-4" and codec == "NONE"
    found = view(client, topic)
    assert {key: value for key, (value, _) in found.items()} == (
        {"c": b"1", "a": b"", "b": b""} if survive else {"c": b"1"}
    )
    (forecast,) = (each for each in foretold.forecasts if "publishing" in each.strategy.name)
    assert forecast.messages == len(found)
    with Admin(broker.url) as admin:
        last = admin.explain(topic, key="a").versions[-1]
        states = explain_pb2.VERSION_STATE_DROPPED, explain_pb2.VERSION_STATE_KEPT
        assert last.state == states[survive]
