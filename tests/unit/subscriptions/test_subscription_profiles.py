"""Tests the effect of a profile on read-compacted consumers (docs/PROFILES.md, rules 8.10, 8.11,
9.2).
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from ledgerfold.broker.policies.profiles import PROFILES, PULSAR_4, Emulation
from ledgerfold.broker.subscriptions.lifecycle import seek_subscription
from ledgerfold.v1.data_pb2 import StartPosition
from tests.support.subscription_lab import (
    COMPACTED,
    MemoryTopic,
    acknowledge,
    backlog,
    quiet,
    receive,
    run,
    subscribed,
    text,
)

NO_PASSING = replace(Emulation(), acks_pass_compacted_out=False)


@pytest.mark.parametrize(("profile", "expected"), [("documented", "a= b=2"), (PULSAR_4, "b=2")])
def test_rte_17_a_run_overtakes_a_consumer(profile: str, expected: str) -> None:
    """It continues in the raw ledgers and gets the deletion, or misses it."""

    async def test(topic: MemoryTopic) -> None:
        topic.profile = PROFILES[profile]
        topic.log.publish("a=1", "b=1")
        consumer = await subscribed(topic, COMPACTED, permits=2)
        assert text(await receive(consumer, 2)) == "a=1 b=1"
        _, last = topic.log.publish("a=", "b=2")
        topic.log.compact(last)
        held = topic.subscriptions["s"].held_position
        assert held == (topic.log.raw[2].header.position if profile == "documented" else None)
        topic.subscriptions["s"].add_permits(consumer, 10)
        assert text(await receive(consumer, len(expected.split()))) == expected
        await quiet(topic, consumer)
        assert topic.subscriptions["s"].held_position is None

    run(test)


@pytest.mark.parametrize(("profile", "expected"), [("documented", "b=1 c=1 b="), (PULSAR_4, "c=1")])
def test_a_run_overtakes_a_consumer_within_compacted_entries(profile: str, expected: str) -> None:
    """It continues in its first compacted ledger, then after that ledger's horizon."""

    async def test(topic: MemoryTopic) -> None:
        topic.profile = PROFILES[profile]
        _, _, c = topic.log.publish("a=1", "b=1", "c=1")
        topic.log.compact(*[each.header.position for each in topic.log.raw])
        consumer = await subscribed(topic, COMPACTED, permits=1)
        assert text(await receive(consumer, 1)) == "a=1"
        topic.log.publish("b=")
        topic.log.compact(c)
        topic.subscriptions["s"].add_permits(consumer, 10)
        assert text(await receive(consumer, len(expected.split()))) == expected
        await quiet(topic, consumer)

    run(test)


def test_a_run_overtakes_a_consumer_at_the_end_of_compacted_entries() -> None:
    """It has read nothing raw so far, and still gets the deletion."""

    async def test(topic: MemoryTopic) -> None:
        topic.log.publish("a=1")
        topic.log.compact(*[each.header.position for each in topic.log.raw])
        consumer = await subscribed(topic, COMPACTED, permits=1)
        assert text(await receive(consumer, 1)) == "a=1"
        topic.log.publish("a=")
        topic.log.compact()
        topic.subscriptions["s"].add_permits(consumer, 10)
        assert text(await receive(consumer, 1)) == "a="

    run(test)


def test_a_lagging_consumer_without_its_raw_ledger_reads_the_compacted_one() -> None:
    """Truncation and deletion do not ask; nothing that is left is skipped."""

    async def test(topic: MemoryTopic) -> None:
        topic.log.publish("a=1")
        consumer = await subscribed(topic, COMPACTED, permits=1)
        assert text(await receive(consumer, 1)) == "a=1"
        (last,) = topic.log.publish("b=1")
        topic.log.compact(last)
        topic.log.roll()
        topic.log.trim(ledgers_before=1)
        topic.subscriptions["s"].add_permits(consumer, 10)
        assert text(await receive(consumer, 1)) == "b=1"

    run(test)


def test_superseded_entries_stay_in_the_backlog_of_single_acknowledgements() -> None:
    """As in Pulsar 4.0.7, entries that compaction removed are never acknowledged
    (apache/pulsar#23245).
    """

    async def test(topic: MemoryTopic) -> None:
        topic.profile = NO_PASSING
        ids = topic.log.publish("a=1", "a=2", "b=1", "b=")
        topic.log.compact(ids[1])
        consumer = await subscribed(topic, COMPACTED)
        await acknowledge(topic, consumer, await receive(consumer, 1))
        assert backlog(topic) == 3

    run(test)


@pytest.mark.parametrize(
    ("passing", "expected"), [(True, "a=1 c=1 e=1"), (False, "a=1 b=1 c=1 e=1")]
)
def test_single_acknowledgements_after_a_reconnect(passing: bool, expected: str) -> None:
    """Pulsar 4.0.7 does not look at acknowledgements in compacted ledgers (apache/pulsar#23494)."""

    async def test(topic: MemoryTopic) -> None:
        topic.profile = replace(Emulation(), acks_pass_compacted_out=passing)
        topic.log.compact(*topic.log.publish("a=1", "b=1", "c=1"))
        topic.log.publish("d=1", "e=1")
        consumer = await subscribed(topic, COMPACTED)
        received = await receive(consumer, 5)
        await acknowledge(topic, consumer, [received[1], received[3]])
        topic.subscriptions["s"].detach(consumer)
        again = await subscribed(topic, COMPACTED)
        assert text(await receive(again, len(expected.split()))) == expected
        await quiet(topic, again)

    run(test)


def test_gaps_in_the_raw_ledgers_count_as_acknowledged_in_every_profile() -> None:
    """Positions without an entry need no acknowledgement: the end of a ledger, for example."""

    async def test(topic: MemoryTopic) -> None:
        topic.profile = NO_PASSING
        topic.log.publish("a=1")
        topic.log.roll()
        topic.log.publish("b=1")
        consumer = await subscribed(topic, COMPACTED)
        await acknowledge(topic, consumer, await receive(consumer, 2))
        assert backlog(topic) == 0
        assert topic.subscriptions["s"].mark_delete == topic.log.positions.last()

    run(test)


@pytest.mark.parametrize(("exact", "expected"), [(True, "b=1"), (False, "a=1 b=1")])
def test_rte_21_a_seek_by_time_to_the_first_entry_of_a_ledger(exact: bool, expected: str) -> None:
    """Pulsar 4 puts the mark-delete before the ledger, and the first-read rule does the rest."""

    async def test(topic: MemoryTopic) -> None:
        topic.profile = replace(Emulation(), seek_by_time_reads_view=exact)
        topic.log.publish("a=1")
        topic.log.compact(*[each.header.position for each in topic.log.raw])
        topic.log.roll()
        topic.log.now_ms = 9
        topic.log.publish("b=1")
        await subscribed(topic, COMPACTED)
        await seek_subscription(topic, "s", StartPosition(publish_time_ms=5))
        consumer = await subscribed(topic, COMPACTED)
        assert text(await receive(consumer, len(expected.split()))) == expected

    run(test)
