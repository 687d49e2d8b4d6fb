"""The rules of this code base that a machine can check, as functions over its files.

    sizes       a module has at most 400 lines (600 in tests), a function 70
    calls       what touches the world happens in one place: files in storage/files.py, the wall
                clock in the processes' outermost modules, the Spark session in
                compactor/job/session.py; nothing sleeps
    imports     heavy packages stay in the compactor and in frames, gRPC stays out of storage, and
                the checkout's folders are imported through `ledgerfold`
    dead files  every module is imported by another one, or is an entry point
    words       no notes to self, no paths of a developer's machine
    names       an argument, field or function is named for its value, not for how it came about
    docstrings  every module begins with one; what looks like code in one has prompts, and is run
                (tests/support/examples.py)
    test files  have names of their own, in the folders of what they test; no fake is defined twice
    waits       a test waits WAIT_S for what must happen (tests/support/waiting.py)

Each rule takes modules (or files) and returns the violations, one line each, as `path:line: what`.
tests/unit/test_tidy.py applies them to the tree, and shows that each can fail. After TigerBeetle's
`src/tidy.zig`.

    >>> banned_calls([Module("storage/a.py", "import time; time.sleep(1)")])
    ['storage/a.py:1: calls time.sleep: wait for a condition']
"""

from __future__ import annotations

import ast
import gc
import re
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import NamedTuple

from ledgerfold.garbage import garbage_kept

ROOT = Path(__file__).resolve().parent.parent
PRODUCT = ("ledgerfold", "broker", "storage", "compactor")
BUILT = ("build", "dist")
MODULE_LINES_MAX = 400
# The error tree stays in one module.
LONG_MODULES = ("storage/errors.py",)
TEST_MODULE_LINES_MAX = 600
FUNCTION_LINES_MAX = 70

# Started by name, by a test runner or by a user's import; no module of the project imports them.
ENTRY_POINTS = (
    r".*\.__main__",
    r"ledgerfold\.broker\.cli\.main",
    r"ledgerfold\.broker\.client(\.aio)?",
    r"ledgerfold\.\w+",
    r"tests\..*test_\w+",
    r"tests\..*conftest",
    # Run by path, as a process.
    r"tests\.support\.fake_compactor",
    r"tests\.benchmarks\.\w+",
)


class Ban(NamedTuple):
    """`calls` may only be made in modules whose path begins with one of `allowed`."""

    calls: frozenset[str]
    within: tuple[str, ...]
    allowed: tuple[str, ...]
    why: str


_FILE_CALLS = frozenset(
    ["open"]
    + [f"os.{name}" for name in ("open", "rename", "replace", "remove", "unlink", "truncate")]
    + [f"os.{name}" for name in ("fsync", "fdatasync", "ftruncate")]
)
BANS = (
    Ban(
        _FILE_CALLS,
        ("storage/", "broker/", "compactor/"),
        (
            "storage/files.py",
            "storage/open_files.py",
            # An open file for as long as the process lives.
            "storage/lock.py",
            # Files of the user's.
            "broker/cli/",
            # Hands the worker a log to write to.
            "broker/worker/process.py",
            # Maps sealed segments into the memory of Spark's tasks.
            "compactor/job/segment_map.py",
            # A descriptor of a folder, by which Spark's processes reach it.
            "compactor/job/session.py",
        ),
        "storage/files.py does that",
    ),
    Ban(
        frozenset(["time.time", "time.time_ns", "datetime.now", "datetime.datetime.now"]),
        ("storage/", "broker/", "compactor/"),
        ("broker/cli/", "broker/common/clock.py", "broker/client/streams/connection.py"),
        "the clock is an argument",
    ),
    Ban(
        frozenset(["time.sleep"]),
        ("storage/", "broker/", "compactor/", "tests/"),
        (),
        "wait for a condition",
    ),
    Ban(
        frozenset(
            ["SparkContext", "SparkContext.getOrCreate", "SparkSession", "SparkSession.builder"]
        ),
        ("storage/", "broker/", "compactor/", "tests/"),
        # A SQL session on the same Spark, for the tests of the data source.
        ("compactor/job/session.py", "tests/spark/sql_session.py"),
        "compactor/job/session.py builds the session",
    ),
)

# Packages that a room must not import.
FORBIDDEN_IMPORTS = {
    "storage/": {"grpc", "grpc_health", "grpc_reflection", "grpc_status"},
    "": {"pyspark", "pyarrow", "numpy", "pandas", "py4j"},
}
# Frames are Arrow's and Spark's: users import them, and the broker's process never does.
_HEAVY_ALLOWED = ("compactor/", "ledgerfold/frames/", "ledgerfold/spark.py", "tests/")

# Waits by the name of the call, with the place of a time limit that has no name.
_SECONDS_AT = {"wait": 0, "join": 0, "result": 0, "exception": 0, "timeout": 0}
_SECONDS_AT |= {"wait_for": 1, "wait_until": 2, "communicate": 1, "urlopen": 2}
_SECONDS_AT |= {"create_connection": 1, "HTTPConnection": 2}
_MILLIS_AT = {"receive": 0, "read_next": 0}
# Up to this, a wait is the pause of a loop, or for something that must not happen.
_PAUSE_MAX_S = 0.5
_WAIT_LEAST_S = 60.0
_FAKE = re.compile(r"(?:Fake|Memory|Lossy|Held|Sim)[A-Z]")
_NOTES = re.compile(r"\b(?:TO" + r"DO|FIX" + r"ME|X" + r"XX)\b")
_MACHINE_PATHS = re.compile(r"(?<![\w.~-])/(?:work|root|home/\w+|Users/\w+|tmp/v)(?:/|\b)")

# How a value came about, or a pronoun. Two of them are terms beside their counterparts.
_VAGUE = frozenset(
    {"asked", "at_once", "begun", "each", "found", "given", "gone", "kept", "left", "made", "said"}
    | {"seen", "sought", "standing", "taken", "told", "upto", "wanted", "which", "whole"}
)
_COUNTERPARTS = {"found": "expected", "left": "right"}
VAGUE_NAMES_ALLOWED = {
    # A key of the JSON document of `doctor`.
    ("broker/cli/doctor_check.py", "found"),
    # Public: the state of a plain strategy.
    ("ledgerfold/strategies/plain.py", "kept"),
}


_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
# A string may contain "#", and a comment quotes. The tokenizer takes longer than the parser.
_STRINGS_AND_COMMENTS = re.compile(
    r'''
    """[^"\\]*(?:(?:\\.|"(?!""))[^"\\]*)*"""
    | \'{3}[^'\\]*(?:(?:\\.|'(?!''))[^'\\]*)*\'{3}
    | "[^"\\\n]*(?:\\.[^"\\\n]*)*"
    | '[^'\\\n]*(?:\\.[^'\\\n]*)*'
    | \#[^\n]*
    ''',
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True)
class Module:
    """A Python file: `path` relative to the checkout, with slashes."""

    path: str
    source: str

    @cached_property
    def tree(self) -> ast.Module:
        # Imported on use: callers that only need the text of all modules do not wait for it.
        return ast.parse(self.source)

    @cached_property
    def nodes(self) -> list[ast.AST]:
        return list(ast.walk(self.tree))

    @cached_property
    def docstrings(self) -> list[tuple[int, str]]:
        """Each with its first line."""
        return [
            (getattr(node, "lineno", 1), text)
            for node in self.nodes
            if isinstance(node, _DOCUMENTED) and (text := ast.get_docstring(node))
        ]

    @cached_property
    def comments(self) -> list[tuple[int, str]]:
        """Each with its line."""
        found, line, end = list[tuple[int, str]](), 1, 0
        for match in _STRINGS_AND_COMMENTS.finditer(self.source):
            line += self.source.count("\n", end, match.start())
            end = match.start()
            if match[0].startswith("#"):
                found.append((line, match[0]))
        return found

    @property
    def name(self) -> str:
        """The name under which it is imported: `ledgerfold` links to the other folders of the
        product.
        """
        name = self.path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        is_linked = name.split(".")[0] in PRODUCT[1:]
        return f"ledgerfold.{name}" if is_linked else name

    def starts_with(self, prefixes: Iterable[str]) -> bool:
        return any(self.path.startswith(prefix) for prefix in prefixes)


def modules(*folders: str) -> list[Module]:
    """Every hand-written module under `folders`."""
    return [
        Module(path.relative_to(ROOT).as_posix(), path.read_text())
        for folder in folders
        for path in sorted((ROOT / folder).rglob("*.py"))
    ]


@cache
def parsed(folder: str) -> list[Module]:
    """Returns the modules of a folder for all rules of a session. Parsed, they are a million
    objects, and none of them is garbage: the search for it would take longer than parsing.
    """
    with garbage_kept():
        found = modules(folder)
        for module in found:
            assert module.nodes
    gc.freeze()
    return found


def texts() -> dict[str, str]:
    """Every file that a person wrote, by its path."""
    patterns = ("*.py", "*.md", "*.proto", "*.toml")
    folders = [
        folder
        for folder in ROOT.iterdir()
        if folder.is_dir() and not folder.name.startswith(".") and folder.name not in BUILT
    ]
    return {
        path.relative_to(ROOT).as_posix(): path.read_text()
        for found in (
            *(ROOT.glob(pattern) for pattern in (*patterns, "scripts/*", ".ci/*")),
            *(folder.rglob(pattern) for folder in folders for pattern in patterns),
        )
        for path in found
        if path.is_file() and not path.name.endswith(("_pb2.py", "_pb2_grpc.py"))
    }


def long_modules(found: Iterable[Module]) -> list[str]:
    return [
        f"{module.path}:1: {lines} lines, {most} is the most"
        for module in found
        for most in (
            TEST_MODULE_LINES_MAX if module.starts_with(("tests/",)) else MODULE_LINES_MAX,
        )
        if (lines := len(module.source.splitlines())) > most and module.path not in LONG_MODULES
    ]


def long_functions(found: Iterable[Module]) -> list[str]:
    return [
        f"{module.path}:{node.lineno}: {node.name}: {lines} lines, {FUNCTION_LINES_MAX} is the most"
        for module in found
        for node in module.nodes
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (lines := (node.end_lineno or 0) - node.lineno + 1) > FUNCTION_LINES_MAX
    ]


def banned_calls(found: Iterable[Module]) -> list[str]:
    return [
        f"{module.path}:{line}: calls {name}: {ban.why}"
        for module in found
        for name, line in _uses(module)
        for ban in BANS
        if name in ban.calls
        and module.starts_with(ban.within)
        and not module.starts_with(ban.allowed)
    ]


def _uses(module: Module) -> Iterator[tuple[str, int]]:
    # Calls, and attributes of a class that count as one (SparkSession.builder).
    for node in module.nodes:
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), node.lineno
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            name = f"{node.value.id}.{node.attr}"
            if name.startswith("SparkSession."):
                yield name, node.lineno


def _imports(module: Module) -> Iterator[tuple[str, int]]:
    """Dotted names; `from a import b` gives both a and a.b, for b may be a module."""
    for node in module.nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module, node.lineno
            for alias in node.names:
                yield f"{node.module}.{alias.name}", node.lineno


def forbidden_imports(found: Iterable[Module]) -> list[str]:
    return sorted(
        {
            f"{module.path}:{line}: imports {name.split('.')[0]}"
            for module in found
            for name, line in _imports(module)
            for room, packages in FORBIDDEN_IMPORTS.items()
            if module.path.startswith(room)
            and name.split(".")[0] in packages
            and not (room == "" and module.starts_with(_HEAVY_ALLOWED))
        }
    )


def bare_imports(found: Iterable[Module]) -> list[str]:
    """Finds imports of a folder of the checkout by its bare name, which would load a second
    copy.
    """
    return [
        f"{module.path}:{line}: imports {name}: the one name is ledgerfold"
        for module in found
        for name, line in _imports(module)
        if name in (*PRODUCT[1:], "proto")
        or name.startswith(tuple(f"{each}." for each in PRODUCT[1:]))
    ]


def dead_modules(found: Iterable[Module]) -> list[str]:
    """Returns modules of the product that no product module names, and test modules that nothing
    names.
    """
    found = list(found)
    users: dict[str, set[str]] = {}
    for module in found:
        # A string names a module, or module:name, too: some are imported only when they are needed.
        strings = (
            node.value.partition(":")[0]
            for node in module.nodes
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
        )
        for name in {name for name, _ in _imports(module)} | set(strings):
            users.setdefault(name, set()).add(module.path)
    return [
        f"{module.path}:1: nothing imports it"
        for module in found
        if not module.path.endswith("__init__.py")
        and not any(re.fullmatch(pattern, module.name) for pattern in ENTRY_POINTS)
        and not any(_counts(user, module) for user in users.get(module.name, ()))
    ]


def _counts(user: str, module: Module) -> bool:
    if user == module.path:
        return False
    return module.path.startswith("tests/") or not user.startswith("tests/")


def missing_docstrings(found: Iterable[Module]) -> list[str]:
    return [
        f"{module.path}:1: no docstring"
        for module in found
        if module.tree.body and not ast.get_docstring(module.tree)
    ]


def vague_names(found: Iterable[Module]) -> list[str]:
    """Finds arguments, fields and functions with names of how a value came about.

    >>> vague_names([Module("storage/a.py", "def read(found: int) -> int: ...")])
    ['storage/a.py:1: found: name the value']
    """
    return [
        f"{module.path}:{line}: {name}: name the value"
        for module in found
        if not module.path.startswith("tests/")
        for line, name in _vague_names(module)
        if (module.path, name) not in VAGUE_NAMES_ALLOWED
    ]


def _vague_names(module: Module) -> Iterator[tuple[int, str]]:
    for node in module.nodes:
        declared = list(_declared(node))
        names = {name for _, name in declared}
        for line, name in declared:
            if name in _VAGUE and _COUNTERPARTS.get(name) not in names:
                yield line, name


def _declared(node: ast.AST) -> Iterator[tuple[int, str]]:
    """Yields the names that a function, class or assignment declares, without underscores."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        yield node.lineno, node.name.strip("_")
        arguments = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
        yield from ((each.lineno, each.arg.strip("_")) for each in arguments)
    elif isinstance(node, ast.ClassDef):
        for each in node.body:
            if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
                yield each.lineno, each.target.id.strip("_")
    elif isinstance(node, ast.Assign | ast.AnnAssign):
        for part in ast.walk(node):
            if isinstance(part, ast.Attribute) and isinstance(part.ctx, ast.Store):
                yield part.lineno, part.attr.strip("_")


def bad_words(found: dict[str, str]) -> list[str]:
    return [
        f"{path}:{number}: {match.group()!r}"
        for path, text in found.items()
        for number, line in enumerate(text.splitlines(), 1)
        for match in (_NOTES.search(line), _MACHINE_PATHS.search(line))
        if match
    ]


def unrun_examples(found: Iterable[Module]) -> list[str]:
    """Finds code in docstrings that no test runs."""
    return [
        f"{module.path}:{node.body[0].lineno}: code without prompts: {paragraph.split()[0]}"
        for module in found
        for node in module.nodes
        if isinstance(node, _DOCUMENTED)
        for paragraph in re.split(r"\n\s*\n", ast.get_docstring(node) or "")
        if ">>>" not in paragraph and _is_code(textwrap.dedent(paragraph))
    ]


def _is_code(paragraph: str) -> bool:
    """Returns whether the text has statements with an effect; `await` may stand outside of a
    function.
    """
    try:
        tree = ast.parse(f"async def example():\n{textwrap.indent(paragraph, ' ')}")
    except SyntaxError:
        return False
    return any(isinstance(node, ast.Call | ast.Import | ast.ImportFrom) for node in ast.walk(tree))


def test_files_of_one_name(paths: Iterable[str]) -> list[str]:
    """Finds equal names: a failure's last line names only the file."""
    first: dict[str, str] = {}
    return [
        f"{path}:1: there is {first[name]}"
        for path in sorted(paths)
        if (name := path.rpartition("/")[2]).startswith("test_")
        and first.setdefault(name, path) != path
    ]


def strange_unit_folders(paths: Iterable[str], rooms: Iterable[str]) -> list[str]:
    """Finds folders tests/unit/X that are neither a room X nor shared test code of that name."""
    known = set(rooms)
    return [
        f"{path}:1: there is no room {folder}"
        for path in sorted(paths)
        if path.startswith("tests/unit/")
        and "/" in path.removeprefix("tests/unit/")
        and (folder := path.split("/")[2]) not in known
    ]


def fakes_twice(found: Iterable[Module]) -> list[str]:
    """Two fakes of one thing drift apart."""
    first: dict[str, str] = {}
    return [
        f"{module.path}:{node.lineno}: {node.name} stands in {first[node.name]}, too"
        for module in found
        for node in module.tree.body
        if isinstance(node, ast.ClassDef)
        and _FAKE.match(node.name)
        and first.setdefault(node.name, module.path) != module.path
    ]


def short_waits(found: Iterable[Module]) -> list[str]:
    """Finds waits of tests that fail on a slow machine: with a limit of their own, below WAIT_S.

    A limit that the test expects to pass may have any length: within `pytest.raises(Timeout)`, or
    where the test catches it.

    >>> short_waits([Module("tests/a.py", "reader.read_next(5000)")])
    ['tests/a.py:1: waits 5 s: use the limits of tests/support/waiting.py']
    """
    return [
        f"{module.path}:{line}: waits {limit_s:g} s: use the limits of tests/support/waiting.py"
        for module in found
        if module.path.startswith("tests/")
        for line, limit_s in _waits(module.tree, _numbers(module))
        if _PAUSE_MAX_S < limit_s < _WAIT_LEAST_S
    ]


def _numbers(module: Module) -> dict[str, float]:
    """Returns the module's constants that are numbers."""
    return {
        target.id: node.value.value
        for node in module.tree.body
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, int | float)
        for target in node.targets
        if isinstance(target, ast.Name)
    }


def _waits(node: ast.AST, numbers: dict[str, float]) -> Iterator[tuple[int, float]]:
    """Yields the line and the limit of each wait below a node whose end is not expected."""
    if isinstance(node, ast.With | ast.AsyncWith):
        is_expected = any("Timeout" in ast.unparse(each) for each in node.items)
    else:
        handlers = node.handlers if isinstance(node, ast.Try) else []
        is_expected = any("Timeout" in ast.unparse(each.type) for each in handlers if each.type)
    if is_expected:
        return
    if isinstance(node, ast.Call):
        for limit, unit in _limits(node):
            value = numbers.get(limit.id) if isinstance(limit, ast.Name) else None
            if isinstance(limit, ast.Constant) and isinstance(limit.value, int | float):
                value = limit.value
            if value is not None:
                yield node.lineno, value * unit
    for child in ast.iter_child_nodes(node):
        yield from _waits(child, numbers)


def _limits(call: ast.Call) -> Iterator[tuple[ast.expr, float]]:
    """Yields the time limit of a wait, with its unit in seconds."""
    name = ast.unparse(call.func)
    if name.startswith("pytest.mark."):
        return
    name = name.rpartition(".")[2]
    for places, keywords, unit in (
        (_SECONDS_AT, ("timeout", "timeout_s"), 1.0),
        (_MILLIS_AT, ("timeout_millis",), 0.001),
    ):
        if (place := places.get(name)) is not None and place < len(call.args):
            yield call.args[place], unit
        yield from ((each.value, unit) for each in call.keywords if each.arg in keywords)
