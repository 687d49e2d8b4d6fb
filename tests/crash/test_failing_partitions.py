"""Creating, growing and deleting a partitioned topic on a disk that fails or loses data at each
call.

In each case the topic has all its partitions, the old or the requested number; or it is deleted
with all of them. No unreferenced ledger remains; a repetition succeeds.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

import pytest

from ledgerfold.broker.topics.broker import Broker
from ledgerfold.storage.errors import LedgerfoldError
from tests.model.broker_lab import DATA, BrokerLab
from tests.model.log_model import Message
from tests.support.lossy_files import TAILS, Tail

P = "persistent://public/default/p"
Work = Callable[[Broker], Coroutine[Any, Any, None]]


async def create(broker: Broker) -> None:
    await broker.create_partitioned_topic(P, 3)


async def grow(broker: Broker) -> None:
    await broker.grow_partitioned_topic(P, 3)


async def delete(broker: Broker) -> None:
    await broker.delete_partitioned_topic(P, force=False)


# The numbers of partitions before and after.
EXPECTED: dict[Work, tuple[int, int]] = {create: (0, 3), grow: (2, 3), delete: (2, 0)}


def prepared(work: Work) -> BrokerLab:
    """Except for `create`: two partitions, one of which has data and a ledger."""
    lab = BrokerLab()
    if work is not create:
        lab.run(lab.broker.create_partitioned_topic(P, 2))
        lab.publish([([Message(b"a", b"1")], False)], topic=f"{P}-partition-1")
        lab.settle()
    return lab


def check(lab: BrokerLab, work: Work) -> None:
    """Checks for all or nothing, in the metadata and in the files; then `work` succeeds."""
    wanted = EXPECTED[work]
    partitions = lab.broker.partitions
    count = partitions.count(P)
    assert count in wanted
    there = [record.name for record in lab.metadata.topics()]
    assert there == (partitions.names(P) if count else [])
    named = {str(each) for record in lab.metadata.topics() for each in record.ledger_ids}
    ledgers = DATA / "ledgers"
    folders = lab.files.listdir(ledgers) if lab.files.exists(ledgers) else []
    assert {each for each in folders if lab.files.listdir(ledgers / each)} <= named
    if count != wanted[1]:
        lab.run(work(lab.broker))
        assert partitions.count(P) == wanted[1]
    lab.stop()


def calls_of(work: Work) -> int:
    lab = prepared(work)
    before = len(lab.files.calls)
    lab.run(work(lab.broker))
    calls = len(lab.files.calls) - before
    check(lab, work)
    return calls


CALLS = [
    pytest.param(work, number, id=f"{work.__name__}-{number}")
    for work in EXPECTED
    for number in range(1, calls_of(work) + 1)
]


def test_creating_and_growing_take_one_write_each() -> None:
    assert [calls_of(work) for work in (create, grow)] == [1, 1]


@pytest.mark.parametrize(("work", "number"), CALLS)
def test_the_nth_call_fails(work: Work, number: int) -> None:
    lab = prepared(work)
    lab.files.fail_at(number)
    with suppress(LedgerfoldError):
        lab.run(work(lab.broker))
    lab.restart()
    check(lab, work)


@pytest.mark.parametrize("tail", TAILS)
@pytest.mark.parametrize(("work", "number"), CALLS)
def test_the_power_fails_after_the_nth_call(work: Work, number: int, tail: Tail) -> None:
    lab = prepared(work)
    lab.files.crash_at(number)
    lab.run_until_crash(work(lab.broker))
    lab.crash(tail)
    check(lab, work)
