"""How runs are shown."""

from __future__ import annotations

from ledgerfold.broker.cli.compaction import _json, _table, figures
from ledgerfold.v1.records_pb2 import Position, RunCounts, RunRecord


def test_a_run_that_found_nothing_has_no_horizon() -> None:
    """0:0 would be the first entry of a ledger."""
    empty = RunRecord(topic="t", number=1, ledger_id=-1)
    run = RunRecord(topic="t", number=2, ledger_id=7, horizon=Position(ledger_id=3, entry_id=0))
    assert [_json(each)["horizon"] for each in (empty, run)] == ["none", "3:0"]
    assert figures(empty).endswith("ledger -1, horizon none")
    assert figures(run).endswith("ledger 7, horizon 3:0")


def test_a_run_for_people() -> None:
    """What it did, in few columns; an error has one when there is an error."""
    counts = RunCounts(messages_in=12_000, messages_out=7, bytes_in=2048, bytes_out=100)
    run = RunRecord(
        topic="persistent://public/default/t", number=2, counts=counts, started_ms=5, ended_ms=1255
    )
    (row,) = _table([run])
    assert [row[name] for name in ("topic", "messages", "size", "took")] == [
        "public/default/t",
        "12,000 -> 7",
        "2.0 KiB -> 100 B",
        "1.25 s",
    ]
    assert "error" not in row
    failed = RunRecord(number=3, error_message="no")
    assert [row["error"] for row in _table([failed, run])] == ["no", ""]
