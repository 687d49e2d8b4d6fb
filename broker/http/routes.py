"""The routes of the REST API: which verb answers a method and a path.

  >>> routes = Routes([("GET", "/topics/{topic}", len), ("GET", "/topics/all", repr)])
  >>> routes.find("GET", "/topics/a%2Fb")
  (<built-in function len>, {'topic': 'a/b'})
  >>> routes.find("GET", "/topics/all")
  (<built-in function repr>, {})

`{domain}` is one of the two domains of topics. A segment of a path is decoded after the path was
split: names may contain slashes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote

from ledgerfold.broker.common.names import NON_PERSISTENT, PERSISTENT
from ledgerfold.broker.http.answers import Answer, Refusal, Request

# None is the answer to a change: no content.
Verb = Callable[[Request], Awaitable[Answer | None]]
Route = tuple[str, str, Verb]
ADMIN = "/admin/v2"


@dataclass
class _Node:
    literal: dict[str, _Node] = field(default_factory=dict)
    # The keys are the names of the variables.
    variable: dict[str, _Node] = field(default_factory=dict)
    verbs: dict[str, Verb] = field(default_factory=dict)


class Routes:
    """The routes by path. Literal segments come before variable ones."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self._root = _Node()
        for method, path, verb in routes:
            node = self._root
            for part in path.split("/")[1:]:
                is_variable = part.startswith("{")
                nodes = node.variable if is_variable else node.literal
                node = nodes.setdefault(part.strip("{}"), _Node())
            node.verbs[method] = verb

    def find(self, method: str, path: str) -> tuple[Verb, Mapping[str, str]]:
        """Returns the verb and the variable parts of the path. Raises Refusal."""
        parts = [_decoded(each) for each in path.rstrip("/").split("/")[1:]]
        verb = "GET" if method == "HEAD" else method
        matches = list(_matches(self._root, parts, {}))
        for node, names in matches:
            if verb in node.verbs:
                return node.verbs[verb], names
        if not path.startswith(f"{ADMIN}/"):
            raise Refusal(
                404, f"This path does not exist; those of the admin API begin with {ADMIN}."
            )
        known = sorted({each for node, _ in matches for each in node.verbs})
        also = f" This path answers {', '.join(known)}." if known else ""
        raise Refusal(
            501,
            f"{verb[:10]} {'/'.join(parts)[:200]} is not emulated, and nothing was changed."
            f"{also} docs/NOT_EMULATED.md lists what is not.",
        )


def _decoded(part: str) -> str:
    try:
        return unquote(part, errors="strict")
    except UnicodeDecodeError:
        raise Refusal(400, f"{part[:200]!r} in the path is not UTF-8.") from None


def _matches(
    node: _Node, parts: list[str], names: Mapping[str, str]
) -> Iterator[tuple[_Node, Mapping[str, str]]]:
    if not parts:
        if node.verbs:
            yield node, names
        return
    part, rest = parts[0], parts[1:]
    if part in node.literal:
        yield from _matches(node.literal[part], rest, names)
    for name, child in node.variable.items():
        if name == "domain" and part not in (PERSISTENT, NON_PERSISTENT):
            continue
        yield from _matches(child, rest, {**names, name: part})
