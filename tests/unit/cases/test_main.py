"""Tests the output and the exit codes of `scripts/cases` on a stand-in command."""

from __future__ import annotations

import io
import shlex
import sys
from pathlib import Path

import pytest

from tests.cases.__main__ import EXIT_FAILED, EXIT_USAGE, main

pytestmark = pytest.mark.process

# Answers everything; the status is always SUCCESS.
COMMAND = """
import json, sys
for line in sys.stdin:
    print(json.dumps({"ok": True, "status": "SUCCESS", "lastError": ""}), flush=True)
"""
PASSES = "ABC-01 The status\n    status -> SUCCESS\n"
FAILS = "ABC-02 Another status\n    status -> ERROR\n"
ELSEWHERE = "ABC-03 Another profile\n    documented: status -> SUCCESS\n    broker: --x\n"


@pytest.fixture
def oracle(tmp_path: Path) -> list[str]:
    script = tmp_path / "oracle.py"
    script.write_text(COMMAND)
    return ["--oracle", shlex.join([sys.executable, str(script)])]


def written(tmp_path: Path, text: str) -> str:
    path = tmp_path / "my.cases"
    path.write_text(text)
    return str(path)


def test_all_pass(tmp_path: Path, oracle: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """One line a case, a count, and 0."""
    assert main([*oracle, written(tmp_path, PASSES)]) == 0
    first, last = capsys.readouterr().out.splitlines()
    assert first.startswith("pass  ABC-01  The status")
    assert last.startswith("1 passed, 0 failed in ")


def test_one_fails(tmp_path: Path, oracle: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """The difference below its line, and 1."""
    assert main([*oracle, written(tmp_path, PASSES + FAILS)]) == EXIT_FAILED
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].startswith("FAIL  ABC-02  Another status")
    assert lines[2:6] == [
        "      my.cases:4:5: status -> ERROR",
        "      not as expected",
        "        expected  ERROR",
        "        got       SUCCESS",
    ]
    assert lines[6].startswith("1 passed, 1 failed in ")


def test_answers_without_expectations_are_printed(
    tmp_path: Path, oracle: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """As steps with an expectation, to be kept; a case that expects anything is judged instead."""
    cases = "status | last-error\nstatus | status -> SUCCESS\n"
    assert main([*oracle, written(tmp_path, cases)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("pass  LINE-1  status | last-error")
    assert lines[1:3] == ["      status -> SUCCESS", '      last-error -> ""']
    assert lines[3].startswith("pass  LINE-2")
    assert len(lines) == 5


def test_unsupported_cases_are_no_failure(
    tmp_path: Path, oracle: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """A broker that would need options."""
    assert main([*oracle, written(tmp_path, ELSEWHERE)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("n/a   ABC-03")
    assert lines[-1].startswith("0 passed, 0 failed, 1 not applicable here")


def test_a_folder_of_files(
    tmp_path: Path, oracle: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """All that are named so."""
    written(tmp_path, PASSES)
    (tmp_path / "other.cases").write_text(ELSEWHERE)
    (tmp_path / "notes.txt").write_text("no case")
    assert main([*oracle, str(tmp_path)]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("1 passed, 0 failed, 1 not applicable here")


def test_standard_input(
    oracle: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`-` is a file of cases; -k picks."""
    monkeypatch.setattr(sys, "stdin", io.StringIO(PASSES + FAILS))
    assert main([*oracle, "-k", "abc-01", "-"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("1 passed, 0 failed")


@pytest.mark.parametrize(
    ("text", "arguments", "message"),
    [
        ("ABC-01 T\n    no-such-step\n", [], "my.cases:2:5: no step is called 'no-such-step'"),
        (PASSES, ["-k", "zzz"], "No case is called that."),
        (None, [], "No such file"),
    ],
)
def test_a_file_that_is_no_case_is_refused(
    tmp_path: Path,
    text: str | None,
    arguments: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """2, and why; no broker is started."""
    path = str(tmp_path / "my.cases") if text is None else written(tmp_path, text)
    assert main([*arguments, path]) == EXIT_USAGE
    assert message in capsys.readouterr().err
