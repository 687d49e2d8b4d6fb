"""Avro definitions: parsed from JSON into a graph of nodes, with Avro's rules for names.

  >>> parse_avro('{"type": "array", "items": "int"}').inner.kind
  'int'
  >>> parse_avro('{"type": "array", "items": "Unknown"}')
  Traceback (most recent call last):
  ledgerfold.errors.InvalidSchema: Invalid schema definition data for AVRO schema: ...

Rules and their source: those of Avro's Java library 1.11, which Pulsar's broker uses (Schema.parse,
without the check of defaults). The official Python package refuses other definitions.

Definitions come from clients: the caller bounds their size, this module their nesting.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from ledgerfold.broker.schemas.definitions import parse_json
from ledgerfold.storage.errors import InvalidSchema
from ledgerfold.storage.lru_cache import LruCache

PRIMITIVES = frozenset(["null", "boolean", "int", "long", "float", "double", "bytes", "string"])
NESTED_MAX = 100
_SHOWN = 60
# Attributes with a defined meaning; others are compared as they are. Java compares an enum's
# default neither as a default nor as an attribute.
_RESERVED = frozenset(
    ["type", "name", "namespace", "doc", "aliases", "fields", "symbols", "size", "items", "values"]
)
_ENUM_RESERVED = _RESERVED | {"default"}
_FIELD_RESERVED = frozenset(["name", "type", "doc", "aliases", "default", "order"])


# The latest definitions that were compared, by a digest of their data: a new producer then need not
# parse all versions of a topic again.
_DIGESTS_MAX = 10_000
_digests = LruCache[bytes, bytes | None](_DIGESTS_MAX)


class _Absent:
    """The default of a field that declares none. (`null` is a declared default.)"""


ABSENT = _Absent()


@dataclass(eq=False, slots=True)
class Field:
    name: str
    type: Node
    default: Any
    aliases: tuple[str, ...]


@dataclass(eq=False, slots=True)
class Node:
    """A type. Names are full; `items`: of an array or a map; `branches`: of a union."""

    kind: str
    name: str = ""
    aliases: tuple[str, ...] = ()
    fields: dict[str, Field] = field(default_factory=dict)
    symbols: tuple[str, ...] = ()
    size: int = 0
    items: Node | None = None
    branches: tuple[Node, ...] = ()

    @property
    def short_name(self) -> str:
        return self.name.rpartition(".")[2]

    @property
    def inner(self) -> Node:
        assert self.items is not None
        return self.items


def parse_avro(data: str | bytes, type_: str = "AVRO") -> Node:
    """Parses a definition. Raises InvalidSchema."""
    return _parse(data, type_)[0]


def canonical_avro(data: bytes) -> bytes | None:
    """Returns a digest that equal definitions have in common; None if it is not a definition.

    As in Java, names of types and fields, defaults and attributes count; documentation does not.
    """

    def digest() -> bytes | None:
        try:
            canonical = json.dumps(_parse(data, "AVRO")[1], sort_keys=True)
        except InvalidSchema:
            return None
        return sha256(canonical.encode()).digest()

    return _digests.get(sha256(data).digest(), digest)


def _parse(data: str | bytes, type_: str) -> tuple[Node, Any]:
    """Returns a definition's node and its canonical form. Raises InvalidSchema."""
    return _Parser(type_).parse(parse_json(type_, data), "", 0)


class _Parser:
    def __init__(self, type_: str) -> None:
        self._type = type_
        self._types: dict[str, Node] = {}

    def _invalid(self, why: str) -> InvalidSchema:
        return InvalidSchema(self._type, why)

    def parse(self, value: Any, namespace: str, depth: int) -> tuple[Node, Any]:
        """Returns the node and its canonical form."""
        if depth > NESTED_MAX:
            raise self._invalid(f"it is nested more than {NESTED_MAX} deep.")
        if isinstance(value, str):
            return self._by_name(value, namespace)
        if isinstance(value, list):
            return self._union(value, namespace, depth)
        if not isinstance(value, dict):
            raise self._invalid(f"{_shown(value)} is not a type.")
        return self._complex(value, namespace, depth)

    def _by_name(self, name: str, namespace: str) -> tuple[Node, Any]:
        if name in PRIMITIVES:
            return Node(name), name
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        # Java also looks for a name without a namespace.
        type_ = self._types.get(full) or self._types.get(name)
        if type_ is None:
            raise self._invalid(f"the name {_shown(name)} is not defined before its use.")
        return type_, {"ref": type_.name}

    def _union(self, value: list[Any], namespace: str, depth: int) -> tuple[Node, Any]:
        branches, canonical, seen = list[Node](), list[Any](), set[str]()
        for each in value:
            node, form = self.parse(each, namespace, depth + 1)
            if node.kind == "union":
                raise self._invalid("a union is directly inside another one.")
            if (name := node.name or node.kind) in seen:
                raise self._invalid(f"a union has {_shown(name)} twice.")
            seen.add(name)
            branches.append(node)
            canonical.append(form)
        return Node("union", branches=tuple(branches)), canonical

    def _complex(self, value: dict[str, Any], namespace: str, depth: int) -> tuple[Node, Any]:
        kind = value.get("type")
        if not isinstance(kind, str):
            raise self._invalid(f"{_shown(value)} has a `type` that is not a name.")
        reserved = _ENUM_RESERVED if kind == "enum" else _RESERVED
        extra = {name: each for name, each in value.items() if name not in reserved}
        if kind in PRIMITIVES:
            return Node(kind), {"type": kind, **extra} if extra else kind
        if kind in ("record", "error", "enum", "fixed"):
            return self._define(kind, value, extra, namespace, depth)
        if kind in ("array", "map"):
            what = "items" if kind == "array" else "values"
            if what not in value:
                raise self._invalid(f"this {kind} has no {what}: {_shown(value)}.")
            node, form = self.parse(value[what], namespace, depth + 1)
            return Node(kind, items=node), {"type": kind, what: form, **extra}
        # A name in the form of an object.
        return self._by_name(kind, namespace)

    def _define(
        self, kind: str, value: dict[str, Any], extra: Any, namespace: str, depth: int
    ) -> tuple[Node, Any]:
        full, space = self._full_name(value, namespace)
        if full in self._types:
            raise self._invalid(f"{_shown(full)} is defined twice.")
        node = Node("record" if kind == "error" else kind, full, self._aliases(value, space))
        self._types[full] = node
        form = {"type": kind, "name": full, **extra}
        if kind == "enum":
            node.symbols = self._symbols(value)
            form["symbols"] = list(node.symbols)
        elif kind == "fixed":
            size = value.get("size")
            if not isinstance(size, int) or isinstance(size, bool) or size < 0:
                raise self._invalid(f"{_shown(full)} has no size.")
            node.size = form["size"] = size
        else:
            form["fields"] = self._fields(node, value.get("fields"), space, depth)
        return node, form

    def _full_name(self, value: dict[str, Any], namespace: str) -> tuple[str, str]:
        """Returns the full name, and the namespace for names inside."""
        name = value.get("name")
        if not isinstance(name, str):
            raise self._invalid(f"{_shown(value)} has no name.")
        space, _, short = name.rpartition(".")
        if not space:
            own_space = value.get("namespace")
            space = own_space if isinstance(own_space, str) else namespace
        self._check_name(short)
        if not space and short in PRIMITIVES:
            raise self._invalid(f"{short!r} is the name of a primitive type.")
        return (f"{space}.{short}" if space else short), space

    def _check_name(self, name: str) -> None:
        ok = name.replace("_", "a")
        if not ok or not ok.isalnum() or not ok[0].isalpha():
            raise self._invalid(f"{_shown(name)} is not a valid name.")

    def _aliases(self, value: dict[str, Any], space: str) -> tuple[str, ...]:
        aliases = _texts(value.get("aliases"))
        return tuple(each if "." in each or not space else f"{space}.{each}" for each in aliases)

    def _symbols(self, value: dict[str, Any]) -> tuple[str, ...]:
        symbols = value.get("symbols")
        if not isinstance(symbols, list) or not all(isinstance(each, str) for each in symbols):
            raise self._invalid(f"this enum has no symbols: {_shown(value)}.")
        for each in symbols:
            self._check_name(each)
        if len(set(symbols)) < len(symbols):
            raise self._invalid("an enum has a symbol twice.")
        default = value.get("default")
        if default is not None and default not in symbols:
            raise self._invalid(f"{_shown(default)} is not a symbol of its enum.")
        return tuple(symbols)

    def _fields(self, node: Node, fields: Any, space: str, depth: int) -> list[Any]:
        if not isinstance(fields, list):
            raise self._invalid(f"the record {_shown(node.name)} has no fields.")
        forms = list[Any]()
        for each in fields:
            if not isinstance(each, dict) or not isinstance(name := each.get("name"), str):
                raise self._invalid(f"{_shown(each)} is not a field.")
            self._check_name(name)
            if name in node.fields:
                raise self._invalid(f"{_shown(node.name)} has the field {_shown(name)} twice.")
            if "type" not in each:
                raise self._invalid(f"the field {_shown(name)} has no type.")
            type_, form = self.parse(each["type"], space, depth + 1)
            default = each.get("default", ABSENT)
            aliases = tuple(_texts(each.get("aliases")))
            node.fields[name] = Field(name, type_, default, aliases)
            forms.append(_field_form(each, name, form))
        return forms


def _field_form(schema: Mapping[str, Any], name: str, type_: Any) -> dict[str, Any]:
    form = {key: each for key, each in schema.items() if key not in _FIELD_RESERVED}
    form |= {"name": name, "type": type_, "order": str(schema.get("order", "ascending")).lower()}
    return form | ({"default": schema["default"]} if "default" in schema else {})


def _texts(value: Any) -> list[str]:
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []


def _shown(value: Any) -> str:
    """Returns the beginning; the rest of a nested value is not formatted."""
    text = value if isinstance(value, str) else ""
    if not isinstance(value, str):
        for part in json.JSONEncoder().iterencode(value):
            text += part
            if len(text) > _SHOWN:
                break
    return repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}...")
