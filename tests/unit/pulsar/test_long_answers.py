"""Clients that ask for lists of topics and read none of them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from ledgerfold.broker.pulsar.link import Link
from ledgerfold.broker.pulsar.lookups import Lookups
from ledgerfold.broker.pulsar.topic_lists import TopicLists
from ledgerfold.broker.pulsar.watching import Watching
from ledgerfold.v1 import pulsar_pb2
from ledgerfold.v1.pulsar_pb2 import BaseCommand
from tests.model.broker_lab import TOPIC, BrokerLab

COUNT = 50


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


async def until_settled(lab: BrokerLab, transport: Unread) -> None:
    """Returns when nothing more is written, however often the loop and its threads turn."""
    seen = -1
    while seen != transport.written:
        seen = transport.written
        for _ in range(20):
            await asyncio.sleep(0)
            await lab.broker.in_thread(lambda: None)
