"""Definitions of schemas: the names of their types, their bounds, and the two halves of key-value
schemas.

>>> type_name(18)
'LOCAL_TIME'
>>> halves = SchemaDefinition(type="SCHEMA_TYPE_STRING"), SchemaDefinition(type="SCHEMA_TYPE_INT32")
>>> [type_name(each.type) for each in split_key_value(joined_key_value(*halves))]
['STRING', 'INT32']
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Any

from ledgerfold.storage.errors import InvalidSchema, LimitExceeded
from ledgerfold.v1.records_pb2 import (
    SCHEMA_TYPE_AVRO,
    SCHEMA_TYPE_JSON,
    SCHEMA_TYPE_KEY_VALUE,
    SCHEMA_TYPE_NONE,
    SCHEMA_TYPE_PROTOBUF,
    SchemaDefinition,
    SchemaType,
)

# The limits of the data and properties of one definition, and of all versions of a topic together.
DEFINITION_BYTES_MAX = 256 * 1024
TOPIC_BYTES_MAX = 4 * 1024 * 1024
VERSIONS_MAX = 1000
# An Avro definition takes three levels for each type inside another (avro.NESTED_MAX).
JSON_NESTED_MAX = 400
# Their data are an Avro definition.
STRUCTS = frozenset((SCHEMA_TYPE_JSON, SCHEMA_TYPE_PROTOBUF, SCHEMA_TYPE_AVRO))
_PREFIX = "SCHEMA_TYPE_"
# Java's length of a half without data.
_NULL_LENGTH = -1


def type_name(number: int) -> str:
    """Returns Pulsar's name of a type."""
    return SchemaType.Name(number).removeprefix(_PREFIX)


def type_number(name: str) -> int:
    """Returns the type of that name. Raises InvalidSchema."""
    try:
        return int(SchemaType.Value(_PREFIX + name))
    except ValueError:
        raise InvalidSchema(name[:40], "there is no such type of schema.") from None


def size_of(definition: SchemaDefinition) -> int:
    properties = definition.properties.items()
    return len(definition.data) + sum(len(key) + len(value) for key, value in properties)


def check_size(definition: SchemaDefinition) -> None:
    """Raises LimitExceeded."""
    if (size_bytes := size_of(definition)) > DEFINITION_BYTES_MAX:
        raise LimitExceeded(
            "Bytes of a schema's definition and properties",
            size_bytes,
            DEFINITION_BYTES_MAX,
            "Divide it, or publish without a schema and encode values in the application.",
        )


# Key and value


def split_key_value(definition: SchemaDefinition) -> tuple[SchemaDefinition, SchemaDefinition]:
    """Returns the schemas of key and value. Raises InvalidSchema."""
    data, at, halves = definition.data, 0, list[SchemaDefinition]()
    try:
        for half in ("key", "value"):
            (length,) = struct.unpack_from(">i", data, at)
            at += 4
            size_bytes = 0 if length == _NULL_LENGTH else length
            if size_bytes < 0 or at + size_bytes > len(data):
                raise InvalidSchema("KEY_VALUE", f"the {half}'s length {length} is wrong.")
            halves.append(_half(half, data[at : at + size_bytes], definition.properties))
            at += size_bytes
    except struct.error:
        raise InvalidSchema("KEY_VALUE", "it ends before its value.") from None
    return halves[0], halves[1]


def _half(half: str, data: bytes, properties: Mapping[str, str]) -> SchemaDefinition:
    name = properties.get(f"{half}.schema.type", "BYTES")
    type_ = SCHEMA_TYPE_NONE if name == "BYTES" else type_number(name)
    own = parse_json("KEY_VALUE", properties.get(f"{half}.schema.properties") or "{}")
    texts = own.items() if isinstance(own, dict) else ()
    half_properties = {key: str(value) for key, value in texts}
    return SchemaDefinition(type=SchemaType.Name(type_), data=data, properties=half_properties)


def joined_key_value(key: SchemaDefinition, value: SchemaDefinition) -> SchemaDefinition:
    """Returns the schema of pairs, with inline keys."""
    properties = {"kv.encoding.type": "INLINE"}
    for half, each in (("key", key), ("value", value)):
        properties[f"{half}.schema.type"] = type_name(each.type)
        properties[f"{half}.schema.properties"] = json.dumps(dict(each.properties))
    data = _joined(key.data, value.data)
    return SchemaDefinition(type=SCHEMA_TYPE_KEY_VALUE, data=data, properties=properties)


def _joined(*halves: bytes) -> bytes:
    return b"".join(struct.pack(">I", len(each)) + each for each in halves)


# As the admin REST API shows them


def shown_data(definition: SchemaDefinition) -> str:
    """Returns the data as text: that of a key-value schema as `{"key":...,"value":...}`.

    Raises InvalidSchema for data that check_definition() refuses.
    """
    if definition.type != SCHEMA_TYPE_KEY_VALUE:
        return definition.data.decode(errors="replace")
    halves = zip(("key", "value"), split_key_value(definition), strict=True)
    return _compact({half: _shown_half(each) for half, each in halves})


def _shown_half(half: SchemaDefinition) -> Any:
    try:
        return parse_json("KEY_VALUE", half.data) if half.data else ""
    except InvalidSchema:
        # A pair itself.
        return half.data.decode(errors="replace")


def data_of_shown(type_: int, text: str) -> bytes:
    """Returns the data that shown_data() shows. Raises InvalidSchema."""
    if type_ != SCHEMA_TYPE_KEY_VALUE:
        return text.encode()
    parsed = parse_json("KEY_VALUE", text)
    if not isinstance(parsed, dict) or not {"key", "value"} <= parsed.keys():
        raise InvalidSchema("KEY_VALUE", 'it must be {"key": ..., "value": ...}.')
    halves = (parsed["key"], parsed["value"])
    return _joined(*(b"" if half == "" else _compact(half).encode() for half in halves))


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def parse_json(type_: str, text: str | bytes) -> Any:
    """Parses JSON whose texts can be encoded again. Raises InvalidSchema.

    JSON may contain half of a surrogate pair, which no text may contain.
    """
    try:
        if isinstance(text, bytes):
            text = text.decode()
        else:
            text.encode()
        parsed = json.loads(text)
        if _is_nested_too_deeply(parsed):
            raise RecursionError
        if "\\u" in text:
            _compact(parsed).encode()
    except RecursionError:
        raise InvalidSchema(type_, "it is nested too deeply.") from None
    except UnicodeDecodeError:
        raise InvalidSchema(type_, "it is not UTF-8.") from None
    except UnicodeEncodeError:
        raise not_unicode(type_) from None
    except ValueError as error:
        raise InvalidSchema(type_, f"it is not JSON: {error}.") from None
    return parsed


def not_unicode(type_: str) -> InvalidSchema:
    return InvalidSchema(type_, "a text in it is not Unicode: a surrogate is alone.")


def _is_nested_too_deeply(value: Any) -> bool:
    """Returns whether recursive functions could fail."""
    level, depth = [value], -1
    while level and depth < JSON_NESTED_MAX:
        depth += 1
        level = [
            inner
            for each in level
            if isinstance(each, dict | list)
            for inner in (each.values() if isinstance(each, dict) else each)
        ]
    return bool(level)
