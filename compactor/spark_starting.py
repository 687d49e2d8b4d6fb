"""The start of Spark in the worker, with its temporary folder and its archive."""

from __future__ import annotations

import contextlib
import logging
import os
import tempfile
import time
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path

import pyspark

from ledgerfold.compactor.class_archive import ArchiveWriter, ClassArchive
from ledgerfold.compactor.java import Java
from ledgerfold.compactor.job.engine import SPARK, Engine
from ledgerfold.compactor.job.executors import check_executors
from ledgerfold.compactor.job.pipeline import Clock, run_job
from ledgerfold.compactor.job.plan import TaskPlan, cut
from ledgerfold.compactor.job.session import Session, SessionSettings, end_jvm, start_session
from ledgerfold.compactor.launch import ends_if_mute
from ledgerfold.compactor.starting import EngineStart
from ledgerfold.storage.entry import stamp
from ledgerfold.storage.errors import CompactorUnavailable
from ledgerfold.storage.files import REAL, Files
from ledgerfold.storage.names import LEDGERS, segment_path
from ledgerfold.storage.native import NativeBatchBuilder
from ledgerfold.storage.segment import tally_segment
from ledgerfold.strategies.catalogue import DEFAULT
from ledgerfold.v1.compactor_pb2 import CompactionPlan, GetCompactorInfoResponse
from ledgerfold.v1.records_pb2 import Position, SegmentRecord

_log = logging.getLogger(__name__)


@dataclass
class SparkStart(EngineStart):
    """Spark. `local_dir` is used by this worker only and is emptied."""

    master: str
    local_dir: Path
    java: Java
    archive: ClassArchive
    name = SPARK

    def __post_init__(self) -> None:
        self._writer = ArchiveWriter(self.archive, REAL)
        self._class_list = self.local_dir / "classes"
        self._has_archive = False

    def info(self) -> GetCompactorInfoResponse:
        return GetCompactorInfoResponse(
            version=version("ledgerfold"),
            spark_version=pyspark.__version__,
            java_version=self.java.version,
            spark_master=self.master,
            pid=os.getpid(),
            engine=SPARK,
        )

    def start(self) -> Engine:
        # Remove the files of a killed worker.
        REAL.remove_dir(self.local_dir)
        REAL.make_dir(self.local_dir)
        # Temporary files of this process and its children are removed with the folder.
        os.environ["TMPDIR"] = tempfile.tempdir = str(self.local_dir)
        self._has_archive = self.archive.exists
        try:
            options = self.archive.java_options(self._class_list)
            with ends_if_mute(self.local_dir):
                session = start_session(SessionSettings(self.master, self.local_dir, options))
            if not session.is_local:
                check_executors(session.context)
        except CompactorUnavailable:
            self.abandon()
            raise
        except Exception as error:
            self.abandon()
            _log.exception("Spark did not start")
            if self._has_archive:
                self.archive.discard(REAL, "it may be damaged")
            raise CompactorUnavailable(
                f"Spark did not start on Java {self.java.version} ({self.java.home}): "
                f"{str(error).partition(chr(10))[0]} The compactor's log has the output of Java."
            ) from error
        return session

    def warm_up(self, engine: Engine) -> None:
        assert isinstance(engine, Session)
        warm_up(engine, self.local_dir / "warm-up", REAL, time.time)

    def after_start(self, engine: Engine) -> None:
        assert isinstance(engine, Session)
        # If the JVM ends meanwhile, so does the worker.
        with contextlib.suppress(*engine.failures):
            if not self.archive.exists:
                self._writer.write(engine.context, self._class_list)
            elif self._has_archive and not self.archive.is_used(engine.context):
                self.archive.discard(REAL, "Java does not accept it")

    def ended(self, engine: Engine) -> str:
        assert isinstance(engine, Session)
        return f"Spark's JVM ended ({engine.jvm_end()})"

    def abandon(self) -> None:
        end_jvm()

    def clean_up(self) -> None:
        self._writer.stop()
        REAL.remove_dir(self.local_dir)


_LEDGER, _COMPACTED = 1, 2


def warm_up(session: Session, folder: Path, files: Files, clock: Clock) -> None:
    """Runs a tiny compaction before the first real one, or after it, if a real one waits for Spark,
    in `folder`, which is removed afterwards. Raises what a job raises.

    A fresh Spark takes seconds for its first job: the daemon of Python workers starts, the JVM
    loads the classes of jobs. Two small segments, compacted twice (as one task, then with shuffles
    on every core), do that. Executors elsewhere do not see our local folder: they only start their
    Python workers.

    No message survives, so that tests that kill a worker at a step of a compaction never do so
    here.
    """
    ledgers_dir = folder.absolute() / LEDGERS
    if not session.is_local:
        session.context.parallelize(range(session.cores), session.cores).count()
        return
    try:
        plan = CompactionPlan(
            run_id="warm-up",
            topic="warm-up",
            strategy=DEFAULT,
            ledgers_dir=str(ledgers_dir),
            segments=[_segment(ledgers_dir, entry_id, files) for entry_id in (0, 1)],
            ledger_id=_COMPACTED,
            horizon=Position(ledger_id=_LEDGER, entry_id=1),
            segment_bytes_max=1 << 20,
        )
        tasks = cut(plan, session.cores)
        files.make_dir(tasks.output.folder)
        for variant in (tasks, _spread(tasks, session.cores)):
            run_job(session.context, variant, session.progress, clock)
    finally:
        files.remove_dir(folder)


def _segment(ledgers_dir: Path, entry_id: int, files: Files) -> SegmentRecord:
    """Writes a file of one entry: first a value, then the same key's tombstone."""
    builder = NativeBatchBuilder("warm-up")
    builder.add(None if entry_id else b"value", b"key")
    built = builder.build(sequence_id=entry_id, publish_time_ms=0)
    entry = stamp(built, _LEDGER, entry_id, append_time_ms=0, producer_number=1)
    record = SegmentRecord(path=segment_path(_LEDGER, entry_id), size_bytes=len(entry))
    path = ledgers_dir / record.path
    files.make_dir(path.parent)
    file = files.create(path)
    file.write([entry])
    file.close()
    return tally_segment(path, record)


def _spread(tasks: TaskPlan, cores: int) -> TaskPlan:
    """Returns the same tasks with shuffles, and merge tasks for all cores."""
    single = tuple((segment,) for run in tasks.scans for segment in run)
    return replace(tasks, scans=single, buckets=max(2, cores), copies=single)
