"""A reader's subscription name is exclusive, as for Pulsar's table views."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from ledgerfold.broker.stats.topic import internal_stats, topic_stats
from ledgerfold.broker.subscriptions.lifecycle import create_subscription
from ledgerfold.broker.topics.reader import Reader, ReaderOptions
from ledgerfold.storage.errors import NotAllowed, SubscriptionBusy
from ledgerfold.v1.data_pb2 import StartPosition
from tests.model.broker_lab import BrokerLab
from tests.model.log_model import Message

EARLIEST = StartPosition(earliest=True)
VIEW = ReaderOptions(read_compacted=True, subscription="view")


@pytest.fixture
def lab() -> Iterator[BrokerLab]:
    lab = BrokerLab()
    yield lab
    lab.stop()


def opened(lab: BrokerLab, options: ReaderOptions = VIEW) -> Reader:
    return lab.run(lab.topic.open_reader(EARLIEST, options))


def test_a_second_reader_waits_until_the_first_closed(lab: BrokerLab) -> None:
    """Generated names are unique."""
    reader = opened(lab)
    for _ in range(2):
        opened(lab, ReaderOptions()).detach()
    with pytest.raises(SubscriptionBusy, match="another reader or table view"):
        opened(lab)
    stats = lab.broker.compaction.stats(lab.topic)
    assert "view" in topic_stats(lab.topic, stats)["subscriptions"]
    assert "view" in internal_stats(lab.broker, lab.topic)["cursors"]
    reader.detach()
    opened(lab).detach()


def test_two_readers_open_at_once(lab: BrokerLab) -> None:
    """One of them has it: the other looks again when its place was searched, and leaves nothing."""
    topic, since = lab.topic, StartPosition(publish_time_ms=1)
    lab.publish([([Message(b"k", b"v")], False)])

    async def both() -> list[Reader | BaseException]:
        calls = (topic.open_reader(since, VIEW) for _ in range(2))
        return await asyncio.gather(*calls, return_exceptions=True)

    found = lab.run(both())
    assert sum(isinstance(each, Reader) for each in found) == 1
    assert sum(isinstance(each, SubscriptionBusy) for each in found) == 1
    assert lab.broker.outgoing.shares == {each.share for each in found if isinstance(each, Reader)}


@pytest.mark.parametrize("durable", [True, False])
def test_a_reader_cannot_use_a_subscriptions_name(lab: BrokerLab, durable: bool) -> None:
    """A second one is rejected; as in Pulsar, so is a durable one."""
    reader = opened(lab)
    with pytest.raises(SubscriptionBusy, match="a reader or table view uses it"):
        lab.run(create_subscription(lab.topic, "view", EARLIEST, durable=durable))
    assert "view" not in lab.topic.subscriptions
    reader.detach()
    lab.run(create_subscription(lab.topic, "view", EARLIEST, durable=durable))
    with pytest.raises(NotAllowed if durable else SubscriptionBusy):
        opened(lab)


def test_a_reader_cannot_use_the_compaction_cursors_name(lab: BrokerLab) -> None:
    """Tests topics with and without one."""
    with pytest.raises(NotAllowed, match="__compaction"):
        opened(lab, ReaderOptions(subscription="__compaction"))
