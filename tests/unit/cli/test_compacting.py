"""`compact`, with a worker that is no Spark: where the broker is down, and where one runs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ledgerfold.broker.cli.exit_codes import FAILED
from ledgerfold.broker.client import Client, MessageId
from ledgerfold.storage.metadata import MetadataStore
from ledgerfold.storage.names import ledgers_dir, metadata_dir
from ledgerfold.storage.rocks import RocksKeyValue
from ledgerfold.v1.records_pb2 import (
    RUN_STATE_CANCELLED,
    RUN_STATE_ERROR,
    RunRecord,
)
from tests.conftest import MakeBroker
from tests.support import fake_compactor
from tests.support.command_line import command, ledgerfold
from tests.support.waiting import WAIT_MS, WAIT_S
from tests.unit.cli.conftest import Ledgerfold

pytestmark = pytest.mark.process

SECRET = {"LEDGERFOLD_COMPACTOR_SECRET": "s"}
TOPIC = "persistent://public/default/t"


class FakeWorker:
    """A worker that treats a plan as the strategy's name says (fake_compactor.py)."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        self._events = process.stdout
        self._events.readline()
        self.address = f"127.0.0.1:{json.loads(self._events.readline())['port']}"

    def began(self) -> None:
        """Returns when it has a plan."""
        assert json.loads(self._events.readline())["event"] == "running"


@pytest.fixture
def worker() -> Iterator[FakeWorker]:
    process = subprocess.Popen(
        [sys.executable, fake_compactor.__file__, "serve"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=os.environ | SECRET,
    )
    with process:
        yield FakeWorker(process)
        process.kill()


@pytest.fixture
def data(broker_process: MakeBroker) -> Path:
    """Returns the data directory of a broker that has ended."""
    broker = broker_process()
    with Client(broker.url) as client:
        producer = client.create_producer("t")
        for value in (b"1", b"2"):
            producer.send(value, partition_key="a")
    broker.stop()
    return broker.data_dir


def compact(data: Path, worker: FakeWorker, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command("compact", "--data", str(data), "--compactor", worker.address, "t", *arguments),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | SECRET,
    )


@contextmanager
def metadata_of(data: Path) -> Iterator[MetadataStore]:
    metadata = MetadataStore(RocksKeyValue(metadata_dir(data)))
    try:
        yield metadata
    finally:
        metadata.close()


def run_of(data: Path) -> RunRecord:
    """The only one there is."""
    with metadata_of(data) as metadata:
        (run,) = metadata.runs(TOPIC)
    return run


def test_a_run_outside_of_the_broker(data: Path, worker: FakeWorker) -> None:
    """Printed as `topics compact --wait` prints it; the broker finds it in its history."""
    process = compact(data, worker)
    out, err = process.communicate(timeout=WAIT_S)
    assert (process.returncode, err) == (0, "")
    assert out.startswith("run 1: ")
    assert run_of(data).strategy == "publishing-order"
    process = compact(data, worker)
    assert process.communicate(timeout=WAIT_S) == ("Nothing new to compact in t.\n", "")


def test_the_command_waits_for_spark_if_it_is_installed(
    data: Path, tmp_path: Path, broker_process: MakeBroker
) -> None:
    """Without Java nothing warms up if Spark is required: the error says what to install."""
    environment = {"JAVA_HOME": "", "PATH": str(tmp_path / "nothing")}
    without = subprocess.run(
        command("compact", "--data", str(data), "--compactor", "spark", "t"),
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        env=os.environ | environment,
        check=False,
    )
    assert without.returncode == FAILED
    broker = broker_process(compactor="spark", environment=environment)
    ran = ledgerfold("--url", broker.url, "topics", "compact", "t", "--wait")
    assert ran.code == FAILED
    for err in (without.stderr, ran.err):
        assert "Install Java" in err
        assert "warming up" not in err


def test_a_failed_run_has_the_exit_code_of_its_error(data: Path, worker: FakeWorker) -> None:
    """Damage in a run has the exit code of damage."""
    process = compact(data, worker, "--compaction-strategy", "corrupt")
    _, err = process.communicate(timeout=WAIT_S)
    assert process.returncode == 6
    assert "1/0.log" in err
    assert run_of(data).state == RUN_STATE_ERROR


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_leaves_nothing(
    data: Path, worker: FakeWorker, ending: signal.Signals
) -> None:
    """It is cancelled, in the worker too; the directory is free."""
    process = compact(data, worker, "--compaction-strategy", "hang")
    worker.began()
    process.send_signal(ending)
    process.communicate(timeout=WAIT_S)
    assert process.returncode == 130
    run = run_of(data)
    assert run.state == RUN_STATE_CANCELLED
    assert not (ledgers_dir(data) / str(run.ledger_id)).exists()


def test_a_killed_run_loses_nothing(
    data: Path, worker: FakeWorker, broker_process: MakeBroker
) -> None:
    """The next start of a broker ends it, and all messages are there."""
    process = compact(data, worker, "--compaction-strategy", "hang")
    worker.began()
    process.kill()
    process.communicate(timeout=WAIT_S)
    broker = broker_process()
    with Client(broker.url) as client:
        reader = client.create_reader("t", MessageId.earliest, is_read_compacted=True)
        assert [reader.read_next(WAIT_MS).data() for _ in range(2)] == [b"1", b"2"]
    broker.stop()
    run = run_of(data)
    assert (run.state, run.error_reason) == (RUN_STATE_ERROR, "BROKER_RESTARTED")


def test_a_directory_in_use_is_refused(data_dir: Path, cli: Ledgerfold) -> None:
    """The error names the owner, and suggests asking it."""
    assert cli("info").code == 0
    ran = ledgerfold("compact", "--data", str(data_dir), "t")
    assert ran.code == 5
    assert "is in use by process" in ran.err
    assert "`ledgerfold compact --url HOST:PORT t`" in ran.err


def test_a_missing_directory_or_topic_is_not_created(data: Path, tmp_path: Path) -> None:
    """Neither is made."""
    missing = tmp_path / "none"
    assert ledgerfold("compact", "--data", str(missing), "t").code == 3
    assert not missing.exists()
    ran = subprocess.run(
        command("compact", "--data", str(data), "--compactor", "127.0.0.1:1", "none"),
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        env=os.environ | SECRET,
        check=False,
    )
    assert ran.returncode == 3
    assert "none does not exist" in ran.stderr


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--compaction-strategy", "keep-n"], "needs the setting 'n'"),
        (["--set", "n=1"], "Settings require"),
        (["--retain-null-key"], "has its own settings"),
        (["--data", "d", "--url", "h:1"], "--data cannot be combined with --url"),
        (["--compaction-strategy", "newest", "--compactor-type", "EVENT_TIME"], "not allowed with"),
    ],
)
def test_invalid_input(cli: Ledgerfold, arguments: list[str], why: str) -> None:
    """Before anything begins."""
    ran = cli("compact", "t", *arguments)
    assert ran.code == 2
    assert why in ran.err


def test_a_running_broker_compacts(worker: FakeWorker, broker_process: MakeBroker) -> None:
    """The strategy holds for the one run."""
    broker = broker_process(compactor=worker.address, environment=SECRET)
    with Client(broker.url) as client:
        client.create_producer("t").send(b"1", partition_key="a")
    ask = ("--url", broker.url)
    broker.wait_for_compactor()
    ran = ledgerfold(*ask, "compact", "t", "--compactor-type", "PUBLISHING")
    assert ran.code == 0
    assert ran.out.startswith("run 1: ")
    assert ledgerfold(*ask, "compact", "t") == (0, "Nothing new to compact in t.\n", "")
    assert ledgerfold(*ask, "compact", "t", "--compaction-strategy", "corrupt").code == 6
    (failed, first) = ledgerfold(*ask, "runs", "t").rows
    assert (failed["strategy"], first["strategy"]) == ("corrupt", "publishing-order")
    stats = json.loads(ledgerfold(*ask, "topics", "stats", "t").out)["compaction"]
    assert stats["strategy"]["name"] == "publishing-order"
    assert stats["lastCompactionStrategy"]["name"] == "corrupt"
