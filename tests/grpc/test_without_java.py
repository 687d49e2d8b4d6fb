"""A broker without Java and pyspark, or with a Java that fails: it compacts inline, and says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from ledgerfold.broker.client import Client, MessageId
from ledgerfold.broker.client.administration.admin import Admin
from ledgerfold.v1.admin_pb2 import COMPACTOR_STATE_READY, COMPACTOR_STATE_UNAVAILABLE
from ledgerfold.v1.records_pb2 import RUN_STATE_SUCCESS
from tests.conftest import MakeBroker
from tests.support.broker_process import BrokerProcess
from tests.support.waiting import RUN_S, WAIT_MS, wait_until

MESSAGES = 300


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """No Java, and a pyspark that cannot be imported."""
    blocked = tmp_path / "blocked"
    for name in ("pyspark", "py4j", "pandas"):
        (blocked / name).mkdir(parents=True)
        (blocked / name / "__init__.py").write_text(
            f"raise ImportError('no {name}', name='{name}')"
        )
    return {"JAVA_HOME": "", "PATH": str(tmp_path / "nothing"), "PYTHONPATH": str(blocked)}


@pytest.fixture
def broker(broker_process: MakeBroker, environment: dict[str, str]) -> BrokerProcess:
    return broker_process(environment=environment, compactor="auto")


def test_a_broker_without_java_compacts(broker: BrokerProcess) -> None:
    """Its state, its log and the run's record report it; the view has the last value of each
    key.
    """
    with Client(broker.url) as client, Admin(broker.url) as admin:
        with client.create_producer("t") as producer:
            for number in range(MESSAGES):
                producer.send_async(b"%d" % number, None, partition_key=f"k{number % 7}")
            producer.flush()
        for _ in range(2):
            assert admin.trigger_compaction("t")
            for _ in admin.watch_compaction("t", timeout_seconds=RUN_S):
                pass
            with client.create_producer("t") as producer:
                producer.send(b"new", partition_key="k0")
        runs = admin.runs("t")
        assert [(run.engine, run.state) for run in runs] == [("inline", RUN_STATE_SUCCESS)] * 2
        with client.create_reader("t", MessageId.earliest, is_read_compacted=True) as reader:
            values = {}
            while reader.has_message_available():
                message = reader.read_next(timeout_millis=WAIT_MS)
                values[message.partition_key()] = message.data()
        assert len(values) == 7
        assert values["k0"] == b"new"
        assert values["k6"] == b"293"
        wait_until(
            lambda: admin.broker_info().compactor_state == COMPACTOR_STATE_READY, "a ready worker"
        )
        told = admin.broker_info().compactor_message
    assert told.startswith("Compacting inline: Spark needs Java, and none was found.")
    assert broker.stderr.count("Compacting inline") == 1


@pytest.fixture
def broken_java(tmp_path: Path) -> dict[str, str]:
    """A Java of the right version that does not start."""
    home = tmp_path / "java"
    (home / "bin").mkdir(parents=True)
    (home / "release").write_text('JAVA_VERSION="21.0.1"\n')
    java = home / "bin" / "java"
    java.write_text("#!/bin/sh\necho 'Could not reserve enough space for heap' >&2\nexit 1\n")
    java.chmod(0o755)
    return {"JAVA_HOME": str(home)}


def test_a_broker_whose_java_fails_compacts(
    broker_process: MakeBroker, broken_java: dict[str, str]
) -> None:
    """With `auto`; its state, its log and the run's record say how, and the worker's log why."""
    broker = broker_process(environment=broken_java, compactor="auto")
    with Client(broker.url) as client, Admin(broker.url) as admin:
        with client.create_producer("t") as producer:
            producer.send(b"one", partition_key="k")
        assert admin.trigger_compaction("t")
        for _ in admin.watch_compaction("t", timeout_seconds=RUN_S):
            pass
        (run,) = admin.runs("t")
        assert (run.engine, run.state) == ("inline", RUN_STATE_SUCCESS)
        info = admin.broker_info()
    assert info.compactor_state == COMPACTOR_STATE_READY
    told = f"Compacting inline: Spark did not start on Java 21.0.1 ({broken_java['JAVA_HOME']})"
    assert info.compactor_message.startswith(told)
    assert broker.stderr.count("Compacting inline") == 1
    log = (broker.data_dir / "compactor" / "worker.log").read_text()
    assert "Could not reserve enough space" in log


def test_a_failing_java_is_an_error_with_engine_spark(
    broker_process: MakeBroker, broken_java: dict[str, str]
) -> None:
    """With `spark`, nothing else compacts; the state says why."""
    broker = broker_process(environment=broken_java, compactor="spark")
    with Admin(broker.url) as admin:
        wait_until(
            lambda: admin.broker_info().compactor_state == COMPACTOR_STATE_UNAVAILABLE, "the error"
        )
        assert admin.broker_info().compactor_message.startswith(
            "Spark did not start on Java 21.0.1"
        )
