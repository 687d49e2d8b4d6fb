"""A round of Kafka's cleaner on Spark, with real shuffles, and over gRPC."""

from __future__ import annotations

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path

import pytest

from ledgerfold.compactor.job.session import Session
from ledgerfold.compactor.kafka import plan as plan_module
from ledgerfold.compactor.kafka.run import CleanRun
from ledgerfold.storage.errors import (
    CompactionCancelled,
    CompactionFailed,
    Corruption,
    InvalidRequest,
)
from ledgerfold.storage.files import REAL
from ledgerfold.v1.compactor_pb2 import CleanManifest, CleanRequest
from tests.support.compaction import damage
from tests.support.compactor_process import CompactorProcess
from tests.support.kafka_log import KafkaLog, batches_of, run_round
from tests.support.processes import command
from tests.support.waiting import wait_until


@pytest.fixture
def log(tmp_path: Path) -> KafkaLog:
    """Returns two segments of several files each."""
    log = KafkaLog(tmp_path)
    for start in (0, 60):
        pairs = (f"[{n}:k{n % 17}=v{n} {n + 1}:k{n % 5}]" for n in range(start, start + 60, 2))
        log.write(" ".join(pairs), compression=start // 60)
        log.roll(7)
    return log


@pytest.fixture
def small_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes tasks so small that a short log is spread over several of each kind."""
    monkeypatch.setattr(plan_module, "SOLO_BYTES", 0)
    monkeypatch.setattr(plan_module, "TASK_BYTES", 1_000)
    monkeypatch.setattr(plan_module, "BUCKET_BYTES", 2_000)


def _comparable(manifest: CleanManifest) -> CleanManifest:
    copied = CleanManifest.FromString(manifest.SerializeToString())
    copied.run_id = ""
    copied.stats.map_ms = copied.stats.copy_ms = copied.stats.worker_peak_bytes = 0
    for group in copied.groups:
        group.ledger_id = 0
        del group.files[:]
    return copied


@pytest.mark.usefixtures("small_tasks")
@pytest.mark.parametrize("keys_max", [1_000, 6])
def test_spark_and_one_process_write_the_same(
    session: Session, log: KafkaLog, keys_max: int
) -> None:
    """Tests a map with room for all keys, and a full one."""
    plan = log.plan(keys_max=keys_max, run_id=f"round-{keys_max}")
    run = CleanRun(plan, session, REAL, time.time)
    manifest = run.execute()
    alone = run_round(log.plan(keys_max=keys_max))
    assert _comparable(manifest) == _comparable(alone)
    assert manifest.stats.worker_peak_bytes > 0
    assert run.progress.tasks_done == run.progress.tasks_total > 1
    before = log.segments
    log.take(alone)
    expected = log.batches()
    log.segments = before
    log.take(manifest)
    assert log.batches() == expected


def test_a_dry_run_makes_no_folder(session: Session, log: KafkaLog) -> None:
    before = sorted(log.ledgers_dir.rglob("*"))
    plan = log.plan(dry_run=True, ledger_ids=[])
    assert CleanRun(plan, session, REAL, time.time).execute().stats.messages_written > 0
    assert sorted(log.ledgers_dir.rglob("*")) == before


def test_a_damaged_file_fails_the_cleaning_and_leaves_nothing(
    session: Session, log: KafkaLog
) -> None:
    path = log.ledgers_dir / log.segments[1].files[0].path
    damage(path, path.stat().st_size - 5)
    before = sorted(log.ledgers_dir.rglob("*"))
    with pytest.raises(Corruption, match="value section"):
        CleanRun(log.plan(), session, REAL, time.time).execute()
    assert sorted(log.ledgers_dir.rglob("*")) == before


def test_a_cancelled_cleaning_leaves_nothing(session: Session, log: KafkaLog) -> None:
    before = sorted(log.ledgers_dir.rglob("*"))
    run = CleanRun(log.plan(), session, REAL, time.time)
    run.cancel()
    with pytest.raises(CompactionCancelled):
        run.execute()
    assert sorted(log.ledgers_dir.rglob("*")) == before


@pytest.mark.usefixtures("small_tasks")
def test_a_throttled_cleaning_takes_the_expected_time(session: Session, log: KafkaLog) -> None:
    """Each phase takes at least the time of its bytes read and written."""
    plan = log.plan(run_id="paced", io_bytes_per_second=20_000)
    manifest = CleanRun(plan, session, REAL, time.time).execute()
    read = sum(file.size_bytes for segment in plan.segments for file in segment.files)
    written = sum(file.size_bytes for group in manifest.groups for file in group.files)
    assert manifest.stats.map_ms >= read / 20
    assert manifest.stats.copy_ms >= (read + written) / 20
    log.take(manifest)
    assert manifest.end_offset == 120


def _is_waiting(session: Session) -> bool:
    """Returns whether a task has begun."""
    tracker = session.context.statusTracker()
    stages = map(tracker.getStageInfo, tracker.getActiveStageIds())
    return any(stage is not None and stage.numActiveTasks for stage in stages)


def test_a_waiting_cleaning_is_cancelled(session: Session, log: KafkaLog) -> None:
    """At this rate its tasks would take weeks."""
    before = sorted(log.ledgers_dir.rglob("*"))
    plan = log.plan(run_id="slow", io_bytes_per_second=0.001)
    run = CleanRun(plan, session, REAL, time.time)
    with ThreadPoolExecutor(1) as executor:
        ended = executor.submit(run.execute)
        wait_until(lambda: _is_waiting(session), "a task that waits")
        run.cancel()
        with pytest.raises(CompactionCancelled):
            ended.result()
    assert sorted(log.ledgers_dir.rglob("*")) == before


def _leaves(pid: int) -> list[int]:
    """Returns the started processes without children."""
    listed = Path(f"/proc/{pid}/task").glob("*/children")
    children = [int(each) for path in listed for each in path.read_text().split()]
    return list(chain.from_iterable(map(_leaves, children))) if children else [pid]


def test_a_cleaning_with_a_killed_python_worker_is_retriable(
    session: Session, log: KafkaLog
) -> None:
    """A system short of memory may kill it; another round may succeed."""
    before = sorted(log.ledgers_dir.rglob("*"))
    plan = log.plan(run_id="killed", io_bytes_per_second=0.001)
    run = CleanRun(plan, session, REAL, time.time)
    with ThreadPoolExecutor(1) as executor:
        ended = executor.submit(run.execute)
        wait_until(lambda: _is_waiting(session), "a task that waits")
        for pid in _leaves(os.getpid()):
            if "compactor.daemon" in command(pid):
                os.kill(pid, signal.SIGKILL)
        with pytest.raises(CompactionFailed) as failure:
            ended.result()
    assert failure.value.worker_died
    assert sorted(log.ledgers_dir.rglob("*")) == before


def test_an_existing_folder_is_refused(session: Session, log: KafkaLog) -> None:
    plan = log.plan()
    theirs = log.ledgers_dir / str(plan.ledger_ids[0])
    theirs.mkdir()
    with pytest.raises(InvalidRequest, match="already exists"):
        CleanRun(plan, session, REAL, time.time).execute()
    assert theirs.exists()


def test_a_worker_cleans(worker: CompactorProcess, log: KafkaLog) -> None:
    """It sends progress, then the manifest."""
    plan = log.plan(run_id="cleaned-over-grpc")
    responses = list(worker.stub.Clean(CleanRequest(plan=plan)))
    assert responses[0].HasField("progress")
    manifest = responses[-1].manifest
    assert manifest.end_offset == 120
    log.take(manifest)
    assert len(batches_of(log.ledgers_dir, log.segments)) == manifest.groups[0].batches
