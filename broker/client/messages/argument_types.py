"""Checks the types of arguments, as annotated, before they reach the wire.

    >>> class Calls:
    ...     @check_types
    ...     def trim(self, topic: str, limit: int | None = None) -> None: ...
    >>> Calls().trim("prices", limit="x")
    Traceback (most recent call last):
      ...
    ledgerfold.errors.InvalidRequest: limit must be a 64-bit integer or None, not 'x'.

Annotations that name a type not in _TYPES are not checked, except frozen dataclasses, such as
policies, choices, messages of the wire, and collections of such types.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import is_dataclass
from enum import IntEnum
from numbers import Integral, Real
from types import NoneType, SimpleNamespace, UnionType
from typing import (
    Any,
    Final,
    ParamSpec,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from google.protobuf.message import Message

from ledgerfold.broker.client.messages.message_id import MessageId
from ledgerfold.storage.errors import InvalidRequest

P = ParamSpec("P")
R = TypeVar("R")
E = TypeVar("E", bound=IntEnum)


def _is_a(kind: type) -> Callable[[object], bool]:
    return lambda value: isinstance(value, kind)


def is_text(value: object) -> bool:
    """Returns whether it is a string that UTF-8 can encode."""
    try:
        return isinstance(value, str) and value.encode() is not None
    except UnicodeEncodeError:
        return False


def _is_int64(value: object) -> bool:
    is_in_range = isinstance(value, Integral) and -(2**63) <= int(value) < 2**63
    return is_in_range and not isinstance(value, bool)


def _is_texts(value: object) -> bool:
    return isinstance(value, Mapping) and all(map(is_text, (*value, *value.values())))


def _has_names(value: object) -> bool:
    return isinstance(value, Mapping) and all(map(is_text, value))


# The types that are checked: what passes as each, and its name.
_TYPES: Final[Mapping[object, tuple[Callable[[object], bool], str]]] = {
    bool: (_is_a(bool), "True or False"),
    int: (_is_int64, "a 64-bit integer"),
    float: (_is_a(Real), "a number"),
    str: (is_text, "a string"),
    bytes: (_is_a(bytes), "bytes"),
    Mapping[str, str]: (_is_texts, "a mapping of strings to strings"),
    Mapping[str, object]: (_has_names, "a mapping with strings as keys"),
    MessageId: (_is_a(MessageId), "a MessageId"),
    Callable: (callable, "a function"),
    NoneType: (_is_a(NoneType), "None"),
}
# The types of a `timeout_millis`.
TIMEOUT_TYPES: Final = (float, NoneType)


@functools.cache
def _checked_types(annotated: Callable[..., object]) -> dict[str, tuple[type, ...]]:
    """Returns the types of fields or parameters that are in _TYPES, and of choices."""
    types = {name: tuple(_members(hint)) for name, hint in _hints(annotated).items()}
    return {name: kinds for name, kinds in types.items() if all(map(_is_checked, kinds))}


def _hints(annotated: Any) -> dict[str, Any]:
    if isinstance(annotated, type):
        return get_type_hints(annotated)
    # The type that a function returns may be imported for type checkers only.
    raw_hints = {name: hint for name, hint in annotated.__annotations__.items() if name != "return"}
    return get_type_hints(SimpleNamespace(__annotations__=raw_hints), annotated.__globals__)


def _members(hint: Any) -> Iterator[Any]:
    """Yields the members of a union, or the type itself; a function's without its parameters."""
    is_union = get_origin(hint) in (Union, UnionType)
    for each in get_args(hint) if is_union else (hint,):
        yield Callable if get_origin(each) is Callable else each


def _is_checked(kind: Any) -> bool:
    if get_origin(kind) is Iterable:
        return all(map(_is_checked, get_args(kind)))
    if kind in _TYPES:
        return True
    return isinstance(kind, type) and (issubclass(kind, (IntEnum, Message)) or is_dataclass(kind))


def _check_of(kind: Any) -> tuple[Callable[[object], bool], str]:
    """Returns what passes as the type, and its name."""
    if get_origin(kind) is not Iterable:
        return _TYPES.get(kind) or (_is_a(kind), f"a {kind.__name__}")
    passes, text = _check_of(*get_args(kind))

    def all_pass(value: object) -> bool:
        if isinstance(value, Iterator):
            # It can be read only once.
            return True
        is_list = isinstance(value, Collection) and not isinstance(value, str | bytes | Mapping)
        return is_list and all(passes(each) for each in cast(Collection[object], value))

    return all_pass, f"a list, each {text}"


def check_fields(config: object) -> None:
    """Raises InvalidRequest unless the fields of a frozen dataclass have the types annotated.

    Replaces the names of choices by the choices.
    """
    cls: Any = type(config)
    for name, kinds in _checked_types(cls).items():
        value = getattr(config, name)
        if isinstance(kinds[0], type) and issubclass(kinds[0], IntEnum):
            object.__setattr__(config, name, resolve_choice(kinds[0], value, name))
        else:
            check_type(value, kinds, name)


def check_types(method: Callable[P, R]) -> Callable[P, R]:
    """Decorates a method, whose arguments must have the types annotated, else raises
    InvalidRequest.
    """
    shown = inspect.signature(method)

    @functools.wraps(method)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        for name, value in shown.bind(*args, **kwargs).arguments.items():
            is_several = shown.parameters[name].kind is inspect.Parameter.VAR_POSITIONAL
            for each in value if is_several else (value,):
                check_type(each, _checked_types(method).get(name, ()), name)
        return method(*args, **kwargs)

    return checked


def check_type(value: object, kinds: Collection[type], argument: str) -> None:
    """Raises InvalidRequest unless the value has one of these types; no type: any value passes."""
    known = [_check_of(each) for each in kinds]
    if known and not any(passes(value) for passes, _ in known):
        if isinstance(value, str) and str in kinds:
            raise InvalidRequest(f"{argument} {value!r:.100} is not valid UTF-8.")
        types = " or ".join(text for _, text in known)
        raise InvalidRequest(f"{argument} must be {types}, not {value!r:.100}.")


def resolve_choice(kind: type[E], value: object, argument: str) -> E:
    """Returns the member that `value` is or names. Raises InvalidRequest."""
    if isinstance(value, kind):
        return value
    if isinstance(value, str):
        for name, member in kind.__members__.items():
            if name.casefold() == value.casefold():
                return member
    members = ", ".join(kind.__members__)
    raise InvalidRequest(f"{argument} must be a {kind.__name__} ({members}), not {value!r:.100}.")
