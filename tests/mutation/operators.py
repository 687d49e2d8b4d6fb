"""The rules that create mutants: each is one small edit of one function.

    comparison      < for <=, == for !=, `in` for `not in`, `is` for `is not`
    off by one      a small number plus one; `x + 1` and `x - 1` without it
    dropped await   a statement that is awaited is left out, or begun and not waited for
    dropped check   the condition of `if ...: raise/return/continue/break` never holds; a call of
                    check...() is left out; one side of `and` and `or` is left out
    swapped         two statements beside each other in the other order, where one awaits or has an
                    effect on the disk
    dropped sync    a sync is left out
    flipped         True for False, `and` for `or`; `not` is left out

The text of errors and log lines is not mutated, nor are annotations, decorators, constants of a
module (another number is not a defect) and code for type checkers only.

    >>> source = "def f(a, b):\\n    return a < b\\n"
    >>> [mutant.after for mutant in mutants_of("m.py", source)]
    ['return a <= b']
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

COMPARISON, OFF_BY_ONE, AWAIT = "comparison", "off by one", "dropped await"
CHECK, SWAP, SYNC, FLIP = "dropped check", "swapped", "dropped sync", "flipped"
OPERATORS = (COMPARISON, OFF_BY_ONE, AWAIT, CHECK, SWAP, SYNC, FLIP)

_COMPARISONS: dict[type[ast.cmpop], str] = {
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.In: "not in",
    ast.NotIn: "in",
    ast.Is: "is not",
    ast.IsNot: "is",
}
# Calls of the seams to the disk (storage/files.py, storage/metadata.py).
_SYNCS = frozenset({"sync", "sync_dir", "make_durable_dir", "fsync"})
_EFFECTS = _SYNCS | {
    "write",
    "create",
    "make_dir",
    "replace",
    "rename",
    "remove",
    "remove_dir",
    "truncate",
    "rewrite",
    "copy",
    "batch",
    "change_now",
    "put",
    "close",
}
_SMALL = 2
_OPERATOR = re.compile(rb"[\s)]*(<=|>=|<|>|==|!=|is\s+not|is|not\s+in|in)[\s(]*")
_LEAVES = (ast.Raise, ast.Return, ast.Continue, ast.Break)
_SIMPLE = (ast.Expr, ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Delete)


@dataclass(frozen=True)
class Mutant:
    """One edit. `within`: the function's qualified name; `before`, `after`: the lines that it
    changes, without their indentation; `nth`: its number among equal ones.

    `start`, `end`: the bytes that `by` replaces.
    """

    path: str
    within: str
    operator: str
    line: int
    before: str
    after: str
    start: int
    end: int
    by: bytes
    nth: int = 0

    @property
    def key(self) -> tuple[str, str, str, str, int]:
        """Returns the part of a mutant that stays the same if code moves between modules."""
        return (self.within, self.operator, self.before, self.after, self.nth)

    def applied_to(self, source: bytes) -> bytes:
        return source[: self.start] + self.by + source[self.end :]

    def __str__(self) -> str:
        return f"{self.path}:{self.line} {self.within}, {self.operator}"


def mutants_of(path: str, source: str) -> list[Mutant]:
    """Returns all mutants of a module, in the order of its lines."""
    tree = ast.parse(source)
    found = _Finder(path, source).found(tree)
    seen: dict[tuple[str, str, str, str, int], int] = {}
    numbered = []
    for each in sorted(found, key=lambda each: (each.start, each.end, each.by)):
        if each.before == each.after:
            continue
        nth = seen.get(each.key, 0)
        seen[each.key] = nth + 1
        numbered.append(Mutant(**{**each.__dict__, "nth": nth}))
    return numbered


class _Finder:
    def __init__(self, path: str, source: str) -> None:
        self._path, self._source = path, source.encode()
        lines = self._source.splitlines(keepends=True)
        self._starts = [0]
        for each in lines:
            self._starts.append(self._starts[-1] + len(each))
        self._within: list[str] = []
        self._mutants: list[Mutant] = []

    def found(self, tree: ast.Module) -> list[Mutant]:
        self._block(tree.body)
        return self._mutants

    # Places

    def _span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return (
            self._starts[node.lineno - 1] + node.col_offset,
            self._starts[node.end_lineno - 1] + node.end_col_offset,
        )

    def _text(self, node: ast.expr | ast.stmt) -> bytes:
        start, end = self._span(node)
        return self._source[start:end]

    def _add(self, operator: str, start: int, end: int, by: bytes) -> None:
        first = self._source.rfind(b"\n", 0, start) + 1
        last = self._source.find(b"\n", end)
        last = len(self._source) if last < 0 else last
        before = self._source[first:last].decode()
        after = (self._source[first:start] + by + self._source[end:last]).decode()
        line = self._source.count(b"\n", 0, start) + 1
        self._mutants.append(
            Mutant(
                self._path,
                ".".join(self._within),
                operator,
                line,
                _stripped(before),
                _stripped(after),
                start,
                end,
                by,
            )
        )

    def _replace(self, operator: str, node: ast.expr | ast.stmt, by: bytes | str) -> None:
        self._add(operator, *self._span(node), by if isinstance(by, bytes) else by.encode())

    # Statements

    def _block(self, body: list[ast.stmt]) -> None:
        is_function = bool(self._within) and self._within[-1] != "<class>"
        for statement in body:
            self._statement(statement)
        for first, second in pairwise(body):
            if is_function and _may_swap(first, second):
                self._swap(first, second)

    def _swap(self, first: ast.stmt, second: ast.stmt) -> None:
        (start, first_end), (second_start, end) = self._span(first), self._span(second)
        between = self._source[first_end:second_start]
        self._add(SWAP, start, end, self._text(second) + between + self._text(first))

    def _statement(self, node: ast.stmt) -> None:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                if node.name in ("__str__", "__repr__"):
                    return
                self._within.append(node.name)
                self._expressions([*node.args.defaults, *filter(None, node.args.kw_defaults)])
                self._block(node.body)
                self._within.pop()
            case ast.ClassDef():
                if not any(_name(base) == "Protocol" for base in node.bases):
                    self._within.append(node.name)
                    for each in node.body:
                        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                            self._statement(each)
                    self._within.pop()
            case ast.Raise() | ast.Import() | ast.ImportFrom() | ast.Assert():
                return
            case _ if self._within:
                self._inside(node)

    def _inside(self, node: ast.stmt) -> None:
        """A statement of a function."""
        if isinstance(node, ast.Expr):
            if isinstance(node.value, ast.Constant) or _is_log(node.value):
                return
            self._dropped(node)
        if isinstance(node, ast.If) and not node.orelse and isinstance(node.body[-1], _LEAVES):
            self._replace(CHECK, node.test, b"False")
        for field, value in ast.iter_fields(node):
            if field in ("annotation", "returns", "decorator_list"):
                continue
            for each in value if isinstance(value, list) else [value]:
                match each:
                    case ast.expr():
                        self._expressions([each])
                    case ast.withitem():
                        self._expressions([each.context_expr])
                    case ast.match_case():
                        self._block(each.body)
                    case ast.ExceptHandler():
                        self._block(each.body)
        for field in ("body", "orelse", "finalbody"):
            block = getattr(node, field, None)
            if isinstance(block, list):
                self._block(block)

    def _dropped(self, node: ast.Expr) -> None:
        value = node.value
        if isinstance(value, ast.Await):
            self._replace(AWAIT, node, b"pass")
            inner = self._text(value.value)
            self._replace(AWAIT, node, b'__import__("asyncio").ensure_future(' + inner + b")")
            value = value.value
        if isinstance(value, ast.Call):
            name = _name(value.func)
            if name in _SYNCS:
                self._replace(SYNC, node, b"pass")
            elif name.lstrip("_").startswith("check"):
                self._replace(CHECK, node, b"pass")

    # Expressions

    def _expressions(self, nodes: Iterable[ast.expr]) -> None:
        for node in nodes:
            self._expression(node)

    def _expression(self, node: ast.expr) -> None:
        if _is_log(node) or isinstance(node, ast.JoinedStr):
            return
        match node:
            case ast.Compare():
                self._compare(node)
            case ast.BoolOp():
                self._bool(node)
            case ast.UnaryOp(op=ast.Not()):
                self._replace(FLIP, node, b"(" + self._text(node.operand) + b")")
            case ast.BinOp():
                self._plus_one(node)
            case ast.Constant():
                self._constant(node)
            case ast.IfExp():
                # Both ways, always.
                self._replace(CHECK, node.test, b"True")
                self._replace(CHECK, node.test, b"False")
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                self._expression(child)
            elif isinstance(child, ast.keyword):
                self._expression(child.value)
            elif isinstance(child, ast.comprehension):
                self._expressions([child.iter, *child.ifs])
                for each in child.ifs:
                    self._replace(CHECK, each, b"True")

    def _compare(self, node: ast.Compare) -> None:
        left = node.left
        for operator, right in zip(node.ops, node.comparators, strict=True):
            by = _COMPARISONS[type(operator)]
            (_, start), (end, _) = self._span(left), self._span(right)
            # Parentheses around either side are between the two.
            found = _OPERATOR.fullmatch(self._source[start:end])
            if found is not None:
                at = start + found.start(1)
                self._add(COMPARISON, at, at + len(found[1]), by.encode())
            left = right

    def _bool(self, node: ast.BoolOp) -> None:
        word, other = (b"and", b"or") if isinstance(node.op, ast.And) else (b"or", b"and")
        texts = [b"(" + self._text(each) + b")" for each in node.values]
        for at in range(len(texts)):
            rest = [*texts[:at], *texts[at + 1 :]]
            self._replace(CHECK, node, b"(" + (b" " + word + b" ").join(rest) + b")")
        self._replace(FLIP, node, b"(" + (b" " + other + b" ").join(texts) + b")")

    def _plus_one(self, node: ast.BinOp) -> None:
        is_one = isinstance(node.right, ast.Constant) and node.right.value == 1
        if is_one and isinstance(node.op, ast.Add | ast.Sub):
            self._replace(OFF_BY_ONE, node, self._text(node.left))

    def _constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self._replace(FLIP, node, b"False" if node.value else b"True")
        elif isinstance(node.value, int) and 0 <= node.value <= _SMALL:
            self._replace(OFF_BY_ONE, node, str(node.value + 1))


def _stripped(text: str) -> str:
    lines = text.splitlines()
    width = len(lines[0]) - len(lines[0].lstrip())
    return "\n".join(each[width:] if not each[:width].strip() else each.lstrip() for each in lines)


def _name(node: ast.expr) -> str:
    """Returns the last part of the called name."""
    if isinstance(node, ast.Attribute):
        return node.attr
    if isinstance(node, ast.Subscript):
        return _name(node.value)
    return node.id if isinstance(node, ast.Name) else ""


def _is_log(node: ast.expr) -> bool:
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
        return False
    return _name(node.func.value) in ("_log", "log", "logging") and node.func.attr in (
        "debug",
        "info",
        "warning",
        "error",
        "exception",
    )


def _may_swap(first: ast.stmt, second: ast.stmt) -> bool:
    if not (isinstance(first, _SIMPLE) and isinstance(second, _SIMPLE)):
        return False
    if any(isinstance(each, ast.Expr) and _is_trivial(each) for each in (first, second)):
        return False
    if not (_has_effect(first) or _has_effect(second)):
        return False
    return not (_stored(first) & _loaded(second) or _stored(second) & _loaded(first))


def _is_trivial(node: ast.Expr) -> bool:
    return isinstance(node.value, ast.Constant) or _is_log(node.value)


def _has_effect(node: ast.stmt) -> bool:
    return any(
        isinstance(each, ast.Await) or (isinstance(each, ast.Call) and _name(each.func) in _EFFECTS)
        for each in ast.walk(node)
    )


def _stored(node: ast.stmt) -> set[str]:
    return {each.id for each in _names(node) if isinstance(each.ctx, ast.Store | ast.Del)}


def _loaded(node: ast.stmt) -> set[str]:
    return {each.id for each in _names(node) if isinstance(each.ctx, ast.Load)}


def _names(node: ast.stmt) -> Iterator[ast.Name]:
    return (each for each in ast.walk(node) if isinstance(each, ast.Name))
