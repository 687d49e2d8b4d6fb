"""Records: classes whose attributes are the fields of a JSON or Avro schema, with the names of
`pulsar.schema`.

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

    >>> Array(Integer()).definition(set())
    {'type': 'array', 'items': 'int'}

A field that is not required may be None, and its definition is a union with null. `default` is the
value of a record that is created without one; `required_default` writes it into the definition.
Another Record, as a class or an instance, is a field, too. `_avro_namespace` is the namespace of
the definition, and `_sorted_fields` sorts its fields by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, ClassVar


class Field:
    """A field. `avro` is its type in definitions, `kinds` the types of its values."""

    avro: ClassVar[str]
    kinds: ClassVar[tuple[type, ...]]
    # The type in error texts: "must be ...".
    expected: ClassVar[str]
    empty: ClassVar[Any] = None

    def __init__(
        self, default: Any = None, required: bool = False, required_default: bool = False
    ) -> None:
        self.is_required, self.has_written_default = required, required_default
        self._default = None if default is None else self.checked("default", default)

    def default(self) -> Any:
        """The value of a record that is created without one."""
        return self.empty if self._default is None else self._default

    def checked(self, name: str, value: Any) -> Any:
        """Returns the value to store. Raises TypeError."""
        if value is None and not self.is_required:
            return None
        return self._converted(name, value)

    def _converted(self, name: str, value: Any) -> Any:
        if isinstance(value, self.kinds) and (bool in self.kinds or not isinstance(value, bool)):
            return value
        raise TypeError(f"Field {name} must be {self.expected}, not {value!r:.100}.")

    def definition(self, named: set[str]) -> Any:
        """Returns the Avro definition. `named`: the types that are defined before it."""
        return self.avro

    def loaded(self, value: Any) -> Any:
        """Returns the value of a decoded message in the form that `checked` accepts."""
        return value

    # Names of Pulsar's client.

    def type(self) -> str:
        return self.avro

    def schema(self) -> Any:
        return self.definition(set())


class Null(Field):
    avro, kinds, expected = "null", (type(None),), "None"


class Boolean(Field):
    avro, kinds, expected = "boolean", (bool,), "True or False"
    empty = False


class Integer(Field):
    avro, kinds, expected = "int", (int,), "an integer"


class Long(Field):
    avro, kinds, expected = "long", (int,), "an integer"


class Float(Field):
    avro, kinds, expected = "float", (float, int), "a number"


class Double(Field):
    avro, kinds, expected = "double", (float, int), "a number"


class Bytes(Field):
    avro, kinds, expected = "bytes", (bytes, str), "bytes or a string"

    def _converted(self, name: str, value: Any) -> Any:
        value = super()._converted(name, value)
        return value.encode() if isinstance(value, str) else value


class String(Field):
    avro, kinds, expected = "string", (str, bytes), "a string"

    def _converted(self, name: str, value: Any) -> Any:
        value = super()._converted(name, value)
        return value.decode() if isinstance(value, bytes) else value


class CustomEnum(Field):
    """A choice: a member of an enumeration, its name, or its value."""

    avro, kinds, expected = "enum", (Enum,), "a choice"

    def __init__(
        self,
        enum_type: type[Enum],
        default: Any = None,
        required: bool = False,
        required_default: bool = False,
    ) -> None:
        if not (isinstance(enum_type, type) and issubclass(enum_type, Enum)):
            raise TypeError(f"CustomEnum takes an enumeration, not {enum_type!r:.100}.")
        self.enum_type = enum_type
        super().__init__(default, required, required_default)

    def _converted(self, name: str, value: Any) -> Any:
        if isinstance(value, self.enum_type):
            return value
        if isinstance(value, str) and value in self.enum_type.__members__:
            return self.enum_type[value]
        for member in self.enum_type:
            if member.value == value:
                return member
        choices = ", ".join(self.enum_type.__members__)
        raise TypeError(f"Field {name} must be one of {choices}, not {value!r:.100}.")

    def definition(self, named: set[str]) -> Any:
        name = self.enum_type.__name__
        if name in named:
            return name
        named.add(name)
        symbols = list(self.enum_type.__members__)
        return {"type": self.avro, "name": name, "symbols": symbols}


class _Collection(Field):
    """A field of several values, all of one type."""

    def __init__(self, item: Any, default: Any, required: bool, required_default: bool) -> None:
        field = field_of(item)
        if field is None:
            raise TypeError(f"{type(self).__name__} takes a field or a Record, not {item!r:.100}.")
        self.item = field
        super().__init__(default, required, required_default)

    def _one(self, name: str, value: Any) -> Any:
        return self.item._converted(f"{name}'s item", value)


class Array(_Collection):
    avro, kinds, expected = "array", (list,), "a list"

    def __init__(
        self,
        array_type: Any,
        default: Any = None,
        required: bool = False,
        required_default: bool = False,
    ) -> None:
        super().__init__(array_type, default, required, required_default)

    def _converted(self, name: str, value: Any) -> Any:
        return [self._one(name, each) for each in super()._converted(name, value)]

    def loaded(self, value: Any) -> Any:
        return value if value is None else list(map(self.item.loaded, value))

    def definition(self, named: set[str]) -> Any:
        return {"type": self.avro, "items": self.item.definition(named)}


class Map(_Collection):
    avro, kinds, expected = "map", (dict,), "a dict with strings as keys"

    def __init__(
        self,
        value_type: Any,
        default: Any = None,
        required: bool = False,
        required_default: bool = False,
    ) -> None:
        super().__init__(value_type, default, required, required_default)

    def _converted(self, name: str, value: Any) -> Any:
        pairs = super()._converted(name, value).items()
        if not all(isinstance(key, str) for key, _ in pairs):
            raise TypeError(f"Field {name} must be {self.expected}, not {value!r:.100}.")
        return {key: self._one(name, each) for key, each in pairs}

    def loaded(self, value: Any) -> Any:
        return value if value is None else {k: self.item.loaded(v) for k, v in value.items()}

    def definition(self, named: set[str]) -> Any:
        return {"type": self.avro, "values": self.item.definition(named)}


class Record:
    """A record, whose fields are attributes. Assigning to one checks its type."""

    _avro_namespace: ClassVar[str | None] = None
    _sorted_fields: ClassVar[bool] = False
    _fields: ClassVar[dict[str, Field]] = {}

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        own = {name: field_of(value) for name, value in vars(cls).items()}
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


def field_of(value: Any) -> Field | None:
    """Returns the field that an attribute of a record class declares; None if it is not a field."""
    if isinstance(value, Field):
        return value
    if isinstance(value, Record):
        return RecordField(type(value), *value._declaration)
    if isinstance(value, type) and issubclass(value, Record):
        return RecordField(value)
    if isinstance(value, type) and issubclass(value, Enum):
        return CustomEnum(value)
    return None
