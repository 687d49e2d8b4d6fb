"""Consumers of several topics: lists, and patterns that find new ones."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, cast

import pytest

from ledgerfold.broker.client import Client, Consumer, ConsumerType, InitialPosition, MessageId
from ledgerfold.broker.client.asyncio_client import client as aio
from ledgerfold.broker.client.core.topic_sources import TopicPattern
from ledgerfold.broker.client.messages.options import RegexSubscriptionMode
from ledgerfold.storage.entry import Position
from ledgerfold.storage.errors import InvalidRequest, NotAllowed, SubscriptionBusy
from ledgerfold.v1.admin_pb2 import ListTopicsResponse
from tests.support.fake_broker import WATCHFUL, FakeBroker, ThreadedFakeBroker
from tests.support.fake_topics import LEDGER_ID
from tests.support.waiting import WAIT_MS, wait_until

EARLIEST = InitialPosition.Earliest
FULL = "persistent://public/default/"


@pytest.fixture
def client(broker: ThreadedFakeBroker) -> Iterator[Client]:
    """ "p" has two partitions."""
    broker.service.partitions["p"] = 2
    client = Client(broker.address, **WATCHFUL)
    yield client
    client.shutdown()


def publish(client: Client, *topics: str, messages: int = 2) -> None:
    for topic in topics:
        with client.create_producer(topic) as producer:
            for number in range(messages):
                producer.send(f"{topic}:{number}".encode(), partition_key=f"k{number}")


def texts(consumer: Consumer, count: int, *, acknowledged: bool = True) -> list[str]:
    found = []
    for _ in range(count):
        message = consumer.receive(timeout_millis=WAIT_MS)
        found.append(message.data().decode())
        if acknowledged:
            consumer.acknowledge(message)
    return sorted(found)


# Lists.


def test_a_list_of_topics_is_one_consumer(broker: ThreadedFakeBroker, client: Client) -> None:
    """With the partitions of those that have any, under one name; each message names its topic."""
    publish(client, "a", "b", "p")
    consumer = client.subscribe(["a", FULL + "b", "p", "a"], "s", initial_position=EARLIEST)
    assert consumer.topic() == f"{FULL}a, {FULL}b, {FULL}p"
    opened = [each for each in broker.service.opened if each.DESCRIPTOR.name == "SubscribeOpen"]
    assert sorted(each.topic for each in opened) == [
        FULL + each for each in ("a", "b", "p-partition-0", "p-partition-1")
    ]
    assert {each.consumer_name for each in opened} == {consumer.consumer_name()}
    names = Counter[str]()
    for _ in range(6):
        message = consumer.receive(timeout_millis=WAIT_MS)
        names[message.topic_name().removeprefix(FULL)] += 1
        consumer.acknowledge(message.message_id())
    consumer.close()
    assert (names["a"], names["b"], names.total()) == (2, 2, 6)
    for topic in ("a", "b"):
        assert broker.topic(topic).subscriptions["s"].acknowledged == {
            Position(LEDGER_ID, entry) for entry in range(2)
        }


def test_ids_name_their_topic(broker: ThreadedFakeBroker, client: Client) -> None:
    """As received, or as parsed with the topic; others are refused with a sentence."""
    publish(client, "a", "b", messages=1)
    consumer = client.subscribe(["a", "b"], "s", initial_position=EARLIEST)
    received = {
        each.topic_name(): each for each in (consumer.receive(WAIT_MS), consumer.receive(WAIT_MS))
    }
    stored = received[FULL + "b"].message_id().serialize()
    with pytest.raises(InvalidRequest, match=r"7:0 does not name its topic.*deserialize"):
        consumer.acknowledge(MessageId.deserialize(stored))
    with pytest.raises(
        InvalidRequest, match="belongs to persistent://public/default/c, which is not"
    ):
        consumer.acknowledge(MessageId.deserialize(stored, "c"))
    consumer.acknowledge_cumulative(MessageId.deserialize(stored, "b"))
    wait_until(
        lambda: broker.topic("b").subscriptions["s"].cumulative == Position(LEDGER_ID, 0), "ack"
    )
    assert broker.topic("a").subscriptions["s"].cumulative < Position(LEDGER_ID, 0)


def test_a_seek_applies_to_one_topic_or_to_all(client: Client) -> None:
    publish(client, "a", "b")
    consumer = client.subscribe(["a", "b"], "s", initial_position=EARLIEST)
    first: dict[str, MessageId] = {}
    for _ in range(4):
        message = consumer.receive(timeout_millis=WAIT_MS)
        first.setdefault(message.topic_name(), message.message_id())
        consumer.acknowledge(message)
    consumer.seek(first[FULL + "a"])
    assert texts(consumer, 1) == ["a:1"]
    consumer.seek(MessageId.earliest)
    assert texts(consumer, 4) == ["a:0", "a:1", "b:0", "b:1"]
    with pytest.raises(NotAllowed, match="has several partitions or topics"):
        consumer.get_last_message_id()


def test_a_list_opens_all_topics_or_none(broker: ThreadedFakeBroker, client: Client) -> None:
    """A refused one releases the others."""
    taken = client.subscribe("b", "s")
    with pytest.raises(SubscriptionBusy):
        client.subscribe(["a", "b"], "s")
    taken.close()
    client.subscribe(["a", "b"], "s").unsubscribe()
    assert "s" not in broker.topic("a").subscriptions
    assert "s" not in broker.topic("b").subscriptions


@pytest.mark.parametrize(
    ("topics", "says"),
    [
        ([], "A list of topics must not be empty"),
        (["a", 5], "A topic must be a string, not 5"),
        (re.compile(b"a"), "must be a string, not bytes"),
        (re.compile("non-persistent://a/b/c.*"), "is matched with persistent topics"),
        (re.compile("a/b.*"), "is not a pattern of topic names"),
    ],
)
def test_wrong_topics(client: Client, topics: Any, says: str) -> None:
    with pytest.raises((InvalidRequest, NotAllowed), match=says):
        client.subscribe(topics, "s")


@pytest.mark.parametrize(
    ("mode", "matching"),
    [
        (RegexSubscriptionMode.PersistentOnly, ["persistent"]),
        (RegexSubscriptionMode.NonPersistentOnly, ["non-persistent"]),
        (RegexSubscriptionMode.AllTopics, ["persistent", "non-persistent"]),
    ],
)
def test_the_mode_selects_the_domains(mode: RegexSubscriptionMode, matching: list[str]) -> None:
    source = TopicPattern(re.compile("public/default/foo-.*"), 1, mode)
    domains = ("persistent", "non-persistent")
    found = [each for each in domains if source.matches(f"{each}://public/default/foo-1")]
    assert found == matching


# Patterns.


@pytest.mark.parametrize(
    ("pattern", "matching"),
    [
        ("persistent://public/default/foo-.*", ["foo-1", "foo-2-partition-3"]),
        ("public/default/foo", []),
        ("foo-[12]", ["foo-1", "foo-2-partition-3"]),
        ("shop/eu/foo-.*", []),
    ],
)
def test_matching_names(pattern: str, matching: list[str]) -> None:
    """The whole name, without the partition's index."""
    source = TopicPattern(re.compile(pattern), 1)
    names = ["foo-1", "foo-2-partition-3", "foobar", "bar-foo-1"]
    assert [each for each in names if source.matches(FULL + each)] == matching


def test_a_pattern_finds_topics(
    broker: ThreadedFakeBroker, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that exist, and new ones; deleted ones are left."""
    monkeypatch.setattr(TopicPattern, "interval_s", lambda *_: 0.02)
    broker.service.partitions["foo-p"] = 2
    publish(client, "foo-1", "bar")
    publish(client, "foo-p", messages=4)
    consumer = client.subscribe(
        re.compile("persistent://public/default/FOO-.*", re.IGNORECASE),
        "s",
        ConsumerType.Shared,
        initial_position=EARLIEST,
        regex_subscription_mode="AllTopics",  # type: ignore[arg-type]
    )
    assert consumer.topic() == "persistent://public/default/FOO-.*"
    wanted = ["foo-1:0", "foo-1:1", "foo-p:0", "foo-p:1", "foo-p:2", "foo-p:3"]
    assert texts(consumer, 6) == wanted
    publish(client, "foo-2")
    assert texts(consumer, 2) == ["foo-2:0", "foo-2:1"]
    # Another partition of a known topic is read from its beginning.
    broker.service.partitions["foo-p"] = 3
    wait_until(lambda: "s" in broker.topic("foo-p-partition-2").subscriptions, "partition")

    gone = broker.topic("foo-1")
    broker.do(lambda: broker.service.topics.pop("foo-1"))
    wait_until(lambda: not gone.subscriptions["s"].consumers, "end")
    assert consumer.is_connected()


def test_a_pattern_that_matches_nothing_yet(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits."""
    monkeypatch.setattr(TopicPattern, "interval_s", lambda *_: 0.02)
    consumer = client.subscribe(re.compile("new-.*"), "s", initial_position=EARLIEST)
    assert not consumer.has_message_available()
    publish(client, "new-1", messages=1)
    assert texts(consumer, 1) == ["new-1:0"]
    consumer.redeliver_unacknowledged_messages()
    consumer.close()


def test_several_topics_of_the_asyncio_client() -> None:
    """Includes Pulsar's argument for a pattern."""

    async def scenario() -> None:
        broker = FakeBroker()
        await broker.start()
        async with aio.Client(broker.address) as client:
            for topic in ("foo-1", "foo-2"):
                producer = await client.create_producer(topic)
                await producer.send(topic.encode())
            cases: list[tuple[Any, bool]] = [
                (["foo-1", "foo-2"], False),
                (re.compile("foo-.*"), False),
                ("persistent://public/default/foo-.*", True),
            ]
            for topics, is_pattern in cases:
                consumer = await client.subscribe(
                    topics, "s", initial_position=EARLIEST, is_pattern_topic=is_pattern
                )
                received = [await consumer.receive(WAIT_MS) for _ in range(2)]
                assert sorted(each.data() for each in received) == [b"foo-1", b"foo-2"]
                await consumer.unsubscribe()
            for wrong, says in ((["a"], "must be one string"), ("a(", "not a regular expression")):
                with pytest.raises(InvalidRequest, match=says):
                    await client.subscribe(wrong, "s", is_pattern_topic=True)
        await broker.stop()

    asyncio.run(scenario())


def test_a_pattern_is_compared_with_the_topics_of_all_pages() -> None:
    """No broker of a test has so many topics that their names take several answers."""
    pages = {"": (["foo-1", "x"], True), "x": (["foo-2"], False)}

    class Paged:
        async def call(self, request: Any) -> ListTopicsResponse:
            assert request.in_pages
            names, has_more = pages[request.after.rpartition("/")[2]]
            topics = [f"persistent://public/default/{each}" for each in names]
            return ListTopicsResponse(topics=topics, has_more=has_more)

        async def partition_count(self, _: str) -> int:
            return 0

    source, connection = TopicPattern(re.compile("public/default/foo-.*"), 1), cast(Any, Paged())
    found = asyncio.run(source.names(connection))
    assert found == [f"persistent://public/default/foo-{each}" for each in (1, 2)]
