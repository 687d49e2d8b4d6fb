"""Records: classes whose attributes are the fields of a JSON or Avro schema.

    >>> from ledgerfold.schema import Integer, String
    >>> class Order(Record):
    ...     item = String(required=True)
    ...     count = Integer(default=1)
    >>> order = Order(item="tea")
    >>> order.count, Order.schema()["fields"][0]
    (1, {'name': 'item', 'type': 'string'})
    >>> order.count = "two"
    Traceback (most recent call last):
      ...
    TypeError: Field count must be an integer, not 'two'.

Another Record, as a class or an instance, is a field, too. `_avro_namespace` is the namespace of
the definition, and `_sorted_fields` sorts its fields by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, ClassVar

from ledgerfold.broker.client.schemas import fields
from ledgerfold.broker.client.schemas.fields import Field


class Record:
    """A record, whose fields are attributes. Assigning to one checks its type."""

    _avro_namespace: ClassVar[str | None] = None
    _sorted_fields: ClassVar[bool] = False
    _fields: ClassVar[dict[str, Field]] = {}

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        own = {name: fields.field_of(value) for name, value in vars(cls).items()}
        cls._fields = cls._fields | {name: field for name, field in own.items() if field}

    def __init__(
        self,
        default: Any = None,
        required_default: bool = False,
        required: bool = False,
        **values: Any,
    ) -> None:
        """The first three arguments are those of a field, for a record that declares one."""
        self._declaration = default, required, required_default
        for unknown in values.keys() - self._fields.keys():
            raise AttributeError(f"{type(self).__name__} has no field {unknown}.")
        for name, field in self._fields.items():
            is_set = name in values
            value = field.loaded(values[name]) if is_set else field.default()
            object.__setattr__(self, name, field.checked(name, value) if is_set else value)

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "_declaration":
            object.__setattr__(self, name, value)
            return
        field = self._fields.get(name)
        if field is None:
            raise AttributeError(f"{type(self).__name__} has no field {name}.")
        object.__setattr__(self, name, field.checked(name, value))

    @classmethod
    def schema(cls) -> dict[str, Any]:
        """Returns the Avro definition."""
        definition = RecordField(cls).definition(set())
        assert isinstance(definition, dict)
        return definition

    def values(self) -> dict[str, Any]:
        """Returns the fields and their values."""
        return {name: getattr(self, name) for name in self._fields}

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.values() == self.values()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in self.values().items())
        return f"{type(self).__name__}({shown})"


class RecordField(Field):
    """The field that a Record declares as an attribute of another."""

    avro, kinds = "record", (Record,)

    def __init__(
        self,
        record: type[Record],
        default: Any = None,
        required: bool = False,
        required_default: bool = False,
    ) -> None:
        self.record = record
        super().__init__(default, required, required_default)

    def _converted(self, name: str, value: Any) -> Any:
        if isinstance(value, self.record):
            return value
        raise TypeError(f"Field {name} must be a {self.record.__name__}, not {value!r:.100}.")

    def loaded(self, value: Any) -> Any:
        return self.record(**value) if isinstance(value, Mapping) else value

    def definition(self, named: set[str]) -> Any:
        record = self.record
        name = record.__name__
        full = f"{record._avro_namespace}.{name}" if record._avro_namespace else name
        if full in named:
            return full
        named.add(full)
        definition: dict[str, Any] = {"type": "record", "name": name}
        if record._avro_namespace:
            definition["namespace"] = record._avro_namespace
        names = sorted(record._fields) if record._sorted_fields else record._fields
        definition["fields"] = [_field(each, record._fields[each], named) for each in names]
        return definition


def _field(name: str, field: Field, named: set[str]) -> dict[str, Any]:
    definition: dict[str, Any] = {"name": name}
    if field.has_written_default:
        default = field.default()
        definition["default"] = default.name if isinstance(default, Enum) else default
    type_ = field.definition(named)
    definition["type"] = type_ if field.is_required else ["null", type_]
    return definition


def _field_of_record(value: Any) -> Field | None:
    if isinstance(value, type) and issubclass(value, Record):
        return RecordField(value)
    if isinstance(value, Record):
        return RecordField(type(value), *value._declaration)
    return None


fields._record_field.append(_field_of_record)
