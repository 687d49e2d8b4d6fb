"""Tests how runs are shown."""

from __future__ import annotations

import argparse
import json
from typing import Any, cast

import pytest

from ledgerfold.broker.cli.topics.compaction import (
    _compact,
    _json,
    _status_json,
    _table,
    figures,
    follow_runs,
    print_status,
    report_end,
)
from ledgerfold.broker.worker.supervisor import WARMING_UP
from ledgerfold.v1 import admin_pb2
from ledgerfold.v1.records_pb2 import (
    RUN_STATE_ERROR,
    RUN_STATE_SUCCESS,
    CompactionStrategy,
    Position,
    RunCounts,
    RunRecord,
)


def test_a_run_without_entries_shows_no_horizon() -> None:
    """0:0 would be the first entry of a ledger."""
    empty = RunRecord(topic="t", number=1, ledger_id=-1)
    run = RunRecord(topic="t", number=2, ledger_id=7, horizon=Position(ledger_id=3, entry_id=0))
    assert [_json(each)["horizon"] for each in (empty, run)] == ["none", "3:0"]
    assert figures(empty).endswith(", no ledger, horizon none")
    assert figures(run).endswith("ledger 7, horizon 3:0")


def test_a_run_on_a_terminal() -> None:
    """Shows the results in few columns; an error column only if there is an error."""
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


def test_runs_name_their_strategy(capsys: pytest.CaptureFixture[str]) -> None:
    """They show settings and version; Pulsar's order is not named."""
    plain = RunRecord(number=1, strategy="publishing-order")
    run = RunRecord(
        number=2,
        state=RUN_STATE_SUCCESS,
        strategy="keep-n",
        strategy_settings={"n": "3"},
        strategy_version="1",
    )
    row = _json(run)
    assert [row[name] for name in ("strategy", "strategy_settings", "strategy_version")] == [
        "keep-n",
        {"n": "3"},
        "1",
    ]
    assert figures(run).endswith(", by keep-n (n=3)")
    assert figures(plain).endswith("horizon none")
    assert [row["strategy"] for row in _table([run, plain])] == ["keep-n (n=3)", "publishing-order"]
    assert all("strategy" not in row for row in _table([plain]))
    status = admin_pb2.GetCompactionStatusResponse(
        run=run,
        status=admin_pb2.COMPACTION_STATUS_SUCCESS,
        strategy=CompactionStrategy(name="publishing-order"),
    )
    assert print_status(status) == 0
    status.run.CopyFrom(plain)
    assert print_status(status) == 0
    assert capsys.readouterr().out.splitlines() == [
        "Compaction was a success.",
        "By keep-n (n=3); the next run's strategy is publishing-order.",
        "Compaction was a success.",
    ]


def test_the_last_check_of_a_threshold_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    """Topics without a threshold have pulsar-admin's line only; JSON has every check."""
    status = admin_pb2.GetCompactionStatusResponse(status=admin_pb2.COMPACTION_STATUS_NOT_RUN)
    assert _status_json(status)["threshold_checks"] == []
    check = admin_pb2.ThresholdCheck(checked_ms=1000, why="no threshold", level="broker")
    status.threshold_check.CopyFrom(check)
    print_status(status)
    check.MergeFrom(
        admin_pb2.ThresholdCheck(
            why="not above", backlog_bytes=1024, threshold_bytes=2048, level="topic"
        )
    )
    status.threshold_check.CopyFrom(check)
    print_status(status)
    (found,) = _status_json(status)["threshold_checks"]
    assert found == {
        "partition": -1,
        "time": 1000,
        "fired": False,
        "why": "not above",
        "backlog_bytes": 1024,
        "threshold_bytes": 2048,
        "level": "topic",
    }
    parts = admin_pb2.GetCompactionStatusResponse(status=admin_pb2.COMPACTION_STATUS_SUCCESS)
    parts.partitions.add()
    check.fired = True
    parts.partitions.add(threshold_check=check)
    print_status(parts)
    told = (
        "At 1970-01-01T00:00:01.000Z, 1.0 KiB were not compacted, the topic's threshold was "
        "2.0 KiB; "
    )
    assert capsys.readouterr().out.splitlines() == [
        "Compaction has not been run for this topic.",
        "Compaction has not been run for this topic.",
        f"{told}no run: not above.",
        "Compaction was a success.",
        f"Partition 1: {told}a run was queued.",
    ]


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        ("COMPACTION_FAILED", 1),
        ("DATA_CORRUPT", 6),
        ("DATA_MISSING", 6),
        ("COMPACTED_LEDGER_DAMAGED", 6),
    ],
)
@pytest.mark.parametrize("is_partitioned", [False, True])
def test_a_failed_run_sets_the_exit_code(reason: str, code: int, is_partitioned: bool) -> None:
    """Damage that it met is damage, of a topic and of a partition."""
    failed = RunRecord(topic="t", state=RUN_STATE_ERROR, error_reason=reason, error_message="no")
    status = admin_pb2.GetCompactionStatusResponse(
        run=failed, status=admin_pb2.COMPACTION_STATUS_ERROR, last_error="no"
    )
    if is_partitioned:
        status.partitions.add(run=RunRecord(topic="u", state=RUN_STATE_SUCCESS))
        status.partitions.add(run=failed)
    assert report_end(status) == print_status(status) == code


class _Admin:
    """An administration of a broker whose compactor is in some state."""

    def __init__(self, state: str, message: str) -> None:
        self._info = admin_pb2.GetBrokerInfoResponse(
            compactor_state=f"COMPACTOR_STATE_{state}", compactor_message=message
        )

    def broker_info(self, *, await_compactor: bool) -> admin_pb2.GetBrokerInfoResponse:
        assert await_compactor
        return self._info

    def trigger_compaction(self, topic: str) -> int:
        return 1

    def watch_compaction(
        self, topic: str, timeout_seconds: float | None
    ) -> list[admin_pb2.GetCompactionStatusResponse]:
        run = RunRecord(topic=topic, state=RUN_STATE_SUCCESS)
        return [admin_pb2.GetCompactionStatusResponse(run=run)]


@pytest.mark.parametrize(
    ("state", "message", "waits", "told"),
    [
        ("STARTING", WARMING_UP, True, True),
        ("STARTING", WARMING_UP, False, True),
        ("READY", "", True, False),
        ("UNAVAILABLE", "Install Java.", True, False),
        ("UNAVAILABLE", "Install Java.", False, True),
        ("DISABLED", "The compactor is off.", False, False),
    ],
)
def test_the_command_reports_that_it_waits_for_spark(
    state: str,
    message: str,
    waits: bool,
    told: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The wait reports the warm-up, or what to install; without a wait, the command reports it,
    too.
    """
    admin = _Admin(state, message)
    monkeypatch.setattr("ledgerfold.broker.cli.topics.compaction.admin_of", lambda options: admin)
    assert _compact(argparse.Namespace(topic="t", wait=waits, timeout=None, output=None)) == 0
    assert capsys.readouterr().err == (f"{message}\n" if told else "")


@pytest.mark.parametrize("output", ["table", "jsonl", "json"])
def test_following_shows_each_run_once(output: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Each run once, when it has ended, in order; also of a topic that was made again."""

    def run(topic: str, number: int, ended_ms: int, error: str = "") -> RunRecord:
        return RunRecord(topic=topic, number=number, ended_ms=ended_ms, error_message=error)

    first = run("a", 1, 10)
    answers = [
        [run("a", 2, 0), first],
        [run("b", 7, 30, "no disk"), run("a", 2, 20), first],
        [run("a", 1, 40), run("b", 7, 30, "no disk"), run("a", 2, 20), first],
    ]

    class Runs:
        limits: list[int] = []  # noqa: RUF012 - one test

        def runs(self, topic: str, *, limit: int) -> list[RunRecord]:
            self.limits.append(limit)
            return answers.pop(0)

    def wait() -> None:
        if not answers:
            raise KeyboardInterrupt

    options = argparse.Namespace(topic="", number=20, output=output, no_truncate=True)
    with pytest.raises(KeyboardInterrupt):
        follow_runs(options, cast(Any, Runs()), wait)
    out = capsys.readouterr().out
    if output == "table":
        lines = [line.split(":")[:2] for line in out.splitlines()]
        assert [(topic, text) for topic, text in lines] == [
            ("a", " run 1"),
            ("a", " run 2"),
            ("b", " run 7"),
            ("a", " run 1"),
        ]
        return
    rows = json.loads(out) if output == "json" else [json.loads(each) for each in out.splitlines()]
    assert [(row["topic"], row["run"]) for row in rows] == [("a", 1), ("a", 2), ("b", 7), ("a", 1)]
