"""Tests that a user-defined strategy is stored only after the compactor's consent, without delaying
others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from ledgerfold.broker.topics.policy_store import PolicyStore
from ledgerfold.storage.errors import CompactorUnavailable, InvalidRequest, InvalidStrategy
from ledgerfold.v1.records_pb2 import CompactionStrategy, Policies
from tests.model.broker_lab import TOPIC, BrokerLab

NAMESPACE = "public/default"
PARTITIONED = "persistent://public/default/divided"
OWN = Policies(compaction_strategy=CompactionStrategy(name="mine:Own", settings={"n": "3"}))
TTL = Policies(message_ttl_ms=1_000)


class Answers:
    """A stand-in for the compactor's check: waits, then returns its configured answer."""

    def __init__(self, error: Exception | None = None) -> None:
        self.asked = asyncio.Event()
        self.may_answer = asyncio.Event()
        self._error = error

    async def __call__(self, strategy: CompactionStrategy) -> None:
        assert strategy == OWN.compaction_strategy
        self.asked.set()
        await self.may_answer.wait()
        if self._error is not None:
            raise self._error


@pytest.fixture
def lab() -> Iterator[BrokerLab]:
    lab = BrokerLab()
    lab.run(lab.broker.topic(TOPIC))
    lab.run(lab.broker.create_partitioned_topic(PARTITIONED, 2))
    yield lab
    lab.stop()


def test_other_policies_can_be_set_during_a_check(
    lab: BrokerLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tests policies of the same topic, of its namespace, and of all levels with checks in
    progress.
    """
    policies = PolicyStore(lab.broker)

    async def main() -> None:
        answers = Answers()
        monkeypatch.setattr(lab.compactor, "check_strategy", answers)
        topic = await lab.broker.topic(TOPIC)
        setting = [
            asyncio.create_task(policies.update_topic(topic, OWN, [])),
            asyncio.create_task(policies.update_partitioned_topic(PARTITIONED, OWN, [])),
            asyncio.create_task(policies.update_namespace(NAMESPACE, OWN, [])),
        ]
        await answers.asked.wait()
        await policies.update_topic(topic, TTL, [])
        await policies.update_partitioned_topic(PARTITIONED, TTL, [])
        await policies.update_namespace(NAMESPACE, TTL, [])

        def levels() -> list[Policies]:
            return [
                policies.of_topic(TOPIC, applied=False),
                policies.of_topic(PARTITIONED, applied=False),
                policies.of_namespace(NAMESPACE, applied=False),
            ]

        assert levels() == [TTL] * 3
        answers.may_answer.set()
        await asyncio.gather(*setting)
        both = Policies(message_ttl_ms=1_000, compaction_strategy=OWN.compaction_strategy)
        assert levels() == [both] * 3

    lab.run(main())


@pytest.mark.parametrize(
    "error", [InvalidStrategy("mine:Own", "it raises"), CompactorUnavailable("There is none.")]
)
def test_rejected_settings_are_not_set(
    lab: BrokerLab, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """On no level."""
    policies = PolicyStore(lab.broker)

    async def main() -> None:
        answers = Answers(error)
        answers.may_answer.set()
        monkeypatch.setattr(lab.compactor, "check_strategy", answers)
        with pytest.raises(type(error)):
            await policies.update_topic(await lab.broker.topic(TOPIC), OWN, [])
        with pytest.raises(type(error)):
            await policies.update_partitioned_topic(PARTITIONED, OWN, [])
        with pytest.raises(type(error)):
            await policies.update_namespace(NAMESPACE, OWN, [])
        assert policies.of_topic(TOPIC, applied=False) == Policies()
        assert policies.of_topic(PARTITIONED, applied=False) == Policies()
        assert policies.of_namespace(NAMESPACE, applied=False) == Policies()

    lab.run(main())


def test_invalid_names_are_refused_without_asking_the_compactor(
    lab: BrokerLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor about one of Ledgerfold's strategies."""
    policies = PolicyStore(lab.broker)

    async def main() -> None:
        answers = Answers()
        monkeypatch.setattr(lab.compactor, "check_strategy", answers)
        wrong = Policies(compaction_strategy=OWN.compaction_strategy, message_ttl_ms=-1)
        with pytest.raises(InvalidRequest, match="message_ttl_ms is -1"):
            await policies.update_namespace(NAMESPACE, wrong, [])
        listed = Policies(compaction_strategy=CompactionStrategy(name="EVENT_TIME"))
        await policies.update_namespace(NAMESPACE, listed, [])
        assert not answers.asked.is_set()
        found = policies.of_namespace(NAMESPACE, applied=False)
        assert found.compaction_strategy.name == "event-time"

    lab.run(main())
