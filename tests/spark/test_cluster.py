"""A worker on a standalone cluster: its results are those of local runs, byte for byte.

Speculative execution is on: Spark starts slow tasks a second time.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from ledgerfold.v1.compactor_pb2 import CompactionPlan, Manifest, RunRequest
from tests.model.strategy_model import Message
from tests.support.compaction import LogBuilder
from tests.support.compactor_process import CompactorProcess
from tests.support.spark_cluster import JAVA_OPTIONS, SparkCluster
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
# Spark repeats a task as soon as it takes longer than one that has ended.
SETTINGS = f"""
spark.executor.extraJavaOptions {JAVA_OPTIONS}
spark.speculation true
spark.speculation.interval 100ms
spark.speculation.quantile 0.1
spark.speculation.multiplier 1.01
spark.speculation.minTaskRuntime 1ms
"""
# More entries than one task takes.
ENTRIES = 3_000
SEGMENTS = 4


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    with SparkCluster(tmp_path_factory.mktemp("cluster")) as started:
        yield started


@pytest.fixture(scope="module")
def remote(
    cluster: SparkCluster, tmp_path_factory: pytest.TempPathFactory, cache_dir: Path
) -> Iterator[CompactorProcess]:
    """A worker whose tasks run on the cluster."""
    folder = tmp_path_factory.mktemp("remote")
    settings = folder / "conf"
    settings.mkdir()
    (settings / "spark-defaults.conf").write_text(SETTINGS)
    environment = {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_CONF_DIR": str(settings)}
    arguments = ("--spark-master", cluster.url)
    with CompactorProcess(folder, cache_dir, environment, arguments) as started:
        started.wait_until_serving()
        yield started


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> LogBuilder:
    built = LogBuilder(tmp_path_factory.mktemp("log"))
    for ledger_id in range(1, SEGMENTS + 1):
        keys = (b"k%d" % (number * ledger_id % 5_000) for number in range(ENTRIES))
        built.add_segment(ledger_id, [[Message(key, b"%d" % ledger_id)] for key in keys])
    return built


@pytest.fixture(scope="module")
def local(log: LogBuilder, worker: CompactorProcess) -> list[tuple[str, bytes]]:
    """The files of a local run."""
    _, manifest = worker.run(log.plan(100))
    return files_of(log, manifest)


def files_of(log: LogBuilder, manifest: Manifest) -> list[tuple[str, bytes]]:
    """Returns the bytes by name within the ledger."""
    paths = [log.ledgers_dir / each.path for each in manifest.segments]
    return [(path.name, path.read_bytes()) for path in paths]


def test_a_cluster_writes_the_same_files_as_a_local_run(
    log: LogBuilder, local: list[tuple[str, bytes]], remote: CompactorProcess
) -> None:
    _, elsewhere = remote.run(log.plan(101))
    assert files_of(log, elsewhere) == local


def test_an_executor_is_killed_during_a_run(
    log: LogBuilder,
    local: list[tuple[str, bytes]],
    remote: CompactorProcess,
    cluster: SparkCluster,
) -> None:
    """Its tasks run again with the same result."""
    plan: CompactionPlan = log.plan(103)
    call = remote.stub.Run(RunRequest(plan=plan), timeout=120)
    assert next(call).HasField("progress")
    os.kill(cluster.executors()[0], signal.SIGKILL)
    responses = list(call)
    assert files_of(log, responses[-1].manifest) == local


def test_speculative_tasks_write_the_same_files(
    log: LogBuilder,
    local: list[tuple[str, bytes]],
    remote: CompactorProcess,
    cluster: SparkCluster,
) -> None:
    """Both attempts write the same files. Slow attempts that end later change nothing."""
    plan: CompactionPlan = log.plan(105)
    call = remote.stub.Run(RunRequest(plan=plan), timeout=120)
    assert next(call).HasField("progress")
    # Both may still be starting their Python.
    stopped = wait_until(cluster.busy_python, "Python on an executor")
    for each in stopped:
        os.kill(each, signal.SIGSTOP)
    try:
        manifest = list(call)[-1].manifest
        assert files_of(log, manifest) == local
    finally:
        for each in stopped:
            with contextlib.suppress(ProcessLookupError):
                os.kill(each, signal.SIGCONT)
    # Tasks run on both executors again.
    remote.run(log.plan(106))
    assert files_of(log, manifest) == local
