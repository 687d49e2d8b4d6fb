"""Truncate, terminate and disabling compaction: from the command line to clients that stay
connected.
"""

from __future__ import annotations

import pytest

from ledgerfold.broker.cli.main import main
from ledgerfold.broker.client import Client, InitialPosition, MessageId
from ledgerfold.broker.client.administration.admin import Admin
from ledgerfold.storage.errors import (
    NotAllowed,
    SubscriptionNotFound,
    TopicNotFound,
    TopicTerminated,
)
from tests.support.broker_process import BrokerProcess
from tests.support.waiting import WAIT_MS, wait_until


def test_producers_and_readers_see_the_end_of_a_topic(
    broker: BrokerProcess, client: Client, admin: Admin, capsys: pytest.CaptureFixture[str]
) -> None:
    """A producer's next message fails, a new producer is refused; a waiting reader is notified."""
    producer = client.create_producer("t")
    last = producer.send(b"1", partition_key="a")
    reader = client.create_reader("t", MessageId.earliest)
    assert reader.read_next(WAIT_MS).data() == b"1"
    assert not reader.has_reached_end_of_topic()
    assert main(["--url", broker.url, "topics", "terminate", "t"]) == 0
    shown = f"{last.ledger_id()}:{last.entry_id()}"
    assert capsys.readouterr().out == f"Topic successfully terminated at {shown}\n"
    wait_until(reader.has_reached_end_of_topic, "the end of the topic")
    assert not reader.has_message_available()
    for _ in range(2):
        with pytest.raises(TopicTerminated):
            producer.send(b"2", partition_key="a")
    with pytest.raises(TopicTerminated):
        client.create_producer("t")
    reader.seek(MessageId.earliest)
    assert not reader.has_reached_end_of_topic()
    assert [message.data() for message in reader] == [b"1"]
    wait_until(reader.has_reached_end_of_topic, "the end of the topic, again")
    again = client.create_reader("t", MessageId.earliest)
    assert [message.data() for message in again] == [b"1"]
    wait_until(again.has_reached_end_of_topic, "the end, for who came later")
    assert admin.internal_stats("t")["state"] == "Terminated"


def test_truncate_with_connected_clients(
    broker: BrokerProcess, client: Client, admin: Admin
) -> None:
    """They continue with later messages."""
    producer = client.create_producer("t")
    consumer = client.subscribe("t", "s", initial_position=InitialPosition.Earliest)
    reader = client.create_reader("t", MessageId.earliest)
    for number in range(3):
        producer.send(b"%d" % number)
    assert [message.data() for message in reader] == [b"0", b"1", b"2"]
    assert [consumer.receive(WAIT_MS).data() for _ in range(3)] == [b"0", b"1", b"2"]
    assert main(["--url", broker.url, "topics", "truncate", "t"]) == 0
    assert admin.stats("t")["storageSize"] == 0
    assert admin.stats("t")["subscriptions"]["s"]["msgBacklog"] == 0
    producer.send(b"3")
    assert reader.read_next(WAIT_MS).data() == b"3"
    assert consumer.receive(WAIT_MS).data() == b"3"


def test_the_compaction_cursor_is_deleted_like_a_subscription(
    broker: BrokerProcess, client: Client, admin: Admin
) -> None:
    """It exists from the threshold on, and no consumer can use it."""
    admin.create_topic("t")
    leave = ["--url", broker.url, "topics", "unsubscribe", "t", "-s", "__compaction"]
    assert main(leave) == 3
    threshold = ["--url", broker.url, "topics", "set-compaction-threshold", "t", "-t", "1G"]
    assert main(threshold) == 0
    assert admin.list_subscriptions("t") == ["__compaction"]
    with pytest.raises(NotAllowed):
        client.subscribe("t", "__compaction")
    assert main(leave) == 0
    assert admin.list_subscriptions("t") == []
    with pytest.raises(SubscriptionNotFound):
        admin.unsubscribe("t", "__compaction")


def test_the_commands_require_an_existing_topic(admin: Admin) -> None:
    for call in (admin.truncate, admin.terminate):
        with pytest.raises(TopicNotFound):
            call("none")
    with pytest.raises(TopicNotFound):
        admin.unsubscribe("none", "__compaction")
