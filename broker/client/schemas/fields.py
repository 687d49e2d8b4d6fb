"""The fields of records, with the names of `pulsar.schema`.

    >>> Array(Integer()).definition(set())
    {'type': 'array', 'items': 'int'}
    >>> Integer(required=True).checked("count", "7")
    Traceback (most recent call last):
      ...
    TypeError: Field count must be an integer, not '7'.

A field that is not required may be None, and its definition is a union with null. `default` is the
value of a record that is created without one; `required_default` writes it into the definition.
"""

from __future__ import annotations

from collections.abc import Callable
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
        self._required, self._required_default = required, required_default
        self._default = None if default is None else self.checked("default", default)

    @property
    def is_required(self) -> bool:
        return self._required

    @property
    def has_written_default(self) -> bool:
        return self._required_default

    def default(self) -> Any:
        """The value of a record that is created without one."""
        return self.empty if self._default is None else self._default

    def checked(self, name: str, value: Any) -> Any:
        """Returns the value to store. Raises TypeError."""
        if value is None and not self._required:
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
        self.item = field_of(item)
        if self.item is None:
            raise TypeError(f"{type(self).__name__} takes a field or a Record, not {item!r:.100}.")
        super().__init__(default, required, required_default)

    def _one(self, name: str) -> Callable[[Any], Any]:
        def converted(value: Any) -> Any:
            assert self.item is not None
            return self.item._converted(f"{name}'s item", value)

        return converted


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
        return list(map(self._one(name), super()._converted(name, value)))

    def loaded(self, value: Any) -> Any:
        assert self.item is not None
        return value if value is None else list(map(self.item.loaded, value))

    def definition(self, named: set[str]) -> Any:
        assert self.item is not None
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
        convert = self._one(name)
        return {key: convert(each) for key, each in pairs}

    def loaded(self, value: Any) -> Any:
        assert self.item is not None
        return value if value is None else {k: self.item.loaded(v) for k, v in value.items()}

    def definition(self, named: set[str]) -> Any:
        assert self.item is not None
        return {"type": self.avro, "values": self.item.definition(named)}


# Set by records.py: returns the field for a Record class or instance; None for anything else.
_record_field: list[Callable[[Any], Field | None]] = []


def field_of(value: Any) -> Field | None:
    """Returns the field that an attribute of a record class declares; None if it is not a field."""
    if isinstance(value, Field):
        return value
    if isinstance(value, type) and issubclass(value, Enum):
        return CustomEnum(value)
    for make in _record_field:
        if (field := make(value)) is not None:
            return field
    return None
