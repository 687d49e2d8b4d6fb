"""Schemas of Pulsar's own client: the registry behind producers, consumers and readers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pulsar
import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.struct_pb2 import Struct
from google.protobuf.timestamp_pb2 import Timestamp
from pulsar.schema import (
    AvroSchema,
    Integer,
    JsonSchema,
    Long,
    ProtobufNativeSchema,
    Record,
    String,
    StringSchema,
)

from ledgerfold.broker.client import Client
from ledgerfold.broker.client.administration.admin import Admin
from ledgerfold.storage.errors import IncompatibleSchema
from ledgerfold.v1 import pulsar_pb2
from ledgerfold.v1.pulsar_pb2 import BaseCommand, CommandGetSchemaResponse
from ledgerfold.v1.records_pb2 import (
    SCHEMA_COMPATIBILITY_STRATEGY_ALWAYS_INCOMPATIBLE,
    SCHEMA_COMPATIBILITY_STRATEGY_FULL,
    SCHEMA_TYPE_STRING,
    Policies,
)
from tests.pulsar.conftest import Connect
from tests.pulsar.recorded import RawClient, producer, subscribe
from tests.support.broker_process import BrokerProcess
from tests.support.waiting import WAIT_MS

PROPERTIES = [{"key": b"p", "value": b"q"}]
EARLIEST = pulsar.MessageId.earliest


class Price(Record):  # type: ignore[misc]
    name = String(required=True)
    cents = Integer(required=True)


class Wider(Record):  # type: ignore[misc]
    """Also reads prices: a field has a default, and a number is wider."""

    name = String(required=True)
    cents = Long(required=True)
    currency = String(default="EUR", required=True, required_default=True)


class Stranger(Record):  # type: ignore[misc]
    age = Integer(required=True)


class Versions:
    """The schema of a topic, as an administrator sees it."""

    def __init__(self, admin: Admin) -> None:
        self._admin = admin

    def __call__(self, topic: str) -> list[int]:
        return [each.version for each in self._admin.list_schemas(topic)]


@pytest.fixture
def admin(broker: BrokerProcess) -> Iterator[Admin]:
    with Admin(broker.url) as admin:
        yield admin


@pytest.fixture
def versions(admin: Admin) -> Versions:
    return Versions(admin)


def read(client: pulsar.Client, topic: str, schema: Any) -> list[pulsar.Message]:
    reader = client.create_reader(topic, EARLIEST, schema=schema)
    found = []
    while reader.has_message_available():
        found.append(reader.read_next(WAIT_MS))
    reader.close()
    return found


@pytest.mark.parametrize("kind", [AvroSchema, JsonSchema])
def test_two_versions(
    client: pulsar.Client, topic: str, kind: Any, admin: Admin, versions: Versions
) -> None:
    """Messages have the version of their producer; old and new readers decode what is
    compatible.
    """
    producer = client.create_producer(topic, schema=kind(Price))
    producer.send(Price(name="tea", cents=120))
    wider = client.create_producer(topic, schema=kind(Wider))
    wider.send(Wider(name="car", cents=2**40, currency="USD"))
    client.create_producer(topic, schema=kind(Price)).send(Price(name="pen", cents=5))
    assert versions(topic) == [0, 1]
    found = read(client, topic, kind(Wider))
    assert [each.schema_version().encode() for each in found] == [
        bytes((*bytes(7), number)) for number in (0, 1, 0)
    ]
    assert [each.value().name for each in found] == ["tea", "car", "pen"]
    if kind is AvroSchema:
        assert [each.value().currency for each in found] == ["EUR", "USD", "EUR"]
        assert [each.value().cents for each in found] == [120, 2**40, 5]
    with pytest.raises(pulsar.IncompatibleSchema):
        client.create_producer(topic, schema=kind(Stranger))
    with pytest.raises(pulsar.IncompatibleSchema):
        client.subscribe(topic, "s", schema=kind(Stranger))
    assert versions(topic) == [0, 1]


@pytest.mark.parametrize("message", [Timestamp, Struct])
def test_native_protobuf(client: pulsar.Client, topic: str, message: Any, admin: Admin) -> None:
    schema = ProtobufNativeSchema(message)
    client.create_producer(topic, schema=schema).send(message())
    assert [each.value() for each in read(client, topic, schema)] == [message()]
    with pytest.raises(pulsar.IncompatibleSchema):
        client.create_producer(topic, schema=ProtobufNativeSchema(Duration))


def test_strings(client: pulsar.Client, topic: str, admin: Admin) -> None:
    client.create_producer(topic, schema=StringSchema()).send("grün")
    assert [each.value() for each in read(client, topic, StringSchema())] == ["grün"]
    assert admin.get_schema(topic).definition.type == SCHEMA_TYPE_STRING
    with pytest.raises(pulsar.IncompatibleSchema):
        client.create_producer(topic, schema=AvroSchema(Price))


def test_without_a_schema(client: pulsar.Client, native: Client, topic: str, admin: Admin) -> None:
    """Producers and consumers of bytes may join, unless a policy forbids producers without a
    schema.
    """
    client.create_producer(topic, schema=AvroSchema(Price)).send(Price(name="a", cents=1))
    plain = client.create_producer(topic)
    plain.send(b"raw")
    plain.close()
    found = read(client, topic, pulsar.schema.BytesSchema())
    assert [each.schema_version().encode() for each in found] == [bytes(8), b""]
    admin.update_policies(topic=topic, values=Policies(schema_validation_enforced=True))
    with pytest.raises(pulsar.IncompatibleSchema):
        client.create_producer(topic)
    client.create_producer(topic, schema=AvroSchema(Price)).close()
    with pytest.raises(IncompatibleSchema):
        native.create_producer(topic)


def test_a_consumer_of_an_idle_topic_registers_its_schema(
    client: pulsar.Client, topic: str, versions: Versions
) -> None:
    consumer = client.subscribe(topic, "s", schema=AvroSchema(Price))
    assert versions(topic) == [0]
    client.create_producer(topic, schema=AvroSchema(Price)).send(Price(name="a", cents=1))
    assert consumer.receive(WAIT_MS).value().cents == 1


def test_a_consumer_of_messages_without_a_schema(client: pulsar.Client, topic: str) -> None:
    client.create_producer(topic).send(b"raw")
    with pytest.raises(pulsar.IncompatibleSchema):
        client.subscribe(topic, "s", schema=AvroSchema(Price))


def test_clients_may_not_add_schemas(client: pulsar.Client, topic: str, admin: Admin) -> None:
    client.create_producer(topic, schema=AvroSchema(Price)).close()
    admin.update_policies(topic=topic, values=Policies(allow_auto_update_schema=False))
    client.create_producer(topic, schema=AvroSchema(Price)).close()
    with pytest.raises(pulsar.IncompatibleSchema):
        client.create_producer(topic, schema=AvroSchema(Wider))
    admin.put_schema(topic, "AVRO", AvroSchema(Wider).schema_info().schema().encode())
    client.create_producer(topic, schema=AvroSchema(Wider)).close()


@pytest.mark.parametrize("strategy", ["FULL", "ALWAYS_INCOMPATIBLE"])
def test_compatibility_strategies(
    client: pulsar.Client, topic: str, admin: Admin, strategy: str
) -> None:
    """A wider number cannot be read with the previous version."""
    values = {
        "FULL": SCHEMA_COMPATIBILITY_STRATEGY_FULL,
        "ALWAYS_INCOMPATIBLE": SCHEMA_COMPATIBILITY_STRATEGY_ALWAYS_INCOMPATIBLE,
    }
    client.create_producer(topic, schema=AvroSchema(Price)).close()
    policies = Policies(schema_compatibility_strategy=values[strategy])
    admin.update_policies(topic=topic, values=policies)
    with pytest.raises(pulsar.IncompatibleSchema):
        client.create_producer(topic, schema=AvroSchema(Wider))
    client.create_producer(topic, schema=AvroSchema(Price)).close()


def test_partitions_share_one_schema(
    client: pulsar.Client, topic: str, admin: Admin, versions: Versions
) -> None:
    admin.create_partitioned_topic(topic, 3)
    producer = client.create_producer(topic, schema=AvroSchema(Price))
    consumer = client.subscribe(topic, "s", schema=AvroSchema(Wider))
    for at in range(6):
        producer.send(Price(name=str(at), cents=at))
    got = [consumer.receive(WAIT_MS).value() for _ in range(6)]
    assert sorted(each.cents for each in got) == list(range(6))
    assert {each.currency for each in got} == {"EUR"}
    assert versions(topic) == versions(f"{topic}-partition-2") == [0]
    # First, because a client that connects again creates its partition and its schema again.
    producer.close()
    consumer.close()
    admin.delete_partitioned_topic(topic)
    assert versions(topic) == []


def test_a_deleted_topic_has_no_schema(
    client: pulsar.Client, topic: str, admin: Admin, versions: Versions
) -> None:
    producer = client.create_producer(topic, schema=AvroSchema(Price))
    producer.close()
    admin.unload(topic)
    assert versions(topic) == [0]
    admin.delete_topic(topic)
    assert versions(topic) == []
    client.create_producer(topic, schema=StringSchema()).close()
    assert versions(topic) == [0]


def test_a_killed_broker_keeps_schemas(tmp_path: Path, connect: Connect) -> None:
    """Messages are decoded with the earlier versions; numbers continue."""
    arguments = ("--compactor", "off", "--pulsar-listen", "127.0.0.1:0")
    with BrokerProcess(tmp_path / "data", arguments=arguments) as broker:
        client = connect(str(broker.ready["pulsar"]))
        client.create_producer("t", schema=AvroSchema(Price)).send(Price(name="a", cents=1))
        broker.kill()
        client.close()
        broker.start()
        client = connect(str(broker.ready["pulsar"]))
        (message,) = read(client, "t", AvroSchema(Wider))
        assert (message.value().cents, message.value().currency) == (1, "EUR")
        client.create_producer("t", schema=AvroSchema(Wider)).close()
        with Admin(broker.url) as admin:
            assert Versions(admin)("t") == [0, 1]
        client.close()


def test_schemas_are_requested_by_version(raw: RawClient, topic: str) -> None:
    """Without a number, the latest version; a version that does not exist is not found."""

    def get(**asked: Any) -> CommandGetSchemaResponse:
        command = {"request_id": 7, "topic": f"{topic}-partition-5", **asked}
        raw.send(BaseCommand(type=34, get_schema=command))
        answer = raw.read().get_schema_response
        assert answer.request_id == 7
        return answer

    def create(data: bytes, name: str = topic) -> Any:
        schema = {"name": b"n", "schema_data": data, "type": 4, "properties": PROPERTIES}
        command = {"request_id": 8, "topic": name, "schema": schema}
        raw.send(BaseCommand(type=39, get_or_create_schema=command))
        return raw.read().get_or_create_schema_response

    assert get().error_code == pulsar_pb2.TOPIC_NOT_FOUND
    assert create(b'"int"').error_code == pulsar_pb2.TOPIC_NOT_FOUND
    raw.send(producer(topic))
    assert raw.read().producer_success.schema_version == b""
    assert create(b'"int"').schema_version == bytes(8)
    assert create(b'"long"').schema_version == bytes((*bytes(7), 1))
    assert create(b"nonsense").error_code == pulsar_pb2.INCOMPATIBLE_SCHEMA
    assert create(b'"string"').error_code == pulsar_pb2.INCOMPATIBLE_SCHEMA
    latest = get()
    assert (latest.schema_version[-1], latest.schema.schema_data) == (1, b'"long"')
    assert latest.schema.name == f"public/default/{topic}".encode()
    assert [(each.key, each.value) for each in latest.schema.properties] == [(b"p", b"q")]
    assert get(schema_version=bytes(8)).schema.schema_data == b'"int"'
    assert get(schema_version=b"\xff" * 8).error_code == pulsar_pb2.TOPIC_NOT_FOUND
    for wrong in (b"", b"1"):
        assert get(schema_version=wrong).error_code == pulsar_pb2.NOT_ALLOWED
    # An unknown type.
    raw.send(producer(topic, schema={"name": b"", "schema_data": b"", "type": 99}))
    assert raw.read().producer_success.request_id == 1
    raw.send(subscribe(topic, schema={"name": b"", "schema_data": b"", "type": 99}))
    assert raw.read().error.error == pulsar_pb2.INCOMPATIBLE_SCHEMA


def test_a_consumer_with_auto_consume_registers_no_schema(
    raw: RawClient, client: pulsar.Client, topic: str, versions: Versions
) -> None:
    raw.send(subscribe(topic, schema={"name": b"", "schema_data": b"", "type": 21}))
    assert raw.read().type == pulsar_pb2.SUCCESS
    client.subscribe(topic, "other", schema=AvroSchema(Price)).close()
    assert versions(topic) == [0]
