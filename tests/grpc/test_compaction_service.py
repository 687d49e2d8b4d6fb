"""A real broker process with a user-defined compaction service instead of the worker."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from ledgerfold.broker.client import Client
from ledgerfold.broker.client.administration.admin import Admin
from ledgerfold.storage.errors import InvalidStrategy, StrategyNotAllowed
from ledgerfold.v1 import admin_pb2
from tests.conftest import MakeBroker
from tests.support.command_line import run
from tests.support.documents import document
from tests.support.outside_package import OutsidePackage
from tests.support.waiting import RUN_S
from tests.tidy import ROOT

PAGE = document(ROOT / "docs" / "STRATEGIES.md")
SERVICES = "tests.support.memory_service"
PULSARS = "org.apache.pulsar.compaction.EventTimeCompactionServiceFactory"


def _compacted(admin: Admin, url: str) -> admin_pb2.GetCompactionStatusResponse:
    """Returns the end of a run over a=1, a=2, b=1."""
    with Client(url) as client:
        producer = client.create_producer("prices")
        for key, value in [("a", b"1"), ("a", b"2"), ("b", b"1")]:
            producer.send(value, partition_key=key)
    admin.trigger_compaction("prices")
    return list(admin.watch_compaction("prices", timeout_seconds=RUN_S))[-1]


def _values(url: str) -> list[bytes]:
    from ledgerfold import MessageId

    values = []
    with Client(url) as client:
        reader = client.create_reader("prices", MessageId.earliest, is_read_compacted=True)
        while reader.has_message_available():
            values.append(reader.read_next().data())
    return values


def test_a_service_executes_the_brokers_plans(broker_process: MakeBroker) -> None:
    """There is no worker; the service's output is verified, published and read."""
    broker = broker_process("--compaction-service", f"{SERVICES}:Copying", compactor="local")
    with Admin(broker.url) as admin:
        info = admin.broker_info()
        assert (info.compactor_state, info.compactor_pid) == (admin_pb2.COMPACTOR_STATE_READY, 0)
        status = _compacted(admin, broker.url)
        assert status.status == admin_pb2.COMPACTION_STATUS_SUCCESS
        assert _values(broker.url) == [b"2", b"1"]
        with pytest.raises(InvalidStrategy, match="Copying does not check strategies"):
            admin.set_compaction_strategy("mine", topic="prices")
        with pytest.raises(StrategyNotAllowed, match="start this broker with --allow-strategy"):
            admin.set_compaction_strategy("mine:Own", topic="prices")
    assert broker.stop() == 0


def test_the_documented_service_compacts(broker_process: MakeBroker, tmp_path: Path) -> None:
    """It retains everything, also in its second run, which starts from the first one's output."""
    (source,) = (block.text for block in PAGE if block.file == "everything.py")
    (tmp_path / "everything.py").write_text(source)
    broker = broker_process(
        *("--compaction-service", "everything:KeepEverything"),
        environment={"PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])},
        compactor="local",
    )
    with Admin(broker.url) as admin:
        for number in (1, 2):
            status = _compacted(admin, broker.url)
            assert status.status == admin_pb2.COMPACTION_STATUS_SUCCESS
            assert status.run.counts.messages_out == 3 * number
        assert _values(broker.url) == [b"1", b"2", b"1"] * 2


@pytest.mark.parametrize(
    ("service", "sentence"),
    [
        ("Raising", f"Compaction failed at {SERVICES}:Raising: KeyError: 'no such thing'"),
        ("Confused", "is missing or not of the recorded size"),
        ("Strange", "it returned dict, not a Manifest"),
    ],
)
def test_a_failing_service_fails_its_run(
    broker_process: MakeBroker, service: str, sentence: str
) -> None:
    """The record has the reason, and the topic is unchanged: raw, without files of the run."""
    broker = broker_process("--compaction-service", f"{SERVICES}:{service}", compactor="local")
    with Admin(broker.url) as admin:
        status = _compacted(admin, broker.url)
        assert status.status == admin_pb2.COMPACTION_STATUS_ERROR
        assert sentence in status.last_error
        assert _values(broker.url) == [b"1", b"2", b"1"]
        ledgers = broker.data_dir / "ledgers"
        assert not (ledgers / str(status.run.ledger_id)).exists()


@pytest.mark.slow
def test_a_hanging_service_does_not_delay_the_shutdown(broker_process: MakeBroker) -> None:
    """Its run is cancelled, and the broker stops."""
    broker = broker_process("--compaction-service", f"{SERVICES}:Stuck", compactor="local")
    with Admin(broker.url) as admin, Client(broker.url) as client:
        client.create_producer("prices").send(b"1", partition_key="a")
        assert admin.trigger_compaction("prices") == 1
        next(iter(admin.watch_compaction("prices", timeout_seconds=RUN_S)))
    assert broker.stop() == 0
    assert "did not close within 10 s" in broker.log.read_text()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((f"{SERVICES}:Copying", "--compactor", "off"), "omit --compactor off"),
        (("nowhere:Copying",), "nowhere:Copying: it cannot be created (ModuleNotFoundError"),
        ((f"{SERVICES}:NoService",), "its result, NoService, has no `async def run`"),
    ],
)
def test_a_service_that_cannot_be_loaded_ends_the_start(
    tmp_path: Path, arguments: tuple[str, ...], sentence: str
) -> None:
    """The error has the reason, and nothing is created; also if a worker is requested in
    addition.
    """
    data = str(tmp_path / "data")
    ran = run(
        ["serve", "--data", data, "--listen", "127.0.0.1:0", "--compaction-service", *arguments]
    )
    assert ran.returncode == 2
    assert sentence in ran.stderr.decode()
    assert ran.stderr.count(b"\n") == 1
    assert not (tmp_path / "data").exists()


def test_pulsars_factory_names_select_the_worker(broker_process: MakeBroker) -> None:
    """The strategy is the broker's policy, the lowest level."""
    broker = broker_process("--compaction-service", PULSARS)
    with Admin(broker.url) as admin:
        found = admin.compaction_strategy(namespace="public/default", applied=True)
        assert found is not None
        assert found.name == "event-time"
        assert admin.broker_info().compactor_state == admin_pb2.COMPACTOR_STATE_DISABLED


def test_a_strategy_from_another_package_compacts(
    broker_process: MakeBroker, tmp_path: Path
) -> None:
    """Set, run, recorded; a strategy that does not answer is refused, and not set.

    tests/spark/test_own_strategies.py runs such strategies on Spark.
    """
    (tmp_path / "packages").mkdir()
    package = OutsidePackage(tmp_path / "packages")
    package.write()
    broker = broker_process(
        *("--strategy-timeout", "2s", "--strategy-memory", "200M"),
        *(f"--allow-strategy=outside:{name}" for name in ("Early", "Gone", "Raises")),
        environment=package.environment,
        compactor="inline",
    )
    with Admin(broker.url) as admin:
        # While the worker starts: a check does not need its engine.
        admin.create_topic("prices")
        for name, why in [
            ("outside:Early", "it returned 'maybe', which is neither True nor False"),
            ("outside:Gone", "module outside has no Gone"),
            ("nobodys", "has an entry point 'ledgerfold.strategies' of that name"),
        ]:
            with pytest.raises(InvalidStrategy, match=f"Strategy '{name}' cannot be used: .*{why}"):
                admin.set_compaction_strategy(name, topic="prices")
        assert admin.compaction_strategy(topic="prices") is None
        admin.set_compaction_strategy("longest", {"even": "yes"}, topic="prices")
        broker.wait_for_compactor()
        assert _compacted(admin, broker.url).status == admin_pb2.COMPACTION_STATUS_SUCCESS
        assert _values(broker.url) == [b"1", b"1"]
        (run,) = admin.runs("prices")
        assert (run.strategy, run.strategy_version) == ("longest", "2.5")
        assert run.strategy_settings == {"even": "yes"}

        admin.set_compaction_strategy("outside:Raises", topic="prices")
        with Client(broker.url) as client:
            client.create_producer("prices").send(b"harm", partition_key="a")
        admin.trigger_compaction("prices")
        status = list(admin.watch_compaction("prices", timeout_seconds=RUN_S))[-1]
        assert status.status == admin_pb2.COMPACTION_STATUS_ERROR
        assert "strategy 'outside:Raises'" in status.last_error
        assert "nothing of the kind" in status.last_error
        assert _values(broker.url) == [b"1", b"1", b"harm"]
