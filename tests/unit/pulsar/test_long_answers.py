"""Clients that ask for lists of topics and read none of them, and lists that are too long."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from ledgerfold.broker.pulsar.errors import error_answer
from ledgerfold.broker.pulsar.link import Link
from ledgerfold.broker.pulsar.lookups import Lookups
from ledgerfold.broker.pulsar.topic_lists import TopicLists
from ledgerfold.broker.pulsar.watching import Watching
from ledgerfold.storage.errors import NotAllowed
from ledgerfold.v1 import pulsar_pb2
from ledgerfold.v1.pulsar_pb2 import BaseCommand
from tests.model.broker_lab import TOPIC, BrokerLab
from tests.support.pulsar_lab import MemoryTransport

COUNT = 50
# Together, 6 MB: more than the largest message.
LONG = [f"persistent://public/default/{number:01000}" for number in range(6000)]


class Unread(asyncio.Transport):
    """A transport that is full after each write, until the client reads."""

    link: Link
    written = 0

    def write(self, data: object) -> None:
        self.written += 1
        self.link.pause()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Does nothing."""


@pytest.fixture
def lab() -> Iterator[BrokerLab]:
    lab = BrokerLab()
    yield lab
    lab.stop()


def list_request(number: int) -> BaseCommand:
    asked = {"request_id": number, "namespace": b"public/default"}
    return BaseCommand(type=pulsar_pb2.GET_TOPICS_OF_NAMESPACE, get_topics_of_namespace=asked)


def watch_request(number: int) -> BaseCommand:
    asked = {
        "request_id": number,
        "watcher_id": number,
        "namespace": b"public/default",
        "topics_pattern": b".*",
    }
    return BaseCommand(type=pulsar_pb2.WATCH_TOPIC_LIST, watch_topic_list=asked)


@pytest.mark.parametrize("watched", [False, True])
def test_a_client_that_reads_slowly_gets_one_list_at_a_time(lab: BrokerLab, watched: bool) -> None:
    """The next one when the client has read most of the last: others are not even made."""
    lab.run(lab.broker.create_topic(TOPIC))

    async def ask() -> None:
        transport = Unread()
        transport.link = link = Link(lab.broker, transport)
        watching = Watching(link, TopicLists(lab.broker))
        lookups = Lookups(link, "here", is_advertised=False)
        for number in range(COUNT):
            if watched:
                link.spawn(watching.watch(watch_request(number)))
            else:
                link.spawn(lookups.topics(list_request(number)))
        for count in range(1, COUNT + 1):
            await until_settled(lab, transport)
            assert transport.written == count
            link.resume()
        watching.closed()
        link.closed(lambda: None)

    lab.run(ask())


@pytest.mark.parametrize("watched", [False, True])
@pytest.mark.parametrize("version", ["Pulsar-Java-v4.0.7", "Pulsar-Go-0.19.0", "Pulsar-CPP-v3.7.2"])
def test_a_list_is_not_larger_than_its_client_accepts(
    lab: BrokerLab, monkeypatch: pytest.MonkeyPatch, version: str, watched: bool
) -> None:
    """No test had listed so many topics: a Java or Go client ends the connection, and all of its
    producers and consumers connect again, forever. The C++ client accepts frames of any size.
    """
    monkeypatch.setattr(lab.broker.names, "listed", lambda namespace: LONG)

    async def ask() -> None:
        transport = MemoryTransport()
        link, lists = Link(lab.broker, transport), TopicLists(lab.broker)
        link.client_version = version
        watching, lookups = Watching(link, lists), Lookups(link, "here", is_advertised=False)
        work = watching.watch(watch_request(1)) if watched else lookups.topics(list_request(1))
        try:
            await work
        except NotAllowed as error:
            link.send(error_answer(1, error))
        frame: Any = await transport.answers.get()
        if version.startswith("Pulsar-CPP"):
            assert len(frame) > 6_000_000
        else:
            transport.answers.put_nowait(frame)
            (answer,) = transport.commands()
            assert (answer.error.request_id, answer.error.error) == (1, pulsar_pb2.NOT_ALLOWED)
            assert "a pattern that matches fewer topics" in answer.error.message
            assert (len(lists), transport.is_aborted) == (0, False)
        watching.closed()
        link.closed(lambda: None)

    lab.run(ask())


async def until_settled(lab: BrokerLab, transport: Unread) -> None:
    """Returns when nothing more is written, however often the loop and its threads turn."""
    seen = -1
    while seen != transport.written:
        seen = transport.written
        for _ in range(20):
            await asyncio.sleep(0)
            await lab.broker.in_thread(lambda: None)
