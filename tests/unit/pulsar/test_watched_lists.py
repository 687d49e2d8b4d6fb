"""Watched lists of topics: shared, updated in place, and removed with the last watcher."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ledgerfold.broker.pulsar import topic_lists
from ledgerfold.broker.pulsar.link import Link
from ledgerfold.broker.pulsar.patterns import hash_of
from ledgerfold.broker.pulsar.topic_lists import TopicList, TopicLists
from ledgerfold.broker.pulsar.watching import TopicListWatcher, Watching
from ledgerfold.storage.errors import InvalidRequest, NotAllowed, Overloaded
from ledgerfold.v1.pulsar_pb2 import BaseCommand, CommandWatchTopicList
from tests.model.broker_lab import BrokerLab

NAMESPACE = "public/default"


def full(name: str) -> str:
    return f"persistent://{NAMESPACE}/{name}"


class Noting:
    """A watcher that records its notifications."""

    def __init__(self) -> None:
        self.noted: list[tuple[str, bool]] = []

    def __call__(self, name: str, exists: bool) -> None:
        self.noted.append((name, exists))


@pytest.fixture
def lab() -> Iterator[BrokerLab]:
    lab = BrokerLab()
    yield lab
    lab.stop()
    lab.loop.close()


def create(lab: BrokerLab, *names: str) -> None:
    for name in names:
        lab.run(lab.broker.create_topic(full(name)))
    lab.settle()


def follow(lab: BrokerLab, lists: TopicLists, follower: Noting, pattern: str = ".*") -> TopicList:
    async def work() -> TopicList:
        found = lists.follow(NAMESPACE, pattern, follower)
        await found.ready()
        return found

    return lab.run(work())


def test_watchers_of_a_pattern_share_a_list(lab: BrokerLab) -> None:
    lists, one, other, orders = TopicLists(lab.broker), Noting(), Noting(), Noting()
    create(lab, "b", "orders-1")
    found = follow(lab, lists, one)
    assert follow(lab, lists, other) is found
    some = follow(lab, lists, orders, ".*orders-.*")
    assert (len(lists), len(lab.broker.names.watchers)) == (2, 2)
    create(lab, "a", "orders-2")
    lab.run(lab.broker.delete_topic(full("b"), force=False))
    lab.settle()
    assert found.names == list(map(full, ("a", "orders-1", "orders-2")))
    assert one.noted == other.noted
    assert one.noted == [(full("a"), True), (full("orders-2"), True), (full("b"), False)]
    assert orders.noted == [(full("orders-2"), True)]
    assert (found.hash, some.hash) == (hash_of(found.names), hash_of(some.names))
    # Names are kept once.
    assert some.names[0] is found.names[1]
    lists.leave(NAMESPACE, ".*", one)
    lists.leave(NAMESPACE, ".*", one)
    assert len(lists) == 2
    lists.leave(NAMESPACE, ".*", other)
    lists.leave(NAMESPACE, ".*orders-.*", orders)
    assert (len(lists), lab.broker.names.watchers) == (0, set())
    with pytest.raises(InvalidRequest):
        lists.follow(NAMESPACE, "(", one)
    assert len(lists) == 0


def test_a_change_is_hashed_once_for_all_watchers(
    lab: BrokerLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    hashed = list[int]()

    def counted(names: Iterable[str]) -> str:
        hashed.append(1)
        return hash_of(names)

    monkeypatch.setattr(topic_lists, "hash_of", counted)
    lists = TopicLists(lab.broker)
    found = [follow(lab, lists, Noting()) for _ in range(100)]
    assert len({each.hash for each in found}) == len(hashed) == 1
    create(lab, "t")
    assert len({each.hash for each in found}) == 1
    assert len(hashed) == 2


def test_changes_while_names_are_read_are_included(lab: BrokerLab) -> None:
    create(lab, "a", "b")
    lists, watcher = TopicLists(lab.broker), Noting()

    async def work() -> TopicList:
        found = lists.follow(NAMESPACE, ".*", watcher)
        await lab.broker.create_topic(full("c"))
        await lab.broker.delete_topic(full("a"), force=False)
        await found.ready()
        for _ in range(20):
            await asyncio.sleep(0)
        return found

    assert lab.run(work()).names == [full("b"), full("c")]


def test_a_watcher_that_leaves_early_is_removed(lab: BrokerLab) -> None:
    lists, watcher = TopicLists(lab.broker), Noting()

    async def work() -> None:
        found = lists.follow(NAMESPACE, ".*", watcher)
        lists.leave(NAMESPACE, ".*", watcher)
        with pytest.raises(asyncio.CancelledError):
            await found.ready()

    lab.run(work())
    assert lab.broker.names.watchers == set()


def test_a_watcher_counts_as_a_stream_and_stores_only_differences(lab: BrokerLab) -> None:
    lists, outgoing = TopicLists(lab.broker), lab.broker.outgoing
    # Of a broker that does not authenticate.
    link = cast(Link, SimpleNamespace(broker=lab.broker, use=lambda *_: nullcontext()))

    async def work() -> None:
        asked = CommandWatchTopicList(namespace=NAMESPACE, topics_pattern=".*")
        watcher = TopicListWatcher(link, lists, asked)
        assert outgoing.streams == 1
        for name, exists in (("a", True), ("b", False), ("a", False), ("c", True)):
            watcher.note(name, exists)
        assert watcher._changes == {"b": False, "c": True}
        watcher.close()
        asked.topics_pattern = "("
        with pytest.raises(InvalidRequest):
            TopicListWatcher(link, lists, asked)
        outgoing.streams_max = 0
        asked.topics_pattern = ".*"
        with pytest.raises(Overloaded):
            TopicListWatcher(link, lists, asked)

    lab.run(work())
    assert (outgoing.streams, len(lists)) == (0, 0)


def test_a_watcher_whose_list_was_refused_may_be_created_again(lab: BrokerLab) -> None:
    """It had kept its id, and counted, until the connection ended."""
    create(lab, "a")
    sent: list[Any] = []
    is_too_large = True

    def send_list(answer: object) -> None:
        if is_too_large:
            raise NotAllowed("The list of topics is too large.")
        sent.append(answer)

    link = SimpleNamespace(
        broker=lab.broker,
        use=lambda *_: nullcontext(),
        list_turn=nullcontext,
        spawn=lab.loop.create_task,
        send=sent.append,
        send_list=send_list,
    )
    watching = Watching(cast(Link, link), TopicLists(lab.broker))
    requested = CommandWatchTopicList(
        request_id=1, watcher_id=7, namespace=NAMESPACE, topics_pattern=".*"
    )
    request = BaseCommand(watch_topic_list=requested)
    lab.run(watching.watch(request))
    lab.settle()
    assert sent.pop().message == "The list of topics is too large."
    is_too_large = False
    lab.run(watching.watch(request))
    lab.settle()
    assert list(sent.pop().topic) == [full("a")]
    with pytest.raises(NotAllowed, match="already has watcher 7"):
        lab.run(watching.watch(request))
    watching.closed()
    lab.settle()
