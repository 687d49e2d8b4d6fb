"""Decides whether a reader with one Avro definition can read data written with another one.

  >>> from ledgerfold.broker.schemas.avro import parse_avro
  >>> old = parse_avro('{"type": "record", "name": "A", "fields": [{"name": "x", "type": "int"}]}')
  >>> why_unreadable(old, parse_avro('"int"'))
  "record 'A' cannot be read as int"
  >>> new = parse_avro('{"type": "record", "name": "B", "fields": [{"name": "x", "type": "long"}]}')
  >>> why_unreadable(old, new) is None
  True

The rules are those of Pulsar's broker, which uses Avro's Java library (1.11, Resolver and
ResolvingGrammarGenerator): records match regardless of their names, a symbol that the reader's enum
does not have is not an error, and every branch of a writer's union must be readable. The official
Python package has other rules (avro.compatibility).

Definitions come from clients: work that may take long is counted as steps
(broker/schemas/steps.py).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ledgerfold.broker.schemas.avro import ABSENT, Field, Node
from ledgerfold.broker.schemas.steps import Steps

# The cost of a pair of records, apart from its fields, in time and memory.
_PAIR_STEPS = 10
# The other types of a writer that each type of a reader accepts.
_PROMOTED = {
    "long": ("int",),
    "float": ("int", "long"),
    "double": ("int", "long", "float"),
    "bytes": ("string",),
    "string": ("bytes",),
}


class _Outcome:
    """The result for a pair of types: an error, or the outcomes of its parts."""

    __slots__ = ("parts", "why")

    def __init__(self, why: str = "") -> None:
        self.why = why
        self.parts: list[_Outcome] = []


_FINE = _Outcome()


class _Renamed(NamedTuple):
    """The reader's aliases: full names by alias; of records by name, fields by alias."""

    names: dict[str, str]
    fields: dict[str, dict[str, str]]


def why_unreadable(writer: Node, reader: Node, steps: Steps | None = None) -> str | None:
    """Returns the reason why the reader cannot read the writer's data; None if it can.

    Raises InvalidSchema if the comparison takes too long.
    """
    steps = steps or Steps()
    outcome = _Resolver(_aliases(reader, steps), steps).resolve(writer, reader, 0)
    queue, seen = [outcome], {id(outcome)}
    while queue:
        each = queue.pop()
        if each.why:
            return each.why
        for part in each.parts:
            if id(part) not in seen:
                seen.add(id(part))
                queue.append(part)
    return None


def _aliases(reader: Node, steps: Steps) -> _Renamed:
    renamed, seen, queue = _Renamed({}, {}), {id(reader)}, [reader]
    while queue:
        node = queue.pop()
        steps.take(0, 1 + len(node.fields) + len(node.branches))
        renamed.names.update(dict.fromkeys(node.aliases, node.name))
        for each in node.fields.values():
            for alias in each.aliases:
                renamed.fields.setdefault(node.name, {})[alias] = each.name
        inner = [each.type for each in node.fields.values()]
        inner += [*node.branches, *filter(None, (node.items,))]
        for each_node in inner:
            if id(each_node) not in seen:
                seen.add(id(each_node))
                queue.append(each_node)
    return renamed


class _Resolver:
    def __init__(self, renamed: _Renamed, steps: Steps) -> None:
        self._renamed, self._steps = renamed, steps
        self._defaults = Defaults(steps)
        self._records: dict[tuple[int, int], _Outcome] = {}
        self._fields: dict[int, dict[str, Field]] = {}

    def _name(self, writer: Node) -> str:
        return self._renamed.names.get(writer.name, writer.name)

    def _short_name(self, writer: Node) -> str:
        return self._name(writer).rpartition(".")[2]

    def _fields_of(self, writer: Node) -> dict[str, Field]:
        """Returns the writer's fields by the names that the reader knows."""
        writer_fields = self._fields.get(id(writer))
        if writer_fields is None:
            aliases = self._renamed.fields.get(self._name(writer), {})
            fields = writer.fields.items()
            writer_fields = {aliases.get(name, name): each for name, each in fields}
            self._fields[id(writer)] = writer_fields
        return writer_fields

    def resolve(self, writer: Node, reader: Node, depth: int) -> _Outcome:
        self._steps.take(depth)
        if writer.kind == "union":
            return self._written_union(writer, reader, depth)
        if writer.kind != reader.kind:
            if reader.kind == "union":
                return self._read_union(writer, reader, depth)
            if writer.kind in _PROMOTED.get(reader.kind, ()):
                return _FINE
            return _Outcome(f"{_called(writer)} cannot be read as {reader.name or reader.kind}")
        if writer.kind == "record":
            return self._record(writer, reader, depth)
        if writer.kind in ("enum", "fixed") and self._short_name(writer) != reader.short_name:
            return _Outcome(f"{_called(writer)} cannot be read as {reader.name!r}")
        if writer.size != reader.size:
            return _Outcome(f"{_called(writer)} has {writer.size} bytes, not {reader.size}")
        outcome = _FINE
        if writer.items is not None:
            outcome = _Outcome()
            outcome.parts.append(self.resolve(writer.items, reader.inner, depth + 1))
        return outcome

    def _record(self, writer: Node, reader: Node, depth: int) -> _Outcome:
        pair = id(writer), id(reader)
        known = self._records.get(pair)
        if known is not None:
            return known
        # Set early, for records that contain themselves.
        outcome = self._records[pair] = _Outcome()
        self._steps.take(depth, _PAIR_STEPS + len(writer.fields) + len(reader.fields))
        fields = self._fields_of(writer)
        for name, each in fields.items():
            read = reader.fields.get(name)
            if read is not None:
                outcome.parts.append(self.resolve(each.type, read.type, depth + 1))
        for name, read in reader.fields.items():
            if name not in fields:
                why = "has no default" if read.default is ABSENT else ""
                if not why and not self._defaults.fit(read.type, read.default, depth + 1):
                    why = "has a default of another type"
                if why:
                    failed = self._records[pair] = _Outcome(
                        f"the field {name!r} of {reader.name!r} was not written, and {why}"
                    )
                    return failed
        return outcome

    # Unions

    def _written_union(self, writer: Node, reader: Node, depth: int) -> _Outcome:
        if self._is_alike(writer, reader, {}, depth):
            return _FINE
        outcome = _Outcome()
        outcome.parts = [self.resolve(each, reader, depth + 1) for each in writer.branches]
        return outcome

    def _read_union(self, writer: Node, reader: Node, depth: int) -> _Outcome:
        branch = self._branch(writer, reader, depth)
        if branch is None:
            return _Outcome(f"{_called(writer)} is in no branch of a union")
        outcome = _Outcome()
        outcome.parts.append(self.resolve(writer, branch, depth + 1))
        return outcome

    def _branch(self, writer: Node, reader: Node, depth: int) -> Node | None:
        """Returns the branch that the reader chooses."""
        alike: Node | None = None
        for each in reader.branches:
            self._steps.take(depth)
            if each.kind != writer.kind:
                continue
            if not each.name or self._name(writer) == each.name:
                return each
            if each.kind == "record":
                outcome = self._record(writer, each, depth + 1)
                self._steps.take(depth, len(outcome.parts))
                is_alike = not outcome.why and not any(part.why for part in outcome.parts)
                is_called = self._short_name(writer) == each.short_name
                if is_alike and (alike is None or is_called):
                    alike = each
        if alike is not None:
            return alike
        promoted = (each for each in reader.branches if writer.kind in _PROMOTED.get(each.kind, ()))
        return next(promoted, None)

    def _is_alike(
        self, one: Node, other: Node, equality: dict[tuple[int, int], bool], depth: int
    ) -> bool:
        """Returns whether two types have the same structure; namespaces may differ.

        `equality`: the results for pairs of records, by the ids of their nodes. A pair in progress
        counts as equal, because records may be recursive.
        """
        self._steps.take(depth)
        if one.kind != other.kind:
            return False
        if one.name and self._short_name(one) != other.short_name:
            return False
        if one.kind == "record":
            return self._are_records_alike(one, other, equality, depth)
        if one.items is not None:
            return self._is_alike(one.items, other.inner, equality, depth + 1)
        self._steps.take(depth, len(one.symbols))
        if (one.size, one.symbols, len(one.branches)) != (
            *(other.size, other.symbols, len(other.branches)),
        ):
            return False
        pairs = zip(one.branches, other.branches, strict=True)
        return all(self._is_alike(a, b, equality, depth + 1) for a, b in pairs)

    def _are_records_alike(
        self, one: Node, other: Node, equality: dict[tuple[int, int], bool], depth: int
    ) -> bool:
        pair = id(one), id(other)
        if pair not in equality:
            equality[pair] = True
            self._steps.take(depth, len(one.fields) + len(other.fields))
            fields = self._fields_of(one)
            equality[pair] = list(fields) == list(other.fields) and all(
                self._is_alike(each.type, other.fields[name].type, equality, depth + 1)
                for name, each in fields.items()
            )
        return equality[pair]


def _called(node: Node) -> str:
    article = "an" if node.kind[0] in "aei" else "a"
    return f"{node.kind} {node.name!r}" if node.name else f"{article} {node.kind}"


class Defaults:
    """The defaults of one reader, which must exist as long as this object.

    Decides whether each is valid for its field's type, as Avro's Java library does.

    The default of a union must be valid for its first branch. A type and a default are checked
    once: names let a definition refer to them from many places.

    >>> from ledgerfold.broker.schemas.avro import parse_avro
    >>> defaults = Defaults(Steps())
    >>> [defaults.fit(parse_avro('["null", "int"]'), each, 0) for each in (None, 1)]
    [True, False]
    """

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
        symbols = self._symbols.get(id(type_))
        if symbols is None:
            self._steps.take(depth, len(type_.symbols))
            symbols = self._symbols[id(type_)] = frozenset(type_.symbols)
        return symbols

    def _fits_parts(self, type_: Node, default: Any, depth: int) -> bool:
        if type_.kind == "union":
            return bool(type_.branches) and self.fit(type_.branches[0], default, depth)
        if type_.kind == "record":
            defaults = default if isinstance(default, dict) else {}
            return all(
                (value := defaults.get(each.name, each.default)) is not ABSENT
                and self.fit(each.type, value, depth)
                for each in type_.fields.values()
            )
        values = list(default.values()) if isinstance(default, dict) else default
        return not isinstance(values, list) or all(
            self.fit(type_.inner, each, depth) for each in values
        )
