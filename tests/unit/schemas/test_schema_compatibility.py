"""Strategies, and the rules of each type, in tables."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

from ledgerfold.broker.schemas.compatibility import (
    STRATEGIES,
    same_as,
    strategy_number,
    why_incompatible,
    why_no_consumer,
)
from ledgerfold.broker.schemas.definitions import (
    data_of_shown,
    joined_key_value,
    shown_data,
    split_key_value,
    type_number,
)
from ledgerfold.broker.schemas.validation import check_definition
from ledgerfold.storage.errors import InvalidRequest, InvalidSchema
from ledgerfold.v1.records_pb2 import SCHEMA_TYPE_KEY_VALUE, SchemaDefinition, SchemaType


def schema(type_: str, data: str = "", **properties: str) -> SchemaDefinition:
    name = SchemaType.Name(type_number(type_))
    return SchemaDefinition(type=name, data=data.encode(), properties=properties)


def avro(*fields: Any, type_: str = "AVRO", name: str = "A") -> SchemaDefinition:
    """A record of ints; a field with a default is a pair."""
    listed = [
        {"name": each[0], "type": "int", "default": each[1]}
        if isinstance(each, tuple)
        else {"name": each, "type": "int"}
        for each in fields
    ]
    return schema(type_, json.dumps({"type": "record", "name": name, "fields": listed}))


def native(root: str, *, file: str = "f.proto") -> SchemaDefinition:
    described = FileDescriptorProto(name=file, package="p")
    message = described.message_type.add(name="A")
    message.nested_type.add(name="B")
    encoded = base64.b64encode(FileDescriptorSet(file=[described]).SerializeToString()).decode()
    names = {"rootMessageTypeName": root, "rootFileDescriptorName": "f.proto"}
    return schema("PROTOBUF_NATIVE", json.dumps({"fileDescriptorSet": encoded, **names}))


X, XY, XYD, Y = avro("x"), avro("x", "y"), avro("x", ("y", 1)), avro("y")
BACKWARD = ("BACKWARD", "BACKWARD_TRANSITIVE", "ALWAYS_COMPATIBLE")
FORWARD = ("FORWARD", "FORWARD_TRANSITIVE", "ALWAYS_COMPATIBLE")
BOTH = tuple(each for each in STRATEGIES if each != "ALWAYS_INCOMPATIBLE")


@pytest.mark.parametrize("type_", ["AVRO", "JSON", "PROTOBUF"])
@pytest.mark.parametrize(
    ("versions", "new", "accepted"),
    [
        # A field is removed; a field is added, without and with a default.
        ([avro("x", "y")], avro("x"), BACKWARD),
        ([avro("x")], avro("x", "y"), FORWARD),
        ([avro("x")], avro("x", ("y", 1)), BOTH),
        ([avro("x")], avro("y"), ("ALWAYS_COMPATIBLE",)),
        # The first version has no y, which the latest has.
        (
            *([avro("x"), avro("x", ("y", 1))], avro("x", "y")),
            ("BACKWARD", "FORWARD", "FULL", "FORWARD_TRANSITIVE", "ALWAYS_COMPATIBLE"),
        ),
        # Nothing is before it.
        ([], avro("x"), STRATEGIES),
    ],
)
def test_rules_for_record_types(
    versions: list[SchemaDefinition], new: SchemaDefinition, accepted: tuple[str, ...], type_: str
) -> None:
    for each in (*versions, new):
        each.MergeFrom(schema(type_, each.data.decode()))
    found = [
        each
        for each in STRATEGIES
        if why_incompatible(versions, new, strategy_number(each)) is None
    ]
    assert found == [each for each in STRATEGIES if each in accepted]


def test_the_same_definition_again_is_compatible_with_the_latest() -> None:
    strategy = strategy_number("ALWAYS_INCOMPATIBLE")
    assert why_incompatible([X], X, strategy) is None
    assert why_incompatible([X], XYD, strategy) == "the strategy is ALWAYS_INCOMPATIBLE."


@pytest.mark.parametrize("name", [each for each in STRATEGIES if each != "ALWAYS_COMPATIBLE"])
def test_another_type_is_incompatible(name: str) -> None:
    for old, new in ((X, schema("STRING")), (schema("INT32"), schema("INT64"))):
        why = why_incompatible([old], new, strategy_number(name))
        assert why is not None
        assert why.startswith("exists schema type ")
    assert why_incompatible([X], schema("STRING"), strategy_number("ALWAYS_COMPATIBLE")) is None


@pytest.mark.parametrize(
    ("name", "accepted"),
    [
        # Readers of the latest version.
        ("BACKWARD", ["x", "xy", "xyd"]),
        ("FORWARD", ["x", "xy", "xyd"]),
        ("FORWARD_TRANSITIVE", ["x", "xy", "xyd"]),
        ("FULL", ["x", "xy", "xyd"]),
        # By the strategy, with all versions.
        ("BACKWARD_TRANSITIVE", ["x", "xyd"]),
        ("FULL_TRANSITIVE", ["x", "xyd"]),
        ("ALWAYS_INCOMPATIBLE", []),
        ("ALWAYS_COMPATIBLE", ["x", "xy", "xyd", "y", "text"]),
    ],
)
def test_rules_for_consumers(name: str, accepted: list[str]) -> None:
    own = {"x": X, "xy": XY, "xyd": XYD, "y": avro("z"), "text": schema("STRING")}
    strategy = strategy_number(name)
    found = [each for each in own if why_no_consumer([X, XYD], own[each], strategy) is None]
    assert found == accepted
    none = why_no_consumer([], X, strategy)
    assert (none is None) is (name == "ALWAYS_COMPATIBLE")


def test_json_schemas_of_old_clients() -> None:
    """Their form is replaced by Avro's, and never compared with it."""
    old, other = (schema("JSON", json.dumps({"type": "object", "id": each})) for each in "ab")
    new = avro("x", type_="JSON")
    strategy = strategy_number("FULL")
    for each in (old, new):
        check_definition(each)
    assert why_incompatible([old], new, strategy) is None
    assert why_incompatible([new], old, strategy) is None
    assert why_incompatible([old], other, strategy) == "the ids of the two JSON schemas differ."
    assert why_incompatible([old], new, strategy_number("FULL_TRANSITIVE")) is not None
    with pytest.raises(InvalidSchema):
        check_definition(schema("AVRO", old.data.decode()))


def test_native_protobuf() -> None:
    strategy = strategy_number("FULL")
    for root in ("p.A", "p.A.B"):
        check_definition(native(root))
    assert why_incompatible([native("p.A")], native("p.A", file="f.proto"), strategy) is None
    why = why_incompatible([native("p.A")], native("p.A.B"), strategy)
    assert why == "the root message of a Protobuf schema cannot change."
    for bad in (native("p.C"), native("p.A.C"), native("A"), native("p.A", file="g.proto")):
        with pytest.raises(InvalidSchema, match="root message"):
            check_definition(bad)
    for text in ("7", "{}", '{"fileDescriptorSet": "?"}', "nonsense"):
        with pytest.raises(InvalidSchema):
            check_definition(schema("PROTOBUF_NATIVE", text))


def test_key_value_schemas() -> None:
    strategy = strategy_number("BACKWARD")
    old = joined_key_value(schema("STRING"), XY)
    check_definition(old)
    assert why_incompatible([old], joined_key_value(schema("STRING"), X), strategy) is None
    why = why_incompatible([old], joined_key_value(schema("STRING"), Y), strategy_number("FULL"))
    assert why is not None
    assert why.startswith("its value: ")
    # As in Pulsar, types count only if the data differ.
    why = why_incompatible([old], joined_key_value(schema("INT32"), X), strategy)
    assert why == "its key: exists schema type STRING, new schema type INT32."


def test_key_value_schemas_as_the_rest_api_shows_them() -> None:
    pair = joined_key_value(schema("STRING"), avro("x"))
    text = shown_data(pair)
    assert json.loads(text) == {"key": "", "value": json.loads(X.data)}
    again = SchemaDefinition(type=SCHEMA_TYPE_KEY_VALUE, data=data_of_shown(pair.type, text))
    again.properties.update(pair.properties)
    assert [each.type for each in split_key_value(again)] == [
        each.type for each in split_key_value(pair)
    ]
    assert json.loads(shown_data(again)) == json.loads(text)
    with pytest.raises(InvalidSchema):
        data_of_shown(SCHEMA_TYPE_KEY_VALUE, "[]")
    assert json.loads(shown_data(joined_key_value(schema("STRING"), pair)))["key"] == ""


@pytest.mark.parametrize("data", [b"", b"\0\0\0\1", b"\xff\xff\xff\xf0", b"\0\0\0\0\0\0\0\5abc"])
def test_truncated_key_value_schemas(data: bytes) -> None:
    with pytest.raises(InvalidSchema):
        check_definition(SchemaDefinition(type=SCHEMA_TYPE_KEY_VALUE, data=data))


@pytest.mark.parametrize(
    "definition",
    [
        schema("STRING", "x"),
        schema("INT8", "x"),
        schema("AVRO", '["int"]'),
        schema("NONE"),
        SchemaDefinition(type=77),  # type: ignore[arg-type]
        schema("JSON", "7"),
    ],
)
def test_schema_types_that_are_refused(definition: SchemaDefinition) -> None:
    with pytest.raises(InvalidSchema):
        check_definition(definition)


@pytest.mark.parametrize("definition", [schema("STRING", "null"), schema("LOCAL_DATE_TIME"), X])
def test_schema_types_that_are_stored(definition: SchemaDefinition) -> None:
    check_definition(definition)


def test_equal_schemas_in_another_notation() -> None:
    spaced = schema("AVRO", json.dumps(json.loads(X.data), indent=4))
    assert same_as(spaced, [XY, X]) == 1
    assert same_as(avro("x", type_="JSON"), [XY, X]) is None
    assert same_as(schema("STRING"), [X, schema("STRING", p="q")]) == 1


def test_unknown_names() -> None:
    with pytest.raises(InvalidRequest, match="known: "):
        strategy_number("NOPE")
    with pytest.raises(InvalidSchema, match="no such type"):
        type_number("NOPE")
