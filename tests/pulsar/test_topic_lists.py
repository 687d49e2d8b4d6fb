"""Lists of topics: patterns, hashes and watchers."""

from __future__ import annotations

from typing import Any

from ledgerfold.broker.client.administration.admin import Admin
from ledgerfold.broker.pulsar.watching import _NAMES_MAX, WATCHERS_MAX
from ledgerfold.v1 import pulsar_pb2
from ledgerfold.v1.pulsar_pb2 import BaseCommand
from tests.pulsar.recorded import RawClient
from tests.support.broker_process import BrokerProcess

NAMESPACE = "public/default"


def full(name: str) -> str:
    return f"persistent://{NAMESPACE}/{name}"


def get(client: RawClient, pattern: str | None = None, hash_: str | None = None) -> Any:
    asked = pulsar_pb2.CommandGetTopicsOfNamespace(
        request_id=1, namespace=NAMESPACE, topics_pattern=pattern, topics_hash=hash_
    )
    type_ = pulsar_pb2.GET_TOPICS_OF_NAMESPACE
    client.send(BaseCommand(type=type_, get_topics_of_namespace=asked))
    return client.read().get_topics_of_namespace_response


def watch(client: RawClient, pattern: str, id_: int = 1, **options: Any) -> BaseCommand:
    asked = pulsar_pb2.CommandWatchTopicList(
        request_id=2, watcher_id=id_, namespace=NAMESPACE, topics_pattern=pattern, **options
    )
    client.send(BaseCommand(type=pulsar_pb2.WATCH_TOPIC_LIST, watch_topic_list=asked))
    return client.read()


def changes(update: pulsar_pb2.CommandWatchTopicUpdate) -> tuple[list[str], list[str]]:
    return list(update.new_topics), list(update.deleted_topics)


def test_topics_by_pattern_and_hash(broker: BrokerProcess, url: str, topic: str) -> None:
    with Admin(broker.url) as admin, RawClient(url) as client:
        admin.create_topic(f"{topic}-a")
        admin.create_partitioned_topic(f"{topic}-b", 2)
        names = [full(f"{topic}-a"), *(full(f"{topic}-b-partition-{n}") for n in range(2))]
        for pattern in (f"{full(topic)}-.", f"{NAMESPACE}/{topic}-[ab]"):
            found = get(client, pattern)
            assert (list(found.topics), found.filtered, found.changed) == (names, True, True)
        known = get(client, pattern, found.topics_hash)
        assert (list(known.topics), known.changed) == ([], False)
        assert known.topics_hash == found.topics_hash
        # Patterns that the engine does not support are matched by the client.
        for unknown in ("(?=a).*", "(", "x" * 1001):
            everything = get(client, unknown)
            assert not everything.filtered
            assert set(names) <= set(everything.topics)
        assert get(client).topics == everything.topics


def test_a_watcher_is_notified_of_changes(broker: BrokerProcess, url: str, topic: str) -> None:
    with Admin(broker.url) as admin, RawClient(url) as client:
        admin.create_topic(f"{topic}-1")
        created = watch(client, f"{full(topic)}-.*").watch_topic_list_success
        assert (list(created.topic), created.watcher_id) == ([full(f"{topic}-1")], 1)
        same = watch(client, f"{full(topic)}-.*", 2, topics_hash=created.topics_hash)
        assert same.watch_topic_list_success.topic == []
        close = pulsar_pb2.CommandWatchTopicListClose(request_id=7, watcher_id=2)
        type_ = pulsar_pb2.WATCH_TOPIC_LIST_CLOSE
        client.send(BaseCommand(type=type_, watch_topic_list_close=close))
        assert client.read().success.request_id == 7
        admin.create_topic("another")
        admin.create_topic(f"{topic}-2")
        update = client.read().watch_topic_update
        assert changes(update) == ([full(f"{topic}-2")], [])
        assert update.topics_hash == get(client, f"{full(topic)}-.*").topics_hash
        admin.create_partitioned_topic(f"{topic}-3", 2)
        partitions = [full(f"{topic}-3-partition-{n}") for n in range(2)]
        assert client.read().watch_topic_update.new_topics == partitions
        admin.delete_topic(f"{topic}-1")
        update = client.read().watch_topic_update
        assert changes(update) == ([], [full(f"{topic}-1")])


def test_the_number_of_watchers_is_bounded(url: str) -> None:
    with RawClient(url) as client:
        for number in range(WATCHERS_MAX):
            assert watch(client, ".*none", number).type == pulsar_pb2.WATCH_TOPIC_LIST_SUCCESS
        assert watch(client, ".*", WATCHERS_MAX).error.error == pulsar_pb2.TOO_MANY_REQUESTS
        assert watch(client, ".*", 0).error.error == pulsar_pb2.NOT_ALLOWED
    with RawClient(url) as client:
        for pattern in ("(", "(?=a)", "a" * 1001, "(((a{100}){100}){100})"):
            assert watch(client, pattern).error.error == pulsar_pb2.NOT_ALLOWED


def test_more_changes_than_one_update_holds(broker: BrokerProcess, url: str, topic: str) -> None:
    """The partitions of a topic appear at the same moment, with one more."""
    with Admin(broker.url) as admin, RawClient(url) as client:
        assert watch(client, f"{full(topic)}.*").type == pulsar_pb2.WATCH_TOPIC_LIST_SUCCESS
        for name in (f"{topic}a", f"{topic}b"):
            admin.create_partitioned_topic(name, _NAMES_MAX // 2 + 1)
        new = set[str]()
        while len(new) < _NAMES_MAX + 2:
            new.update(client.read().watch_topic_update.new_topics)
        for name in (f"{topic}a", f"{topic}b"):
            admin.delete_partitioned_topic(name)
        while new:
            new.difference_update(client.read().watch_topic_update.deleted_topics)
