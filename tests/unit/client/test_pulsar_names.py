"""Names of Pulsar's Python client: each is here, or in the table of docs/NOT_EMULATED.md.

The installed client says which there are: classes, functions, methods, arguments and their
defaults, members of enumerations.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any

import pulsar
import pulsar.asyncio
import pulsar.exceptions
import pulsar.schema
import pulsar.tableview
import pytest

import ledgerfold
from ledgerfold import aio, schema
from ledgerfold.broker.client import Client
from ledgerfold.storage.errors import InvalidRequest, NotAllowed

DOCUMENT = Path(__file__).parents[3] / "docs/NOT_EMULATED.md"
HEADING = "## Names of Pulsar's Python client"
# Their modules, and ours with the same names. Names of the first have no prefix in the table.
MODULES = (
    ("", pulsar, ledgerfold),
    ("", pulsar.exceptions, ledgerfold.errors),
    ("", pulsar.tableview, ledgerfold),
    ("asyncio.", pulsar.asyncio, aio),
    ("schema.", pulsar.schema, schema),
)
# Only a client creates these; the constructors are no part of the API.
CREATED_BY_CLIENTS = ("Consumer", "Message", "Producer", "Reader", "TableView")


def missing_names() -> set[str]:
    names = {name for each in MODULES for name in missing_of(*each)}
    # What both clients lack is listed once, and so are an error and its result.
    return {
        each
        for each in names
        if names.isdisjoint(
            each.removeprefix(prefix) for prefix in ("asyncio.", "Result.") if prefix in each
        )
    }


def missing_of(prefix: str, theirs: Any, ours: Any) -> Iterator[str]:
    for name, their in vars(theirs).items():
        if name.startswith("_") or not is_own(their, theirs):
            continue
        our = vars(ours).get(name) or getattr(ours, name, None)
        if our is None:
            yield prefix + name
        elif isinstance(their, type):
            yield from missing_of_class(prefix + name, their, our)
        else:
            yield from missing_arguments(prefix + name, their, our)


def is_own(value: Any, module: Any) -> bool:
    """Returns whether a module defines it, or is the public one of the extension that does."""
    if not (inspect.isclass(value) or inspect.isfunction(value)):
        return False
    home = value.__module__
    if module is pulsar and home.startswith(pulsar.schema.__name__):
        return False
    return bool(home.startswith(module.__name__) or home == "_pulsar")


def missing_of_class(name: str, theirs: Any, ours: Any) -> Iterator[str]:
    members = getattr(theirs, "__members__", None)
    if members is not None:
        yield from (f"{name}.{each}" for each in members if each not in ours.__members__)
        return
    if theirs.__name__ not in CREATED_BY_CLIENTS and not issubclass(theirs, Exception):
        yield from missing_arguments(name, theirs.__init__, ours.__init__)
    for each in dir(theirs):
        their, our = getattr(theirs, each), getattr(ours, each, None)
        if each.startswith("_") or not (inspect.isfunction(their) or inspect.ismethod(their)):
            continue
        if our is None:
            # That of a base class is listed there.
            if not any(hasattr(base, each) for base in theirs.__bases__):
                yield f"{name}.{each}"
        else:
            yield from missing_arguments(f"{name}.{each}", their, our)


def missing_arguments(name: str, theirs: Any, ours: Any) -> Iterator[str]:
    if theirs is object.__init__:
        return
    ours_by_name = inspect.signature(ours).parameters
    for each in inspect.signature(theirs).parameters.values():
        if each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD) or each.name == "self":
            continue
        if each.name not in ours_by_name:
            yield f"{name}({each.name}=)"
        elif not is_same_default(each, ours_by_name[each.name]):
            yield f"{name}({each.name}={ours_by_name[each.name].default!r})"


def is_same_default(their: inspect.Parameter, our: inspect.Parameter) -> bool:
    if isinstance(their.default, pulsar.schema.BytesSchema):
        return our.default is None
    if isinstance(our.default, Enum):
        return their.default.name == our.default.name  # type: ignore[no-any-return]
    # A required one may have a default here.
    return their.default in (our.default, their.empty)


def listed_names() -> list[str]:
    """Returns the names in the first column of the table."""
    section = DOCUMENT.read_text().split(f"\n{HEADING}\n")[1].split("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| `")]
    return [name for row in rows for name in re.findall(r"`([^`]+)`", row.split(" | ")[0])]


def test_each_name_exists_or_is_documented_as_missing() -> None:
    """A name that is added here leaves the table."""
    listed = listed_names()
    assert sorted(listed) == sorted(missing_names())


def test_members_have_pulsars_numbers_and_texts() -> None:
    """Programs log them, and store them. The names alone had been compared."""
    compared = 0
    for name, theirs in vars(pulsar).items():
        ours = getattr(ledgerfold, name, None)
        for member, their in getattr(theirs, "__members__", {}).items():
            our = None if ours is None else ours.__members__.get(member)
            if our is not None:
                assert (str(our), f"{our}", repr(our), int(our), our.value) == (
                    str(their),
                    f"{their}",
                    repr(their),
                    int(their),
                    their.value,
                )
                compared += 1
    assert compared > 40


def test_positional_arguments_have_pulsars_order() -> None:
    for prefix, theirs, ours in (MODULES[0], MODULES[3]):
        for name in ("Client", "Consumer", "Producer", "Reader"):
            for method in vars(getattr(theirs, name)):
                our = getattr(getattr(ours, name), method, None)
                if our is None or method.startswith("_"):
                    continue
                wanted = list(inspect.signature(getattr(getattr(theirs, name), method)).parameters)
                here = [
                    each.name
                    for each in inspect.signature(our).parameters.values()
                    if each.kind is each.POSITIONAL_OR_KEYWORD
                ]
                common = [each for each in here if each in wanted]
                assert common == [each for each in wanted if each in common], (prefix, name, method)


def test_missing_arguments_accept_their_default() -> None:
    """A program that spells out what Pulsar's client does anyway requests nothing."""
    with Client("127.0.0.1:1", **missing_defaults("__init__")) as client:
        # The last check before the broker is asked.
        with pytest.raises(InvalidRequest, match="subscription_name must be"):
            client.subscribe("t", "", **missing_defaults("subscribe"))
        for argument in ("max_pending_chunked_message", "broker_consumer_stats_cache_time_ms"):
            other: dict[str, Any] = {argument: 7}
            with pytest.raises(NotAllowed, match=argument):
                client.subscribe("t", "s", **other)


def missing_defaults(method: str) -> dict[str, Any]:
    theirs = inspect.signature(getattr(pulsar.Client, method)).parameters.values()
    ours = inspect.signature(getattr(Client, method)).parameters
    plain = [each for each in theirs if isinstance(each.default, int | None)]
    return {each.name: each.default for each in plain if each.name not in ours}
