"""SIGTERM: the broker ends soon and with 0, even with connected clients, which reconnect later."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from ledgerfold.broker.client import Client, ConsumerType, InitialPosition, MessageId, Reader
from ledgerfold.broker.client.administration.admin import Admin
from ledgerfold.broker.client.messages.configs import BULK_SENDING
from ledgerfold.storage.errors import LedgerfoldError
from tests.support.broker_process import BrokerProcess
from tests.support.waiting import WAIT_MS, WAIT_S, wait_until

# It takes a tenth of a second, and one second if a client is frozen; gRPC alone would take 20, so
# that a busy machine may take some seconds.
END_S = 15.0
MESSAGES = 20_000


@pytest.fixture
def broker_arguments(own_port: list[str]) -> list[str]:
    return own_port


def fill(client: Client, topic: str = "t", messages: int = MESSAGES) -> None:
    with client.create_producer(topic, batching_enabled=True, **BULK_SENDING) as producer:
        for number in range(messages):
            producer.send_async(b"%d" % number, None, partition_key=f"k{number}")


def numbers(reader: Reader) -> list[int]:
    return [int(message.data()) for message in reader]


@contextmanager
def in_thread(work: Callable[[threading.Event], None]) -> Iterator[threading.Event]:
    """Runs `work(is_over)` in a thread; the returned event is set if it raised."""
    is_over, has_failed = threading.Event(), threading.Event()

    def run() -> None:
        try:
            work(is_over)
        except LedgerfoldError:
            has_failed.set()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield has_failed
    finally:
        is_over.set()
        thread.join()


def test_idle_clients_do_not_delay_a_shutdown_and_reconnect(
    broker: BrokerProcess, client: Client
) -> None:
    """A producer, a reader, consumers and a table view, all idle."""
    producer = client.create_producer("t")
    producer.send(b"0", partition_key="k")
    reader = client.create_reader("t", MessageId.earliest)
    assert numbers(reader) == [0]
    consumers = [
        client.subscribe("t", "exclusive"),
        client.subscribe("t", "shared", ConsumerType.Shared),
    ]
    view = client.create_table_view("t")
    assert broker.stop(END_S) == 0
    broker.start()
    producer.send(b"1", partition_key="k")
    assert reader.read_next(WAIT_MS).data() == b"1"
    assert [consumer.receive(WAIT_MS).data() for consumer in consumers] == [b"1", b"1"]
    wait_until(lambda: view.get("k") == b"1", "the table view")


def test_a_busy_reader(broker: BrokerProcess, client: Client) -> None:
    """Interrupted in the middle, it continues where it was."""
    fill(client)
    reader = client.create_reader("t", MessageId.earliest, receiver_queue_size=100)
    seen = [int(reader.read_next(WAIT_MS).data()) for _ in range(MESSAGES // 2)]
    assert broker.stop(END_S) == 0
    broker.start()
    seen += numbers(reader)
    assert seen == list(range(MESSAGES))


def test_a_busy_consumer(broker: BrokerProcess, client: Client) -> None:
    """Messages acknowledged before the end are not redelivered; the others are delivered."""
    fill(client)
    consumer = client.subscribe(
        "t", "s", initial_position=InitialPosition.Earliest, receiver_queue_size=100
    )
    seen: set[int] = set()
    half = threading.Event()

    def consume(is_over: threading.Event) -> None:
        while len(seen) < MESSAGES:
            message = consumer.receive(WAIT_MS)
            seen.add(int(message.data()))
            consumer.acknowledge(message)
            if len(seen) == MESSAGES // 2:
                half.set()

    with in_thread(consume) as has_failed:
        assert half.wait(WAIT_S)
        assert broker.stop(END_S) == 0
        broker.start()
        wait_until(lambda: len(seen) == MESSAGES or has_failed.is_set(), "all messages")
    assert seen == set(range(MESSAGES))


def test_a_busy_producer(broker: BrokerProcess, client: Client) -> None:
    """Each message is stored once, in order, although the broker ended while they were sent."""
    producer = client.create_producer(
        "t", batching_enabled=True, max_pending_messages=5_000, block_if_queue_full=True
    )
    sent = 0

    def send(is_over: threading.Event) -> None:
        nonlocal sent
        for number in count():
            producer.send_async(b"%d" % number, None)
            sent = number + 1
            if is_over.is_set():
                return

    with in_thread(send):
        wait_until(lambda: sent > 10_000, "messages in flight")
        assert broker.stop(END_S) == 0
        broker.start()
        before = sent
        wait_until(lambda: sent > before + 10_000, "messages to the new broker")
    producer.flush()
    with client.create_reader("t", MessageId.earliest) as reader:
        assert numbers(reader) == list(range(sent))


def test_a_health_watcher(broker: BrokerProcess) -> None:
    """It is notified of the end, and its call ends without an error in the log."""
    with grpc.insecure_channel(broker.url) as channel:
        watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
        assert next(watch).status == health_pb2.HealthCheckResponse.SERVING
        assert broker.stop(END_S) == 0
        assert next(watch).status == health_pb2.HealthCheckResponse.NOT_SERVING
        assert list(watch) == []
    assert "Traceback" not in broker.stderr


# Opens streams with much data to receive, and freezes.
FROZEN = """
import os, signal, sys
from ledgerfold.broker.client import Client, InitialPosition, MessageId
client = Client(sys.argv[1])
if sys.argv[2] == "reader":
    reader = client.create_reader("t", MessageId.earliest, receiver_queue_size=10**7)
else:
    consumer = client.subscribe(
        "t", "s", initial_position=InitialPosition.Earliest, receiver_queue_size=10**7
    )
os.kill(os.getpid(), signal.SIGSTOP)
"""


def wait_until_nothing_moves(url: str) -> None:
    """Waits until the broker has sent everything that the connection accepts: the rest is stuck."""
    readings: list[int] = []

    def is_steady() -> bool:
        readings.append(admin.stats("t")["msgOutCounter"])
        return len(readings) > 30 and readings[-30] == readings[-1]

    with Admin(url) as admin:
        wait_until(is_steady, "a stream that stands still")


@contextmanager
def frozen_client(url: str, kind: str) -> Iterator[None]:
    with subprocess.Popen([sys.executable, "-c", FROZEN, url, kind]) as process:
        try:
            result = os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
            assert result is not None
            assert result.si_status == signal.SIGSTOP
            yield
        finally:
            process.kill()


@pytest.mark.parametrize("kind", ["reader", "consumer"])
def test_a_frozen_client_does_not_delay_the_shutdown(
    broker: BrokerProcess, client: Client, kind: str
) -> None:
    """The client reads nothing and answers nothing, with megabytes in flight to it."""
    with client.create_producer("t", batching_enabled=True, **BULK_SENDING) as producer:
        for _ in range(5_000):
            producer.send_async(b"x" * 10_000, None)
    with frozen_client(broker.url, kind):
        wait_until_nothing_moves(broker.url)
        assert broker.stop(END_S) == 0


def test_a_second_signal_ends_the_broker_at_once(broker: BrokerProcess, client: Client) -> None:
    """Regardless of remaining work, with the exit code of an interruption."""
    fill(client)
    with frozen_client(broker.url, "reader"):
        # Two of one kind could become one. After a wait, the broker could have ended.
        os.kill(broker.pid, signal.SIGTERM)
        os.kill(broker.pid, signal.SIGINT)
        assert broker.wait() == 130


def test_a_failed_start_prints_only_the_reason(tmp_path: Path) -> None:
    """Also after gRPC's own start. Earlier starts failed before it, or were checked for one word
    only.
    """
    program = (
        "import sys\n"
        "from ledgerfold.broker.cli.main import main\n"
        "from ledgerfold.broker.topics.broker import Broker\n"
        "from ledgerfold.storage.errors import DiskFailure\n"
        "async def start(self):\n"
        "    raise DiskFailure('metadata', 'A write', OSError(28, 'No space left on device'))\n"
        "Broker.start = start\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )
    serve = ["serve", "--data", str(tmp_path / "d"), "--listen", "127.0.0.1:0"]
    done = subprocess.run(
        [sys.executable, "-c", program, *serve, "--compactor", "off"],
        capture_output=True,
        text=True,
        check=False,
        timeout=WAIT_S,
    )
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert done.stderr.splitlines()[-1].startswith("ledgerfold: A write failed on metadata")
