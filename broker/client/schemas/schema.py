"""Schemas: they encode the contents that a producer sends, and decode those of messages.

    >>> StringSchema().encode("Käse")
    b'K\\xc3\\xa4se'
    >>> from ledgerfold.schema import String
    >>> class Order(Record):
    ...     item = String()
    >>> orders = JsonSchema(Order)
    >>> orders.decode(orders.encode(Order(item="tea"))), orders.schema_info().schema_type.name
    (Order(item='tea'), 'JSON')

`schema_info` is what a registry of schemas stores.
"""

from __future__ import annotations

import io
import json
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import Any

from ledgerfold.broker.client.schemas.records import Record
from ledgerfold.storage.errors import NotAllowed


class SchemaType(IntEnum):
    """The kind of a schema, with the numbers of Pulsar's protocol."""

    BYTES = -1
    NONE = 0
    STRING = 1
    JSON = 2
    AVRO = 4


@dataclass(frozen=True, slots=True)
class SchemaInfo:
    """A schema as a registry stores it: its type, and its Avro definition in JSON."""

    schema_type: SchemaType
    name: str
    schema: str = ""
    properties: dict[str, str] = field(default_factory=dict)


class Schema(ABC):
    """Converts contents to bytes and back."""

    @abstractmethod
    def encode(self, obj: Any) -> bytes:
        """Returns the content of a message. Raises TypeError."""

    @abstractmethod
    def decode(self, data: bytes) -> Any:
        """Returns the object that `encode` has encoded."""

    @abstractmethod
    def schema_info(self) -> SchemaInfo: ...

    def __str__(self) -> str:
        return type(self).__name__


def _check_is(kind: type, obj: object, schema: str) -> None:
    if not isinstance(obj, kind):
        raise TypeError(f"{schema} encodes {kind.__name__}, not {obj!r:.100}.")


class BytesSchema(Schema):
    """Bytes, unchanged."""

    def encode(self, data: Any) -> bytes:
        _check_is(bytes, data, "BytesSchema")
        return bytes(data)

    def decode(self, data: bytes) -> bytes:
        return data

    def schema_info(self) -> SchemaInfo:
        return SchemaInfo(SchemaType.BYTES, "BYTES")


class StringSchema(Schema):
    """Strings, in UTF-8."""

    def encode(self, obj: Any) -> bytes:
        _check_is(str, obj, "StringSchema")
        return bytes(obj.encode())

    def decode(self, data: bytes) -> str:
        return data.decode()

    def schema_info(self) -> SchemaInfo:
        return SchemaInfo(SchemaType.STRING, "STRING")


class JsonSchema(Schema):
    """Records, in JSON. Enumerations are stored by their values, bytes as strings."""

    def __init__(self, record_cls: type[Record]) -> None:
        self._record = _checked_record(record_cls)

    def encode(self, obj: Any) -> bytes:
        _check_is(self._record, obj, "JsonSchema")
        # Formatted as by Pulsar's Python client.
        return json.dumps(obj.values(), default=_in_json, indent=1).encode()

    def decode(self, data: bytes) -> Any:
        return self._record(**json.loads(data))

    def schema_info(self) -> SchemaInfo:
        return SchemaInfo(SchemaType.JSON, "JSON", json.dumps(self._record.schema()))


def _in_json(value: Any) -> Any:
    if isinstance(value, Record):
        return value.values()
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, bytes):
        return value.decode()
    raise TypeError(f"JSON has no {type(value).__name__}.")


class AvroSchema(Schema):
    """Records, in Avro's binary format; with `schema_definition` instead of a class, dicts.

    It needs fastavro, which the extra `ledgerfold[avro]` installs. Messages must have been encoded
    with the same definition.
    """

    def __init__(
        self,
        record_cls: type[Record] | None,
        schema_definition: dict[str, Any] | None = None,
    ) -> None:
        self._avro = _fastavro()
        self._record = None if record_cls is None else _checked_record(record_cls)
        if self._record is not None:
            self._definition = self._record.schema()
        elif schema_definition is not None:
            self._definition = schema_definition
        else:
            raise TypeError("AvroSchema takes a Record class or a schema_definition.")
        self._parsed = self._avro.parse_schema(self._definition)

    def encode(self, obj: Any) -> bytes:
        _check_is(dict if self._record is None else self._record, obj, "AvroSchema")
        buffer = io.BytesIO()
        try:
            self._avro.schemaless_writer(buffer, self._parsed, _in_avro(obj))
        except (ValueError, KeyError, AttributeError) as error:
            raise TypeError(f"AvroSchema cannot encode {obj!r:.100}: {error}") from error
        return buffer.getvalue()

    def decode(self, data: bytes) -> Any:
        decoded = self._avro.schemaless_reader(io.BytesIO(data), self._parsed, None)
        return decoded if self._record is None else self._record(**decoded)

    def schema_info(self) -> SchemaInfo:
        return SchemaInfo(SchemaType.AVRO, "AVRO", json.dumps(self._definition))


def _in_avro(value: Any) -> Any:
    if isinstance(value, Record):
        return _in_avro(value.values())
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, dict):
        return {key: _in_avro(each) for key, each in value.items()}
    if isinstance(value, list):
        return list(map(_in_avro, value))
    return value


def _checked_record(record: object) -> type[Record]:
    if isinstance(record, type) and issubclass(record, Record):
        return record
    raise TypeError(f"A schema takes a Record class, not {record!r:.100}.")


def _fastavro() -> Any:
    try:
        import fastavro
    except ImportError as error:
        raise NotAllowed("AvroSchema needs fastavro: pip install 'ledgerfold[avro]'.") from error
    return fastavro
