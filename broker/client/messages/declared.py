"""The schema that a client declares to the broker's registry, as Pulsar's Python client does.

>>> from ledgerfold.schema import BytesSchema, StringSchema
>>> declared(StringSchema()).type, declared(BytesSchema()) is None
(1, True)
"""

from __future__ import annotations

from typing import Any

from ledgerfold.v1.records_pb2 import SchemaDefinition, SchemaType

# The types that Pulsar's C++ client, on which its Python client is built, sends to a broker.
_TYPES = frozenset(
    map(SchemaType.Value, [f"SCHEMA_TYPE_{name}" for name in ("STRING", "JSON", "AVRO")])
) | {SchemaType.SCHEMA_TYPE_PROTOBUF, SchemaType.SCHEMA_TYPE_PROTOBUF_NATIVE}


def declared(schema: object) -> SchemaDefinition | None:
    """Returns the definition of a schema, of this package or of Pulsar's client; None: it is not
    declared.
    """
    describe = getattr(schema, "schema_info", None)
    if not callable(describe):
        return None
    info = describe()
    type_ = int(_part(info, "schema_type"))
    if type_ not in _TYPES:
        return None
    return SchemaDefinition(
        type=SchemaType.Name(type_),
        data=(_part(info, "schema") or "null").encode(),
    )


def _part(info: Any, name: str) -> Any:
    """Returns an attribute, or what a method of Pulsar's returns."""
    part = getattr(info, name)
    return part() if callable(part) else part
