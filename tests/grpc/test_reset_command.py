"""`ledgerfold reset` and Admin.reset(): on a real broker, with clients that stay connected."""

from __future__ import annotations

import pytest

from ledgerfold.broker.client import Client, InitialPosition, MessageId
from ledgerfold.broker.client.administration.admin import Admin
from ledgerfold.storage.errors import NotAllowed
from ledgerfold.storage.names import ledgers_dir
from tests.conftest import MakeBroker
from tests.support.command_line import ledgerfold
from tests.support.waiting import WAIT_MS, wait_until


def test_a_reset_needs_the_server_option(broker_process: MakeBroker) -> None:
    with Admin(broker_process().url) as admin, pytest.raises(NotAllowed, match="--allow-reset"):
        admin.reset()
    with Admin(broker_process("--test-clock", name="other").url) as admin:
        assert admin.reset() == 0


def test_clients_reconnect_to_an_empty_broker(broker_process: MakeBroker) -> None:
    broker = broker_process("--allow-reset")
    with Client(broker.url) as client, Admin(broker.url) as admin:
        producers = [client.create_producer(f"t{number}") for number in range(10)]
        # The reset deletes the subscription, too. A new one at the end of the topic would miss a
        # message that is published before the consumer has reconnected.
        consumer = client.subscribe("t0", "s", initial_position=InitialPosition.Earliest)
        for producer in producers:
            producer.send(b"before")
        assert admin.reset() == 10
        producers[0].send(b"after")
        message = consumer.receive(timeout_millis=WAIT_MS)
        while message.data() != b"after":
            message = consumer.receive(timeout_millis=WAIT_MS)
        with client.create_reader("t0", MessageId.earliest) as reader:
            assert [message.data() for message in reader] == [b"after"]
        consumer.close()
        for producer in producers:
            producer.close()
    ran = ledgerfold("reset", "--url", broker.url, "-o", "json")
    assert ran.code == 0, ran.err
    folder = ledgers_dir(broker.data_dir)
    wait_until(lambda: not list(folder.iterdir()), "the ledgers are deleted")
    assert broker.stop() == 0
    assert ledgerfold("verify", str(broker.data_dir)).code == 0
