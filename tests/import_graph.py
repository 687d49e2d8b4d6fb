"""The import graph of `ledgerfold`, and its cycles.

Every import counts: at the top, inside a function, for type checking. A cycle of modules can only
be understood as a whole; a cycle of rooms makes them one room. A room is a folder of the broker,
storage, the compactor, the wire contract (v1), or a module of the package itself.

    >>> a = Module("broker/log/a.py", "from ledgerfold.broker.log.b import f")
    >>> b = Module("broker/log/b.py", "def f():\\n    from ledgerfold.broker.log import a")
    >>> print(module_circles([a, b])[0])
    ledgerfold.broker.log.a, ledgerfold.broker.log.b
      broker/log/a.py:1 imports ledgerfold.broker.log.b
      broker/log/b.py:2 imports ledgerfold.broker.log.a
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from tests.tidy import Module


class Import(NamedTuple):
    """An import of one module by another; `place`: its line."""

    importer: str
    imported: str
    place: str


def imports(found: Iterable[Module]) -> list[Import]:
    """Returns the imports among the given modules."""
    modules = {_name(module): module for module in found}
    return [
        Import(name, imported, f"{module.path}:{line}")
        for name, module in modules.items()
        for candidates, line in _named(module)
        for imported in [next((each for each in candidates if each in modules), "")]
        if imported
    ]


def _name(module: Module) -> str:
    # `ledgerfold.v1` is a link, too.
    return module.name.removeprefix("proto.")


def _named(module: Module) -> Iterator[tuple[tuple[str, ...], int]]:
    """Returns the possible meanings of an import, likeliest first: in `from a import b`, b may be a
    module.
    """
    for node in module.nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield (alias.name,), node.lineno
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                yield (f"{node.module}.{alias.name}", node.module), node.lineno


def room_of(name: str) -> str:
    """Returns `broker.log` for a module of the log, `storage` for one of storage."""
    parts = name.split(".")[1:]
    return ".".join(parts[:2] if parts[:1] == ["broker"] else parts[:1]) or name


def module_circles(found: Iterable[Module]) -> list[str]:
    return _circles(imports(found), lambda name: name)


def room_circles(found: Iterable[Module]) -> list[str]:
    between = [each for each in imports(found) if room_of(each[0]) != room_of(each[1])]
    return _circles(between, room_of)


def _circles(arrows: Iterable[Import], node_of: Callable[[str], str]) -> list[str]:
    """Returns the nodes of each cycle, with the imports between them."""
    arrows = list(arrows)
    leads_to: dict[str, set[str]] = {}
    for each in arrows:
        leads_to.setdefault(node_of(each.importer), set()).add(node_of(each.imported))
    reached = {node: _reached(node, leads_to) for node in leads_to}
    circles = {
        frozenset(other for other in reached[node] if node in reached.get(other, ()))
        for node in leads_to
    }
    return sorted(
        "\n  ".join(
            [
                ", ".join(sorted(circle)),
                *(
                    f"{each.place} imports {each.imported}"
                    for each in sorted(set(arrows))
                    if {node_of(each.importer), node_of(each.imported)} <= circle
                ),
            ]
        )
        for circle in circles
        if circle
    )


def _reached(node: str, leads_to: dict[str, set[str]]) -> set[str]:
    """Returns all nodes that it reaches; itself, too, if it is in a cycle."""
    reached: set[str] = set()
    new = [node]
    while new:
        further = leads_to.get(new.pop(), set()) - reached
        reached |= further
        new += further
    return reached
