"""Backlog quotas: by size and by age, refused producers, evicted messages."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from ledgerfold.broker.subscriptions.lifecycle import create_subscription
from ledgerfold.broker.subscriptions.subscription import Subscription
from ledgerfold.storage.errors import BacklogQuotaExceeded, InvalidRequest, ProducerBlocked
from ledgerfold.v1.data_pb2 import StartPosition
from ledgerfold.v1.records_pb2 import (
    BACKLOG_POLICY_CONSUMER_BACKLOG_EVICTION,
    BACKLOG_POLICY_PRODUCER_EXCEPTION,
    BACKLOG_POLICY_PRODUCER_REQUEST_HOLD,
    BacklogPolicy,
    BacklogQuota,
    Policies,
)
from tests.model.broker_lab import TOPIC, BrokerLab
from tests.model.log_model import Message

HOLD, FAIL = BACKLOG_POLICY_PRODUCER_REQUEST_HOLD, BACKLOG_POLICY_PRODUCER_EXCEPTION
EVICT = BACKLOG_POLICY_CONSUMER_BACKLOG_EVICTION


@pytest.fixture
def lab() -> Iterator[BrokerLab]:
    lab = BrokerLab()
    yield lab
    lab.stop()
    lab.loop.close()


def publish(lab: BrokerLab, count: int) -> None:
    lab.publish([([Message(b"%d" % n, b"v" * 100)], False) for n in range(count)])


def subscription(lab: BrokerLab, name: str = "s") -> Subscription:
    start = StartPosition(earliest=True)
    return lab.run(create_subscription(lab.topic, name, start))


def set_policies(lab: BrokerLab, namespace: str = "", **values: Any) -> None:
    policies = lab.broker.policies
    if namespace:
        lab.run(policies.update_namespace(namespace, Policies(**values), ()))
    else:
        lab.run(policies.update_topic(lab.topic, Policies(**values), ()))


def backlog_bytes(lab: BrokerLab, each: Subscription) -> int:
    return lab.topic.log.ledgers.estimated_bytes_after(each.mark_delete)


@pytest.mark.parametrize(
    ("policy", "error"), [(HOLD, ProducerBlocked), (FAIL, BacklogQuotaExceeded)]
)
def test_producers_are_refused_above_the_quota(
    lab: BrokerLab, policy: BacklogPolicy, error: type[BacklogQuotaExceeded]
) -> None:
    """One that connects at once, others at the next check; until there is room."""
    slow = subscription(lab)
    publish(lab, 10)
    connected = lab.run(lab.topic.attach_producer("connected"))
    set_policies(lab, backlog_size_quota=BacklogQuota(limit_bytes=500, policy=policy))
    with pytest.raises(error, match="exceeds its quota") as refused:
        lab.run(lab.topic.attach_producer("new"))
    assert type(refused.value) is error
    assert refused.value.retryable == (policy == HOLD)
    lab.advance(60_000)
    with pytest.raises(error):
        connected.check()
    slow.pass_over(lab.topic.log.positions.last())
    lab.run(lab.topic.attach_producer("new"))


def test_the_oldest_messages_are_evicted(lab: BrokerLab) -> None:
    """Until nine tenths of the limit are left; subscriptions that are further on keep theirs."""
    publish(lab, 30)
    slow, quick = subscription(lab, "slow"), subscription(lab, "quick")
    quick.pass_over(lab.topic.log.positions.last())
    publish(lab, 5)
    size_bytes = backlog_bytes(lab, slow)
    limit = size_bytes // 2
    set_policies(
        lab, "public/default", backlog_size_quota=BacklogQuota(limit_bytes=limit, policy=EVICT)
    )
    lab.run(lab.topic.attach_producer("new")).detach()
    lab.advance(60_000)
    assert 0.7 * limit < backlog_bytes(lab, slow) <= 0.9 * limit
    assert quick.backlog_entries() == 5
    lab.crash()
    assert lab.topic.subscriptions["slow"].backlog_entries() < 18


def test_quotas_are_checked_at_their_interval(lab: BrokerLab) -> None:
    """Sooner than retention, as in Pulsar: a client waits for the next check."""
    interval_ms = lab.broker.settings.quota_check_interval_ms
    assert interval_ms < lab.broker.settings.retention_check_interval_ms
    slow = subscription(lab)
    publish(lab, 1)
    set_policies(lab, backlog_size_quota=BacklogQuota(limit_bytes=0, policy=EVICT))
    lab.run(lab.clock.move_to(lab.clock.now_ms() + interval_ms // 2))
    assert slow.backlog_entries() == 1
    lab.run(lab.clock.move_to(lab.clock.now_ms() + interval_ms // 2))
    assert slow.backlog_entries() == 0


def test_two_checks_at_once_evict_as_much_as_one(lab: BrokerLab) -> None:
    publish(lab, 30)
    slow = subscription(lab)
    limit = backlog_bytes(lab, slow) // 2
    set_policies(lab, backlog_size_quota=BacklogQuota(limit_bytes=limit, policy=EVICT))
    housekeeping = lab.broker.housekeeping

    async def check_twice() -> None:
        await asyncio.gather(housekeeping.check_quotas(), housekeeping.check_quotas())

    lab.run(check_twice())
    assert 0.7 * limit < backlog_bytes(lab, slow) <= 0.9 * limit


def test_a_quota_by_age(lab: BrokerLab) -> None:
    subscription(lab)
    publish(lab, 3)
    set_policies(lab, backlog_age_quota=BacklogQuota(limit_ms=60_000, policy=FAIL))
    lab.run(lab.topic.attach_producer("young")).detach()
    lab.advance(70_000)
    with pytest.raises(BacklogQuotaExceeded):
        lab.run(lab.topic.attach_producer("old"))
    set_policies(lab, backlog_age_quota=BacklogQuota(limit_ms=60_000, policy=EVICT))
    publish(lab, 2)
    lab.advance(0)
    assert lab.topic.subscriptions["s"].backlog_entries() == 2


def test_readers_and_compaction_do_not_count_as_backlog(lab: BrokerLab) -> None:
    publish(lab, 10)
    lab.compact()
    quota = BacklogQuota(limit_bytes=1, policy=FAIL)
    set_policies(lab, backlog_size_quota=quota)
    lab.run(lab.topic.attach_producer("p")).detach()
    policies = lab.broker.policies
    lab.run(policies.update_topic(lab.topic, Policies(), ["backlog_size_quota"]))
    assert not lab.topic.policies().HasField("backlog_size_quota")


@pytest.mark.parametrize(
    "policies",
    [
        Policies(backlog_size_quota=BacklogQuota(limit_bytes=-2)),
        Policies(backlog_age_quota=BacklogQuota(limit_ms=-2)),
        Policies(
            backlog_size_quota=BacklogQuota(limit_bytes=10), retention_bytes=10, retention_ms=-1
        ),
        Policies(backlog_age_quota=BacklogQuota(limit_ms=10), retention_bytes=-1, retention_ms=10),
    ],
)
def test_invalid_quotas_are_refused(lab: BrokerLab, policies: Policies) -> None:
    publish(lab, 1)
    with pytest.raises(InvalidRequest):
        lab.run(lab.broker.policies.update_topic(lab.topic, policies, ()))
    assert lab.topic.name == TOPIC


def test_delayed_delivery_can_be_turned_off(lab: BrokerLab) -> None:
    assert lab.topic.delays_delivery()
    for namespace, topic, expected in ((False, None, False), (False, True, True)):
        lab.run(
            lab.broker.policies.update_namespace(
                "public/default", Policies(delayed_delivery=namespace), ()
            )
        )
        if topic is not None:
            changes = Policies(delayed_delivery=topic)
            lab.run(lab.broker.policies.update_topic(lab.topic, changes, ()))
        assert lab.topic.delays_delivery() == expected
