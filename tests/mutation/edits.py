"""Edits of source text, found by their lines, wherever they are now.

An edit consists of the lines that it replaces, and their replacement. Only the words of a line and
its relative indentation count: code that moves to another module, class or depth is still found. It
must be found exactly once.

    >>> edit = Edit("if full:\\n    stop()", "pass")
    >>> edit.applied_to("def f():\\n    if full:\\n        stop()\\n    go()\\n")
    'def f():\\n    pass\\n    go()\\n'
"""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

# The folders of the product's sources in the checkout.
PRODUCT = ("broker", "storage", "compactor", "ledgerfold/kafka", "ledgerfold/strategies")


class EditError(Exception):
    """An edit matches nowhere, or in several places."""


@dataclass(frozen=True)
class Edit:
    """`within`: the function or class that contains the lines, by the end of its qualified name."""

    before: str
    after: str
    within: str = ""

    def applied_to(self, source: str) -> str:
        """Raises EditError unless `before` occurs there exactly once."""
        places = list(self.places_in(source))
        if len(places) != 1:
            raise EditError(f"{len(places)} places have these lines:\n{self.before}")
        return self.applied_at(source, places[0])

    def applied_at(self, source: str, at: int) -> str:
        """`at`: the number of the first line, from places_in()."""
        lines, wanted = source.splitlines(), self._wanted
        indent = " " * _width(lines[at : at + len(wanted)])
        by = [indent + each if each else "" for each in _lines_of(self.after)]
        lines[at : at + len(wanted)] = by
        return "\n".join(lines) + "\n"

    def places_in(self, source: str) -> Iterator[int]:
        """Returns the numbers of the lines at which `before` occurs, from 0."""
        wanted = self._wanted
        if not wanted:
            raise EditError("An edit needs lines to replace.")
        first = wanted[0].lstrip()
        if first not in source:
            return
        lines = source.splitlines()
        places = [
            at
            for at, line in enumerate(lines)
            if line.lstrip() == first and _dedented(lines[at : at + len(wanted)]) == wanted
        ]
        # Few files have the lines: only they are parsed.
        spans = _spans(source, self.within) if places and self.within else [(0, len(lines))]
        for at in places:
            if any(start <= at and at + len(wanted) <= end for start, end in spans):
                yield at

    @cached_property
    def _wanted(self) -> list[str]:
        return _lines_of(self.before)


def find(edit: Edit, sources: Mapping[Path, str]) -> tuple[Path, int]:
    """Returns the one file of `sources` that it matches, and the line. Raises EditError."""
    found = [(path, at) for path, text in sources.items() for at in edit.places_in(text)]
    if len(found) != 1:
        where = "".join(f"\n  {path}:{at + 1}" for path, at in found)
        what = f" within {edit.within}" if edit.within else ""
        raise EditError(f"{len(found)} places{what} have these lines:{where}\n{edit.before}")
    return found[0]


def product_sources(root: Path, folders: tuple[str, ...] = PRODUCT) -> dict[Path, str]:
    """Returns the source of the product's modules, by their paths below `root`."""
    return {
        path.relative_to(root): path.read_text()
        for folder in folders
        for path in sorted((root / folder).rglob("*.py"))
        if not path.name.endswith(("_pb2.py", "_pb2_grpc.py"))
    }


def _lines_of(text: str) -> list[str]:
    return textwrap.dedent(text).strip("\n").splitlines()


def _width(lines: list[str]) -> int:
    """Returns the common indentation."""
    return min((len(each) - len(each.lstrip()) for each in lines if each.strip()), default=0)


def _dedented(lines: list[str]) -> list[str]:
    width = _width(lines)
    return [each[width:] if each.strip() else "" for each in lines]


def _spans(source: str, name: str) -> list[tuple[int, int]]:
    """Returns the lines of the functions and classes of that name: first, and after the last."""
    found = []

    def walk(node: ast.AST, outer: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                qualified = f"{outer}{child.name}"
                if qualified == name or qualified.endswith(f".{name}"):
                    assert child.end_lineno is not None
                    found.append((child.lineno - 1, child.end_lineno))
                walk(child, f"{qualified}.")
            else:
                walk(child, outer)

    walk(ast.parse(source), "")
    return found
