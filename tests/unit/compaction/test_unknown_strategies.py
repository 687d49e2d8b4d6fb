"""Tests of a run by a strategy that no worker has.

No test triggered a run by an unknown name: the error appeared only in the record of a failed run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from ledgerfold.broker.cli.exit_codes import USAGE, exit_code
from ledgerfold.broker.compaction import own_strategies
from ledgerfold.broker.rpc.admin import admin_calls
from ledgerfold.storage.errors import CompactorUnavailable, InvalidStrategy
from ledgerfold.v1 import admin_pb2
from ledgerfold.v1.records_pb2 import CompactionStrategy
from tests.model.broker_lab import TOPIC, BrokerLab
from tests.model.log_model import Message

DIVIDED = "persistent://public/default/divided"
MISTYPED = CompactionStrategy(name="event_tme")


@pytest.fixture
def lab() -> Iterator[BrokerLab]:
    lab = BrokerLab()
    lab.publish([([Message(b"a", b"1")], False)])
    lab.run(lab.broker.create_partitioned_topic(DIVIDED, 2))
    yield lab
    lab.stop()


def ask(lab: BrokerLab, call: str, request: Any) -> Any:
    return lab.run(admin_calls(lab.broker)[call](request))


@pytest.mark.parametrize("topic", [TOPIC, DIVIDED])
def test_a_mistyped_strategy_is_invalid_input(lab: BrokerLab, topic: str) -> None:
    """No run is queued, and none is in the history."""
    request = admin_pb2.TriggerCompactionRequest(topic=topic, strategy=MISTYPED)
    with pytest.raises(InvalidStrategy, match="'event_tme' cannot be used") as raised:
        ask(lab, "TriggerCompaction", request)
    assert exit_code(raised.value) == USAGE
    assert not ask(lab, "ListRuns", admin_pb2.ListRunsRequest()).runs


def test_a_worker_in_its_pause_is_started_for_the_check(
    lab: BrokerLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pause ended only after the check, which no worker had made. No test had triggered a run
    in a pause.
    """
    is_paused = True

    def retry_now() -> None:
        nonlocal is_paused
        is_paused = False

    async def check(strategy: CompactionStrategy) -> None:
        if is_paused:
            raise CompactorUnavailable("The last worker ended.")
        raise InvalidStrategy(strategy.name, "it has no such method")

    monkeypatch.setattr(lab.compactor, "retry_now", retry_now)
    monkeypatch.setattr(lab.compactor, "check_strategy", check)
    request = admin_pb2.TriggerCompactionRequest(topic=TOPIC, strategy=MISTYPED)
    with pytest.raises(InvalidStrategy, match="no such method"):
        ask(lab, "TriggerCompaction", request)


@pytest.mark.parametrize("is_silent", [False, True])
def test_a_run_is_queued_while_no_worker_can_check_its_strategy(
    lab: BrokerLab, monkeypatch: pytest.MonkeyPatch, is_silent: bool
) -> None:
    """The run checks the strategy again when it starts. A worker may also never answer."""

    async def unavailable(strategy: CompactionStrategy) -> None:
        if is_silent:
            await asyncio.Event().wait()
        raise CompactorUnavailable("It is starting.")

    monkeypatch.setattr(own_strategies, "CHECK_SECONDS", 0.01)
    monkeypatch.setattr(lab.compactor, "check_strategy", unavailable)
    own = CompactionStrategy(name="shop:Everything")
    request = admin_pb2.TriggerCompactionRequest(topic=TOPIC, strategy=own)
    assert ask(lab, "TriggerCompaction", request).run_number == 1
