"""The tree keeps its rules, and each rule can find a violation."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from tests import tidy
from tests.tidy import Module

Rule = Callable[[Iterable[Module]], list[str]]

MODULE_RULES: dict[Rule, list[tuple[str, str]]] = {
    tidy.long_modules: [("broker/a.py", "x = 1\n" * 401), ("tests/a.py", "x = 1\n" * 601)],
    tidy.long_functions: [("broker/a.py", "def f():\n" + "    x = 1\n" * 70)],
    tidy.banned_calls: [
        ("storage/a.py", "import os\nos.fsync(3)"),
        ("broker/a.py", "open('f')"),
        ("broker/topics/topic.py", "import time\ntime.time()"),
        ("tests/a.py", "import time\ntime.sleep(1)"),
        ("compactor/a.py", "s = SparkSession.builder.getOrCreate()"),
    ],
    tidy.forbidden_imports: [
        ("storage/a.py", "import grpc.aio"),
        ("broker/a.py", "def f():\n    from pyarrow import compute"),
        ("storage/a.py", "import numpy"),
    ],
    tidy.bare_imports: [("tests/a.py", "import broker"), ("broker/a.py", "import storage.x")],
    tidy.dead_modules: [("broker/a.py", '"""Nobody names it."""')],
    tidy.missing_docstrings: [("broker/a.py", "x = 1")],
    tidy.unrun_examples: [
        ("broker/a.py", '"""A.\n\n    f(1)\n"""'),
        ("broker/a.py", 'def f():\n    """A.\n\n    await g()\n    """'),
    ],
    tidy.vague_names: [
        ("broker/a.py", "def f(found: int): ..."),
        ("broker/a.py", "async def _told(): ..."),
        ("storage/a.py", "class A:\n    left: int"),
        ("storage/a.py", "class A:\n    def f(self):\n        self._kept, self.b = 1, 2"),
    ],
    tidy.fakes_twice: [],
    tidy.short_waits: [
        ("tests/a.py", "message = consumer.receive(5000)"),
        ("tests/a.py", "reader.read_next(timeout_millis=10_000)"),
        ("tests/a.py", "PATIENCE_S = 30\ndef f(): assert done.wait(PATIENCE_S)"),
        ("tests/a.py", "async def f():\n    async with asyncio.timeout(20): pass"),
        ("tests/a.py", "with pytest.raises(ValueError): asyncio.wait_for(work(), 1.0)"),
        ("tests/a.py", "wait_until(is_there, 'a file', timeout_s=10)"),
        ("tests/a.py", "subprocess.run(command, timeout=30)"),
    ],
}


@pytest.fixture(scope="module")
def tree() -> list[Module]:
    return [each for folder in (*tidy.PRODUCT, "tests") for each in tidy.parsed(folder)]


@pytest.mark.parametrize("rule", MODULE_RULES, ids=lambda rule: rule.__name__)
def test_the_tree_keeps_the_rule(rule: Rule, tree: list[Module]) -> None:
    """No module of the checkout breaks the rule."""
    found = rule(tree)
    assert not found, "\n" + "\n".join(found)


def test_no_file_contains_personal_notes_or_machine_paths() -> None:
    """Notes must read well elsewhere and later."""
    found = tidy.bad_words(tidy.texts())
    assert not found, "\n" + "\n".join(found)


def test_names_of_test_files_are_unique(tree: list[Module]) -> None:
    """Across all folders of tests."""
    assert not tidy.test_files_of_one_name(module.path for module in tree)
    assert tidy.test_files_of_one_name(["tests/a/test_x.py", "tests/b/test_x.py"])


def test_unit_folders_mirror_the_rooms(tree: list[Module]) -> None:
    """A module's tests are found by its path."""
    rooms = {
        folder.name
        for root in ("", "broker", "tests")
        for folder in (tidy.ROOT / root).iterdir()
        if folder.is_dir()
    }
    assert not tidy.strange_unit_folders((module.path for module in tree), rooms)
    assert tidy.strange_unit_folders(["tests/unit/attic/test_x.py"], rooms)


def test_no_fake_is_defined_twice() -> None:
    """A canary: it needs two modules."""
    twice = [Module(f"tests/{name}.py", "class FakeLog: ...") for name in "ab"]
    assert tidy.fakes_twice(twice) == ["tests/b.py:1: FakeLog stands in tests/a.py, too"]


@pytest.mark.parametrize(
    ("rule", "path", "source"),
    [(rule, *sample) for rule, samples in MODULE_RULES.items() for sample in samples],
)
def test_a_violation_of_each_rule_is_detected(rule: Rule, path: str, source: str) -> None:
    """A canary: each rule finds the one breach in a module made for it."""
    assert len(rule([Module(path, source)])) == 1


@pytest.mark.parametrize("line", ["# TO" + "DO later", "cd /wo" + "rk/main", "/ho" + "me/ann/x"])
def test_bad_words_are_detected(line: str) -> None:
    """A canary for the rule about words."""
    assert len(tidy.bad_words({"docs/a.md": line})) == 1


def test_exceptions_of_a_rule_are_not_reported() -> None:
    """The one module that may do a thing may do it."""
    allowed = [
        Module("storage/files.py", "import os\nos.fsync(3)"),
        Module("broker/common/clock.py", "import time\ntime.time()"),
        Module("compactor/job/session.py", "SparkSession.builder"),
        Module("broker/a.py", "import time\ntime.monotonic()"),
    ]
    assert tidy.banned_calls(allowed) == []


def test_pauses_and_expected_timeouts_are_no_short_waits() -> None:
    """A test may wait as briefly as it likes for what must not happen, or in a loop."""
    allowed = [
        "with pytest.raises(Timeout): consumer.receive(2_000)",
        "try: process.wait(1.0)\nexcept subprocess.TimeoutExpired: process.kill()",
        "pause.wait(0.05)",
        "reader.read_next(WAIT_MS)",
        "@pytest.mark.timeout(20)\ndef test_a(): ...",
    ]
    assert tidy.short_waits([Module("tests/a.py", each) for each in allowed]) == []
    assert tidy.short_waits([Module("broker/a.py", "event.wait(5)")]) == []


def test_a_name_beside_its_counterpart_is_not_reported() -> None:
    """`found` is a term beside `expected`, and `left` beside `right`."""
    terms = Module("storage/a.py", "def f(expected, found): ...\ndef g(left, right): ...")
    assert tidy.vague_names([terms]) == []


def test_a_module_imported_only_by_tests_is_reported() -> None:
    """Code that only tests use is dead code of the product."""
    used = Module("broker/a.py", '"""A."""')
    by_test = Module("tests/unit/test_a.py", "from ledgerfold.broker import a")
    by_product = Module(
        "broker/b.py", "from ledgerfold.broker.a import x\nimport ledgerfold.broker.b"
    )
    assert tidy.dead_modules([used, by_test]) == ["broker/a.py:1: nothing imports it"]
    assert tidy.dead_modules([used, by_product]) == ["broker/b.py:1: nothing imports it"]
