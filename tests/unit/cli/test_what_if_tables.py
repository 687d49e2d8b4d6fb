"""Tests the tables of `what-if`: estimates are marked, and missing runs have reasons."""

from __future__ import annotations

import pytest

from ledgerfold.broker.cli.what_if.rows import cleaning_row, replay_row, strategy_row
from ledgerfold.broker.cli.what_if.tables import print_tables
from ledgerfold.v1.records_pb2 import CompactionStrategy, MessageId
from ledgerfold.v1.what_if_pb2 import (
    CleaningReplay,
    KeptMessages,
    KeyDifference,
    KeyDifferences,
    Replay,
    ReplaySetting,
    StrategyForecast,
    TopicWhatIf,
)

WHOLE = StrategyForecast(strategy=CompactionStrategy(name="newest"), bytes=500)
PARTS = StrategyForecast(
    strategy=CompactionStrategy(name="numeric"), bytes=3000, bytes_estimated=9, bytes_reclaimable=7
)
FAILED = StrategyForecast(strategy=CompactionStrategy(name="a:B"), not_forecast="it raised")
RUNS = Replay(setting=ReplaySetting(threshold_bytes=1024), runs=2, bytes_read=300)
NO_RUN = Replay(setting=ReplaySetting(threshold_bytes=2048), why_no_run="there is nothing")


def test_an_estimated_figure_has_a_mark(capsys: pytest.CaptureFixture[str]) -> None:
    """In the table, before it; in JSON its name is listed. Exact ones have none."""
    print_tables(TopicWhatIf(topic="t", forecasts=[WHOLE, PARTS]), None)
    _, head, whole, parts, legend = capsys.readouterr().out.splitlines()
    assert "estimated" not in head
    assert "~" not in whole
    assert parts.split()[3:9] == ["~2.9", "KiB", "0", "0", "~7", "B"]
    assert legend.startswith("~ estimated")
    assert strategy_row(WHOLE)["estimated"] == []
    assert strategy_row(PARTS)["estimated"] == ["bytes", "reclaimable_bytes", "garbage_ratio"]


def test_a_table_without_runs_states_the_reason(capsys: pytest.CaptureFixture[str]) -> None:
    """Below the table, and in JSON."""
    print_tables(TopicWhatIf(topic="t", replays=[RUNS, NO_RUN]), None)
    out = capsys.readouterr().out
    assert "threshold 2K: none, because there is nothing" in out
    assert "~300 B" in out
    assert (replay_row(RUNS)["why_no_run"], replay_row(NO_RUN)["estimated"]) == (None, [])
    cleaning = CleaningReplay(why_no_round="the log is empty")
    assert cleaning_row(cleaning)["why_no_round"] == "the log is empty"
    print_tables(TopicWhatIf(topic="t", cleanings=[cleaning]), None)
    assert "(as they are): none, because the log is empty" in capsys.readouterr().out


def test_failed_strategies_are_not_compared(capsys: pytest.CaptureFixture[str]) -> None:
    """Their columns are missing, and a note names them."""
    kept = [
        KeptMessages(count=1, last=MessageId(ledger_id=1, entry_id=2, batch_index=-1), value=b"x"),
        KeptMessages(),
    ]
    listed = [KeyDifference(key=b"k", kept=kept)]
    found = TopicWhatIf(
        topic="t",
        forecasts=[WHOLE, FAILED, PARTS],
        differences=KeyDifferences(keys=1, listed=listed),
    )
    print_tables(found, None)
    told = capsys.readouterr()
    assert "1 key differs" in told.out
    assert told.out.splitlines()[-2].split() == ["key", "newest", "numeric"]
    assert "a:B: it raised" in told.err
