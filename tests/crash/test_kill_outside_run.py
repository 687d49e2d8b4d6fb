"""kill -9 of a compaction outside of the broker, at the write that publishes its view.

As for a run inside (test_kill_compaction.py): the next broker shows the old view or the new one, no
unreferenced file remains, and the next run succeeds.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from ledgerfold.broker.client.administration.admin import Admin
from ledgerfold.v1.records_pb2 import RUN_STATE_ERROR, RUN_STATE_SUCCESS
from tests.conftest import MakeBroker
from tests.crash.test_kill_compaction import FIRST, NEW, OLD, SECOND, compacted_view, orphans
from tests.crash.test_kill_compaction import publish as publish_to
from tests.support.command_line import command
from tests.support.waiting import WAIT_S

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def compact(data_dir: Path, worker: str, crash_at: str = "") -> int:
    """Compacts. Returns the exit code; negative: the signal."""
    environment = os.environ | ({"LEDGERFOLD_CRASH_AT": crash_at} if crash_at else {})
    return subprocess.run(
        command("compact", "--data", str(data_dir), "--compactor", worker, "t"),
        capture_output=True,
        timeout=3 * WAIT_S,
        env=environment,
        check=False,
    ).returncode


@pytest.mark.parametrize("point", ["commit.before-batch", "commit.after-batch"])
def test_a_killed_compaction_outside_of_the_broker(
    broker_process: MakeBroker, worker: str, point: str
) -> None:
    """Old view or new view; the same records as of a run inside."""
    broker = broker_process()
    publish_to(broker, FIRST)
    broker.stop()
    assert compact(broker.data_dir, worker) == 0
    broker.restart()
    publish_to(broker, SECOND)
    broker.stop()
    assert compact(broker.data_dir, worker, point) < 0
    broker.restart()
    is_committed = point == "commit.after-batch"
    assert compacted_view(broker) == (NEW if is_committed else OLD)
    with Admin(broker.url) as admin:
        state = RUN_STATE_SUCCESS if is_committed else RUN_STATE_ERROR
        assert [run.state for run in admin.runs("t")] == [state, RUN_STATE_SUCCESS]
    broker.stop()
    assert compact(broker.data_dir, worker) == 0
    broker.restart()
    assert compacted_view(broker) == NEW
    broker.stop()
    assert orphans(broker.data_dir) == []
