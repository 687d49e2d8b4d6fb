"""`ledgerfold.testing`: a broker for tests, which leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import ledgerfold
from ledgerfold.admin import Admin, Policies
from ledgerfold.errors import CompactorUnavailable, NotAllowed, Unavailable
from ledgerfold.testing import Broker, Namespace
from tests.support.waiting import WAIT_MS, WAIT_S


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Returns the folder of this test's temporary folders."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_a_broker_is_deleted_with_its_data(temporary: Path) -> None:
    """Also if the block ends with an error."""
    broker = Broker(compaction=False)
    with suppress(ZeroDivisionError), broker:
        assert broker.client.create_producer("t").send(b"x") is not None
        assert broker.admin.list_topics() == ["persistent://public/default/t"]
        assert len(list(temporary.iterdir())) == 1
        client, admin, url = broker.client, broker.admin, broker.url
        _ = 1 // 0
    assert list(temporary.iterdir()) == []
    with pytest.raises(ledgerfold.AlreadyClosed):
        client.create_producer("t")
    with pytest.raises(ledgerfold.AlreadyClosed):
        admin.list_topics()
    with Admin(url) as another, pytest.raises(Unavailable):
        another.list_topics()
    with pytest.raises(NotAllowed, match="is not running"):
        _ = broker.client


def test_acknowledgements_in_a_snapshots_block_are_undone_with_it(tmp_path: Path) -> None:
    """No test had left acknowledgements in flight at the restore: the client sent them again."""
    arguments = ["--allow-reset"]
    with (
        Broker(tmp_path / "data", compaction=False, arguments=arguments) as broker,
        Namespace(broker, "tests/n") as made,
    ):
        topic = made.topic("t")
        consumer = made.client.subscribe(topic, "s")
        made.client.create_producer(topic).send(b"x")
        for _ in range(2):
            with made.snapshot():
                consumer.acknowledge(consumer.receive(timeout_millis=WAIT_MS))
        assert consumer.receive(timeout_millis=WAIT_MS).data() == b"x"
        assert made.admin.stats(topic)["subscriptions"]["s"]["msgBacklog"] == 1


def test_a_given_directory_is_kept(temporary: Path) -> None:
    """The next broker continues from there; one object may serve several blocks."""
    broker = Broker(temporary / "data", compaction=False)
    with broker:
        broker.client.create_producer("t").send(b"x")
    with broker:
        reader = broker.client.create_reader("t", ledgerfold.MessageId.earliest)
        assert reader.read_next(timeout_millis=WAIT_MS).data() == b"x"
    assert [path.name for path in temporary.iterdir()] == ["data"]


def test_the_time_of_a_broker_stops_until_it_is_moved() -> None:
    """A week passes at once, and everything due by then is complete."""
    began = datetime(2030, 1, 1, tzinfo=UTC)
    with Broker(test_clock=began, compaction=False) as broker:
        broker.client.create_producer("t").send(b"x")
        broker.client.subscribe("t", "s", initial_position=ledgerfold.InitialPosition.Earliest)
        broker.admin.update_policies(topic="t", values=Policies(message_ttl_ms=86_400_000))
        stats = broker.admin.stats("t")["subscriptions"]["s"]
        assert stats["msgBacklog"] == 1
        assert broker.advance(timedelta(days=7)) == began + timedelta(days=7)
        assert broker.admin.stats("t")["subscriptions"]["s"]["msgBacklog"] == 0


def test_a_broker_without_a_test_clock_has_the_machines_time() -> None:
    """It cannot be moved."""
    with Broker(compaction=False) as broker, pytest.raises(ledgerfold.NotAllowedError) as caught:
        broker.advance(timedelta(days=1))
    assert caught.value.from_broker


def test_a_broker_without_compaction_reports_the_reason() -> None:
    """In the words of the run's record."""
    with Broker(compaction=False) as broker:
        broker.client.create_producer("t").send(b"x", partition_key="k")
        with pytest.raises(CompactorUnavailable) as caught:
            broker.compact_and_wait("t")
        assert caught.value.from_broker
        with pytest.raises(ledgerfold.TopicNotFound):
            broker.compact_and_wait("none")


def test_a_broker_that_cannot_start_reports_the_reason(temporary: Path) -> None:
    """It reports the reason, and leaves nothing."""
    with (
        Broker(temporary / "data", compaction=False),
        pytest.raises(ledgerfold.LedgerfoldError, match="is in use by"),
        Broker(temporary / "data", compaction=False),
    ):
        pass
    assert [path.name for path in temporary.iterdir()] == ["data"]


@pytest.mark.spark
@pytest.mark.slow
def test_a_broker_for_tests_compacts() -> None:
    """Everything published before the call; again; and a partitioned topic's partitions."""
    with Broker() as broker:
        with broker.client.create_producer("t") as producer:
            for value in (b"1", b"2", b"3"):
                producer.send(value, partition_key="k")
        first = broker.compact_and_wait("t")
        assert (first.run.counts.messages_in, first.run.counts.messages_out) == (3, 1)
        assert broker.compact_and_wait("t").run == first.run
        broker.admin.create_partitioned_topic("p", 2)
        with broker.client.create_producer("p") as producer:
            for number in range(8):
                producer.send(b"x", partition_key=str(number % 4))
        runs = [each.run for each in broker.compact_and_wait("p").partitions]
        assert sum(run.counts.messages_out for run in runs) == 4


def test_ctrl_c_leaves_nothing(tmp_path: Path) -> None:
    """Neither a folder nor a process remains: only its owner ends the broker."""
    program = (
        "import signal, sys\n"
        # A shell starts background processes with the signal ignored.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from ledgerfold.testing import Broker\n"
        "with Broker(compaction=False) as broker:\n"
        "    print(broker.admin.broker_info().pid, flush=True)\n"
        "    sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"TMPDIR": str(tmp_path)},
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        os.killpg(process.pid, signal.SIGINT)
        _, shown = process.communicate(timeout=WAIT_S)
    assert "KeyboardInterrupt" in shown
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
