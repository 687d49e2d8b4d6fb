"""Single entries by place and by id: what is found, what is refused, and that nothing moves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ledgerfold.broker.subscriptions.lifecycle import create_subscription
from ledgerfold.broker.subscriptions.subscription import Subscription
from ledgerfold.broker.topics import single_entries
from ledgerfold.broker.topics.single_entries import entry_by_id, examined_entry, peeked_entries
from ledgerfold.storage.entry import Position
from ledgerfold.storage.errors import (
    InvalidRequest,
    MessageNotFound,
    NotAllowed,
    SubscriptionNotFound,
    TopicNotFound,
)
from ledgerfold.v1.data_pb2 import StartPosition
from tests.model.broker_lab import TOPIC, BrokerLab
from tests.model.log_model import Message

KAFKA = "persistent://public/default/kafka"
PARTS = "persistent://public/default/parts"
DROPPED = "non-persistent://public/default/t"


@pytest.fixture
def lab() -> Iterator[BrokerLab]:
    lab = BrokerLab()
    yield lab
    lab.stop()


def publish(lab: BrokerLab, count: int) -> list[Position]:
    """Publishes single messages, six in each ledger."""
    return lab.publish([([Message(b"k%d" % at, b"v")], False) for at in range(count)])


def subscribe(lab: BrokerLab) -> Subscription:
    start = StartPosition(earliest=True)
    return lab.run(create_subscription(lab.topic, "s", start))


def peeked(lab: BrokerLab, nth: int = 1, messages: int = 100, name: str = "s") -> list[Position]:
    found = lab.run(peeked_entries(lab.broker, TOPIC, name, nth, messages))
    return [each.header.position for each in found]


def examined(lab: BrokerLab, nth: int, *, from_earliest: bool) -> Position:
    found = lab.run(examined_entry(lab.broker, TOPIC, nth, from_earliest=from_earliest))
    return found.header.position


def by_id(lab: BrokerLab, at: Position, topic: str = TOPIC) -> Position:
    return lab.run(entry_by_id(lab.broker, topic, at)).header.position


def test_a_backlog_is_peeked_over_ledgers_and_does_not_move(lab: BrokerLab) -> None:
    subscription, sent = subscribe(lab), publish(lab, 15)
    assert peeked(lab) == sent
    assert peeked(lab, 14) == sent[13:]
    assert peeked(lab, 7, messages=2) == sent[6:8]
    assert peeked(lab, 16) == []
    assert subscription.backlog_entries() == 15


def test_acknowledged_entries_are_passed_over(lab: BrokerLab) -> None:
    subscription, sent = subscribe(lab), publish(lab, 15)
    for at in (0, 2, 5, 6, 7, 13):
        subscription.cursor.acknowledge(sent[at])
    left = [sent[at] for at in (1, 3, 4, 8, 9, 10, 11, 12, 14)]
    assert peeked(lab) == left
    assert [peeked(lab, nth, messages=1) for nth in range(1, 10)] == [[each] for each in left]
    assert peeked(lab, 10) == []


def test_a_number_of_messages_ends_within_a_batch(lab: BrokerLab) -> None:
    """Whole entries are returned."""
    subscribe(lab)
    batch = [Message(b"a", b"1"), Message(b"b", b"2"), Message(b"c", b"3")]
    sent = lab.publish([(batch[:1], False), (batch, True), (batch, True)])
    assert peeked(lab, messages=1) == sent[:1]
    assert peeked(lab, messages=2) == sent[:2]
    assert peeked(lab, messages=4) == sent[:2]
    assert peeked(lab, messages=5) == sent


def test_what_is_peeked_at_once_is_bounded(lab: BrokerLab, monkeypatch: pytest.MonkeyPatch) -> None:
    """At least one entry is returned, and the next peek continues after it."""
    subscribe(lab)
    sent = publish(lab, 15)
    monkeypatch.setattr(single_entries, "PEEK_BYTES_MAX", 1)
    assert peeked(lab) == sent[:1]
    monkeypatch.setattr(single_entries, "PEEK_BYTES_MAX", 700)
    first = peeked(lab)
    assert 1 < len(first) < 15
    assert first + peeked(lab, len(first) + 1) == sent[: 2 * len(first)]


def test_the_backlog_of_compaction_is_what_no_run_has_read(lab: BrokerLab) -> None:
    publish(lab, 3)
    with pytest.raises(SubscriptionNotFound):
        peeked(lab, name="__compaction")
    assert lab.compact() is not None
    assert peeked(lab, name="__compaction") == []
    assert publish(lab, 2) == peeked(lab, name="__compaction")


def test_entries_are_examined_from_both_ends(lab: BrokerLab) -> None:
    lab.run(lab.broker.create_topic(TOPIC))
    with pytest.raises(MessageNotFound, match="has no messages"):
        examined(lab, 1, from_earliest=True)
    sent = publish(lab, 15)
    for nth in (1, 6, 7, 15):
        assert examined(lab, nth, from_earliest=True) == sent[nth - 1]
        assert examined(lab, nth, from_earliest=False) == sent[-nth]
    with pytest.raises(InvalidRequest, match="1 to 15"):
        examined(lab, 16, from_earliest=False)


def test_entries_are_found_by_id_until_they_are_trimmed(lab: BrokerLab) -> None:
    """A compaction keeps them in the view, and does not change what an id finds."""
    sent = publish(lab, 15)
    for at in (0, 5, 6, 14):
        assert by_id(lab, sent[at]) == sent[at]
    last = sent[-1]
    for missing in (last.next, Position(last.ledger_id, -1), Position(10**6, 0), Position(-1, 0)):
        with pytest.raises(MessageNotFound, match=str(missing)):
            by_id(lab, missing)
    lab.compact()
    lab.run(lab.topic.trim())
    assert sent[0].ledger_id not in lab.topic.log.ledgers
    with pytest.raises(MessageNotFound):
        by_id(lab, sent[0])


@pytest.mark.parametrize("number", [0, -1, -(2**63)])
def test_numbers_count_from_one(lab: BrokerLab, number: int) -> None:
    subscribe(lab)
    publish(lab, 1)
    with pytest.raises(InvalidRequest, match="must be 1 or more"):
        peeked(lab, number)
    with pytest.raises(InvalidRequest, match="must be 1 or more"):
        peeked(lab, messages=number)
    with pytest.raises(InvalidRequest, match="must be 1 or more"):
        examined(lab, number, from_earliest=True)


def test_large_numbers_are_no_more_than_all(lab: BrokerLab) -> None:
    subscribe(lab)
    sent = publish(lab, 2)
    assert peeked(lab, messages=2**63 - 1) == sent
    assert peeked(lab, 2**63 - 1) == []


def test_only_what_stores_pulsars_messages_has_single_entries(lab: BrokerLab) -> None:
    lab.run(lab.broker.create_topic(KAFKA, {"cleanup.policy": "compact"}))
    lab.run(lab.broker.create_partitioned_topic(PARTS, 2))
    errors: dict[str, tuple[type[Exception], str]] = {
        KAFKA: (NotAllowed, "is a Kafka topic"),
        PARTS: (NotAllowed, "name .*parts-partition-0"),
        DROPPED: (NotAllowed, "not stored"),
        "persistent://public/default/none": (TopicNotFound, "none"),
    }
    lab.run(lab.broker.any_topic(DROPPED))
    for name, (kind, words) in errors.items():
        calls: tuple[Any, ...] = (
            peeked_entries(lab.broker, name, "s", 1),
            examined_entry(lab.broker, name, 1, from_earliest=True),
            entry_by_id(lab.broker, name, Position(0, 0)),
        )
        for call in calls:
            with pytest.raises(kind, match=words):
                lab.run(call)


def test_a_missing_subscription_is_an_error(lab: BrokerLab) -> None:
    publish(lab, 1)
    with pytest.raises(SubscriptionNotFound):
        peeked(lab, name="none")
