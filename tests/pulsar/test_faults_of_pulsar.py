"""Faults on purpose through Pulsar's protocol: what Pulsar's own client does under each."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from urllib.request import urlopen

import pulsar
import pytest

from ledgerfold.broker.client.administration.admin import Admin
from tests.pulsar.test_pulsar_producers import read_all, send_all
from tests.support.broker_process import BrokerProcess
from tests.support.waiting import WAIT_MS, WAIT_S, wait_until

HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    data_dir = tmp_path_factory.mktemp("broker") / "data"
    any_port = "127.0.0.1:0"
    ports = ("--pulsar-listen", any_port, "--admin-listen", any_port)
    arguments = ("--compactor", "off", "--allow-faults", *ports)
    with BrokerProcess(data_dir, arguments=arguments) as broker:
        yield broker


@pytest.fixture
def admin(broker: BrokerProcess) -> Iterator[Admin]:
    with Admin(broker.url) as admin:
        yield admin
        admin.clear_faults()


def values_in(client: pulsar.Client, topic: str) -> list[bytes]:
    return [message.data() for message in read_all(client, topic)]


def hits(admin: Admin) -> list[int]:
    return [each.hits for each in admin.list_faults()]


def test_lost_receipts_and_disconnections_lead_to_no_duplicates(
    client: pulsar.Client, admin: Admin, topic: str
) -> None:
    admin.add_fault("lose-receipt", topic=topic, every=50, next=3)
    # A later receipt shows the client that one is missing: it connects again.
    admin.add_fault("lose-receipt", topic=topic, every=70, next=1, keeps_connection=True)
    admin.add_fault("disconnect", "publish", topic=topic, every=90, next=3)
    producer = client.create_producer(topic, batching_enabled=False, max_pending_messages=500)
    values = [b"%d" % number for number in range(300)]
    send_all(producer, [{"content": value} for value in values])
    assert values_in(client, topic) == values
    assert hits(admin) == [3, 1, 3]


def test_a_failed_publish_is_raised_if_the_client_knows_the_error(
    client: pulsar.Client, admin: Admin, topic: str
) -> None:
    """It knows one error of a message; after any other it would send it again, forever."""
    admin.add_fault("fail", "publish", error="ProducerBusy", topic=topic, next=2)
    producer = client.create_producer(topic)
    for _ in range(2):
        with pytest.raises(pulsar.ChecksumError):
            producer.send(b"refused")
    producer.send(b"stored")
    assert values_in(client, topic) == [b"stored"]


def test_connections_are_refused(client: pulsar.Client, admin: Admin, topic: str) -> None:
    admin.add_fault("fail", "create-producer", error="ProducerBusy", topic=topic, next=1)
    with pytest.raises(pulsar.ProducerBusy):
        client.create_producer(topic)
    admin.add_fault("fail", "lookup", error="NotAllowed", topic=topic, next=1)
    with pytest.raises(pulsar.PulsarException):
        client.create_producer(topic)
    admin.add_fault("fail", "subscribe", error="SubscriptionBusy", topic=topic, next=1)
    with pytest.raises(pulsar.ConsumerBusy):
        client.subscribe(topic, "s")
    client.subscribe(topic, "s").close()
    assert hits(admin) == [1, 1, 1]


def test_consumers_and_readers_reconnect_every_hundredth_message(
    client: pulsar.Client, admin: Admin, topic: str
) -> None:
    values = [b"%d" % number for number in range(350)]
    send_all(
        client.create_producer(topic, batching_enabled=False, max_pending_messages=500),
        [{"content": value} for value in values],
    )
    admin.add_fault("disconnect", "read", topic=topic, every=100)
    assert values_in(client, topic) == values
    assert hits(admin)[0] >= 3
    admin.clear_faults()
    # Not for ever: the client sends acknowledgements in groups, and a disconnection loses a group.
    admin.add_fault("disconnect", "read", topic=topic, subscription="s", every=100, next=3)
    consumer = client.subscribe(
        topic, "s", initial_position=pulsar.InitialPosition.Earliest, consumer_name="c"
    )
    got = dict[bytes, None]()
    while len(got) < len(values):
        message = consumer.receive(WAIT_MS)
        got[message.data()] = None
        consumer.acknowledge(message)
    assert list(got) == values
    assert hits(admin) == [3]


def test_answers_are_delayed_until_the_rule_is_removed(
    client: pulsar.Client, admin: Admin, topic: str
) -> None:
    """One slow lookup does not hold up the other commands of its connection."""
    client.create_producer(topic).send(b"1")
    other = client.create_producer(f"{topic}-other")
    operations = ("lookup", "create-producer", "publish")
    rules = [admin.add_fault("delay", each, topic=topic, delay_ms=HOUR_MS) for each in operations]
    done = threading.Event()

    def use() -> None:
        client.create_producer(topic).send(b"2")
        done.set()

    thread = threading.Thread(target=use)
    thread.start()
    for operation, rule in zip(operations, rules, strict=True):
        wait_until(lambda: hits(admin)[0] > 0, f"the {operation} waits")
        other.send(b"meanwhile")
        admin.remove_fault(rule.id)
    assert done.wait(WAIT_S)
    thread.join()
    slow = admin.add_fault("delay", "read", topic=topic, delay_ms=300)
    began_s = time.monotonic()
    assert values_in(client, topic) == [b"1", b"2"]
    assert time.monotonic() - began_s >= 0.3
    admin.remove_fault(slow.id)


def test_a_full_disk(client: pulsar.Client, admin: Admin, topic: str) -> None:
    producer = client.create_producer(topic)
    producer.send(b"before")
    admin.add_fault("disk-full")
    with pytest.raises(pulsar.PulsarException):
        producer.send(b"lost")
    assert values_in(client, topic) == [b"before"]
    admin.clear_faults()
    client.create_producer(topic).send(b"after")
    assert values_in(client, topic) == [b"before", b"after"]


def test_lookups_over_http(broker: BrokerProcess, admin: Admin, topic: str) -> None:
    url = f"http://{broker.ready['admin']}/lookup/v2/topic/persistent/public/default/{topic}"
    admin.add_fault("delay", "lookup", topic=topic, delay_ms=300)
    began_s = time.monotonic()
    with urlopen(url) as answer:
        assert json.load(answer)["brokerUrl"].startswith("pulsar://")
    assert time.monotonic() - began_s >= 0.3
    assert hits(admin) == [1]
