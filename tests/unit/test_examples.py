"""Runs the examples in docstrings."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.examples import failures, with_examples


@pytest.mark.parametrize("module", with_examples(connecting=False))
def test_the_examples_of_a_module(module: str, tmp_path: Path) -> None:
    """In order; docstrings share no names."""
    assert not failures(module, tmp_path)


def test_an_example_can_fail(tmp_path: Path) -> None:
    """A canary: its result depends on the address."""
    assert "Got:" in failures("tests.support.examples", tmp_path, "10.0.0.1:1")
