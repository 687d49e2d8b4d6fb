"""Loading of user-defined strategies: their code, and its version.

A name is that of an entry point in the group `ledgerfold.strategies`, or "module:Class". The object
it denotes is inspected before it is called. It is one of these:

* a class with `should_keep_left`, which is called with the settings as keyword arguments (text);
* a function whose annotation says that it returns a `Strategy`, called in the same way;
* the strategy itself, which is not called and has no settings.

ledgerfold/strategies/allowed.py decides which names may be loaded.

The version of the code is the first of these that exists:

* `version` of the object, or of the strategy that it creates;
* that of the distribution that the module belongs to;
* a hash of the module's source.

Loading runs untrusted code: it may raise, hang, or use all memory. A broker never does it; a
compactor does it only in processes that it can lose (compactor/user_strategies/sandbox.py, Spark's
Python workers).

    >>> name = "ledgerfold.strategies:HeaderVersion"
    >>> place_of(name).attribute
    'HeaderVersion'
    >>> type(load(name, {"property": "v"}).strategy).__name__
    'HeaderVersion'
"""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Mapping
from functools import reduce
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, NamedTuple

from ledgerfold.storage.errors import InvalidStrategy
from ledgerfold.strategies.catalogue import ENTRY_POINTS, LISTED, installed

_HASH_DIGITS = 12
# The exceptions of user code. Any other BaseException comes from the watch that limits it.
RAISED = (Exception, SystemExit, KeyboardInterrupt, GeneratorExit)


class Place(NamedTuple):
    """The location of a strategy. `distribution`: the version of an entry point's distribution."""

    name: str
    module: str
    attribute: str
    distribution: str


class Loaded(NamedTuple):
    """A loaded strategy. `source`: a hash of the module's source; empty if it has none."""

    strategy: Any
    version: str
    source: str


def is_own(name: str) -> bool:
    """Returns whether it may be user-defined: "module:Class", or an existing entry point."""
    return ":" in name or name in installed().names


def place_of(name: str) -> Place:
    """Finds the code; loads nothing. Raises InvalidStrategy unless one entry point matches."""
    module, colon, attribute = name.partition(":")
    if colon:
        return Place(name, module, attribute, "")
    offered = installed()
    by_value = {each.value: each for each in offered if each.name == name}
    if not by_value:
        others = ", ".join(sorted({each.name for each in offered})) or "none"
        raise InvalidStrategy(
            name,
            f"it is not a built-in strategy ({', '.join(LISTED)}), and no package of the "
            f"compactor's installation has an entry point {ENTRY_POINTS!r} of that name (it has: "
            f"{others})",
        )
    if len(by_value) > 1:
        raise InvalidStrategy(
            name,
            f"several packages have an entry point of that name: {', '.join(sorted(by_value))}",
        )
    (entry_point,) = by_value.values()
    distribution = entry_point.dist.version if entry_point.dist else ""
    return Place(name, entry_point.module, entry_point.attr, distribution)


def load(name: str, settings: Mapping[str, str]) -> Loaded:
    """Creates a strategy. Raises InvalidStrategy for any error of its code."""
    location = place_of(name)
    module = _import(location)
    try:
        attribute = reduce(getattr, location.attribute.split("."), module)
    except AttributeError as error:
        raise InvalidStrategy(
            name, f"module {location.module} has no {location.attribute}"
        ) from error
    strategy = _create(name, attribute, settings)
    source = _source_hash(module)
    version = _own_version(name, attribute, strategy)
    return Loaded(strategy, version or _packaged_version(location) or f"source {source}", source)


def describe_error(error: BaseException) -> str:
    """Describes an error of user code in one line."""
    try:
        lines = str(error).strip().splitlines()
    except RAISED:
        lines = ["it has no text"]
    return f"{type(error).__name__}: {lines[0]}"[:300] if lines else type(error).__name__


def _import(place: Place) -> ModuleType:
    try:
        return importlib.import_module(place.module)
    except RAISED as error:
        what = f"module {place.module} cannot be imported ({describe_error(error)})"
        raise InvalidStrategy(place.name, what) from error


def _create(name: str, target: Any, settings: Mapping[str, str]) -> Any:
    if not _is_maker(name, target):
        if settings:
            raise InvalidStrategy(name, f"it has no settings, but {_list(settings)} is set")
        return target
    try:
        return target(**settings)
    except RAISED as error:
        with_settings = f"settings {_list(settings)}" if settings else "no settings"
        raise InvalidStrategy(
            name, f"it cannot be created with {with_settings} ({describe_error(error)})"
        ) from error


def _is_maker(name: str, target: Any) -> bool:
    """Returns whether the object creates a strategy.

    Raises InvalidStrategy if it is callable, but not known to return a strategy.
    """
    if isinstance(target, type):
        if not callable(getattr(target, "should_keep_left", None)):
            why = f"class {target.__qualname__} has no method should_keep_left"
            raise InvalidStrategy(name, why)
        return True
    if isinstance(target, FunctionType):
        returned = target.__annotations__.get("return")
        named = str(getattr(returned, "__name__", returned))
        if named.rpartition(".")[2] != "Strategy":
            raise InvalidStrategy(
                name,
                f"{target.__qualname__} is neither a class with should_keep_left nor a function "
                "annotated to return a Strategy",
            )
        return True
    return False


def _own_version(name: str, target: Any, strategy: Any) -> str:
    """Returns the version that the code declares; empty if none."""
    try:
        version = getattr(target, "version", None) or getattr(strategy, "version", None) or ""
    except RAISED as error:
        raise InvalidStrategy(
            name, f"its `version` cannot be read ({describe_error(error)})"
        ) from error
    if not isinstance(version, str | int | float):
        what = type(version).__name__
        raise InvalidStrategy(name, f"its `version` is a {what}, not a string or number")
    return str(version)


def _list(settings: Mapping[str, str]) -> str:
    return ", ".join(sorted(settings))


def _packaged_version(place: Place) -> str:
    """Returns the version of the module's distribution; empty if it has none."""
    if place.distribution:
        return place.distribution
    from importlib.metadata import packages_distributions, version

    distributions = packages_distributions().get(place.module.partition(".")[0])
    return version(distributions[0]) if distributions else ""


def _source_hash(module: ModuleType) -> str:
    path = getattr(module, "__file__", None)
    if path is None:
        return ""
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()[:_HASH_DIGITS]
