"""Runs parts of the suite side by side: none is left out, and their outputs are merged."""

from __future__ import annotations

import io
import signal
import threading
from pathlib import Path

import pytest

from tests.side_by_side import parts_of, run
from tests.support.waiting import wait_until

pytestmark = pytest.mark.process

PASSES = "def test_one():\n    assert True\n"
FAILS = "def test_two():\n    assert False, 'not today'\n"
WAITS = """
import threading
import pytest

@pytest.fixture
def folder(tmp_path):
    open("begun", "w").close()
    yield tmp_path
    open("ended", "w").close()

def test_three(folder):
    threading.Event().wait()
"""


def arguments(folder: Path, test: str) -> list[str]:
    """Returns the arguments of a pytest of that test alone."""
    folder.mkdir()
    (folder / "test_it.py").write_text(test)
    (folder / "pytest.ini").write_text("[pytest]\naddopts = -ra -p no:cacheprovider\n")
    return ["--rootdir", str(folder), "-c", str(folder / "pytest.ini"), str(folder)]


@pytest.mark.parametrize(
    ("folder", "parts"),
    [
        ("unit", {"rest": [""], "process": ["process"]}),
        ("grpc", {"grpc": ["process"], "brokers": ["process spark"]}),
        ("crash", {"grpc": ["process"], "brokers": ["process spark"]}),
        ("conformance", {"process": ["process"], "brokers": ["process spark"]}),
        ("torture", {"rest": [""], "last": ["process spark last", "spark last"]}),
        ("model", {"beside": [""], "process": ["process"]}),
        ("simulation", {"beside": [""], "process": ["process"]}),
    ],
)
def test_each_test_belongs_to_one_part(folder: str, parts: dict[str, list[str]]) -> None:
    for name, held in parts.items():
        for marks in held:
            assert parts_of(folder, frozenset(marks.split())) == [name]


def test_a_test_that_no_part_runs_is_refused() -> None:
    """Without the check the whole suite would leave it out silently."""
    assert parts_of("unit", frozenset({"spark", "process"})) == []


def test_the_summary_has_the_worst_counts_and_failures(tmp_path: Path) -> None:
    """Each line names its part; exclusive parts begin after the others."""
    said = io.StringIO()
    stages = (
        {
            "good": arguments(tmp_path / "good", PASSES),
            "bad": arguments(tmp_path / "bad", FAILS),
        },
        {"late": arguments(tmp_path / "late", PASSES)},
    )
    assert run(stages, said) == 1
    lines = said.getvalue().splitlines()
    parts = [line.partition(" | ")[0].strip() for line in lines]
    assert set(parts[: parts.index("late")]) == {"good", "bad"}
    *_, failure, good, bad, last, took = lines
    assert failure.startswith("FAILED ")
    assert "bad/test_it.py::test_two" in failure
    assert ("1 passed" in good, "1 failed" in bad, "1 passed" in last) == (True, True, True)
    assert took.startswith("failed in ")


def test_an_interruption_ends_all_of_them_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The resources of a test are released; nothing starts any more."""
    monkeypatch.chdir(tmp_path)

    def interrupt() -> None:
        wait_until((tmp_path / "begun").exists, "the test")
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    said = io.StringIO()
    stages = ({"long": arguments(tmp_path / "long", WAITS)}, {"late": ["--version"]})
    thread = threading.Thread(target=interrupt)
    thread.start()
    assert run(stages, said) == 130
    thread.join()
    assert (tmp_path / "ended").exists()
    assert "KeyboardInterrupt" in said.getvalue()
    assert "late" not in said.getvalue()
