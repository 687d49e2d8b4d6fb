"""Tests the requests to the compactor about a topic, which stays unchanged."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from ledgerfold.broker.subscriptions.lifecycle import create_subscription
from ledgerfold.broker.whatif.forecaster import REPLAYS_MAX, STRATEGIES_MAX, Forecaster
from ledgerfold.compactor.what_if import run, work
from ledgerfold.storage.errors import InvalidRequest, MissingFile, Moved
from ledgerfold.v1.compactor_pb2 import AnalyzeRequest
from ledgerfold.v1.data_pb2 import StartPosition
from ledgerfold.v1.records_pb2 import CompactionStrategy
from ledgerfold.v1.what_if_pb2 import ReplaySetting, WhatIfRequest
from tests.model.broker_lab import TOPIC, BrokerLab
from tests.model.log_model import Message

MESSAGES = [([Message(b"a", b"1")], False), ([Message(b"a", b"2"), Message(b"b", b"1")], True)]
REQUEST = WhatIfRequest(topic=TOPIC)
REPLAYED = WhatIfRequest(topic=TOPIC, replays=[ReplaySetting(threshold_bytes=1)])


@pytest.fixture
def lab() -> Iterator[BrokerLab]:
    """Raw data are kept by a subscription."""
    lab = BrokerLab()
    lab.run(create_subscription(lab.topic, "s", StartPosition(earliest=True)))
    lab.publish(MESSAGES)
    yield lab
    lab.stop()


def ask(lab: BrokerLab, request: WhatIfRequest = REQUEST) -> AnalyzeRequest:
    lab.run(Forecaster(lab.broker).answer([lab.topic], request))
    return lab.compactor.analyses[-1]


def test_too_many_strategies_or_replays_are_refused_at_once(lab: BrokerLab) -> None:
    """The worker had refused them, after the broker had looked at each: no test had asked for more
    than the worker takes.
    """
    assert (STRATEGIES_MAX, REPLAYS_MAX) == (work.STRATEGIES_MAX, run.REPLAYS_MAX)
    strategies = [CompactionStrategy(name="no such")] * (STRATEGIES_MAX + 1)
    with pytest.raises(InvalidRequest, match="At most 16 strategies"):
        ask(lab, WhatIfRequest(strategies=strategies))
    with pytest.raises(InvalidRequest, match="At most 100 triggers"):
        ask(lab, WhatIfRequest(replays=[ReplaySetting()] * (REPLAYS_MAX + 1)))
    assert not lab.compactor.analyses


def test_a_forecast_seals_nothing(lab: BrokerLab) -> None:
    """The open segment is read up to its durable end; the topic's record stays."""
    record, files = lab.topic.record.SerializeToString(), lab.topic.log.ledgers.records()
    plan = ask(lab).plan
    assert [segment.sealed for segment in plan.segments] == [False]
    assert [segment.messages for segment in plan.segments] == [3]
    assert (plan.compacted_segments, plan.ledger_id) == (0, 0)
    assert lab.topic.record.SerializeToString() == record
    assert lab.topic.log.ledgers.records() == files


def test_the_input_of_the_next_run(lab: BrokerLab) -> None:
    """The compacted ledger, and the entries after the horizon; the history is all raw ledgers."""
    lab.compact()
    lab.publish(MESSAGES)
    asked = ask(lab, REPLAYED)
    horizon = lab.topic.log.views.horizon
    assert horizon is not None
    assert asked.plan.compacted_segments == 1
    assert [segment.messages for segment in asked.plan.segments] == [2, 3]
    after = asked.plan.horizon_previous
    assert (after.ledger_id, after.entry_id) == horizon
    assert asked.history.compacted_segments == 0
    assert sum(segment.messages for segment in asked.history.segments) == 6


def test_a_forecast_without_new_entries(lab: BrokerLab) -> None:
    """The compacted ledger alone."""
    lab.compact()
    plan = ask(lab).plan
    assert (len(plan.segments), plan.compacted_segments) == (1, 1)


def test_the_default_is_the_topics_own_strategy(lab: BrokerLab) -> None:
    """By Ledgerfold's names; impossible ones are refused before the compactor is called."""
    assert [each.name for each in ask(lab).strategies] == ["publishing-order"]
    with pytest.raises(InvalidRequest, match="is not a strategy"):
        ask(lab, WhatIfRequest(topic=TOPIC, strategies=[CompactionStrategy(name="no such")]))
    with pytest.raises(InvalidRequest, match="needs a threshold or an interval"):
        ask(lab, WhatIfRequest(topic=TOPIC, replays=[ReplaySetting()]))


def test_a_compacted_ledger_is_kept_while_a_forecast_reads_it(lab: BrokerLab) -> None:
    """A run that commits meanwhile leaves the old one's files to the end of the question."""
    lab.compact()
    old = lab.topic.record.compacted.ledger_id
    lab.publish(MESSAGES)
    topic = lab.topic

    async def compact_meanwhile() -> None:
        compactor = lab.compactor
        compactor.may_go.clear()
        compactor.has_begun.clear()
        asking = asyncio.create_task(Forecaster(lab.broker).answer([topic], REQUEST))
        await compactor.has_begun.wait()
        held = topic.log.views.current
        compactor.may_go.set()
        assert held.ledger_id == old
        assert held._pins == 1
        await asking
        assert held._pins == 0

    lab.run(compact_meanwhile())


def test_a_missing_file_of_an_existing_ledger_is_damage(lab: BrokerLab) -> None:
    """If the ledger was trimmed meanwhile, the caller gets a retriable error."""
    lab.compactor.failure = MissingFile("1/0.log", "a segment record")
    with pytest.raises(MissingFile):
        ask(lab)
    lab.compactor.failure = MissingFile("1/0.log", "a segment record")
    topic = lab.topic

    async def trim_meanwhile() -> None:
        compactor = lab.compactor
        compactor.may_go.clear()
        compactor.has_begun.clear()
        asking = asyncio.create_task(Forecaster(lab.broker).answer([topic], REQUEST))
        await compactor.has_begun.wait()
        first = topic.log.ledgers.ids[0]
        await topic.log.commit.seal()
        await topic.log.drop_ledgers(lambda: [first], hides_compacted=False)
        compactor.may_go.set()
        await asking

    with pytest.raises(Moved, match="trimmed"):
        lab.run(trim_meanwhile())
