"""Definitions that a client made to cost time or memory: each ends with an error, soon."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ledgerfold.broker.schemas import steps as resolution_steps
from ledgerfold.broker.schemas.avro import NESTED_MAX, parse_avro
from ledgerfold.broker.schemas.compatibility import same_as, strategy_number, why_incompatible
from ledgerfold.broker.schemas.definitions import (
    DEFINITION_BYTES_MAX,
    JSON_NESTED_MAX,
    joined_key_value,
    shown_data,
)
from ledgerfold.broker.schemas.payloads import definition_in
from ledgerfold.broker.schemas.resolution import why_unreadable
from ledgerfold.broker.schemas.validation import check_definition
from ledgerfold.storage.errors import InvalidSchema, LimitExceeded
from ledgerfold.v1.records_pb2 import SchemaDefinition
from tests.support.work import calls_of

# Far more than a comparison of one pair makes for each step that it counts.
CALLS_PER_STEP_MAX = 50


def avro(text: str) -> SchemaDefinition:
    return SchemaDefinition(type="SCHEMA_TYPE_AVRO", data=text.encode())


def test_a_large_definition() -> None:
    check_definition(avro('"int"' + " " * (DEFINITION_BYTES_MAX - 5)))
    for more in (avro('"int"' + " " * DEFINITION_BYTES_MAX), avro('"int"')):
        more.properties["p"] = "x" * DEFINITION_BYTES_MAX
        with pytest.raises(LimitExceeded):
            check_definition(more)


@pytest.mark.parametrize(
    ("before", "after"),
    [("[", "]"), ('{"type":"array","items":', "}"), ('{"type":', "}"), ('{"a":', "}")],
)
@pytest.mark.parametrize("depth", [NESTED_MAX + 1, 900, 5_000])
def test_deeply_nested_definitions(before: str, after: str, depth: int) -> None:
    with pytest.raises(InvalidSchema):
        check_definition(avro(before * depth + '"int"' + after * depth))


def test_nested_key_value_schemas() -> None:
    pair = SchemaDefinition(type="SCHEMA_TYPE_STRING")
    for _ in range(12):
        pair = joined_key_value(SchemaDefinition(type="SCHEMA_TYPE_STRING"), pair)
    with pytest.raises(InvalidSchema, match="nested too deeply"):
        check_definition(pair)


SURROGATE = "\ud800"


@pytest.mark.parametrize("escaped", [json.dumps({"p": SURROGATE}), '{"\\uDFFF": 1}'])
def test_properties_of_a_key_value_schema_that_are_not_text(escaped: str) -> None:
    pair = joined_key_value(avro('"int"'), avro('"int"'))
    pair.properties["key.schema.properties"] = escaped
    with pytest.raises(InvalidSchema, match="not Unicode"):
        check_definition(pair)


@pytest.mark.parametrize(
    "more",
    [
        {"schema": SURROGATE},
        {"properties": {"p": SURROGATE}},
        {"properties": {SURROGATE: "v"}},
        {"type": SURROGATE},
        {"type": "KEY_VALUE", "schema": json.dumps({"key": "", "value": SURROGATE})},
        {"type": "KEY_VALUE", "schema": f'{{"key": "", "value": "{SURROGATE}"}}'},
        {"type": "KEY_VALUE", "schema": '{"key": "", "value": ' + "[" * 900 + "]" * 900 + "}"},
    ],
)
def test_definitions_that_cannot_be_stored(more: dict[str, Any]) -> None:
    with pytest.raises(InvalidSchema):
        definition_in({"type": "STRING", **more})


def test_definitions_that_are_not_text() -> None:
    """Bytes that are the UTF-8 of half a character are no UTF-8."""
    for type_ in ("AVRO", "JSON", "PROTOBUF_NATIVE"):
        data = b'"' + SURROGATE.encode(errors="surrogatepass") + b'"'
        with pytest.raises(InvalidSchema):
            check_definition(SchemaDefinition(type=f"SCHEMA_TYPE_{type_}", data=data))


def nested(depth: int, inner: str = "1") -> str:
    return "[" * depth + inner + "]" * depth


@pytest.mark.parametrize("depth", range(300, 1000, 20))
def test_an_invalid_type_deep_inside(depth: int) -> None:
    no_type = '{"a":' * depth + "1" + "}" * depth
    text = '{"type":"array","items":' * 60 + no_type + "}" * 60
    with pytest.raises(InvalidSchema):
        check_definition(avro(text))


def test_deeply_nested_attributes() -> None:
    """All that is accepted can be compared and shown."""
    deepest = avro('{"type": "int", "note": ' + nested(JSON_NESTED_MAX - 1) + "}")
    check_definition(deepest)
    assert same_as(avro(deepest.data.decode() + " "), [deepest]) == 0
    pair = joined_key_value(deepest, deepest)
    check_definition(pair)
    assert nested(300) in shown_data(pair)
    with pytest.raises(InvalidSchema, match="nested too deeply"):
        check_definition(avro('{"type": "int", "note": ' + nested(JSON_NESTED_MAX) + "}"))


def record(name: str, *fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields)}


def chain(length: int) -> str:
    """Returns records that contain the one before."""
    fields = []
    for at in range(length):
        inner = [{"name": "n", "type": f"R{at - 1}"}] if at else []
        fields.append({"name": f"f{at}", "type": record(f"R{at}", *inner)})
    return json.dumps(record("Top", *fields))


def test_a_chain_of_records() -> None:
    """It is flat, as a text; a comparison that follows it is deep."""
    whole, deep = parse_avro(chain(2000)), parse_avro(chain(2000))
    for each in (whole, deep):
        # The comparison begins with the last.
        each.fields = dict(reversed(each.fields.items()))

    def compare() -> None:
        with pytest.raises(InvalidSchema, match="too complex"):
            why_unreadable(whole, deep)

    assert calls_of(compare) < CALLS_PER_STEP_MAX * len(whole.fields)


def test_unions_compared_branch_by_branch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resolution_steps, "STEPS_MAX", 20_000)

    def union(letter: str, count: int) -> str:
        names = (f"{letter}{at}" for at in range(count))
        branches = [record(each, {"name": "x", "type": "int"}) for each in names]
        return json.dumps(record("Top", {"name": "u", "type": branches}))

    writer, reader = parse_avro(union("A", 2000)), parse_avro(union("B", 2000))

    def compare() -> None:
        with pytest.raises(InvalidSchema, match="too complex"):
            why_unreadable(writer, reader)

    assert calls_of(compare) < CALLS_PER_STEP_MAX * resolution_steps.STEPS_MAX


def test_a_default_that_contains_itself() -> None:
    loop = record("R", {"name": "r", "type": "R", "default": {}})
    reader = parse_avro(json.dumps(record("T", {"name": "r", "type": loop, "default": {}})))
    with pytest.raises(InvalidSchema, match="too complex"):
        why_unreadable(parse_avro(json.dumps(record("T"))), reader)


def doubling(levels: int) -> str:
    """Returns a record with a default that needs 2**levels others, if each is looked at."""
    fields = [{"name": "f0", "type": record("R0", {"name": "x", "type": "int", "default": 1})}]
    for at in range(1, levels):
        two = ({"name": name, "type": f"R{at - 1}", "default": {}} for name in "ab")
        fields.append({"name": f"f{at}", "type": record(f"R{at}", *two)})
    for each in fields:
        each["default"] = {}
    return json.dumps(record("T", *fields))


def test_defaults_that_double_in_size() -> None:
    """Each type has one default, however often it is needed."""
    empty = parse_avro(json.dumps(record("T")))
    assert why_unreadable(empty, parse_avro(doubling(40))) is None


class Listed(tuple[str, ...]):
    """Symbols that are not searched one by one."""

    def __contains__(self, key: object) -> bool:
        raise AssertionError(key)


def test_a_default_with_many_symbols() -> None:
    enum = {"type": "enum", "name": "E", "symbols": [f"s{at}" for at in range(2_000)]}
    default = ["s1999"] * 20_000
    field = {"name": "x", "type": {"type": "array", "items": enum}, "default": default}
    reader = parse_avro(json.dumps(record("T", field)))
    symbols = reader.fields["x"].type.inner
    symbols.symbols = Listed(symbols.symbols)
    assert why_unreadable(parse_avro(json.dumps(record("T"))), reader) is None


def test_a_comparison_with_all_versions_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A comparison with one hundred may cost no more than one with the latest."""

    def wide(letter: str) -> SchemaDefinition:
        names = (f"{letter}{at}" for at in range(20))
        branches = [record(each, {"name": "x", "type": "int"}) for each in names]
        return avro(json.dumps(record("Top", {"name": "u", "type": branches})))

    versions, new = [wide(each) for each in "abcdefghij"], wide("z")
    strategies = [strategy_number(each) for each in ("BACKWARD", "BACKWARD_TRANSITIVE")]
    monkeypatch.setattr(resolution_steps, "STEPS_MAX", 20_000)
    assert [why_incompatible(versions, new, each) for each in strategies] == [
        None,
        "Invalid schema definition data for AVRO schema: it is too complex to be compared with "
        "earlier versions.",
    ]
    pairs = [joined_key_value(each, each) for each in versions]
    one = joined_key_value(new, new)
    found = [why_incompatible(pairs[:6], one, each) for each in strategies]
    assert found[0] is None
    assert "too complex" in str(found[1])


def test_comparisons_with_many_steps() -> None:
    """Many fields have the same large type: each comparison counts its size."""
    symbols = [f"s{at}" for at in range(8_000)]
    enum = {"type": "enum", "name": "E", "symbols": symbols}
    inside = [{"name": f"f{at}", "type": "E"} for at in range(2_000)]
    text = json.dumps([record("R", {"name": "e", "type": enum}, *inside), "null"])
    with pytest.raises(InvalidSchema, match="too complex"):
        why_unreadable(parse_avro(text), parse_avro(text))
