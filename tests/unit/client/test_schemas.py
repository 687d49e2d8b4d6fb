"""Schemas: definitions and bytes equal those of Pulsar's Python client."""

from __future__ import annotations

import asyncio
import builtins
import json
from collections.abc import Callable
from enum import Enum
from typing import Any

import pulsar.schema as theirs
import pytest

from ledgerfold import schema as ours
from ledgerfold.broker.client import Client, ConsumerType, InitialPosition, MessageId
from ledgerfold.broker.client.asyncio_client import client as aio
from ledgerfold.storage.errors import InvalidRequest, NotAllowed
from tests.support.fake_broker import FakeBroker, ThreadedFakeBroker
from tests.support.waiting import WAIT_MS


class Color(Enum):
    RED = 1
    GREEN = 2


def classes(schema: Any) -> tuple[type[Any], type[Any]]:
    """The same two records, of one of the two packages."""

    class Part(schema.Record):  # type: ignore[misc]
        name = schema.String(required=True)
        weight = schema.Double()

    class Order(schema.Record):  # type: ignore[misc]
        _avro_namespace = "shop.eu"
        item = schema.String()
        count = schema.Integer(default=1, required_default=True)
        total = schema.Long(required=True)
        price = schema.Float()
        paid = schema.Boolean()
        color = Color
        data = schema.Bytes()
        part = Part
        tags = schema.Array(schema.String())
        sizes = schema.Map(schema.Integer())
        parts = schema.Array(Part())

    return Part, Order


def order(schema: Any) -> Any:
    part, record = classes(schema)
    return record(
        item="tea",
        total=2**40,
        price=1.5,
        paid=True,
        color=Color.GREEN,
        data=b"xyz",
        part=part(name="lid", weight=0.25),
        tags=["a", "b"],
        sizes={"s": 1},
        parts=[part(name="lid", weight=1.0)],
    )


# Invalid for their place.
ANY: list[Any] = [int]
KINDS = pytest.mark.parametrize("kind", ["JsonSchema", "AvroSchema"])


def test_definitions_equal_pulsars() -> None:
    """A registry would get them."""
    mine, other = (classes(each)[1] for each in (ours, theirs))
    assert mine.schema() == other.schema()

    class Sorted(ours.Record):
        _sorted_fields = True
        b = ours.String()
        a = ours.Null()

    assert [each["name"] for each in Sorted.schema()["fields"]] == ["a", "b"]


@KINDS
def test_encoded_bytes_equal_pulsars(kind: str) -> None:
    """Each package decodes what the other has encoded."""
    mine, other = (getattr(each, kind)(classes(each)[1]) for each in (ours, theirs))
    encoded = mine.encode(order_of(mine))
    assert encoded == other.encode(order_of(other))
    decoded = mine.decode(encoded)
    assert (decoded.color, decoded.part.name, decoded.parts[0].weight) == (Color.GREEN, "lid", 1.0)
    assert decoded == order_of(mine)


def order_of(schema: Any) -> Any:
    """Returns the order record of the schema's class."""
    record = getattr(schema, "_record", None) or schema._record_cls
    part = record._fields["part"]
    part_class = getattr(part, "record", type(part))
    made = part_class(name="lid", weight=1.0)
    return record(
        item="tea",
        total=2**40,
        price=1.5,
        paid=True,
        color=Color.GREEN,
        data=b"xyz",
        part=made,
        tags=["a", "b"],
        sizes={"s": 1},
        parts=[made],
    )


def test_strings_and_bytes() -> None:
    for mine, other, value in (
        (ours.StringSchema(), theirs.StringSchema(), "Käse"),
        (ours.BytesSchema(), theirs.BytesSchema(), b"\xff"),
    ):
        assert mine.encode(value) == other.encode(value)
        assert mine.decode(mine.encode(value)) == value
        assert str(mine) == str(other)
        with pytest.raises(TypeError):
            mine.encode(5)
    info = ours.StringSchema().schema_info()
    assert (info.schema_type, info.name, info.schema) == (ours.SchemaType.STRING, "STRING", "")


def test_avro_of_dicts_with_a_definition() -> None:
    """Avro without a class."""
    definition = {
        "type": "record",
        "name": "Point",
        "fields": [{"name": "x", "type": "int"}, {"name": "y", "type": ["null", "int"]}],
    }
    points = ours.AvroSchema(None, definition)
    data = points.encode({"x": 1, "y": None})
    assert data == theirs.AvroSchema(None, definition).encode({"x": 1, "y": None})
    assert points.decode(data) == {"x": 1, "y": None}
    assert json.loads(points.schema_info().schema) == definition
    for wrong in ({"y": 1}, {"x": "1"}):
        with pytest.raises(TypeError):
            points.encode(wrong)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda order: order(count="7"), "Field count must be an integer, not '7'"),
        (lambda order: order(count=True), "Field count must be an integer, not True"),
        (lambda order: order(paid=1), "Field paid must be True or False, not 1"),
        (lambda order: order(color="BLUE"), "Field color must be one of RED, GREEN, not 'BLUE'"),
        (lambda order: order(part=5), "Field part must be a Part, not 5"),
        (lambda order: order(tags=["a", 5]), "Field tags's item must be a string, not 5"),
        (lambda order: order(sizes={1: 1}), "Field sizes must be a dict with strings as keys"),
        (lambda order: order(total=None), "Field total must be an integer, not None"),
        (lambda order: ours.Array(int), "Array takes a field or a Record, not <class 'int'>"),
        (lambda order: ours.CustomEnum(ANY[0]), "CustomEnum takes an enumeration"),
        (lambda order: ours.JsonSchema(ANY[0]), "A schema takes a Record class, not <class 'int'>"),
        (lambda order: ours.AvroSchema(None), "takes a Record class or a schema_definition"),
        (lambda order: ours.JsonSchema(order).encode({}), "JsonSchema encodes Order, not {}"),
    ],
)
def test_wrong_types_are_rejected(call: Callable[[type[Any]], Any], says: str) -> None:
    with pytest.raises(TypeError, match=says):
        call(classes(ours)[1])


def test_unknown_fields_of_a_record_are_rejected() -> None:
    made = order(ours)
    with pytest.raises(AttributeError, match="Order has no field size"):
        made.size = 1
    with pytest.raises(AttributeError, match="Order has no field size"):
        type(made)(size=1)
    made.color = "RED"
    made.data = "text"
    assert (made.color, made.data) == (Color.RED, b"text")
    assert made != order(ours)
    assert repr(made.part) == "Part(name='lid', weight=0.25)"


def test_avro_without_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sentence names the extra."""
    real = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name == "fastavro":
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(NotAllowed, match="pip install fastavro"):
        ours.AvroSchema(classes(ours)[1])


# In clients.


@pytest.mark.parametrize("batching", [False, True])
@KINDS
def test_producers_encode_and_messages_decode(
    broker: ThreadedFakeBroker, client: Client, kind: str, batching: bool
) -> None:
    """Consumers, readers and table views; null values stay null."""
    schema = getattr(ours, kind)(classes(ours)[1])
    made = order_of(schema)
    with client.create_producer("t", schema=schema, batching_enabled=batching) as producer:
        producer.send_async(made, None, partition_key="k")
        producer.send(made, partition_key="k2")
        producer.send(None, partition_key="k3")
        with pytest.raises(InvalidRequest, match="The content does not fit the schema"):
            producer.send(b"bytes")
    consumer = client.subscribe("t", "s", initial_position=InitialPosition.Earliest, schema=schema)
    values = [consumer.receive(timeout_millis=WAIT_MS).value() for _ in range(3)]
    assert values == [made, made, None]
    reader = client.create_reader("t", MessageId.earliest, schema=schema)
    messages = list(reader)
    assert [each.value() for each in messages] == values
    assert messages[0].data() == schema.encode(made)
    with client.create_table_view("t", schema=schema) as view:
        assert view.get("k") == made
    assert client.create_reader("t", MessageId.earliest).read_next().value() == schema.encode(made)


def test_schemas_of_pulsars_own_client(client: Client) -> None:
    """They work unchanged."""
    schema = theirs.JsonSchema(classes(theirs)[1])
    with client.create_producer("t", schema=schema) as producer:
        producer.send(order_of(schema))
    reader = client.create_reader("t", MessageId.earliest, schema=schema)
    assert reader.read_next().value().item == "tea"


@pytest.mark.parametrize("wrong", [5, ours.StringSchema])
def test_invalid_schemas_are_rejected(client: Client, wrong: Any) -> None:
    for call in (client.create_producer, client.create_table_view):
        with pytest.raises(InvalidRequest, match=r"A schema must be an \w+ with"):
            call("t", schema=wrong)
    with pytest.raises(InvalidRequest, match=r"A schema must be an \w+ with decode"):
        client.subscribe("t", "s", ConsumerType.Shared, schema=wrong)


def test_schemas_of_the_asyncio_client() -> None:
    async def scenario() -> None:
        broker = FakeBroker()
        await broker.start()
        async with aio.Client(broker.address) as client:
            producer = await client.create_producer("t", schema=ours.StringSchema())
            await producer.send("Käse")
            with pytest.raises(InvalidRequest, match="does not fit the schema"):
                await producer.send(b"x")
            reader = await client.create_reader("t", MessageId.earliest, schema=ours.StringSchema())
            assert [each.value() async for each in reader] == ["Käse"]
        await broker.stop()

    asyncio.run(scenario())
