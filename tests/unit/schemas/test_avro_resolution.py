"""Readers and writers with two definitions. Each verdict is that of Avro's Java library 1.11.4."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ledgerfold.broker.schemas.avro import canonical_avro, parse_avro
from ledgerfold.broker.schemas.resolution import why_unreadable
from ledgerfold.storage.errors import InvalidSchema


def record(name: str, *fields: Any, **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields), **more}


def field(name: str, type_: Any = "int", **more: Any) -> dict[str, Any]:
    return {"name": name, "type": type_, **more}


def enum(name: str, *symbols: str, **more: Any) -> dict[str, Any]:
    return {"type": "enum", "name": name, "symbols": list(symbols), **more}


def fixed(name: str, size: int) -> dict[str, Any]:
    return {"type": "fixed", "name": name, "size": size}


A = record("A", field("x"))
LOOP = record("A", field("x", ["null", "A"]))


@pytest.mark.parametrize(
    ("writer", "reader"),
    [
        (A, record("B", field("x", "long"))),
        (A, record("A", field("x"), field("y", default=1))),
        (A, record("A", field("x"), field("y", ["null", "int"], default=None))),
        (A, record("A")),
        (A, record("B", field("z", aliases=["x"]), aliases=["A"])),
        (enum("E", "a", "b"), enum("E", "a")),
        (enum("n.E", "a"), enum("m.E", "a")),
        (fixed("n.F", 1), fixed("m.F", 1)),
        (["null", "int"], ["int", "null", "string"]),
        ("int", ["string", "float"]),
        ("string", "bytes"),
        ("bytes", ["null", "string"]),
        ("float", "double"),
        (["null", A], ["null", record("B", field("x"))]),
        ({"type": "map", "values": "int"}, {"type": "map", "values": "double"}),
        ([], "int"),
        (LOOP, record("A", field("x", ["null", "A"]), field("y", default=0))),
        (["int"], ["float"]),
    ],
)
def test_schemas_that_can_be_resolved(writer: Any, reader: Any) -> None:
    assert why_unreadable(parse_avro(json.dumps(writer)), parse_avro(json.dumps(reader))) is None


@pytest.mark.parametrize(
    ("writer", "reader", "why"),
    [
        (
            A,
            record("A", field("x"), field("y")),
            "'y' of 'A' was not written, and has no",
        ),
        (A, record("A", field("x"), field("y", ["null", "int"])), "has no default"),
        (A, record("A", field("x"), field("y", default="q")), "has a default of another type"),
        (
            *(A, record("A", field("x"), field("y", ["int", "null"], default=None))),
            "has a default of another type",
        ),
        (A, record("A", field("x", "string")), "an int cannot be read as string"),
        (record("A", field("x", "long")), A, "a long cannot be read as int"),
        (A, "int", "record 'A' cannot be read as int"),
        (enum("E", "a"), enum("F", "a"), "enum 'E' cannot be read as 'F'"),
        (enum("n.E", "a"), ["null", enum("m.E", "a")], "is in no branch of a union"),
        (fixed("F", 4), fixed("F", 5), "has 4 bytes, not 5"),
        (["null", "int"], "int", "a null cannot be read as int"),
        ("int", ["string", "bytes"], "an int is in no branch of a union"),
        (
            *(["null", A], ["null", record("B", field("x", "string"))]),
            "record 'A' is in no branch of a union",
        ),
        ({"type": "array", "items": "long"}, {"type": "array", "items": "int"}, "a long cannot"),
        (
            *(record("A", field("x", "A")), record("A", field("x", "A"), field("y"))),
            "the field 'y' of 'A' was not written",
        ),
    ],
)
def test_schemas_that_cannot_be_resolved(writer: Any, reader: Any, why: str) -> None:
    found = why_unreadable(parse_avro(json.dumps(writer)), parse_avro(json.dumps(reader)))
    assert found is not None
    assert why in found


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("nonsense", "it is not JSON"),
        ('"nothing"', "the name 'nothing' is not defined before its use"),
        ('{"type": {"type": "int"}}', "has a `type` that is not a name"),
        ("7", "'7' is not a type"),
        ('["int", "int"]', "a union has 'int' twice"),
        ('["int", ["null"]]', "a union is directly inside another one"),
        ('{"type": "array"}', "this array has no items"),
        ('{"type": "fixed", "name": "F"}', "'F' has no size"),
        ('{"type": "enum", "name": "E", "symbols": ["a", "a"]}', "an enum has a symbol twice"),
        ('{"type": "enum", "name": "E", "symbols": ["a"], "default": "q"}', "'q' is not a symbol"),
        ('{"type": "enum", "name": "E"}', "this enum has no symbols"),
        ('{"type": "record", "name": "A"}', "the record 'A' has no fields"),
        ('{"type": "record", "fields": []}', "has no name"),
        ('{"type": "record", "name": "a$b", "fields": []}', "'a$b' is not a valid name"),
        ('{"type": "record", "name": "int", "fields": []}', "the name of a primitive type"),
        ('{"type": "record", "name": "A", "fields": [7]}', "'7' is not a field"),
        ('{"type": "record", "name": "A", "fields": [{"name": "x"}]}', "the field 'x' has no type"),
        (json.dumps(record("A", field("x"), field("x"))), "'A' has the field 'x' twice"),
        (json.dumps([A, A]), "'A' is defined twice"),
        ('{"type": "record", "name": "A", "fields": []} more', "it is not JSON"),
    ],
)
def test_invalid_definitions(text: str, why: str) -> None:
    with pytest.raises(InvalidSchema) as caught:
        parse_avro(text)
    assert why in caught.value.message


def test_names_that_are_not_ascii() -> None:
    assert parse_avro('{"type": "record", "name": "n.Größe", "fields": []}').short_name == "Größe"


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        (A, record("A", field("x", doc="d"), doc="other", namespace=""), True),
        (A, record("A", field("x", {"type": "int"})), True),
        (A, record("A", field("x", order="ignore")), False),
        (A, record("A", field("x"), note="n"), False),
        (A, record("n.A", field("x")), False),
        (A, record("A", field("x", default=1)), False),
        ({"type": "int", "logicalType": "date"}, "int", False),
        (enum("E", "a", "b"), enum("E", "a", "b", default="a"), True),
        (enum("E", "a", "b", default="b"), enum("E", "a", "b", default="a"), True),
        (fixed("F", 1), {**fixed("F", 1), "default": "a"}, False),
    ],
)
def test_equal_definitions(one: Any, other: Any, is_same: bool) -> None:
    texts = [canonical_avro(json.dumps(each).encode()) for each in (one, other)]
    assert (texts[0] == texts[1]) is is_same
    assert canonical_avro(b"\xff") is None
