"""Runs the commands in docs/RELIABILITY.md."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.simulation.__main__ import main as simulate
from tests.torture.__main__ import parser as torture_parser

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "RELIABILITY.md").read_text()


def commands(script: str) -> list[list[str]]:
    """Returns the arguments of each call."""
    return [each.split() for each in re.findall(rf"\$ scripts/{script}(.*)", TEXT)]


@pytest.mark.parametrize("arguments", commands("simulate"), ids=" ".join)
def test_the_documented_command_of_the_simulator_works(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Runs one seed, in this process; test_simulation.py runs more of each kind."""
    assert simulate([*arguments, "--count", "1", "--jobs", "1"]) == 0
    assert "1 seeds in" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", commands("torture"), ids=" ".join)
def test_the_documented_command_of_the_torture_parses(arguments: list[str]) -> None:
    """Parses the arguments; tests/torture runs a short round."""
    assert torture_parser().parse_args(arguments).minutes >= 20


def test_the_document_names_both_commands() -> None:
    assert len(commands("simulate")) >= 2
    assert commands("torture")
