"""`cleaner run` and `plan --map` report what they wait for."""

from __future__ import annotations

import argparse
from types import SimpleNamespace
from typing import Any

import pytest

from ledgerfold.broker.cli.kafka import cleaner
from ledgerfold.broker.client.administration.kafka_answers import CleanerTurn, CleaningPlan
from ledgerfold.broker.worker.supervisor import WARMING_UP
from ledgerfold.v1 import admin_pb2, kafka_pb2


class _Admin:
    """An administration of a broker whose compactor is in some state, with one log."""

    def __init__(self, state: str, plan: kafka_pb2.CleaningPlan) -> None:
        message = WARMING_UP if state == "STARTING" else ""
        self._info = admin_pb2.GetBrokerInfoResponse(
            compactor_state=f"COMPACTOR_STATE_{state}", compactor_message=message
        )
        self.kafka = SimpleNamespace(
            plan_cleaning=lambda *topics, with_map=False: [CleaningPlan.of(plan)],
            clean=lambda topic: CleanerTurn.of(kafka_pb2.CleanTurnResponse()),
        )

    def broker_info(self, *, await_compactor: bool) -> admin_pb2.GetBrokerInfoResponse:
        return self._info

    def partitioned_topic_metadata(self, topic: str) -> dict[str, int]:
        return {"partitions": 0}


@pytest.mark.parametrize(
    ("state", "topic", "plan", "told"),
    [
        ("STARTING", "t", {"cleanable_bytes": 5}, True),
        ("STARTING", "", {"is_eligible": True}, True),
        ("STARTING", "", {"cleanable_bytes": 5}, False),
        ("STARTING", "t", {}, False),
        ("READY", "t", {"cleanable_bytes": 5}, False),
    ],
)
def test_a_pass_waits_for_spark(
    state: str,
    topic: str,
    plan: dict[str, Any],
    told: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    admin = _Admin(state, kafka_pb2.CleaningPlan(topic="t", **plan))
    monkeypatch.setattr(cleaner, "admin_of", lambda options: admin)
    cleaner._run(argparse.Namespace(topic=topic, output="jsonl"))
    assert capsys.readouterr().err == (f"{WARMING_UP}\n" if told else "")


@pytest.mark.parametrize("wants_map", [True, False])
def test_a_map_waits_for_spark(
    wants_map: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    admin = _Admin("STARTING", kafka_pb2.CleaningPlan(topic="t"))
    monkeypatch.setattr(cleaner, "admin_of", lambda options: admin)
    cleaner._plan(argparse.Namespace(topic="t", map=wants_map, output="jsonl"))
    assert capsys.readouterr().err == (f"{WARMING_UP}\n" if wants_map else "")
