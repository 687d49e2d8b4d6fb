"""Strategies of one's own: where their code is, loading it, and its version.

A name is an entry point's, in the group `ledgerfold.strategies`, or "module:Class". What is found
there is looked at before anything of it is called. It is one of these:

* a class with `should_keep_left`, which is called with the settings as keyword arguments (text);
* a function whose annotation says that it returns a `Strategy`, called in the same way;
* the strategy itself, which is not called and has no settings.

Which names may come here at all: ledgerfold/strategies/allowed.py.

The version of the code is, of these, the first that there is:
* `version` of what is found, or of the strategy that it gives;
* that of the distribution that the module belongs to;
* a hash of the module's source.

Loading runs foreign code: it may raise, hang, or take all memory. A broker never does it; a
compactor only in processes that it can lose (compactor/trial.py, Spark's Python workers).

    >>> name = "ledgerfold.strategies:HeaderVersion"
    >>> place_of(name).attribute
    'HeaderVersion'
    >>> type(load(name, {"property": "v"}).strategy).__name__
    'HeaderVersion'
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.metadata
from collections.abc import Mapping
from functools import reduce
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, NamedTuple

from ledgerfold.storage.errors import InvalidStrategy
from ledgerfold.strategies.catalogue import ENTRY_POINTS, LISTED

_HASH_DIGITS = 12
# What somebody's code may raise. Another BaseException is one of those who hold it to its bounds.
RAISED = (Exception, SystemExit, KeyboardInterrupt, GeneratorExit)


class Place(NamedTuple):
    """`distribution`: its name and version, of an entry point's."""

    name: str
    module: str
    attribute: str
    distribution: str


class Loaded(NamedTuple):
    """`source`: a hash of the module's; empty where it has none."""

    strategy: Any
    version: str
    source: str


def is_own(name: str) -> bool:
    """Whether it names code that a package might have; for an entry point, that one has it."""
    return ":" in name or name in importlib.metadata.entry_points(group=ENTRY_POINTS).names


def place_of(name: str) -> Place:
    """Loads nothing. Raises InvalidStrategy: there is no such entry point, or there are several."""
    module, colon, attribute = name.partition(":")
    if colon:
        return Place(name, module, attribute, "")
    there_are = importlib.metadata.entry_points(group=ENTRY_POINTS)
    found = {each.value: each for each in there_are if each.name == name}
    if not found:
        others = ", ".join(sorted({each.name for each in there_are})) or "none"
        raise InvalidStrategy(
            name,
            f"it is not one of Ledgerfold's own ({', '.join(LISTED)}), and where the compactor "
            f"runs, no package has an entry point {ENTRY_POINTS!r} of that name (there are: "
            f"{others})",
        )
    if len(found) > 1:
        raise InvalidStrategy(
            name, f"several packages offer one of that name: {', '.join(sorted(found))}"
        )
    (entry_point,) = found.values()
    distribution = entry_point.dist.version if entry_point.dist else ""
    return Place(name, entry_point.module, entry_point.attr, distribution)


def load(name: str, settings: Mapping[str, str]) -> Loaded:
    """A new strategy. Raises InvalidStrategy, whatever its code raises."""
    place = place_of(name)
    module = _import(place)
    try:
        found = reduce(getattr, place.attribute.split("."), module)
    except AttributeError as error:
        raise InvalidStrategy(name, f"module {place.module} has no {place.attribute}") from error
    strategy = _made(name, found, settings)
    source = _source_hash(module)
    version = _own_version(name, found, strategy)
    return Loaded(strategy, version or _packaged_version(place) or f"source {source}", source)


def said(error: BaseException) -> str:
    """What went wrong in somebody's code, in one line."""
    try:
        lines = str(error).strip().splitlines()
    except RAISED:
        lines = ["it has no text"]
    return f"{type(error).__name__}: {lines[0]}"[:300] if lines else type(error).__name__


def _import(place: Place) -> ModuleType:
    try:
        return importlib.import_module(place.module)
    except RAISED as error:
        what = f"module {place.module} cannot be imported ({said(error)})"
        raise InvalidStrategy(place.name, what) from error


def _made(name: str, found: Any, settings: Mapping[str, str]) -> Any:
    if not _is_maker(name, found):
        if settings:
            raise InvalidStrategy(name, f"it has no settings, and {_list(settings)} is set")
        return found
    try:
        return found(**settings)
    except RAISED as error:
        given = f"settings {_list(settings)}" if settings else "no settings"
        raise InvalidStrategy(name, f"it cannot be made with {given} ({said(error)})") from error


def _is_maker(name: str, found: Any) -> bool:
    """Whether it makes a strategy, as what it is like tells.

    Raises InvalidStrategy: it may be called, and nothing says that a strategy comes of it.
    """
    if isinstance(found, type):
        if not callable(getattr(found, "should_keep_left", None)):
            why = f"class {found.__qualname__} has no method should_keep_left"
            raise InvalidStrategy(name, why)
        return True
    if isinstance(found, FunctionType):
        returned = found.__annotations__.get("return")
        named = str(getattr(returned, "__name__", returned))
        if named.rpartition(".")[2] != "Strategy":
            raise InvalidStrategy(
                name,
                f"{found.__qualname__} is no class with should_keep_left, and no function that is "
                "annotated to return a Strategy",
            )
        return True
    return False


def _own_version(name: str, found: Any, strategy: Any) -> str:
    """What the code itself says; empty when it says nothing."""
    try:
        version = getattr(found, "version", None) or getattr(strategy, "version", None) or ""
    except RAISED as error:
        raise InvalidStrategy(name, f"its `version` cannot be read ({said(error)})") from error
    if not isinstance(version, str | int | float):
        what = type(version).__name__
        raise InvalidStrategy(name, f"its `version` is a {what}, and no text or number")
    return str(version)


def _list(settings: Mapping[str, str]) -> str:
    return ", ".join(sorted(settings))


def _packaged_version(place: Place) -> str:
    """Empty for a module that no distribution has brought."""
    if place.distribution:
        return place.distribution
    package = place.module.partition(".")[0]
    distributions = importlib.metadata.packages_distributions().get(package)
    return importlib.metadata.version(distributions[0]) if distributions else ""


def _source_hash(module: ModuleType) -> str:
    path = getattr(module, "__file__", None)
    if path is None:
        return ""
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()[:_HASH_DIGITS]
