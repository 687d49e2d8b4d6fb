"""Definitions that a client made to cost time or memory: each ends with an error, soon."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from ledgerfold.broker.schemas.avro import NESTED_MAX, parse_avro
from ledgerfold.broker.schemas.definitions import DEFINITION_BYTES_MAX, joined_key_value
from ledgerfold.broker.schemas.resolution import why_unreadable
from ledgerfold.broker.schemas.validation import check_definition
from ledgerfold.storage.errors import InvalidSchema, LimitExceeded
from ledgerfold.v1.records_pb2 import SchemaDefinition

# Of one definition, or one pair; far more than any takes, for a slow machine.
SECONDS_MAX = 20


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
def test_deep_nesting(before: str, after: str, depth: int) -> None:
    with pytest.raises(InvalidSchema):
        check_definition(avro(before * depth + '"int"' + after * depth))


def test_pairs_of_pairs() -> None:
    pair = SchemaDefinition(type="SCHEMA_TYPE_STRING")
    for _ in range(12):
        pair = joined_key_value(SchemaDefinition(type="SCHEMA_TYPE_STRING"), pair)
    with pytest.raises(InvalidSchema, match="nested too deeply"):
        check_definition(pair)


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
    began = time.monotonic()
    with pytest.raises(InvalidSchema, match="too complex"):
        why_unreadable(whole, deep)
    assert time.monotonic() - began < SECONDS_MAX


def test_every_branch_with_every_branch() -> None:
    def union(letter: str, count: int) -> str:
        names = (f"{letter}{at}" for at in range(count))
        branches = [record(each, {"name": "x", "type": "int"}) for each in names]
        return json.dumps(record("Top", {"name": "u", "type": branches}))

    began = time.monotonic()
    with pytest.raises(InvalidSchema, match="too complex"):
        why_unreadable(parse_avro(union("A", 2000)), parse_avro(union("B", 2000)))
    assert time.monotonic() - began < SECONDS_MAX


def test_a_default_that_contains_itself() -> None:
    loop = record("R", {"name": "r", "type": "R", "default": {}})
    reader = parse_avro(json.dumps(record("T", {"name": "r", "type": loop, "default": {}})))
    with pytest.raises(InvalidSchema, match="too complex"):
        why_unreadable(parse_avro(json.dumps(record("T"))), reader)
