"""kill -9 of a broker whose worker is suspended: the next start ends all of the worker's processes.

Otherwise the old worker's tasks would continue to write into the folder that recovery removes, and
its end would remove the scratch folder of the new one.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from ledgerfold.broker.client import Client
from ledgerfold.broker.client.administration.admin import Admin
from ledgerfold.broker.worker.remains import processes
from ledgerfold.v1.records_pb2 import RUN_STATE_SUCCESS
from tests.conftest import MakeBroker
from tests.support.waiting import RUN_S, wait_until

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc").is_dir(), reason="processes are found in /proc"),
]


def test_the_next_start_ends_the_worker_of_a_killed_broker(
    broker_process: MakeBroker,
) -> None:
    """The next start succeeds, no process of the old worker remains, and the new one, which starts
    without Spark, compacts.
    """
    broker = broker_process(compactor="local")
    broker.wait_for_compactor()
    token = _token(broker.data_dir)
    wait_until(lambda: len(list(processes(token))) >= 3, "the worker, its JVM, Spark's daemon")
    old = list(processes(token))
    # So they cannot follow their parents by themselves, as after a kill in the middle of a write.
    for pid in old:
        os.kill(pid, signal.SIGSTOP)
    broker.kill()
    broker = broker_process(compactor="inline")
    assert list(processes(token)) == []
    broker.wait_for_compactor()
    assert _token(broker.data_dir) != token
    with Client(broker.url) as client:
        client.create_producer("t").send(b"value", partition_key="key")
    with Admin(broker.url) as admin:
        admin.trigger_compaction("t")
        for _ in admin.watch_compaction("t", timeout_seconds=RUN_S):
            pass
        assert admin.runs("t", limit=1)[0].state == RUN_STATE_SUCCESS
    assert broker.stop() == 0
    assert list((broker.data_dir / "compactor" / "work").iterdir()) == []


def _token(data_dir: Path) -> str:
    """Returns the token of the only worker."""
    (folder,) = (data_dir / "compactor" / "work").iterdir()
    return folder.name
