"""The pictures of `what-if`: every kind, reproducible; a clear error without matplotlib."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from ledgerfold.broker.cli.exit_codes import USAGE
from ledgerfold.broker.cli.what_if.plot import write_plot
from ledgerfold.v1.records_pb2 import CompactionStrategy
from ledgerfold.v1.what_if_pb2 import (
    Replay,
    ReplaySetting,
    SpacePoint,
    StrategyForecast,
    TopicWhatIf,
    WhatIfInput,
)
from tests.support.command_line import ledgerfold

# matplotlib asks the system for its fonts.
pytestmark = pytest.mark.process
FOUND = TopicWhatIf(
    topic="a <topic>",
    input=WhatIfInput(messages=10, bytes=5_000),
    forecasts=[
        StrategyForecast(strategy=CompactionStrategy(name="publishing-order"), bytes=2_000),
        StrategyForecast(strategy=CompactionStrategy(name="newest"), not_forecast="asked"),
    ],
    replays=[
        Replay(
            setting=ReplaySetting(threshold_bytes=1024),
            write_amplification=1.5,
            rewind_mean_bytes=700,
            points=[SpacePoint(publish_time_ms=at * 1000, bytes=at * 10) for at in range(5)],
        )
    ],
)


def test_each_kind_of_plot(tmp_path: Path) -> None:
    """The file's ending decides its format; names are escaped."""
    for name in ("f.svg", "f.png", "f.html"):
        write_plot(str(tmp_path / name), [FOUND])
    svg = (tmp_path / "f.svg").read_text()
    assert "publishing-order" in svg
    assert "threshold 1K" in svg
    assert "a &lt;topic&gt;" in svg
    assert (tmp_path / "f.png").read_bytes().startswith(b"\x89PNG")
    page = (tmp_path / "f.html").read_text()
    assert page.startswith("<!doctype html>")
    assert page.count("<svg") == 1
    assert "<title>What if: a &lt;topic&gt;</title>" in page


def test_the_same_figures_give_the_same_file(tmp_path: Path) -> None:
    """So pictures can be committed beside the text."""
    for name in ("1.svg", "2.svg"):
        write_plot(str(tmp_path / name), [FOUND, FOUND])
    assert (tmp_path / "1.svg").read_bytes() == (tmp_path / "2.svg").read_bytes()


def test_an_impossible_plot_is_reported_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before a broker is asked."""
    ran = ledgerfold("what-if", "t", "--plot", "f.gif")
    assert (ran.code, "one of svg, png, html" in ran.err) == (USAGE, True)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    ran = ledgerfold("what-if", "t", "--plot", "f.svg")
    assert (ran.code, "extra `plot`" in ran.err) == (USAGE, True)
