"""Pulsar's unmodified Go client: all clients see the same messages.

Skipped without Go, or without its modules (tests/support/go_client.py).
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pulsar
import pytest
from pulsar.schema import JsonSchema, Record, String

from ledgerfold.broker.client import Client, MessageId
from ledgerfold.broker.client.administration.admin import Admin
from tests.conftest import MakeBroker
from tests.pulsar.test_compacted import compact
from tests.pulsar.test_pulsar_producers import read_all
from tests.support.broker_process import BrokerProcess
from tests.support.go_client import GoClient, built
from tests.support.ports import free_port
from tests.support.waiting import WAIT_MS, wait_until

# The first build of the client takes minutes.
pytestmark = pytest.mark.timeout(1000)
MESSAGES: list[dict[str, Any]] = [
    {"key": "k", "value": "all", "orderingKey": "o", "eventTime": 1_700_000_000_000}
    | {"properties": {"a": "1", "ü": "ö"}},
    {"value": "no key"},
    {"key": "empty", "value": ""},
    {"key": "other", "value": "long ", "repeat": 20_000},
]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(tmp_path_factory.mktemp("go"))


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    service = ("--compaction-service", "tests.support.memory_service:Copying")
    arguments = ("--pulsar-listen", "127.0.0.1:0", *service)
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data", arguments=arguments) as broker:
        yield broker


@pytest.fixture(scope="module")
def go(program: Path, broker: BrokerProcess) -> Iterator[GoClient]:
    with GoClient(program, f"pulsar://{broker.ready['pulsar']}") as client:
        yield client


def value_of(message: dict[str, Any]) -> bytes:
    return str(message["value"] * message.get("repeat", 1)).encode()


def go_id(message: pulsar.Message) -> str:
    """Returns an id in the Go client's form: it counts from 0 where others use -1."""
    each = message.message_id()
    partition, index = max(each.partition(), 0), max(each.batch_index(), 0)
    return f"{each.ledger_id()}:{each.entry_id()}:{partition}:{index}"


def batching(kind: str) -> dict[str, bool]:
    return {"batching": kind != "single", "keyBased": kind == "by-key"}


@pytest.mark.parametrize("codec", ["", "LZ4", "ZLIB", "ZSTD", "SNAPPY"])
@pytest.mark.parametrize("kind", ["single", "batched", "by-key"])
def test_all_clients_read_messages_of_the_go_client(
    go: GoClient, client: pulsar.Client, native: Client, topic: str, kind: str, codec: str
) -> None:
    # NOTE: it compresses an empty value, and does not decompress it; without a compression it skips
    # such a message, unless it is in a batch.
    messages = MESSAGES
    if codec and kind == "single":
        messages = [each for each in MESSAGES if each["value"]]
    go("producer", name="p", topic=topic, compression=codec, **batching(kind))
    ids = go("send", name="p", messages=messages)["ids"]
    go("close", name="p")
    sent = dict(zip(ids, messages, strict=True))
    assert len(sent) == len(messages)
    theirs = read_all(client, topic)
    assert {go_id(each) for each in theirs} == set(ids)
    mine = {each["id"]: each for each in go.read_all(topic)}
    shown = [go_id(each) for each in theirs if each.data() or kind != "single"]
    assert list(mine) == shown
    with native.create_reader(topic, MessageId.earliest) as reader:
        for message in theirs:
            own, at = reader.read_next(WAIT_MS), go_id(message)
            expected = sent[at]
            key, value = expected.get("key", ""), value_of(expected)
            assert (message.data(), message.partition_key()) == (value, key)
            assert (own.data(), own.partition_key()) == (value, key)
            assert message.properties() == own.properties() == expected.get("properties", {})
            assert message.publish_timestamp() == own.publish_timestamp()
            assert (
                message.event_timestamp() == own.event_timestamp() == expected.get("eventTime", 0)
            )
            if at in mine:
                assert mine[at]["value"] == value
                assert mine[at]["key"] == key
                assert mine[at]["properties"] == own.properties()
                assert mine[at]["publishTime"] == own.publish_timestamp()
                assert mine[at].get("eventTime", 0) == own.event_timestamp()
                assert mine[at]["orderingKey"] == expected.get("orderingKey", "")


def backlog_of(admin: Admin, topic: str) -> int:
    return int(admin.stats(topic)["subscriptions"]["s"]["msgBacklog"])


@pytest.mark.parametrize("kind", ["Exclusive", "Shared", "Failover", "Key_Shared"])
def test_subscriptions(
    go: GoClient, client: pulsar.Client, broker: BrokerProcess, topic: str, kind: str
) -> None:
    """Acknowledged messages leave the backlog; negatively acknowledged ones are redelivered."""
    subscription = {"topic": topic, "sub": "s", "type": kind, "earliest": True}
    producer = client.create_producer(topic, batching_type=pulsar.BatchingType.KeyBased)
    for number in range(30):
        producer.send_async(b"%d" % number, None, partition_key=f"k{number % 3}")
    producer.flush()
    go("consumer", name="c", **subscription)
    found = go("receive", name="c", max=30, timeoutMs=WAIT_MS)["messages"]
    assert {int(each["value"]) for each in found} == set(range(30))
    refused = found.pop(7)
    if kind in ("Exclusive", "Failover"):
        go("ack", name="c", id=found[5]["id"], type="Cumulative")
        del found[:6]
    for each in found:
        go("ack", name="c", id=each["id"])
    with Admin(broker.url) as admin:
        # The client sends acknowledgements later, and ordered subscriptions redeliver all others.
        wait_until(lambda: backlog_of(admin, topic) == 1, "the other acknowledgements")
    go("nack", name="c", id=refused["id"])
    (again,) = go("receive", name="c", max=1, timeoutMs=WAIT_MS)["messages"]
    counted = 0 if kind in ("Exclusive", "Failover") else 1
    assert (again["id"], again["redeliveries"]) == (refused["id"], counted)
    go("ack", name="c", id=again["id"])
    with Admin(broker.url) as admin:
        wait_until(lambda: backlog_of(admin, topic) == 0, "the acknowledgements")
    go("close", name="c")


def permits_of(admin: Admin, topic: str) -> int:
    (consumer,) = admin.stats(topic)["subscriptions"]["s"]["consumers"]
    return int(consumer["availablePermits"])


def test_permits_of_a_batch_that_is_delivered_again(
    go: GoClient, broker: BrokerProcess, topic: str
) -> None:
    """It returns those of acknowledged messages, too: they must cost some.

    No test had counted the permits of this client.
    """
    options = {"topic": topic, "sub": "s", "type": "Shared", "queue": 20, "batchIndex": True}
    go("consumer", name="c", **options)
    go("producer", name="p", topic=topic, batching=True)
    go("send", name="p", messages=[{"value": str(number)} for number in range(10)])
    found = go("receive", name="c", max=10, timeoutMs=WAIT_MS)["messages"]
    for each in found[:8]:
        go("ack", name="c", id=each["id"])
    with Admin(broker.url) as admin:
        for _ in range(5):
            for each in found[8:]:
                go("nack", name="c", id=each["id"])
            found[8:] = go("receive", name="c", max=2, timeoutMs=WAIT_MS)["messages"]
            assert len(found) == 10
            # It requests more when it has half of its queue.
            wait_until(lambda: 10 <= permits_of(admin, topic) <= 20, "the permits")
    go("close", name="c")
    go("close", name="p")


def test_a_large_message_in_chunks(
    go: GoClient, client: pulsar.Client, broker: BrokerProcess, topic: str
) -> None:
    consumer = client.subscribe(topic, "python")
    go("consumer", name="c", topic=topic, sub="go")
    go("producer", name="p", topic=topic, chunking=True)
    go("send", name="p", messages=[{"key": "k", "value": "x", "repeat": 12_000_000}])
    assert consumer.receive(WAIT_MS).data() == b"x" * 12_000_000
    (found,) = go("receive", name="c", max=1, timeoutMs=WAIT_MS)["messages"]
    assert found["value"] == b"x" * 12_000_000
    # NOTE: of chunks that the C++ and Python clients send uncompressed, it keeps the last one.
    producer = client.create_producer(
        topic,
        chunking_enabled=True,
        batching_enabled=False,
        compression_type=pulsar.CompressionType.LZ4,
    )
    value = random.Random(1).randbytes(6_000_000)
    producer.send(value)
    (found,) = go("receive", name="c", max=1, timeoutMs=WAIT_MS)["messages"]
    assert found["value"] == value
    go("close", name="c")
    go("close", name="p")


def test_delayed_messages(go: GoClient, topic: str) -> None:
    go("consumer", name="c", topic=topic, sub="s", type="Shared")
    go("producer", name="p", topic=topic)
    messages = [{"value": "later", "deliverAfter": 2000}, {"value": "now"}]
    go("send", name="p", messages=messages)
    found = go("receive", name="c", max=2, timeoutMs=WAIT_MS, ack=True)["messages"]
    assert [each["value"] for each in found] == [b"now", b"later"]
    go("close", name="c")
    go("close", name="p")


class Colour(Record):  # type: ignore[misc]
    name = String(required=True)


def test_schemas(go: GoClient, client: pulsar.Client, topic: str) -> None:
    """The same definition is the same version, regardless of the client."""
    definition = json.dumps(Colour.schema())
    # NOTE: it sends the schema version only with batches.
    go("producer", name="p", topic=topic, schema="JSON", definition=definition, batching=True)
    go("send", name="p", messages=[{"key": "rose", "fields": {"name": "red"}}])
    producer = client.create_producer(topic, schema=JsonSchema(Colour))
    producer.send(Colour(name="blue"), partition_key="sky")
    reader = client.create_reader(topic, pulsar.MessageId.earliest, schema=JsonSchema(Colour))
    assert [reader.read_next(WAIT_MS).value().name for _ in range(2)] == ["red", "blue"]
    found = go.read_all(topic, schema="JSON", definition=definition)
    assert [each["fields"] for each in found] == [{"name": "red"}, {"name": "blue"}]
    assert len({each["schema"] for each in found}) == 1
    number = '{"type": "record", "name": "Colour", "fields": [{"name": "name", "type": "int"}]}'
    refusal = go.refusal("producer", name="q", topic=topic, schema="AVRO", definition=number)
    assert "IncompatibleSchema" in refusal
    go("close", name="p")


def test_avro(go: GoClient, topic: str) -> None:
    definition = json.dumps(Colour.schema())
    go("producer", name="p", topic=topic, schema="AVRO", definition=definition, batching=True)
    messages = [{"key": "k", "fields": {"name": name}} for name in ("red", "blue")]
    go("send", name="p", messages=messages)
    found = go.read_all(topic, schema="AVRO", definition=definition)
    assert [each["fields"] for each in found] == [{"name": "red"}, {"name": "blue"}]
    go("close", name="p")


@pytest.mark.parametrize("kind", ["single", "batched"])
def test_compacted(
    go: GoClient, client: pulsar.Client, broker: BrokerProcess, topic: str, kind: str
) -> None:
    """All clients see the last value of each key, with its id, and the messages after the run."""
    go("producer", name="p", topic=topic, **batching(kind))
    messages = [{"key": f"k{number % 5}", "value": str(number)} for number in range(20)]
    ids = go("send", name="p", messages=[*messages, {"key": "k0"}])["ids"]
    compact(broker, topic)
    expected = [(ids[number], b"%d" % number) for number in range(16, 20)]
    found = go.read_all(topic, compacted=True)
    assert [(each["id"], each["value"]) for each in found] == expected
    theirs = read_all(client, topic, is_read_compacted=True)
    assert [(go_id(each), each.data()) for each in theirs] == expected
    go("consumer", name="c", topic=topic, sub="s", compacted=True, earliest=True)
    got = go("receive", name="c", max=4, timeoutMs=WAIT_MS, ack=True)["messages"]
    assert [(each["id"], each["value"]) for each in got] == expected
    go("view", name="v", topic=topic)
    assert go("entries", name="v")["entries"] == {f"k{n - 15}": str(n) for n in range(16, 20)}
    go("send", name="p", messages=[{"key": "k0", "value": "new"}])
    wait_until(lambda: go("entries", name="v")["entries"].get("k0") == "new", "the update")
    for name in "cvp":
        go("close", name=name)


def test_seeks(go: GoClient, client: pulsar.Client, topic: str) -> None:
    go("producer", name="p", topic=topic)
    messages = [{"value": str(number)} for number in range(10)]
    ids = go("send", name="p", messages=messages)["ids"]
    found = go.read_all(topic)
    moment = found[5]["publishTime"]
    first = next(at for at, each in enumerate(found) if each["publishTime"] >= moment)
    go("consumer", name="c", topic=topic, sub="s", earliest=True, inclusive=True)
    for target, expected in (
        ({"id": ids[4]}, 4),
        ({"id": ids[0]}, 0),
        ({"time": moment}, first),
    ):
        go("seek", name="c", **target)
        got = go("receive", name="c", max=10 - expected, timeoutMs=WAIT_MS)["messages"]
        assert [int(each["value"]) for each in got] == list(range(expected, 10)), target
    go("reader", name="r", topic=topic, **{"from": ids[6], "inclusive": True})
    assert [each["id"] for each in go("read", name="r")["messages"]] == ids[6:]
    go("seek", name="r", id=ids[8])
    assert go("read", name="r")["messages"][-1]["id"] == ids[9]
    go("reader", name="t", topic=topic)
    go("seek", name="t", time=moment)
    assert [each["id"] for each in go("read", name="t")["messages"]] == ids[first:]
    for name in "crtp":
        go("close", name=name)


def test_partitions(
    go: GoClient, client: pulsar.Client, native: Client, broker: BrokerProcess, topic: str
) -> None:
    with Admin(broker.url) as admin:
        admin.create_partitioned_topic(topic, 3)
    topic = f"persistent://public/default/{topic}"
    partitions = [f"{topic}-partition-{number}" for number in range(3)]
    assert go("partitions", topic=topic)["topics"] == partitions
    go("consumer", name="c", topic=topic, sub="s", earliest=True)
    go("producer", name="p", topic=topic, batching=True)
    messages = [{"key": f"k{number}", "value": str(number)} for number in range(30)]
    go("send", name="p", messages=messages)
    found = go("receive", name="c", max=30, timeoutMs=WAIT_MS, ack=True)["messages"]
    by_key = {each["key"]: each["topic"] for each in found}
    assert set(by_key.values()) == set(partitions)
    with native.create_reader(topic, MessageId.earliest) as reader:
        for _ in range(30):
            message = reader.read_next(WAIT_MS)
            partition = message.message_id().partition()
            assert by_key[message.partition_key()] == partitions[partition]
    for name in "cp":
        go("close", name=name)


def test_several_topics(go: GoClient, topic: str) -> None:
    names = [f"{topic}-{number}" for number in range(3)]
    for number, name in enumerate(names):
        go("producer", name=name, topic=name)
        go("send", name=name, messages=[{"value": str(number)}])
    pattern = f"persistent://public/default/{topic}-.*"
    go("consumer", name="list", topics=names, sub="list", earliest=True)
    go("consumer", name="pattern", pattern=pattern, sub="pattern", earliest=True)
    for each in ("list", "pattern"):
        found = go("receive", name=each, max=3, timeoutMs=WAIT_MS, ack=True)["messages"]
        assert {each["value"] for each in found} == {b"0", b"1", b"2"}
    for name in ("list", "pattern", *names):
        go("close", name=name)


@pytest.mark.parametrize("kind", ["single", "batched"])
def test_a_killed_broker(program: Path, broker_process: MakeBroker, kind: str) -> None:
    """It reconnects by itself; every message is stored once, in order."""
    broker = broker_process("--pulsar-listen", f"127.0.0.1:{free_port()}")
    with GoClient(program, f"pulsar://{broker.ready['pulsar']}") as go:
        go("producer", name="p", topic="t", **batching(kind))
        go("consumer", name="c", topic="t", sub="s")
        go("send", name="p", messages=[{"value": str(number)} for number in range(500)])
        go.ask("send", name="p", messages=[{"value": str(number)} for number in range(500, 3000)])
        broker.kill()
        broker.start()
        assert "error" not in go.answer()
        found = go.read_all("t")
        assert [int(each["value"]) for each in found] == list(range(3000))
        got = set[int]()
        while len(got) < 3000:
            some = go("receive", name="c", max=3000, timeoutMs=1000, ack=True)["messages"]
            got |= {int(each["value"]) for each in some}
