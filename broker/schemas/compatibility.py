"""Decides which definition may follow which, by the strategy of a topic.

  >>> strategy_name(SCHEMA_COMPATIBILITY_STRATEGY_BACKWARD)
  'BACKWARD'
  >>> text = SchemaDefinition(type="SCHEMA_TYPE_STRING")
  >>> number = SchemaDefinition(type="SCHEMA_TYPE_INT64")
  >>> why_incompatible([text], number, SCHEMA_COMPATIBILITY_STRATEGY_BACKWARD)
  'exists schema type STRING, new schema type INT64.'

Sources: Pulsar's SchemaRegistryServiceImpl and the SchemaCompatibilityCheck of each type.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ledgerfold.broker.schemas.avro import Node, canonical_avro, parse_avro
from ledgerfold.broker.schemas.definitions import STRUCTS, split_key_value, type_name
from ledgerfold.broker.schemas.resolution import why_unreadable
from ledgerfold.broker.schemas.steps import Steps
from ledgerfold.broker.schemas.validation import (
    is_avro,
    is_json_schema,
    json_schema,
    root_message,
)
from ledgerfold.storage.errors import InvalidRequest, InvalidSchema
from ledgerfold.v1.records_pb2 import (
    SCHEMA_COMPATIBILITY_STRATEGY_ALWAYS_COMPATIBLE,
    SCHEMA_COMPATIBILITY_STRATEGY_ALWAYS_INCOMPATIBLE,
    SCHEMA_COMPATIBILITY_STRATEGY_BACKWARD,
    SCHEMA_COMPATIBILITY_STRATEGY_BACKWARD_TRANSITIVE,
    SCHEMA_COMPATIBILITY_STRATEGY_FORWARD,
    SCHEMA_COMPATIBILITY_STRATEGY_FORWARD_TRANSITIVE,
    SCHEMA_COMPATIBILITY_STRATEGY_FULL,
    SCHEMA_COMPATIBILITY_STRATEGY_FULL_TRANSITIVE,
    SCHEMA_COMPATIBILITY_STRATEGY_UNSPECIFIED,
    SCHEMA_TYPE_JSON,
    SCHEMA_TYPE_KEY_VALUE,
    SCHEMA_TYPE_PROTOBUF_NATIVE,
    SchemaCompatibilityStrategy,
    SchemaDefinition,
)

_PREFIX = "SCHEMA_COMPATIBILITY_STRATEGY_"


class _Rule(NamedTuple):
    """A strategy: which schema must be able to read data of the other, and which versions are
    compared."""

    backward: bool
    forward: bool
    transitive: bool = False


_RULES: dict[int, _Rule] = {
    SCHEMA_COMPATIBILITY_STRATEGY_BACKWARD: _Rule(True, False),
    SCHEMA_COMPATIBILITY_STRATEGY_FORWARD: _Rule(False, True),
    SCHEMA_COMPATIBILITY_STRATEGY_FULL: _Rule(True, True),
    SCHEMA_COMPATIBILITY_STRATEGY_BACKWARD_TRANSITIVE: _Rule(True, False, True),
    SCHEMA_COMPATIBILITY_STRATEGY_FORWARD_TRANSITIVE: _Rule(False, True, True),
    SCHEMA_COMPATIBILITY_STRATEGY_FULL_TRANSITIVE: _Rule(True, True, True),
}
# For consumers: the strategies under which only the latest version counts.
_LATEST_FOR_CONSUMERS = (
    SCHEMA_COMPATIBILITY_STRATEGY_BACKWARD,
    SCHEMA_COMPATIBILITY_STRATEGY_FORWARD,
    SCHEMA_COMPATIBILITY_STRATEGY_FORWARD_TRANSITIVE,
    SCHEMA_COMPATIBILITY_STRATEGY_FULL,
)
STRATEGIES = tuple(name.removeprefix(_PREFIX) for name in SchemaCompatibilityStrategy.keys()[1:])


def strategy_name(strategy: int) -> str:
    """Returns Pulsar's name."""
    name = SchemaCompatibilityStrategy.Name(strategy)
    return name.removeprefix(_PREFIX)


def strategy_number(name: str) -> int:
    """Returns the strategy of that name. Raises InvalidRequest."""
    if name not in STRATEGIES:
        known = ", ".join(STRATEGIES)
        raise InvalidRequest(
            f"Unknown schema compatibility strategy {name[:60]!r}; known: {known}."
        )
    return int(SchemaCompatibilityStrategy.Value(_PREFIX + name))


def check_strategy(strategy: int) -> None:
    """Raises InvalidRequest for a number that is not a strategy."""
    known = SchemaCompatibilityStrategy.values()
    if strategy == SCHEMA_COMPATIBILITY_STRATEGY_UNSPECIFIED or strategy not in known:
        raise InvalidRequest(f"{strategy} is not a schema compatibility strategy.")


def same_as(definition: SchemaDefinition, versions: Sequence[SchemaDefinition]) -> int | None:
    """Returns the index of the version with the same schema, regardless of formatting.

    Properties do not count.
    """
    for at, each in enumerate(versions):
        if each.type == definition.type and each.data == definition.data:
            return at
    if definition.type not in STRUCTS:
        return None
    canonical = canonical_avro(definition.data)
    if canonical is None:
        return None
    same = (
        at
        for at, each in enumerate(versions)
        if each.type == definition.type and canonical_avro(each.data) == canonical
    )
    return next(same, None)


def why_incompatible(
    versions: Sequence[SchemaDefinition],
    new: SchemaDefinition,
    strategy: int,
) -> str | None:
    """Returns the reason why a definition may not follow `versions`, as a sentence; None if it may.

    Raises InvalidSchema if it is too complex to compare.
    """
    if strategy == SCHEMA_COMPATIBILITY_STRATEGY_ALWAYS_COMPATIBLE or not versions:
        return None
    rule = _RULES.get(strategy)
    if rule is None or not rule.transitive:
        latest = versions[-1]
        if (why := _other_type([latest], new)) is not None or latest.data == new.data:
            return why
        return _why(versions[-1:], new, strategy, Steps(), is_one=True)
    return _other_type(versions, new) or _why(versions, new, strategy, Steps())


def why_no_consumer(
    versions: Sequence[SchemaDefinition],
    own: SchemaDefinition,
    strategy: int,
) -> str | None:
    """Returns the reason why a consumer with that definition may not connect, as a sentence; None
    if it may.
    """
    if strategy == SCHEMA_COMPATIBILITY_STRATEGY_ALWAYS_COMPATIBLE:
        return None
    if not versions:
        return (
            "messages were published, or clients are connected, without a schema: consume "
            "without one, or register one first."
        )
    if strategy in _LATEST_FOR_CONSUMERS:
        return why_incompatible(versions, own, SCHEMA_COMPATIBILITY_STRATEGY_BACKWARD)
    return _other_type(versions, own) or _why(versions, own, strategy, Steps())


def _other_type(versions: Sequence[SchemaDefinition], new: SchemaDefinition) -> str | None:
    other = next((each.type for each in versions if each.type != new.type), None)
    if other is None:
        return None
    return f"exists schema type {type_name(other)}, new schema type {type_name(new.type)}."


def _why(
    versions: Sequence[SchemaDefinition],
    new: SchemaDefinition,
    strategy: int,
    steps: Steps,
    *,
    is_one: bool = False,
) -> str | None:
    """Compares definitions of the same type. `is_one`: the comparison is with one version, not with
    a list."""
    if new.type == SCHEMA_TYPE_KEY_VALUE:
        return _why_pairs(versions, new, strategy, steps)
    if new.type == SCHEMA_TYPE_JSON and is_one and not (is_avro(versions[0]) and is_avro(new)):
        return _why_json_schema(versions[0], new)
    rule = _RULES.get(strategy)
    if rule is None:
        name = strategy_name(SCHEMA_COMPATIBILITY_STRATEGY_ALWAYS_INCOMPATIBLE)
        return f"the strategy is {name}."
    if new.type == SCHEMA_TYPE_PROTOBUF_NATIVE:
        return _why_messages(versions, new)
    if new.type in STRUCTS:
        return _why_avro(versions, new, rule, steps)
    return None


def _why_avro(
    versions: Sequence[SchemaDefinition], new: SchemaDefinition, rule: _Rule, steps: Steps
) -> str | None:
    # For a half of a pair, too, only the latest version counts.
    compared = versions if rule.transitive else versions[-1:]
    try:
        parsed = parse_avro(new.data)
        for each in reversed(compared):
            if (why := _why_either(parse_avro(each.data), parsed, rule, steps)) is not None:
                return why
    except InvalidSchema as error:
        return error.message
    return None


def _why_either(old: Node, new: Node, rule: _Rule, steps: Steps) -> str | None:
    if rule.backward and (why := why_unreadable(old, new, steps)) is not None:
        return f"with it, messages with an earlier version could not be read: {why}."
    if rule.forward and (why := why_unreadable(new, old, steps)) is not None:
        return f"with an earlier version, its messages could not be read: {why}."
    return None


def _why_json_schema(old: SchemaDefinition, new: SchemaDefinition) -> str | None:
    """Compares definitions if at least one of them has the form that old clients sent."""
    if is_avro(old) or is_avro(new):
        return None
    if not is_json_schema(old):
        return None
    one, other = json_schema(old), json_schema(new)
    if one is None or other is None or not one.get("id") or one.get("id") != other.get("id"):
        return "the ids of the two JSON schemas differ."
    return None


def _why_messages(versions: Sequence[SchemaDefinition], new: SchemaDefinition) -> str | None:
    root = root_message(new)
    if any(root_message(each) != root for each in versions):
        return "the root message of a Protobuf schema cannot change."
    return None


def _why_pairs(
    versions: Sequence[SchemaDefinition],
    new: SchemaDefinition,
    strategy: int,
    steps: Steps,
) -> str | None:
    pairs = [split_key_value(each) for each in versions]
    for at, half in enumerate(split_key_value(new)):
        olds = [pair[at] for pair in pairs]
        why = _other_type(olds, half) or _why(olds, half, strategy, steps)
        if why is not None:
            return f"its {('key', 'value')[at]}: {why}"
    return None
