"""Tests that a strategy is rejected wherever it is named: a user-defined one that is not allowed,
and one that no worker has.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from ledgerfold.broker.cli.exit_codes import USAGE, exit_code
from ledgerfold.broker.compaction import own_strategies
from ledgerfold.broker.rpc.admin import admin_calls
from ledgerfold.storage.entry import EARLIEST
from ledgerfold.storage.errors import CompactorUnavailable, InvalidStrategy, StrategyNotAllowed
from ledgerfold.strategies.allowed import AllowedStrategies
from ledgerfold.v1 import admin_pb2, what_if_pb2
from ledgerfold.v1.records_pb2 import RUN_STATE_ERROR, CompactionStrategy, Policies
from tests.model.broker_lab import TOPIC, BrokerLab
from tests.model.log_model import Message

DIVIDED = "persistent://public/default/divided"
SYSTEM = CompactionStrategy(name="os:system", settings={"command": "exit 1"})
MISTYPED = CompactionStrategy(name="event_tme")
POLICIES = Policies(compaction_strategy=SYSTEM)
REFUSED = r"^Strategy 'os:system' cannot be used: this broker does not allow it"
TOPICS = [TOPIC, DIVIDED, f"{DIVIDED}-partition-1"]


@pytest.fixture
def lab() -> Iterator[BrokerLab]:
    lab = BrokerLab()
    lab.publish([([Message(b"a", b"1")], False)])
    lab.run(lab.broker.create_partitioned_topic(DIVIDED, 2))
    lab.run(lab.broker.namespaces.create("acme/shop"))
    yield lab
    lab.stop()


def ask(lab: BrokerLab, call: str, request: Any) -> Any:
    return lab.run(admin_calls(lab.broker)[call](request))


@pytest.mark.parametrize(
    "scope",
    [
        admin_pb2.PolicyScope(topic=TOPIC),
        admin_pb2.PolicyScope(topic=DIVIDED),
        admin_pb2.PolicyScope(namespace="public/default"),
        admin_pb2.PolicyScope(namespace="acme/shop"),
    ],
)
def test_a_disallowed_strategy_is_refused_as_a_policy(
    lab: BrokerLab, scope: admin_pb2.PolicyScope
) -> None:
    """Nothing is set; the compactor is not even asked."""
    request = admin_pb2.UpdatePoliciesRequest(scope=scope, set=POLICIES)
    with pytest.raises(StrategyNotAllowed, match=REFUSED):
        ask(lab, "UpdatePolicies", request)
    found = ask(lab, "GetPolicies", admin_pb2.GetPoliciesRequest(scope=scope))
    assert not found.policies.HasField("compaction_strategy")


@pytest.mark.parametrize("topic", TOPICS)
def test_a_disallowed_strategy_is_refused_for_a_run(lab: BrokerLab, topic: str) -> None:
    """No run is queued, and none is in the history."""
    request = admin_pb2.TriggerCompactionRequest(topic=topic, strategy=SYSTEM)
    with pytest.raises(StrategyNotAllowed, match=REFUSED):
        ask(lab, "TriggerCompaction", request)
    assert not ask(lab, "ListRuns", admin_pb2.ListRunsRequest()).runs


@pytest.mark.parametrize("topic", TOPICS)
def test_a_disallowed_strategy_is_refused_in_a_what_if(lab: BrokerLab, topic: str) -> None:
    """Also as one of several."""
    strategies = [CompactionStrategy(name="newest"), SYSTEM]
    request = what_if_pb2.WhatIfRequest(topic=topic, strategies=strategies)
    with pytest.raises(StrategyNotAllowed, match=REFUSED):
        ask(lab, "WhatIf", request)
    assert not lab.compactor.analyses


def test_a_stored_strategy_that_is_no_longer_allowed_fails_the_run(lab: BrokerLab) -> None:
    """Its run fails with that text in its record; the view stays, and stats show it."""
    own = CompactionStrategy(name="shop:Everything")
    scope = admin_pb2.PolicyScope(topic=TOPIC)
    request = admin_pb2.UpdatePoliciesRequest(scope=scope, set=Policies(compaction_strategy=own))
    ask(lab, "UpdatePolicies", request)
    lab.compact()
    lab.publish([([Message(b"a", b"2")], False)])
    lab.restart()
    lab.broker.settings = replace(lab.broker.settings, allowed_strategies=AllowedStrategies())
    view = lab.read(EARLIEST, read_compacted=True)

    run = lab.compact()
    assert run is not None
    assert (run.state, run.error_reason) == (RUN_STATE_ERROR, "STRATEGY_NOT_ALLOWED")
    sentence = "Strategy 'shop:Everything' cannot be used: this broker does not allow it."
    assert run.error_message.startswith(sentence)
    assert lab.read(EARLIEST, read_compacted=True) == view
    with pytest.raises(StrategyNotAllowed, match="'shop:Everything' cannot be used"):
        ask(lab, "WhatIf", what_if_pb2.WhatIfRequest(topic=TOPIC))
    stats = ask(lab, "GetTopicStats", admin_pb2.GetTopicStatsRequest(topic=TOPIC))
    assert "shop:Everything" in stats.json


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
