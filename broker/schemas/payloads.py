"""Schemas in JSON, as pulsar-admin and the admin REST API give and show them.

>>> definition_in({"type": "STRING"}).type == SchemaType.Value("SCHEMA_TYPE_STRING")
True
"""

from __future__ import annotations

from typing import Any

from ledgerfold.broker.schemas.definitions import (
    data_of_shown,
    not_unicode,
    shown_data,
    type_name,
    type_number,
)
from ledgerfold.storage.errors import InvalidRequest
from ledgerfold.v1.records_pb2 import SchemaDefinition, SchemaRecord, SchemaType


def definition_in(payload: Any) -> SchemaDefinition:
    """Returns the definition in a PostSchemaPayload of Pulsar. Raises InvalidRequest,
    InvalidSchema.
    """
    if not isinstance(payload, dict):
        raise InvalidRequest("A schema must be an object with type, schema and properties.")
    type_, data = payload.get("type"), payload.get("schema") or ""
    properties = payload.get("properties") or {}
    if not isinstance(type_, str) or not isinstance(data, str):
        raise InvalidRequest("`type` and `schema` must be strings.")
    if not isinstance(properties, dict) or not all(map(_is_text, properties.values())):
        raise InvalidRequest("The properties of a schema must be strings.")
    number = type_number(type_)
    try:
        data_bytes = data_of_shown(number, data)
        name = SchemaType.Name(number)
        return SchemaDefinition(type=name, data=data_bytes, properties=properties)
    except UnicodeEncodeError:
        raise not_unicode(type_) from None


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def document_of(record: SchemaRecord) -> dict[str, Any]:
    """Returns Pulsar's GetSchemaResponse. Raises InvalidSchema."""
    definition = record.definition
    return {
        "version": record.version,
        "type": type_name(definition.type),
        "timestamp": record.created_ms,
        "data": shown_data(definition),
        "properties": dict(definition.properties),
    }
