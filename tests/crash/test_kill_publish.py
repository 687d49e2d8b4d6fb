"""kill -9 on a real process while it receives messages, and other events that must do no harm."""

from __future__ import annotations

import functools
import os
import socket
import subprocess
import sys
import threading

import pytest

from ledgerfold.broker.cli.exit_codes import CONFLICT
from ledgerfold.broker.client import Client, MessageId
from tests.conftest import MakeBroker
from tests.support.broker_process import BrokerProcess
from tests.support.waiting import WAIT_MS, WAIT_S

ANY_PORT = ("--listen", "127.0.0.1:0")
ROUNDS = 8
MESSAGES_A_ROUND = 3_000


def read_values(broker: BrokerProcess, topic: str) -> list[tuple[str, int]]:
    client = Client(broker.url)
    try:
        reader = client.create_reader(topic, MessageId.earliest)
        found = []
        while reader.has_message_available():
            message = reader.read_next(timeout_millis=WAIT_MS)
            found.append((str(message.message_id()), int(message.data())))
        return found
    finally:
        client.close()


def remember(
    acknowledged: dict[str, int],
    enough: threading.Event,
    value: int,
    result: object,
    at: MessageId | None,
) -> None:
    if at is not None and at.ledger_id() >= 0:
        acknowledged[str(at)] = value
        enough.set()


@pytest.mark.slow
def test_acknowledged_messages_survive_repeated_kill_9(broker_process: MakeBroker) -> None:
    """Invariants a, b, c: acknowledged messages are readable, no unknown ones exist, ids rise."""
    broker = broker_process()
    acknowledged: dict[str, int] = {}
    sent = 0
    for _ in range(ROUNDS):
        client = Client(broker.url)
        producer = client.create_producer(
            "t", batching_enabled=True, batching_max_messages=20, block_if_queue_full=True
        )
        enough = threading.Event()

        for value in range(sent, sent + MESSAGES_A_ROUND):
            done = functools.partial(remember, acknowledged, enough, value)
            producer.send_async(b"%d" % value, done, partition_key=f"k{value % 50}")
        sent += MESSAGES_A_ROUND
        assert enough.wait(WAIT_S)
        broker.kill()
        # Immediately: its broker returns at another port.
        client.shutdown()
        broker.restart()
        found = read_values(broker, "t")
        assert acknowledged.items() <= dict(found).items()
        values = [value for _, value in found]
        assert len(set(values)) == len(values)
        assert set(values) <= set(range(sent))
        assert values == sorted(values)


def test_the_second_broker_on_a_directory_names_the_owner(
    broker_process: MakeBroker,
) -> None:
    """One process owns a data directory; the error names the other's pid."""
    broker = broker_process()
    second = subprocess.run(
        [sys.executable, "-m", "ledgerfold", "serve", "--data", str(broker.data_dir), *ANY_PORT],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert second.returncode == CONFLICT
    assert str(broker.pid) in second.stderr
    assert "in use" in second.stderr


def test_garbage_on_the_port_ends_only_its_connection(broker_process: MakeBroker) -> None:
    """Bytes that are not gRPC end the connection; the broker continues."""
    broker = broker_process()
    host, _, port = broker.url.rpartition(":")
    for garbage in (
        b"GET / HTTP/1.1\r\n\r\n",
        os.urandom(4096),
        b"PRI * HTTP/2.0\r\n\r\n\xff",
    ):
        with socket.create_connection((host, int(port)), timeout=WAIT_S) as connection:
            connection.sendall(garbage)
    client = Client(broker.url)
    producer = client.create_producer("t")
    producer.send(b"1")
    client.close()
    assert [value for _, value in read_values(broker, "t")] == [1]
