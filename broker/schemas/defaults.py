"""Decides whether a field's default is valid for its type, as Avro's Java library does (1.11).

  >>> from ledgerfold.broker.schemas.avro import parse_avro
  >>> defaults = Defaults(Steps())
  >>> [defaults.fit(parse_avro('["null", "int"]'), each, 0) for each in (None, 1)]
  [True, False]

The default of a union must be valid for its first branch. A type and a default are checked once:
names let a definition refer to them from many places.
"""

from __future__ import annotations

from typing import Any

from ledgerfold.broker.schemas.avro import ABSENT, Node
from ledgerfold.broker.schemas.steps import Steps


class Defaults:
    """The defaults of one reader, which must exist as long as this object."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self._known: dict[tuple[int, int], bool] = {}
        self._symbols: dict[int, frozenset[str]] = {}

    def fit(self, type_: Node, default: Any, depth: int) -> bool:
        """Returns whether it is a valid default for the type. Raises InvalidSchema."""
        self._steps.take(depth)
        match type_.kind:
            case "null":
                return default is None
            case "boolean":
                return isinstance(default, bool)
            case "int" | "long" | "float" | "double":
                return isinstance(default, int | float) and not isinstance(default, bool)
            case "string" | "bytes" | "fixed":
                return isinstance(default, str)
            case "enum":
                return isinstance(default, str) and default in self._symbols_of(type_, depth)
        key = id(type_), id(default)
        if key not in self._known:
            self._known[key] = self._fits_parts(type_, default, depth + 1)
        return self._known[key]

    def _symbols_of(self, type_: Node, depth: int) -> frozenset[str]:
        found = self._symbols.get(id(type_))
        if found is None:
            self._steps.take(depth, len(type_.symbols))
            found = self._symbols[id(type_)] = frozenset(type_.symbols)
        return found

    def _fits_parts(self, type_: Node, default: Any, depth: int) -> bool:
        if type_.kind == "union":
            return bool(type_.branches) and self.fit(type_.branches[0], default, depth)
        if type_.kind == "record":
            given = default if isinstance(default, dict) else {}
            return all(
                (value := given.get(each.name, each.default)) is not ABSENT
                and self.fit(each.type, value, depth)
                for each in type_.fields.values()
            )
        values = list(default.values()) if isinstance(default, dict) else default
        return not isinstance(values, list) or all(
            self.fit(type_.inner, each, depth) for each in values
        )
