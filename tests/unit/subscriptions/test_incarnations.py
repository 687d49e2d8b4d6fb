"""The incarnation of a subscription: no later one of the same name has it again.

Clients keep acknowledgements until they are durable, and send them again to a subscription of the
same incarnation only. No test saw that a subscription could get an earlier one's: every clock of
the tests moved by a millisecond at each look, and a manual clock stands. No test of a restore had
a client with acknowledgements in flight: the saved incarnation came back, and they were applied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from ledgerfold.broker.common.clock import ManualClock
from ledgerfold.broker.subscriptions.lifecycle import (
    create_subscription,
    delete_subscription,
    seek_subscription,
)
from ledgerfold.broker.topics.snapshots import BrokerSnapshots
from ledgerfold.v1.data_pb2 import StartPosition
from tests.model.broker_lab import TOPIC, BrokerLab, TickingClock

EARLIEST = StartPosition(earliest=True)


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch) -> Iterator[BrokerLab]:
    """A broker whose clock stands."""
    monkeypatch.setattr(TickingClock, "now_ms", ManualClock.now_ms)
    lab = BrokerLab()
    yield lab
    lab.stop()


def created(lab: BrokerLab, *, durable: bool = True) -> int:
    work = create_subscription(lab.topic, "s", EARLIEST, durable=durable, created_ms=1_000_000)
    return lab.run(work).incarnation


def unsubscribe(lab: BrokerLab) -> None:
    lab.run(delete_subscription(lab.topic, "s", force=True))


def delete_topic(lab: BrokerLab) -> None:
    lab.run(lab.broker.delete_topic(TOPIC, True))


@pytest.mark.parametrize("end", [unsubscribe, delete_topic])
@pytest.mark.parametrize("durable", [True, False])
@pytest.mark.parametrize("restarts", [True, False])
def test_no_incarnation_is_used_again(
    lab: BrokerLab, end: Callable[[BrokerLab], None], durable: bool, restarts: bool
) -> None:
    """After seeks, deletions, and restarts, while the clock stands."""
    seen = list[int]()
    for _ in range(3):
        seen.append(created(lab, durable=durable))
        for _ in range(2):
            seen.append(lab.run(seek_subscription(lab.topic, "s", EARLIEST)).incarnation)
        end(lab)
        if restarts and durable:
            lab.stop()
            lab.open()
    assert seen == sorted(set(seen))


def test_new_partitions_have_new_incarnations(lab: BrokerLab) -> None:
    lab.run(lab.broker.create_partitioned_topic("persistent://public/default/p", 1))
    name = "persistent://public/default/p"
    first = lab.run(lab.broker.topic(f"{name}-partition-0"))
    lab.run(create_subscription(first, "s", EARLIEST))
    seen = set[int]()
    for partitions in (2, 3):
        lab.run(lab.broker.grow_partitioned_topic(name, partitions))
        topic = lab.run(lab.broker.topic(f"{name}-partition-{partitions - 1}"))
        seen.add(topic.subscriptions["s"].incarnation)
        seen.add(lab.run(seek_subscription(topic, "s", EARLIEST)).incarnation)
    assert len(seen) == 4


@pytest.mark.parametrize("restarts", [True, False])
def test_a_restore_gives_new_incarnations(lab: BrokerLab, restarts: bool) -> None:
    """None returns that was used since the save, or since an earlier restore."""
    seen = [created(lab)]
    lab.run(BrokerSnapshots(lab.broker).save("s"))
    for _ in range(3):
        lab.run(BrokerSnapshots(lab.broker).restore("s"))
        if restarts:
            lab.stop()
            lab.open()
        seen.append(lab.topic.subscriptions["s"].incarnation)
        seen.append(lab.run(seek_subscription(lab.topic, "s", EARLIEST)).incarnation)
    assert len(set(seen)) == len(seen)
