"""How runs are shown."""

from __future__ import annotations

from ledgerfold.broker.cli.compaction import _rows, figures
from ledgerfold.v1.records_pb2 import Position, RunRecord


def test_a_run_that_found_nothing_has_no_horizon() -> None:
    """0:0 would be the first entry of a ledger."""
    empty = RunRecord(topic="t", number=1, ledger_id=-1)
    run = RunRecord(topic="t", number=2, ledger_id=7, horizon=Position(ledger_id=3, entry_id=0))
    assert [row["horizon"] for row in _rows([empty, run])] == ["none", "3:0"]
    assert figures(empty).endswith("ledger -1, horizon none")
    assert figures(run).endswith("ledger 7, horizon 3:0")
