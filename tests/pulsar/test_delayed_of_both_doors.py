"""Messages that one client delays and the other one receives.

The broker's clock moves on request: nothing is due before, however slow the machine is. One test of
test_shared_delivery.py is by the machine's clock.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import timedelta

import pulsar
import pytest

import ledgerfold
from ledgerfold.broker.client import Client
from ledgerfold.broker.client.administration.admin import Admin
from tests.support.broker_process import BrokerProcess
from tests.support.waiting import WAIT_MS

DELAY = timedelta(hours=1)
START = "2020-01-01T00:00:00Z"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    data_dir = tmp_path_factory.mktemp("broker") / "data"
    arguments = ("--compactor", "off", "--test-clock", START, "--pulsar-listen", "127.0.0.1:0")
    with BrokerProcess(data_dir, arguments=arguments) as broker:
        yield broker


def pass_delay(admin: Admin) -> None:
    """Moves the broker's clock to the time at which everything that was sent is due.

    Clients count delays by the machine's clock: what the next test sends is due later.
    """
    admin.move_clock(to_ms=round((time.time() + DELAY.total_seconds()) * 1000))


@pytest.fixture
def admin(broker: BrokerProcess) -> Iterator[Admin]:
    with Admin(broker.url) as admin:
        yield admin


@pytest.mark.parametrize("consumer_type", ["Shared", "KeyShared"])
def test_delayed_by_this_client_received_by_pulsars(
    client: pulsar.Client, native: Client, admin: Admin, topic: str, consumer_type: str
) -> None:
    """The message sent later arrives first, and the delayed one when it is due."""
    type_ = getattr(pulsar.ConsumerType, consumer_type)
    shared = client.subscribe(topic, "s", type_)
    exclusive = client.subscribe(topic, "exclusive")
    producer = native.create_producer(topic, batching_enabled=True)
    producer.send(b"later", partition_key="k", deliver_after=DELAY)
    producer.send(b"now", partition_key="k")
    assert [exclusive.receive(WAIT_MS).data() for _ in range(2)] == [b"later", b"now"]
    assert shared.receive(WAIT_MS).data() == b"now"
    pass_delay(admin)
    assert shared.receive(WAIT_MS).data() == b"later"


def test_delayed_by_pulsars_client_received_by_this_one(
    client: pulsar.Client, native: Client, admin: Admin, topic: str
) -> None:
    shared = native.subscribe(topic, "s", ledgerfold.ConsumerType.Shared)
    exclusive = native.subscribe(topic, "exclusive")
    producer = client.create_producer(topic)
    due_ms = round((time.time() + DELAY.total_seconds()) * 1000)
    producer.send(b"later", deliver_at=due_ms)
    producer.send(b"now")
    assert [exclusive.receive(WAIT_MS).data() for _ in range(2)] == [b"later", b"now"]
    assert shared.receive(WAIT_MS).data() == b"now"
    admin.move_clock(to_ms=due_ms - 1)
    producer.send(b"before")
    assert shared.receive(WAIT_MS).data() == b"before"
    admin.move_clock(to_ms=due_ms)
    assert shared.receive(WAIT_MS).data() == b"later"


def test_delayed_and_received_by_this_packages_client(
    native: Client, admin: Admin, topic: str
) -> None:
    """Readers get all at once, in the order of sending."""
    shared = native.subscribe(topic, "s", ledgerfold.ConsumerType.Shared)
    producer = native.create_producer(topic)
    for number in range(20):
        delay = DELAY if number % 2 else None
        producer.send_async(b"%d" % number, None, partition_key="k", deliver_after=delay)
    producer.flush()
    reader = native.create_reader(topic, ledgerfold.MessageId.earliest)
    assert [int(reader.read_next(WAIT_MS).data()) for _ in range(20)] == list(range(20))
    assert [int(shared.receive(WAIT_MS).data()) for _ in range(10)] == [*range(0, 20, 2)]
    pass_delay(admin)
    assert [int(shared.receive(WAIT_MS).data()) for _ in range(10)] == [*range(1, 20, 2)]
