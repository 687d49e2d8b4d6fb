"""`topics peek-messages`, `examine-messages`, `get-message-by-id`: output, bounds and refusals.

The expected text is that of pulsar-admin 4.0.6, but for the properties of a batch: pulsar-admin
shows those of its last message for all of them.
"""

from __future__ import annotations

import json
import re

import pytest

from ledgerfold.admin import Admin
from ledgerfold.broker.cli.topics.messages import hex_dump
from ledgerfold.broker.client import Client
from ledgerfold.errors import InvalidRequest, MessageNotFound, SubscriptionNotFound
from tests.support.command_line import Ran
from tests.unit.cli.conftest import Ledgerfold

pytestmark = pytest.mark.process
HEAD = """\
         +-------------------------------------------------+
         |  0  1  2  3  4  5  6  7  8  9  a  b  c  d  e  f |
+--------+-------------------------------------------------+----------------+
"""
END = "+--------+-------------------------------------------------+----------------+\n"


@pytest.fixture
def ledger(cli: Ledgerfold, url: str, topic: str) -> int:
    """Publishes two messages and a batch of three, in a ledger whose id is returned."""
    assert cli("topics", "create", topic).code == 0
    assert cli("topics", "create-subscription", topic, "-s", "s").code == 0
    with Client(url) as client:
        with client.create_producer(topic) as producer:
            first = producer.send(b"one", partition_key="a", properties={"p": "q", "r": "s"})
            producer.send(b"two" * 12, event_timestamp=1_700_000_000_000)
        with client.create_producer(topic, batching_enabled=True) as producer:
            for value in (b"three", b"\x00\xff", b""):
                producer.send_async(value, None, properties={"n": str(len(value))})
            producer.flush()
    return first.ledger_id()


def text(ran: Ran) -> str:
    """Returns the output with the publish times as 0."""
    assert (ran.code, ran.err) == (0, "")
    return re.sub(r"Publish time: \d{13}\n", "Publish time: 0\n", ran.out)


def ids(ran: Ran) -> list[str]:
    assert ran.code == 0, ran.err
    return [row["id"] for row in ran.rows]


def test_a_message_is_shown_as_by_pulsar_admin(cli: Ledgerfold, topic: str, ledger: int) -> None:
    first = f"""\
Message ID: {ledger}:0
Publish time: 0
Event time: 0
Properties:
p    q
r    s
{HEAD}\
|00000000| 6f 6e 65                                        |one             |
{END}"""
    second = f"""\
-------------------------------------------------------------------------

Message ID: {ledger}:1
Publish time: 0
Event time: 1700000000000
{HEAD}\
|00000000| 74 77 6f 74 77 6f 74 77 6f 74 77 6f 74 77 6f 74 |twotwotwotwotwot|
|00000010| 77 6f 74 77 6f 74 77 6f 74 77 6f 74 77 6f 74 77 |wotwotwotwotwotw|
|00000020| 6f 74 77 6f                                     |otwo            |
{END}"""
    assert text(cli("topics", "peek-messages", topic, "-s", "s")) == first
    assert text(cli("topics", "peek-messages", topic, "-s", "s", "-n", "2")) == first + second
    examined = cli("topics", "examine-messages", topic, "-i", "earliest", "-m", "1")
    assert text(examined) == first
    found = cli("topics", "get-message-by-id", topic, "-l", str(ledger), "-e", "0")
    assert text(found) == first.replace("Properties", "Redelivery count: 0\nProperties", 1)
    # Nothing was acknowledged.
    stats = json.loads(cli("topics", "stats", topic).out)
    assert stats["subscriptions"]["s"]["msgBacklog"] == 3


def test_all_messages_of_a_batch_are_shown(cli: Ledgerfold, topic: str, ledger: int) -> None:
    shown = text(cli("topics", "examine-messages", topic))
    rule = f"{'-' * 73}\n\n"
    first, second, third = shown.split(rule)
    assert first.startswith(f"Batch Message ID: {ledger}:2:0\n")
    assert "\nn    5\n" in first
    assert f"Batch Message ID: {ledger}:2:1\n" in second
    assert "| 00 ff                                           |..              |" in second
    # Without content, no table.
    assert third == (
        f"Batch Message ID: {ledger}:2:2\nPublish time: 0\nEvent time: 0\nProperties:\nn    0\n\n"
    )


def test_other_forms_have_the_fields_of_read(cli: Ledgerfold, topic: str, ledger: int) -> None:
    peek = ("topics", "peek-messages", topic, "-s", "s", "-n", "100")
    everything = [f"{ledger}:0", f"{ledger}:1", *(f"{ledger}:2:-1:{at}" for at in range(3))]
    assert ids(cli(*peek, "-o", "jsonl")) == everything
    read = cli("read", topic, "--until-end", "-o", "json").out
    assert cli(*peek, "-o", "json").out == read
    assert cli(*peek, "-o", "text").out == cli("read", topic, "--until-end", "-o", "text").out


def test_a_peek_ends_within_a_batch(cli: Ledgerfold, topic: str, ledger: int) -> None:
    """Its number is of messages; a place is of entries."""
    peek = ("topics", "peek-messages", topic, "-s", "s", "-o", "jsonl")
    assert ids(cli(*peek, "-n", "3"))[-2:] == [f"{ledger}:1", f"{ledger}:2:-1:0"]
    examine = ("topics", "examine-messages", topic, "-o", "jsonl")
    assert ids(cli(*examine, "-m", "2")) == [f"{ledger}:1"]
    assert ids(cli(*examine, "-i", "earliest", "-m", "3"))[0] == f"{ledger}:2:-1:0"


def test_an_empty_backlog_has_no_output(cli: Ledgerfold, topic: str, ledger: int) -> None:
    assert cli("topics", "clear-backlog", topic, "-s", "s").code == 0
    assert cli("topics", "peek-messages", topic, "-s", "s", "-n", "3") == (0, "", "")
    assert cli("topics", "peek-messages", topic, "-s", "s", "-o", "json").out == "[]\n"


def test_the_time_of_a_delayed_message_is_shown(cli: Ledgerfold, url: str, topic: str) -> None:
    with Client(url) as client, client.create_producer(topic) as producer:
        producer.send(b"later", deliver_at=2_000_000_000_000)
    assert "\nDeliver at time: 2000000000000\n" in text(cli("topics", "examine-messages", topic))


def test_one_of_several_is_named(cli: Ledgerfold, topic: str) -> None:
    assert cli("topics", "create-partitioned-topic", topic, "-p", "2").code == 0
    partition = f"{topic}-partition-1"
    assert cli("produce", partition, "-m", "x").code == 0
    ran = cli("topics", "examine-messages", topic)
    assert ran.code == 1
    assert "-partition-0 or another" in ran.err
    (row,) = cli("topics", "examine-messages", partition, "-o", "jsonl").rows
    assert row["id"].endswith(":0:1")


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ("peek-messages {} -s none", 3, "has no subscription 'none'"),
        ("peek-messages {}-none -s s", 3, "does not exist"),
        ("peek-messages {} -s s -n 0", 2, "must be 1 or more"),
        ("peek-messages {}", 2, "-s"),
        ("examine-messages {} -m 4", 2, "the position must be 1 to 3"),
        ("examine-messages {} -m 0", 2, "must be 1 or more"),
        ("examine-messages {} -i middle", 2, "invalid choice"),
        ("get-message-by-id {} -l 999999 -e 0", 3, "has no entry 999999:0"),
        ("get-message-by-id {} -l 0 -e -1", 2, "not an integer of 0 or more"),
        ("get-message-by-id {} -l 9223372036854775808 -e 0", 2, "too large"),
        ("get-message-by-id {} -l 0", 2, "-e"),
    ],
)
def test_refusals(
    cli: Ledgerfold, topic: str, ledger: int, arguments: str, code: int, words: str
) -> None:
    ran = cli("topics", *arguments.format(topic).split())
    assert (ran.code, ran.out) == (code, "")
    assert words in ran.err


def test_a_kafka_topic_has_none_of_these(cli: Ledgerfold, topic: str) -> None:
    assert cli("topics", "create", topic, "--cleanup-policy", "compact").code == 0
    for arguments in ("peek-messages -s s", "examine-messages", "get-message-by-id -l 0 -e 0"):
        ran = cli("topics", *arguments.split(), topic)
        assert (ran.code, "is a Kafka topic" in ran.err) == (1, True)


def test_more_than_one_answer_is_peeked(url: str, topic: str) -> None:
    """An answer has about 1 MiB."""
    values = [bytes([65 + at]) * 700_000 for at in range(4)]
    with Client(url) as client, Admin(url) as admin:
        admin.create_topic(topic)
        admin.create_subscription(topic, "s")
        with client.create_producer(topic) as producer:
            for value in values:
                producer.send(value)
        assert [each.data() for each in admin.peek_messages(topic, "s", 3)] == values[:3]
        assert [each.data() for each in admin.peek_messages(topic, "s", 100)] == values


def test_errors_of_the_administration_are_typed(url: str, topic: str) -> None:
    with Admin(url) as admin:
        admin.create_topic(topic)
        with pytest.raises(MessageNotFound):
            admin.examine_messages(topic)
        with pytest.raises(MessageNotFound):
            admin.messages_by_id(topic, 2**63 - 1, 2**63 - 1)
        with pytest.raises(SubscriptionNotFound):
            admin.peek_messages(topic, "none")
        admin.create_subscription(topic, "s")
        for count in (0, -1):
            with pytest.raises(InvalidRequest):
                admin.peek_messages(topic, "s", count)


@pytest.mark.parametrize("size", [1, 15, 16, 17, 256])
def test_a_table_has_sixteen_bytes_in_a_line(size: int) -> None:
    data = bytes(range(256))[:size]
    rows = [line for line in hex_dump(data).splitlines() if line.startswith("|")]
    assert len(rows) == -(-size // 16)
    assert b"".join(bytes.fromhex(row[10:58]) for row in rows) == data
    assert {len(row) for row in rows} == {77}
