"""Tests which strategy a run has, and when another strategy is a reason for a run."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from ledgerfold.broker.compaction.due import RunRules, is_outdated
from ledgerfold.broker.topics.policy_store import PolicyStore
from ledgerfold.v1.records_pb2 import (
    RUN_TRIGGER_ADMIN,
    CompactedView,
    CompactionStrategy,
    Policies,
    RunRecord,
    TopicRecord,
)
from tests.model.broker_lab import BrokerLab
from tests.model.log_model import Message
from tests.support.compaction_lab import Lab, LabTopic

EVENT_TIME = CompactionStrategy(name="event-time")
NEWEST = CompactionStrategy(name="newest")
KEEP_TWO = CompactionStrategy(name="keep-n", settings={"n": "2"})


def set_strategy(topic: LabTopic, strategy: CompactionStrategy) -> None:
    topic.record.policies.compaction_strategy.CopyFrom(strategy)


async def compact(
    lab: Lab, topic: LabTopic, strategy: CompactionStrategy | None = None
) -> RunRecord:
    number = await lab.scheduler.trigger(cast(Any, topic), RUN_TRIGGER_ADMIN, strategy)
    assert number
    await lab.compactor.started()
    lab.compactor.finish()
    await lab.ended(topic)
    return lab.run_of(topic, number)


def test_a_run_has_the_strategy_set_at_its_start() -> None:
    """Not the one of its trigger, nor one that is set while it runs."""

    async def body() -> None:
        lab = Lab()
        first, second = lab.topic("a"), lab.topic("b", compaction_strategy=NEWEST)
        await lab.scheduler.trigger(first, RUN_TRIGGER_ADMIN)
        await lab.scheduler.trigger(second, RUN_TRIGGER_ADMIN)
        assert lab.run_of(second, 1).strategy == "newest"
        set_strategy(second, KEEP_TWO)
        await lab.compactor.started()
        lab.compactor.finish()
        plan = await lab.compactor.started()
        set_strategy(second, EVENT_TIME)
        lab.compactor.finish()
        await lab.ended(second)
        run = lab.run_of(second, 1)
        assert (run.strategy, dict(run.strategy_settings)) == ("keep-n", {"n": "2"})
        assert (plan.strategy, dict(plan.strategy_settings)) == ("keep-n", {"n": "2"})
        status = lab.scheduler.status(second)
        assert (status.run.strategy, status.strategy) == ("keep-n", EVENT_TIME)

    asyncio.run(body())


def test_a_run_with_nothing_to_do_records_its_strategy() -> None:
    """It never has a plan."""

    async def body() -> None:
        lab = Lab()
        busy, topic = lab.topic("a"), lab.topic("t", entries=0)
        await lab.scheduler.trigger(busy, RUN_TRIGGER_ADMIN)
        assert await lab.scheduler.trigger(topic, RUN_TRIGGER_ADMIN) == 1
        set_strategy(topic, EVENT_TIME)
        await lab.compactor.started()
        lab.compactor.finish()
        await lab.ended(topic)
        assert lab.run_of(topic, 1).strategy == "event-time"

    asyncio.run(body())


def test_a_trigger_sets_the_strategy_of_one_run() -> None:
    """It applies to that run even if settings change, and is not the topic's."""

    async def body() -> None:
        lab = Lab()
        topic = lab.topic("t", compaction_strategy=NEWEST)
        number = await lab.scheduler.trigger(cast(Any, topic), RUN_TRIGGER_ADMIN, KEEP_TWO)
        set_strategy(topic, EVENT_TIME)
        await lab.compactor.started()
        lab.compactor.finish()
        await lab.ended(topic)
        assert lab.run_of(topic, number).strategy == "keep-n"
        assert (await compact(lab, topic)).strategy == "event-time"

    asyncio.run(body())


def test_another_strategy_requires_a_run() -> None:
    """Also without news; and so are other settings. Once it ran, there is none any more."""

    async def body() -> None:
        lab = Lab()
        topic = lab.topic("t")
        await compact(lab, topic)
        assert await lab.scheduler.trigger(topic, RUN_TRIGGER_ADMIN) == 0
        for strategy in (KEEP_TWO, CompactionStrategy(name="keep-n", settings={"n": "3"})):
            set_strategy(topic, strategy)
            await compact(lab, topic)
            assert await lab.scheduler.trigger(topic, RUN_TRIGGER_ADMIN) == 0
        assert [plan.strategy for plan in lab.compactor.plans] == [
            "publishing-order",
            "keep-n",
            "keep-n",
        ]

    asyncio.run(body())


def test_a_run_without_new_entries_ends_at_the_same_horizon() -> None:
    """Not at the compacted ledger's last entry: a reader would see the tombstones after it.

    A log in memory writes no ledger, so these runs need files.
    """
    lab = BrokerLab()
    sent = lab.publish([([Message(b"a", b"1")], False), ([Message(b"b", b"")], False)])
    lab.compact()
    strategy = CompactionStrategy(name="keep-first")
    policies = Policies(compaction_strategy=strategy)
    lab.run(PolicyStore(lab.broker).update_topic(lab.topic, policies, []))
    run = lab.compact()
    assert run is not None
    assert lab.succeeded(run)
    assert lab.topic.log.views.horizon == sent[-1]
    lab.stop()


def test_after_a_failed_run_the_run_is_still_required() -> None:
    """The view is still the former strategy's."""

    async def body() -> None:
        lab = Lab()
        topic = lab.topic("t")
        await compact(lab, topic)
        set_strategy(topic, EVENT_TIME)
        await lab.scheduler.trigger(topic, RUN_TRIGGER_ADMIN)
        await lab.compactor.started()
        lab.compactor.fail(RuntimeError("no"))
        await lab.ended(topic)
        assert (await compact(lab, topic)).strategy == "event-time"

    asyncio.run(body())


@pytest.mark.parametrize(
    ("made", "asked", "outdated"),
    [
        (RunRecord(strategy="event-time"), EVENT_TIME, False),
        (RunRecord(strategy="event-time", strategy_version="2"), EVENT_TIME, False),
        (RunRecord(strategy="event-time", strategy_version="0"), EVENT_TIME, True),
        (RunRecord(strategy="publishing-order"), EVENT_TIME, True),
        (None, EVENT_TIME, True),
        (RunRecord(strategy="m:C"), CompactionStrategy(name="m:C"), True),
        (
            RunRecord(strategy="event-time-window", strategy_settings={"lag_ms": "5"}),
            CompactionStrategy(name="event-time-window", settings={"lag_ms": "5"}),
            True,
        ),
    ],
    ids=["same", "same version", "older rules", "other", "unknown", "own code", "time"],
)
def test_views_that_another_policy_may_change(
    made: RunRecord | None, asked: CompactionStrategy, outdated: bool
) -> None:
    """A view is affected unless it is certain that it is not."""
    topic, runs = TopicRecord(compacted=CompactedView(run_number=7)), [RunRecord(number=8)]
    if made is not None:
        made.number = 7
        runs.append(made)
    assert is_outdated(topic, runs, RunRules(asked)) is outdated
    assert not is_outdated(TopicRecord(), runs, RunRules(asked))


@pytest.mark.parametrize("field", ["retain_null_key", "unsized_empties_survive"])
@pytest.mark.parametrize(("strategy", "heeds"), [("event-time", True), ("keep-first", False)])
def test_a_changed_policy_makes_the_view_outdated(field: str, strategy: str, heeds: bool) -> None:
    """Otherwise it would take effect with the next message only. Message strategies keep no message
    without a key anyway. The tests had changed the strategy alone.
    """
    topic = TopicRecord(compacted=CompactedView(run_number=7))
    asked = CompactionStrategy(name=strategy)
    run = RunRecord(number=7, strategy=strategy)
    assert not is_outdated(topic, [run], RunRules(asked))
    setattr(run, field, True)
    is_heeded = heeds or field != "retain_null_key"
    assert is_outdated(topic, [run], RunRules(asked)) is is_heeded
