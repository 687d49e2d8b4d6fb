"""Addresses, names, back-off, and calls that are tried again."""

from __future__ import annotations

import socket
import sys

import pytest

from ledgerfold.broker.client import Client
from ledgerfold.broker.client.administration.admin import Admin
from ledgerfold.broker.client.streams.address import address_of
from ledgerfold.broker.client.streams.connection import Backoff, full_topic_name
from ledgerfold.storage.errors import AlreadyClosed, InvalidRequest, Timeout, Unavailable
from tests.support.fake_broker import ThreadedFakeBroker


def test_backoff_doubles_up_to_its_bound() -> None:
    """Delays grow up to the bound, and start over after a success."""
    backoff = Backoff(100, 500, chance=lambda: 0.0)
    assert [backoff.next_s() for _ in range(5)] == [0.1, 0.2, 0.4, 0.5, 0.5]
    backoff.reset()
    assert backoff.next_s() == 0.1
    assert Backoff(100, 500, chance=lambda: 1.0).next_s() == pytest.approx(0.08)


@pytest.mark.parametrize("url", ["h:1", "ledgerfold://h:1", "grpc://h:1/", "pulsar://h:1"])
def test_service_urls_may_omit_the_scheme(url: str) -> None:
    """A user may omit the scheme."""
    assert address_of(url) == "h:1"


@pytest.mark.parametrize("url", ["[::1]:1", "pulsar://[fe80::1]:65535/", "a-b.c_d.example:1"])
def test_addresses_of_each_kind(url: str) -> None:
    """Names and numbers of both versions."""
    assert address_of(url) == url.removeprefix("pulsar://").rstrip("/")


@pytest.mark.parametrize(
    "url",
    [
        *("", "pulsar+tls://h:1", "http://h:1", "grpc://", "unix:/tmp/socket", "dns:///h:1"),
        *("h", "h:", ":1", "h:x", "h:0", "h:65536", "h:1:2", "::1:7650", "[::1]", "[h]:1"),
        *("h:1/path", "h:1?x=y", "h 1:1", "user@h:1", "h:1,", " "),
    ],
)
def test_other_service_urls_are_refused_at_once(url: str) -> None:
    """The error shows a valid address, without a connection."""
    with pytest.raises(InvalidRequest, match="expected host:port"):
        Client(url)
    with pytest.raises(InvalidRequest, match="expected host:port"):
        Admin(url)


@pytest.mark.parametrize("url", ["h:1,g:2", "pulsar://h:1,g:2", "pulsar://h:1,pulsar://g:2"])
def test_several_brokers_are_refused_at_once(url: str) -> None:
    """Pulsar's clients take several; here there is one."""
    with pytest.raises(InvalidRequest, match="names several brokers"):
        Client(url)


def test_short_topic_names_expand() -> None:
    """The names that the client shows are the full ones."""
    assert full_topic_name("t") == "persistent://public/default/t"
    assert full_topic_name("a/b/t") == "persistent://a/b/t"
    assert full_topic_name("persistent://a/b/t") == "persistent://a/b/t"


def test_opening_gives_up_after_the_operation_timeout(broker: ThreadedFakeBroker) -> None:
    """A broker that stays away gives an error, not an endless wait."""
    broker.stop_now()
    with (
        Client(broker.address, operation_timeout_seconds=0.2) as client,
        # A machine that is slow enough reaches the deadline of the first attempt.
        pytest.raises((Unavailable, Timeout)),
    ):
        client.create_producer("t")
    broker.start_now()


@pytest.mark.skipif(sys.platform != "linux", reason="no port is reserved there")
def test_nobody_gets_the_port_of_a_stopped_broker(broker: ThreadedFakeBroker) -> None:
    """Tests that start one again would fail if another process had the port meanwhile."""
    broker.stop_now()
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(("127.0.0.1", broker.port))
    broker.start_now()


def test_a_closed_client_refuses_new_objects(client: Client) -> None:
    """Use after close is an error, and closing twice is none."""
    client.close()
    client.close()
    with pytest.raises(AlreadyClosed):
        client.create_producer("t")


def test_topics_have_one_partition(client: Client) -> None:
    """`get_topic_partitions` gives the topic itself."""
    assert client.get_topic_partitions("t") == ["persistent://public/default/t"]
