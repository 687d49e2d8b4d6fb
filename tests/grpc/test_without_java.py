"""A broker without Java and pyspark: it compacts inline, and reports this."""

from __future__ import annotations

from pathlib import Path

import pytest

from ledgerfold.broker.client import Client, MessageId
from ledgerfold.broker.client.administration.admin import Admin
from ledgerfold.v1.admin_pb2 import COMPACTOR_STATE_READY
from ledgerfold.v1.records_pb2 import RUN_STATE_SUCCESS
from tests.conftest import MakeBroker
from tests.support.broker_process import BrokerProcess
from tests.support.waiting import wait_until

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
            for _ in admin.watch_compaction("t", timeout_seconds=60):
                pass
            with client.create_producer("t") as producer:
                producer.send(b"new", partition_key="k0")
        runs = admin.runs("t")
        assert [(run.engine, run.state) for run in runs] == [("inline", RUN_STATE_SUCCESS)] * 2
        with client.create_reader("t", MessageId.earliest, is_read_compacted=True) as reader:
            values = {}
            while reader.has_message_available():
                message = reader.read_next(timeout_millis=20_000)
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
