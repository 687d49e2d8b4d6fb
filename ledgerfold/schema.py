"""Schemas of messages, with the names of `pulsar.schema` (docs/API.md).

>>> from ledgerfold.schema import JsonSchema, Record, String
>>> class Order(Record):
...     item = String()
>>> JsonSchema(Order).encode(Order(item="tea"))
b'{\\n "item": "tea"\\n}'
"""

from __future__ import annotations

from ledgerfold.broker.client.schemas.fields import (
    Array,
    Boolean,
    Bytes,
    CustomEnum,
    Double,
    Field,
    Float,
    Integer,
    Long,
    Map,
    Null,
    String,
)
from ledgerfold.broker.client.schemas.records import Record
from ledgerfold.broker.client.schemas.schema import (
    AvroSchema,
    BytesSchema,
    JsonSchema,
    Schema,
    SchemaInfo,
    SchemaType,
    StringSchema,
)

__all__ = [
    "Array",
    "AvroSchema",
    "Boolean",
    "Bytes",
    "BytesSchema",
    "CustomEnum",
    "Double",
    "Field",
    "Float",
    "Integer",
    "JsonSchema",
    "Long",
    "Map",
    "Null",
    "Record",
    "Schema",
    "SchemaInfo",
    "SchemaType",
    "String",
    "StringSchema",
]
