"""Tests the worker process over gRPC: runs, failures, cancellation, its end."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import grpc
import pytest

from ledgerfold.compactor.class_archive import class_archive
from ledgerfold.compactor.java import find_java
from ledgerfold.compactor.service import SECRET_KEY
from ledgerfold.rpc_errors import error_from_rpc
from ledgerfold.storage.errors import CompactionFailed
from ledgerfold.v1.compactor_pb2 import (
    CancelRequest,
    CompactionPlan,
    GetCompactorInfoRequest,
    RunRequest,
)
from ledgerfold.v1.compactor_pb2_grpc import CompactorServiceStub
from tests.model.strategy_model import Message
from tests.support.compaction import LogBuilder, damage, read_messages
from tests.support.compactor_process import CompactorProcess, reason_of
from tests.support.processes import command
from tests.support.small_disk import CannotMount, SmallDisk
from tests.support.waiting import SPARK_START_S, WAIT_S, wait_until

A1, A2, B1 = Message(b"a", b"1"), Message(b"a", b"2"), Message(b"b", b"1")


def _log(folder: Path) -> LogBuilder:
    log = LogBuilder(folder)
    log.add_segment(1, [[A1, B1], [A2]])
    return log


def _endless(folder: Path) -> CompactionPlan:
    """Returns a plan whose first segment is a pipe without a writer, so that its task waits for
    ever.
    """
    log = _log(folder)
    path = log.ledgers_dir / log.segments[0].path
    path.unlink()
    os.mkfifo(path)
    return log.plan(100)


def test_a_run_sends_progress_then_a_manifest(worker: CompactorProcess, tmp_path: Path) -> None:
    """The manifest lists what the model keeps, with counts and times."""
    log = _log(tmp_path)
    responses, manifest = worker.run(log.plan(100))
    assert responses[0].HasField("progress")
    assert (manifest.run_id, manifest.ledger_id) == ("run-100", 100)
    assert (manifest.horizon.ledger_id, manifest.horizon.entry_id) == (1, 1)
    assert read_messages(log.ledgers_dir, manifest.segments) == log.expected()
    assert (manifest.counts.messages_in, manifest.counts.messages_out) == (3, 2)
    assert manifest.counts.worker_peak_bytes > 0


def test_a_worker_on_a_full_disk_does_not_hang(tmp_path: Path, cache_dir: Path) -> None:
    """Its JVM cannot write its port, and would wait for ever. Inline, the worker needs no room."""
    folder = tmp_path / "a worker's"
    folder.mkdir()
    try:
        with SmallDisk(tmp_path / "disk", size_mb=1) as disk:
            disk.fill()
            options = ("--engine", "auto", "--local-dir", str(disk.path / "local"))
            with CompactorProcess(folder, cache_dir, arguments=options) as worker:
                assert worker.process.stdout is not None
                event = json.loads(worker.process.stdout.readline())
                assert not worker.jvms()
    except CannotMount as error:
        pytest.skip(f"needs leave to mount a tmpfs: {error}")
    assert (event["event"], event["engine"]) == ("engine", "inline")
    assert "could not write to" in event["why"]


def test_a_killed_worker_leaves_no_temporary_files(tmp_path: Path, cache_dir: Path) -> None:
    """The temporary files of the worker, the JVM and Spark lie in its local folder."""
    shared, folder = tmp_path / "shared", tmp_path / "a worker's"
    shared.mkdir()
    folder.mkdir()
    # The machine's default: the JVM asks the system, not TMPDIR.
    environment = {"TMPDIR": str(shared), "JDK_JAVA_OPTIONS": f"-Djava.io.tmpdir={shared}"}
    with CompactorProcess(folder, cache_dir, environment) as worker:
        worker.wait_until_serving()
        worker.run(_log(tmp_path).plan(100))
        worker.process.kill()
    assert not list(shared.iterdir())


def test_damage_is_reported_as_data_loss_with_a_reason(
    worker: CompactorProcess, tmp_path: Path
) -> None:
    """The caller gets file and place in one sentence, not a stack trace."""
    log = _log(tmp_path)
    damage(log.ledgers_dir / log.segments[0].path, 100)
    with pytest.raises(grpc.RpcError) as raised:
        worker.run(log.plan(100))
    assert raised.value.code() == grpc.StatusCode.DATA_LOSS
    assert reason_of(raised.value) == "DATA_CORRUPT"
    assert str(raised.value.details()).startswith(str(log.ledgers_dir / log.segments[0].path))
    assert not (log.ledgers_dir / "100").exists()


def test_calls_without_the_secret_are_refused(worker: CompactorProcess, tmp_path: Path) -> None:
    """Any process of the machine can find the port; its requests are not even parsed."""
    log = _log(tmp_path)
    with grpc.insecure_channel(worker.address) as channel:
        stranger: Any = CompactorServiceStub(channel)
        wrong = [(SECRET_KEY, b"a guess")]
        for ask in (
            lambda: list(stranger.Run(RunRequest(plan=log.plan(100)))),
            lambda: list(stranger.Run(RunRequest(plan=log.plan(100)), metadata=wrong)),
            lambda: stranger.Cancel(CancelRequest(run_id="run-100")),
            lambda: stranger.GetCompactorInfo(GetCompactorInfoRequest()),
        ):
            with pytest.raises(grpc.RpcError) as raised:
                ask()
            assert raised.value.code() == grpc.StatusCode.PERMISSION_DENIED
            assert reason_of(raised.value) == "NOT_ALLOWED"
    assert not (log.ledgers_dir / "100").exists()


def test_an_unknown_strategy_is_refused(worker: CompactorProcess, tmp_path: Path) -> None:
    """It is refused before anything is written; the error lists the known ones."""
    plan = _log(tmp_path).plan(100, strategy="oldest")
    with pytest.raises(grpc.RpcError) as raised:
        worker.run(plan)
    assert raised.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert reason_of(raised.value) == "UNKNOWN_STRATEGY"
    assert "It has: 'publishing-order' version 1, " in str(raised.value.details())
    assert not (tmp_path / "ledgers" / "100").exists()


def test_cancel_ends_the_run(worker: CompactorProcess, tmp_path: Path) -> None:
    """Running or queued, a cancelled run leaves nothing; the next one succeeds."""
    plan = _endless(tmp_path / "endless")
    waiting = _log(tmp_path / "waiting").plan(100)
    waiting.run_id = "waiting"
    with worker.running(plan) as call, worker.running(waiting) as second:
        wait_until((tmp_path / "endless" / "ledgers" / "100").exists, "the run's folder")
        assert worker.stub.Cancel(CancelRequest(run_id="waiting")).found
        wait_until(second.done, "the end of the waiting run")
        assert worker.stub.Cancel(CancelRequest(run_id=plan.run_id)).found
        wait_until(call.done, "the end of the running one")
        for ended in (second, call):
            assert ended.code() == grpc.StatusCode.CANCELLED
            assert reason_of(ended) == "COMPACTION_CANCELLED"
    assert not (tmp_path / "endless" / "ledgers" / "100").exists()
    assert not worker.stub.Cancel(CancelRequest(run_id=plan.run_id)).found
    log = _log(tmp_path / "next")
    assert read_messages(log.ledgers_dir, worker.run(log.plan(5))[1].segments) == log.expected()


def test_a_disconnected_client_cancels_its_run(worker: CompactorProcess, tmp_path: Path) -> None:
    """A broken call leaves neither a run nor files."""
    plan = _endless(tmp_path)
    with worker.running(plan) as call:
        wait_until((tmp_path / "ledgers" / "100").exists, "the run's folder")
        call.cancel()
    wait_until(lambda: not (tmp_path / "ledgers" / "100").exists(), "the folder's removal")
    wait_until(
        lambda: not worker.stub.Cancel(CancelRequest(run_id=plan.run_id)).found, "the run's end"
    )


def test_an_idle_worker_leaves_a_class_archive(
    worker: CompactorProcess, cache_dir: Path, tmp_path: Path
) -> None:
    """No run waits for it; the JVMs of later workers of the machine use it."""
    # At the lowest priority: on a busy machine it takes minutes.
    wait_until(lambda: list(cache_dir.glob("*.jsa")), "the class-data archive", SPARK_START_S)
    with CompactorProcess(tmp_path, cache_dir) as later:
        later.wait_until_serving()
        maps = [Path(f"/proc/{pid}/maps").read_text() for pid in later.jvms()]
    # A JVM silently ignores an archive that does not fit.
    assert [str(cache_dir) in each for each in maps] == [True]


def test_a_worker_stopped_while_its_archive_is_written_leaves_none(tmp_path: Path) -> None:
    """Until then, runs go on. What a killed worker left is removed, too."""
    cache = tmp_path / "cache"
    cache.mkdir()
    (cache / f"{class_archive(cache, find_java(os.environ)).path.name}.1.tmp").touch()
    with CompactorProcess(tmp_path, cache) as hurried:
        hurried.wait_until_serving()
        wait_until(lambda: any("-Xshare:dump" in command(pid) for pid in hurried.jvms()), "its JVM")
        log = _log(tmp_path)
        assert read_messages(log.ledgers_dir, hurried.run(log.plan(5))[1].segments)
        hurried.process.terminate()
        assert hurried.process.wait(WAIT_S) == 0
        wait_until(lambda: not hurried.children(), "the end of both JVMs")
    assert not list(cache.iterdir())


def test_an_archive_that_java_ignores_is_removed(tmp_path: Path) -> None:
    """For example after a new installation of Spark: its jars are not those of the archive."""
    archive = class_archive(tmp_path, find_java(os.environ)).path
    archive.touch()
    with CompactorProcess(tmp_path, tmp_path) as warned:
        wait_until(lambda: not archive.exists(), "the removal")
        assert warned.is_serving


def test_an_archive_on_which_java_crashes_is_removed(tmp_path: Path) -> None:
    """Otherwise no later start of Spark would succeed."""
    java = find_java(os.environ)
    archive = class_archive(tmp_path, java).path
    options = ["-XX:+UseSerialGC", "-Xmx1g", "-Xshare:dump", f"-XX:SharedArchiveFile={archive}"]
    subprocess.run([java.home / "bin" / "java", *options], check=True, capture_output=True)
    os.truncate(archive, archive.stat().st_size // 2)
    report = f"-XX:ErrorFile={tmp_path / 'crash.txt'}"
    with CompactorProcess(tmp_path, tmp_path, {"JAVA_TOOL_OPTIONS": report}) as crashed:
        assert crashed.process.wait(WAIT_S) == 1
    assert not archive.exists()


def test_the_worker_describes_itself(worker: CompactorProcess) -> None:
    """It returns versions, master and pid."""
    info = worker.stub.GetCompactorInfo(GetCompactorInfoRequest())
    assert (info.pid, info.spark_master) == (worker.process.pid, "local[2]")
    assert info.spark_version
    assert info.java_version


def test_a_killed_task_fails_its_run_only(tmp_path: Path, cache_dir: Path) -> None:
    """Kills Spark's Python process within a write, then ends the parent.

    The run fails with a clear error and leaves nothing, and the worker keeps serving. When its
    standard input ends, it exits with 0 and ends its JVM and removes its folder.
    """
    environment = {"LEDGERFOLD_CRASH_AT": "worker.segment-written"}
    with CompactorProcess(tmp_path, cache_dir, environment) as deletable:
        deletable.wait_until_serving()
        log = _log(tmp_path)
        with pytest.raises(grpc.RpcError) as raised:
            deletable.run(log.plan(100))
        assert reason_of(raised.value) == "COMPACTION_FAILED"
        assert "killed" in str(raised.value.details())
        assert not (tmp_path / "ledgers" / "100").exists()
        assert deletable.is_serving
        assert deletable.process.stdin is not None
        deletable.process.stdin.close()
        assert deletable.process.wait(WAIT_S) == 0
        wait_until(lambda: not deletable.children(), "the end of the JVM and its children")
        assert not (deletable.local_dir / "spark").exists()


def test_the_worker_ends_with_its_jvm(tmp_path: Path, cache_dir: Path) -> None:
    """Kills the JVM within a run: the run fails, and the process exits with 1 for its
    supervisor.

    Until then it runs, although its standard input is /dev/null: a user's or a service manager's,
    not a broker's pipe.
    """
    plan = _endless(tmp_path)
    with CompactorProcess(tmp_path, cache_dir, stdin=subprocess.DEVNULL) as orphaned:
        orphaned.wait_until_serving()
        assert orphaned.process.poll() is None
        with orphaned.running(plan) as call:
            wait_until((tmp_path / "ledgers" / "100").exists, "the run's folder")
            for pid in orphaned.jvms():
                os.kill(pid, signal.SIGKILL)
            wait_until(call.done, "the end of the run")
            assert call.code() == grpc.StatusCode.INTERNAL
            error = error_from_rpc(call)
            assert isinstance(error, CompactionFailed)
            assert error.worker_died
            assert "Spark's JVM ended (signal SIGKILL)" in error.message
        assert orphaned.process.wait(WAIT_S) == 1
        wait_until(lambda: not orphaned.children(), "the end of its Python workers")
        assert not (tmp_path / "ledgers" / "100").exists()


def test_a_worker_stopped_while_spark_starts_leaves_no_jvm(tmp_path: Path) -> None:
    """Without its temporary folder a starting JVM neither continues nor ends."""
    with CompactorProcess(tmp_path) as hurried:
        wait_until(lambda: any("java" in command(pid) for pid in hurried.children()), "its JVM")
        hurried.process.terminate()
        assert hurried.process.wait(WAIT_S) == 0
        shutil.rmtree(hurried.local_dir, ignore_errors=True)
        wait_until(lambda: not hurried.children(), "the end of its JVM")
