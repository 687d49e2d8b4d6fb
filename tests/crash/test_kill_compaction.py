"""kill -9 at each named step of a compaction, in the broker and in the worker.

After the restart the view is the old one or the new one, never a mixture (FLT-04); no unreferenced
file remains; and the next compaction succeeds. The brokers share one worker, found at its address:
Spark starts once.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from ledgerfold.broker.client import Client, MessageId
from ledgerfold.broker.client.administration.admin import Admin
from ledgerfold.storage.errors import LedgerfoldError
from ledgerfold.storage.metadata import MetadataStore
from ledgerfold.storage.names import ledgers_dir, metadata_dir
from ledgerfold.storage.rocks import RocksKeyValue
from ledgerfold.v1.records_pb2 import RUN_STATE_ERROR, RUN_STATE_SUCCESS
from tests.conftest import MakeBroker
from tests.support.broker_process import BrokerProcess
from tests.support.ledgers import is_segment
from tests.support.waiting import RUN_S, WAIT_MS

pytestmark = [pytest.mark.spark, pytest.mark.slow]

FIRST = [("a", "1"), ("b", "1"), ("a", "2")]
SECOND = [("b", "2"), ("c", "1"), ("a", "")]
# The old view at its horizon, followed by the raw tail, and the new view.
OLD = [("b", "1"), ("a", "2"), ("b", "2"), ("c", "1"), ("a", "")]
NEW = [("b", "2"), ("c", "1")]

# Reached once in each compaction, so the second time is in the second one.
IN_EVERY_RUN = (
    "run.recorded",
    "run.sealed",
    "run.planned",
    "run.manifest-received",
    "commit.before-batch",
    "commit.after-batch",
)
# Reached only when an older compacted ledger is replaced.
WHEN_REPLACING = ("commit.before-delete", "commit.after-delete")
BROKER_POINTS = [*(f"{point}@2" for point in IN_EVERY_RUN), *WHEN_REPLACING]


def publish(broker: BrokerProcess, messages: list[tuple[str, str]]) -> None:
    client = Client(broker.url)
    producer = client.create_producer("t")
    for key, value in messages:
        producer.send(value.encode(), partition_key=key)
    client.close()


def compacted_view(broker: BrokerProcess) -> list[tuple[str, str]]:
    client = Client(broker.url)
    reader = client.create_reader("t", MessageId.earliest, is_read_compacted=True)
    found = []
    while reader.has_message_available():
        message = reader.read_next(timeout_millis=WAIT_MS)
        found.append((message.partition_key(), message.data().decode()))
    client.close()
    return found


def compact(broker: BrokerProcess) -> int:
    """Runs one to its end; returns the run's state."""
    with Admin(broker.url) as admin:
        admin.trigger_compaction("t")
        for _ in admin.watch_compaction("t", timeout_seconds=RUN_S):
            pass
        return int(admin.runs("t", limit=1)[0].state)


def orphans(data_dir: Path) -> list[str]:
    """Returns the files below ledgers/ that no record names. The broker is stopped."""
    metadata = MetadataStore(RocksKeyValue(metadata_dir(data_dir)))
    try:
        named = {segment.path for each in metadata.ledgers() for segment in each.segments}
    finally:
        metadata.close()
    root = ledgers_dir(data_dir)
    files = {str(path.relative_to(root)) for path in root.rglob("*") if is_segment(path.name)}
    assert named <= files
    return sorted(files - named)


@pytest.mark.parametrize("point", BROKER_POINTS)
def test_a_broker_killed_in_a_compaction(
    broker_process: MakeBroker, worker: str, point: str
) -> None:
    """Old view or new view; no leftovers; the next run succeeds."""
    broker = broker_process(compactor=worker, crash_at=point)
    broker.wait_for_compactor()
    publish(broker, FIRST)
    assert compact(broker) == RUN_STATE_SUCCESS
    publish(broker, SECOND)
    # The last answer may have been faster than the signal.
    with contextlib.suppress(LedgerfoldError):
        compact(broker)
    broker.wait()
    broker.restart()
    is_committed = point.startswith("commit.") and "before-batch" not in point
    assert compacted_view(broker) == (NEW if is_committed else OLD)
    broker.wait_for_compactor()
    if not is_committed:
        with Admin(broker.url) as admin:
            assert admin.runs("t", limit=1)[0].state == RUN_STATE_ERROR
        assert compact(broker) == RUN_STATE_SUCCESS
    assert compacted_view(broker) == NEW
    assert broker.stop() == 0
    assert orphans(broker.data_dir) == []


# Spark starts twice.
@pytest.mark.timeout(300)
def test_a_worker_killed_in_a_compaction(broker_process: MakeBroker) -> None:
    """The broker continues, the old view stays, the record has the reason, and a new worker
    compacts.
    """
    broker = broker_process(compactor="local", crash_at="worker.before-manifest@2")
    broker.wait_for_compactor()
    publish(broker, FIRST)
    states = [compact(broker)]
    publish(broker, SECOND)
    while states[-1] != RUN_STATE_ERROR and len(states) < 4:
        publish(broker, SECOND)
        states.append(compact(broker))
    assert states[-1] == RUN_STATE_ERROR
    with Admin(broker.url) as admin:
        assert "worker" in admin.runs("t", limit=1)[0].error_message
    broker.wait_for_compactor()
    assert compact(broker) == RUN_STATE_SUCCESS
    assert compacted_view(broker) == NEW
    assert broker.stop() == 0
    assert orphans(broker.data_dir) == []
