"""A tiny compaction before the first real one, or after it, if a real one waits for Spark.

A fresh Spark takes seconds for its first job: the daemon of Python workers starts, the JVM loads
the classes of jobs. Two small segments, compacted twice (as one task, then with shuffles on every
core), do that. Executors elsewhere do not see our local folder: they only start their Python
workers.

No message survives, so that tests that kill a worker at a step of a compaction never do so here.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ledgerfold.compactor.job.pipeline import Clock, run_job
from ledgerfold.compactor.job.plan import TaskPlan, cut
from ledgerfold.compactor.job.session import Session
from ledgerfold.storage.entry import stamp
from ledgerfold.storage.files import Files
from ledgerfold.storage.names import LEDGERS, segment_path
from ledgerfold.storage.native import NativeBatchBuilder
from ledgerfold.storage.segment import tally_segment
from ledgerfold.strategies.catalogue import DEFAULT
from ledgerfold.v1.compactor_pb2 import CompactionPlan
from ledgerfold.v1.records_pb2 import Position, SegmentRecord

_LEDGER, _COMPACTED = 1, 2


def warm_up(session: Session, folder: Path, files: Files, clock: Clock) -> None:
    """Warms up in `folder`, which is removed afterwards. Raises what a job raises."""
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
