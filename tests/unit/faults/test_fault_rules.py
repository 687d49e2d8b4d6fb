"""The rules of faults: their scope, their counts, what is refused, and delays."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgerfold.broker.client.administration.state_calls import fault_words
from ledgerfold.broker.faults.errors import error_of, names_for
from ledgerfold.broker.faults.faults import RULES_MAX, Faults
from ledgerfold.broker.faults.rules import Rule, Subject
from ledgerfold.storage import errors
from ledgerfold.storage.errors import (
    FaultNotFound,
    InvalidRequest,
    LimitExceeded,
    Moved,
    ProducerBusy,
)
from ledgerfold.v1.admin_pb2 import (
    COMPACTION_PHASE_TWO,
    COMPACTION_PHASE_UNSPECIFIED,
    FAULT_KIND_DELAY,
    FAULT_KIND_DISCONNECT,
    FAULT_KIND_DISK_FULL,
    FAULT_KIND_FAIL,
    FAULT_KIND_FAIL_COMPACTION,
    FAULT_KIND_LOSE_RECEIPT,
    FAULT_OPERATION_LOOKUP,
    FAULT_OPERATION_PUBLISH,
    FAULT_OPERATION_READ,
    FAULT_OPERATION_SUBSCRIBE,
    Fault,
    FaultOperation,
)
from tests.support.waiting import WAIT_S

TOPIC = "persistent://public/default/t"
SUBJECT = Subject(TOPIC, "p", "s", "c")
BUSY: dict[str, Any] = {
    "kind": FAULT_KIND_FAIL,
    "operation": FAULT_OPERATION_PUBLISH,
    "error": "ProducerBusy",
}


@given(
    messages=st.lists(st.integers(1, 7), max_size=40),
    every=st.integers(0, 9),
    limit=st.integers(0, 5),
)
def test_a_rule_applies_once_per_period_until_its_limit(
    messages: list[int], every: int, limit: int
) -> None:
    """An entry is hit if a multiple of the period is among its messages, but for two in a row."""
    rule, expected, seen, was_hit = Rule(Fault(every=every, next=limit)), 0, 0, False
    for count in messages:
        period = max(every, 1)
        hits = any(number % period == 0 for number in range(seen + 1, seen + count + 1))
        is_spent = bool(limit) and expected == limit
        was_hit = hits and not is_spent and not (was_hit and period > 1)
        assert rule.take(count) == was_hit
        if not is_spent:
            seen += count
            expected += was_hit
    assert rule.fault.hits == expected


def _hits(**fault: Any) -> list[bool]:
    rule = Rule(Fault(**fault))
    return [rule.take(messages=1 + number % 3) for number in range(1_000)]


def test_a_probability_hits_the_same_entries_for_a_seed() -> None:
    """Numbers that a release of Python would change would change the tests of users."""
    hits = _hits(probability=0.1)
    assert [number for number, hit in enumerate(hits) if hit][:4] == [35, 40, 52, 75]
    assert 70 < sum(hits) < 130
    assert hits == _hits(probability=0.1) != _hits(probability=0.1, seed=7)
    assert sum(_hits(probability=0.1, next=3)) == 3
    assert all(_hits(probability=1))


@pytest.mark.parametrize(
    ("scope", "applies"),
    [
        ({}, True),
        ({"topic": TOPIC}, True),
        ({"topic": f"{TOPIC}2"}, False),
        ({"namespace": "public/default"}, True),
        ({"namespace": "public/other"}, False),
        ({"producer": "p", "topic": TOPIC}, True),
        ({"producer": "q", "topic": TOPIC}, False),
        ({"subscription": "s"}, True),
        ({"subscription": "c"}, False),
        ({"consumer": "c"}, True),
        ({"consumer": "s"}, False),
    ],
)
def test_a_rule_applies_to_everything_its_names_match(scope: dict[str, Any], applies: bool) -> None:
    assert Rule(Fault(**scope)).applies_to(SUBJECT) is applies


def test_a_topic_includes_its_partitions() -> None:
    rule = Rule(Fault(topic=TOPIC))
    assert rule.applies_to(Subject(f"{TOPIC}-partition-3"))
    one = Rule(Fault(topic=f"{TOPIC}-partition-3"))
    assert not one.applies_to(Subject(f"{TOPIC}-partition-2"))


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({}, "needs a kind: fail, disconnect"),
        ({"kind": 77}, "needs a kind"),
        ({"kind": FAULT_KIND_FAIL}, "'fail' needs an operation: create-producer"),
        ({"kind": FAULT_KIND_DISCONNECT, "operation": FAULT_OPERATION_LOOKUP}, "publish, read"),
        ({**BUSY, "error": "Segfault"}, "cannot fail with 'Segfault'. Use BacklogQuota"),
        ({**BUSY, "error": "SubscriptionBusy"}, "publish cannot fail with"),
        ({**BUSY, "delay_ms": 3}, "'fail publish' has no delay_ms"),
        ({**BUSY, "consumer": "c"}, "has no consumer"),
        ({**BUSY, "next": -1}, "next is -1"),
        ({**BUSY, "every": 10**12}, "every is"),
        ({**BUSY, "probability": 1.1}, "probability is 1.1"),
        ({**BUSY, "probability": -0.1}, "probability is -0.1"),
        ({**BUSY, "probability": float("nan")}, "probability is nan"),
        ({**BUSY, "probability": 0.1, "every": 2}, "not both"),
        ({**BUSY, "seed": 2}, "a seed needs a probability"),
        ({**BUSY, "topic": "a/b"}, "a/b"),
        ({**BUSY, "topic": "non-persistent://public/default/t"}, "only its lookups"),
        ({**BUSY, "namespace": "a/b/c"}, "a/b/c"),
        ({**BUSY, "topic": TOPIC, "namespace": "a/b"}, "is not in the namespace a/b"),
        ({**BUSY, "producer": "x" * 5000}, "characters"),
        ({"kind": FAULT_KIND_DELAY, "operation": FAULT_OPERATION_READ}, "delay_ms is 0"),
        ({"kind": FAULT_KIND_FAIL_COMPACTION}, "needs a phase: one, two, commit"),
        ({"kind": FAULT_KIND_FAIL_COMPACTION, "phase": 1}, "needs a phase: one, two, commit"),
        ({"kind": FAULT_KIND_DISK_FULL, "topic": TOPIC}, "'disk-full' has no topic"),
        ({"kind": FAULT_KIND_DISK_FULL, "every": 2}, "'disk-full' has no every"),
        ({"kind": FAULT_KIND_DISK_FULL, "probability": 0.1}, "'disk-full' has no probability"),
        ({"kind": FAULT_KIND_LOSE_RECEIPT, "operation": FAULT_OPERATION_READ}, "publish"),
    ],
)
def test_an_invalid_rule_is_refused(wrong: dict[str, Any], why: str) -> None:
    faults = Faults()
    with pytest.raises(InvalidRequest, match=why):
        faults.add(Fault(**wrong))
    assert faults.listed() == []


def test_rules_are_bounded_and_their_ids_are_not_reused() -> None:
    faults = Faults()
    added = [faults.add(Fault(**BUSY, id=7, hits=7)) for _ in range(RULES_MAX)]
    assert [each.id for each in added] == list(range(1, RULES_MAX + 1))
    assert {each.hits for each in added} == {0}
    with pytest.raises(LimitExceeded, match="faults clear"):
        faults.add(Fault(**BUSY))
    assert faults.remove(5).id == 5
    with pytest.raises(FaultNotFound):
        faults.remove(5)
    assert faults.add(Fault(**BUSY)).id == RULES_MAX + 1
    assert faults.clear() == RULES_MAX
    assert faults.add(Fault(**BUSY)).id == RULES_MAX + 2


def test_every_error_can_be_raised_for_its_operations() -> None:
    for operation in FaultOperation.values():
        for name in names_for(operation):
            error = error_of(name, 3, SUBJECT)
            assert type(error) is getattr(errors, name)
            assert TOPIC in str(error)


def test_all_rules_count_their_operations_and_errors_have_priority() -> None:
    faults = Faults()
    faults.add(Fault(kind=FAULT_KIND_DISCONNECT, operation=FAULT_OPERATION_PUBLISH))
    faults.add(Fault(kind=FAULT_KIND_LOSE_RECEIPT))
    faults.add(Fault(**BUSY, next=1))
    effect = faults.effect(FAULT_OPERATION_PUBLISH, SUBJECT)
    assert effect is not None
    assert isinstance(effect.error, ProducerBusy)
    assert isinstance(effect.disconnection, Moved)
    assert effect.loss is not None
    effect = faults.effect(FAULT_OPERATION_PUBLISH, SUBJECT)
    assert effect is not None
    assert effect.error is None
    assert [each.hits for each in faults.listed()] == [2, 2, 1]
    assert faults.effect(FAULT_OPERATION_READ, SUBJECT) is None


def test_a_compaction_fails_in_the_phase_of_the_first_matching_rule() -> None:
    faults = Faults()
    phase = COMPACTION_PHASE_TWO
    faults.add(Fault(kind=FAULT_KIND_FAIL_COMPACTION, phase=phase, topic=TOPIC, every=2))
    found = [faults.failing_phase(TOPIC) for _ in range(4)]
    assert found == [COMPACTION_PHASE_UNSPECIFIED, phase] * 2
    assert faults.failing_phase(f"{TOPIC}2") == COMPACTION_PHASE_UNSPECIFIED


def test_rules_as_text() -> None:
    assert fault_words(Faults().add(Fault(**BUSY))) == ("fail", "publish", "")
    full = Faults().add(Fault(kind=FAULT_KIND_DISK_FULL))
    assert fault_words(full) == ("disk-full", "", "")


# Delays


def delay(delay_ms: int) -> Fault:
    return Fault(
        kind=FAULT_KIND_DELAY, operation=FAULT_OPERATION_SUBSCRIBE, delay_ms=delay_ms, next=1
    )


def test_a_rule_delays_an_operation() -> None:
    async def scenario() -> None:
        faults, loop = Faults(), asyncio.get_running_loop()
        faults.add(delay(30))
        began_s = loop.time()
        await faults.apply_rules(FAULT_OPERATION_SUBSCRIBE, SUBJECT)
        assert loop.time() - began_s >= 0.03
        await asyncio.wait_for(faults.apply_rules(FAULT_OPERATION_SUBSCRIBE, SUBJECT), WAIT_S)

    asyncio.run(scenario())


def test_removing_a_rule_ends_its_delays() -> None:
    """Not when another one is; and the longest of several counts."""

    async def scenario() -> None:
        faults = Faults()
        long, longer, other = (faults.add(delay(ms)) for ms in (3_000_000, 3_600_000, 3_600_000))
        other = faults.add(Fault(**BUSY))
        waiting = asyncio.ensure_future(faults.apply_rules(FAULT_OPERATION_SUBSCRIBE, SUBJECT))
        await asyncio.sleep(0)
        faults.remove(longer.id)
        faults.remove(other.id)
        for _ in range(10):
            await asyncio.sleep(0)
        assert not waiting.done()
        faults.remove(long.id)
        faults.clear()
        await asyncio.wait_for(waiting, WAIT_S)

    asyncio.run(scenario())


def test_an_interruption_ends_a_delay() -> None:
    async def scenario() -> None:
        faults, ending = Faults(), asyncio.Event()
        faults.add(delay(3_600_000))
        effect = faults.effect(FAULT_OPERATION_SUBSCRIBE, SUBJECT)
        assert effect is not None
        waiting = asyncio.ensure_future(faults.delay(effect.delays, interrupted=ending))
        await asyncio.sleep(0)
        ending.set()
        await asyncio.wait_for(waiting, WAIT_S)

    asyncio.run(scenario())
