"""Checks that a definition is valid for its type. Source: Pulsar's SchemaDataValidator.

  >>> check_definition(SchemaDefinition(type="SCHEMA_TYPE_INT32"))
  >>> check_definition(SchemaDefinition(type="SCHEMA_TYPE_INT32", data=b"x"))
  Traceback (most recent call last):
  ledgerfold.errors.InvalidSchema: Invalid schema definition data for INT32 schema: ...

Schemas without a type are not stored: only clients use them.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any

from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorSet
from google.protobuf.message import DecodeError

from ledgerfold.broker.schemas.avro import parse_avro
from ledgerfold.broker.schemas.definitions import (
    STRUCTS,
    check_size,
    parse_json,
    split_key_value,
    type_name,
)
from ledgerfold.storage.errors import InvalidSchema
from ledgerfold.v1.records_pb2 import (
    SCHEMA_TYPE_JSON,
    SCHEMA_TYPE_KEY_VALUE,
    SCHEMA_TYPE_NONE,
    SCHEMA_TYPE_PROTOBUF_NATIVE,
    SCHEMA_TYPE_STRING,
    SchemaDefinition,
    SchemaType,
)

# The limit of halves, for pairs of pairs.
_HALVES_MAX = 8
# The types of a JSON Schema, which clients sent before Pulsar 2.1.
_JSON_SCHEMAS = frozenset(
    ["any", "array", "boolean", "integer", "null", "number", "object", "string"]
)


def check_definition(definition: SchemaDefinition) -> None:
    """Raises InvalidSchema, LimitExceeded."""
    check_size(definition)
    if definition.type not in SchemaType.values() or definition.type == SCHEMA_TYPE_NONE:
        raise InvalidSchema(
            type_name(definition.type) if definition.type in SchemaType.values() else "such a",
            "this type is not stored: omit the schema.",
        )
    _check(definition, 0)


def _check(definition: SchemaDefinition, depth: int) -> None:
    type_ = definition.type
    if depth > _HALVES_MAX:
        raise InvalidSchema("KEY_VALUE", "it is nested too deeply.")
    if type_ in STRUCTS:
        _check_struct(definition)
    elif type_ == SCHEMA_TYPE_PROTOBUF_NATIVE:
        root_message(definition)
    elif type_ == SCHEMA_TYPE_KEY_VALUE:
        for half in split_key_value(definition):
            _check(half, depth + 1)
    elif type_ == SCHEMA_TYPE_STRING:
        if definition.data not in (b"", b"null"):
            raise InvalidSchema("STRING", "its data must be empty.")
    elif type_ != SCHEMA_TYPE_NONE and definition.data:
        raise InvalidSchema(type_name(type_), "its data must be empty.")


def _check_struct(definition: SchemaDefinition) -> None:
    try:
        node = parse_avro(definition.data, type_name(definition.type))
    except InvalidSchema:
        if definition.type != SCHEMA_TYPE_JSON or not is_json_schema(definition):
            raise
    else:
        if node.kind == "union":
            why = "a union is not supported as a whole schema."
            raise InvalidSchema(type_name(definition.type), why)


def json_schema(definition: SchemaDefinition) -> dict[str, Any] | None:
    """Returns the definition, if it is in the form that old clients sent."""
    try:
        parsed = parse_json("JSON", definition.data)
    except InvalidSchema:
        return None
    is_one = isinstance(parsed, dict) and parsed.get("type") in _JSON_SCHEMAS
    return parsed if is_one else None


def is_json_schema(definition: SchemaDefinition) -> bool:
    return json_schema(definition) is not None


def is_avro(definition: SchemaDefinition) -> bool:
    try:
        parse_avro(definition.data)
    except InvalidSchema:
        return False
    return True


def root_message(definition: SchemaDefinition) -> str:
    """Returns the full name of the message of a native Protobuf schema. Raises InvalidSchema."""
    invalid = InvalidSchema("PROTOBUF_NATIVE", "it does not describe its root message.")
    parsed = parse_json("PROTOBUF_NATIVE", definition.data)
    if not isinstance(parsed, dict):
        raise invalid
    try:
        encoded = base64.b64decode(parsed["fileDescriptorSet"], validate=True)
        root_name, file_name = parsed["rootMessageTypeName"], parsed["rootFileDescriptorName"]
        files = FileDescriptorSet.FromString(encoded).file
    except (KeyError, TypeError, ValueError, binascii.Error, DecodeError):
        raise invalid from None
    for file in files:
        if file.name == file_name:
            prefix = f"{file.package}." if file.package else ""
            if any(_has(each, prefix, root_name) for each in file.message_type):
                return str(root_name)
    raise invalid


def _has(message: DescriptorProto, prefix: str, field_name: str) -> bool:
    """Returns whether a message, or one nested in it, has that full name."""
    name = prefix + message.name
    if name == field_name:
        return True
    inside = f"{name}."
    return str(field_name).startswith(inside) and any(
        _has(each, inside, field_name) for each in message.nested_type
    )
