"""Runs the snippets of docs/STRATEGIES.md, "Your own" and "A compaction service of your own"."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ledgerfold.compactor.strategies.watch import DEFAULT_LIMITS
from ledgerfold.compactor.user_strategies.own import COLUMNS, STRATEGIC
from ledgerfold.compactor.user_strategies.sandbox_process import run_trial
from ledgerfold.strategies.loading import load
from ledgerfold.strategies.words import words_of
from tests.support.documents import document
from tests.tidy import ROOT

FILES = {
    Path(block.file).stem: block.text
    for block in document(ROOT / "docs" / "STRATEGIES.md")
    if block.language == "python" and block.file is not None
}


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    for name, source in FILES.items():
        (tmp_path / f"{name}.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in FILES:
        sys.modules.pop(name, None)


def test_the_strategies_of_the_page_can_be_set(written: Path) -> None:
    """As the page names them."""
    found = run_trial("longest:Longest", {"even": "yes"}, DEFAULT_LIMITS)
    assert (found["kind"], found["version"], found["reads"]) == (STRATEGIC, "1", ("value",))
    found = run_trial("first:FIRST", {}, DEFAULT_LIMITS)
    assert (found["kind"], found["version"]) == (COLUMNS, "1")


@pytest.mark.parametrize(("even", "kept"), [("no", "second"), ("yes", "first")])
def test_the_class_works_as_described(written: Path, even: str, kept: str) -> None:
    """Tests values of one length."""

    class Message:
        def __init__(self, value: bytes) -> None:
            self.value = value

    keep_left: Callable[..., bool]
    keep_left = load("longest:Longest", {"even": even}).strategy.should_keep_left
    said = words_of(load("longest:Longest", {}).strategy, Message(b"22"), Message(b"4444"))
    assert said == "4 bytes; the previous value has 2"
    assert keep_left(Message(b"11"), Message(b"22")) == (kept == "first")
    assert keep_left(Message(b"11"), Message(b"2"))
    assert not keep_left(Message(b"11"), Message(b"222"))
    assert not keep_left(Message(b"11"), Message(b""))
