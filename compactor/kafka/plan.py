"""A cleaning's plan as tasks see it: validated, with its files in order.

Each file has an ordinal, its index among all files of the log. Tasks take contiguous runs of files.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from ledgerfold.compactor.job.plan import InputSegment, contiguous, size_bytes_of, task_count
from ledgerfold.compactor.job.plan_check import check_folder, check_name
from ledgerfold.storage.entry import EARLIEST, LATEST
from ledgerfold.storage.errors import InvalidRequest
from ledgerfold.storage.kafka.transaction_index import AbortedTransaction
from ledgerfold.storage.names import parse_ledger_dir
from ledgerfold.v1.compactor_pb2 import CleanPlan, CleanSegment
from ledgerfold.v1.records_pb2 import AbortedTransaction as AbortedRecord
from ledgerfold.v1.records_pb2 import SegmentRecord

# The input of one task: large, so that many keys fold before the shuffle, and because each task
# costs Spark's JVM some 30 ms of a core.
TASK_BYTES = 640 * 1024 * 1024
# A merge task holds at most about this, if keys were as large as the log.
BUCKET_BYTES = 640 * 1024 * 1024
# Smaller logs take one task, without a shuffle.
SOLO_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True)
class Range:
    """The mapped range: records from `first` to `last`. Records before `stop` are read for it.

    `stop` is after `last` unless the scan stops early.
    """

    first: int
    last: int
    stop: int


@dataclass(frozen=True)
class CleaningTasks:
    """The scans of a cleaning, and the parameters of all its tasks."""

    scans: tuple[tuple[InputSegment, ...], ...]
    buckets: int
    lines: tuple[AbortedTransaction, ...]
    # Whether there may be more keys than the map takes.
    may_fill: bool

    @property
    def is_solo(self) -> bool:
        return len(self.scans) == self.buckets == 1

    @property
    def files(self) -> tuple[InputSegment, ...]:
        return tuple(file for run in self.scans for file in run)


def plan_tasks(plan: CleanPlan, cores: int) -> CleaningTasks:
    """Validates a plan and divides it into tasks. Raises InvalidRequest."""
    check_plan(plan)
    files = files_of(plan)
    size_bytes = sum(file.record.size_bytes for file in files)
    tasks = buckets = 1
    if size_bytes > SOLO_BYTES:
        tasks = task_count(size_bytes, TASK_BYTES, cores)
        buckets = task_count(size_bytes, BUCKET_BYTES, cores)
    start = max(plan.log_start_offset, plan.segments[0].base_offset) if plan.segments else 0
    return CleaningTasks(
        scans=contiguous(files, tasks, size_bytes_of),
        buckets=buckets,
        lines=lines_of(plan.aborted, start),
        may_fill=sum(file.record.messages for file in files) >= plan.keys_max,
    )


def lines_of(aborted: Iterable[AbortedRecord], start: int) -> tuple[AbortedTransaction, ...]:
    """Returns the transaction index from the offset `start` on."""
    return tuple(AbortedTransaction.of(each) for each in aborted if each.last_offset >= start)


def files_of(plan: CleanPlan) -> tuple[InputSegment, ...]:
    """Returns all files of the plan's segments, in order."""
    files: list[InputSegment] = []
    entries = 0
    for segment in plan.segments:
        for record in segment.files:
            files.append(
                InputSegment(
                    ordinal=len(files),
                    path=str(Path(plan.ledgers_dir) / record.path),
                    record=record,
                    is_compacted=segment.is_cleaned,
                    after=EARLIEST,
                    up_to=LATEST,
                    entries_before=entries,
                )
            )
            entries += record.entries
    return tuple(files)


def copy_runs(files: tuple[InputSegment, ...], cores: int) -> tuple[tuple[InputSegment, ...], ...]:
    """Divides the files of one group among copy tasks."""
    size_bytes = sum(map(size_bytes_of, files))
    if size_bytes <= SOLO_BYTES:
        return (files,) if files else ()
    return contiguous(files, task_count(size_bytes, TASK_BYTES, cores), size_bytes_of)


def check_plan(plan: CleanPlan) -> None:
    """Raises InvalidRequest if a plan is invalid."""
    check_folder(plan.ledgers_dir)
    if plan.HasField("io_bytes_per_second") and not plan.io_bytes_per_second >= 0:
        raise InvalidRequest(
            f"The rate is {plan.io_bytes_per_second} bytes per second: it must be 0 or more."
        )
    if plan.keys_max < 1:
        raise InvalidRequest(
            f"The offset map takes {plan.keys_max} keys: it must take at least one. Raise "
            "log.cleaner.dedupe.buffer.size or "
            "log.cleaner.io.buffer.load.factor, and restart the broker."
        )
    if not plan.segments or plan.segments[-1].next_base_offset != plan.upper_bound:
        raise InvalidRequest(f"The plan's segments do not end at its bound {plan.upper_bound}.")
    if not plan.segments[0].base_offset <= plan.first_dirty_offset < plan.upper_bound:
        raise InvalidRequest(
            f"The plan's first dirty offset {plan.first_dirty_offset} is in none of its segments."
        )
    for before, after in pairwise(plan.segments):
        if not before.base_offset < before.next_base_offset == after.base_offset:
            raise InvalidRequest(
                f"The plan's segments {before.base_offset} and {after.base_offset} do not follow "
                "one another."
            )
    for segment in plan.segments:
        _check_files(segment)
    _check_output(plan)


def _check_output(plan: CleanPlan) -> None:
    if plan.dry_run:
        return
    ids = plan.ledger_ids
    if len(ids) < len(plan.segments) or len(set(ids)) < len(ids) or min(ids) <= 0:
        raise InvalidRequest(
            f"The plan has {len(plan.segments)} segments: it needs as many distinct ledger ids."
        )
    if plan.segment_bytes_max < 1:
        raise InvalidRequest(
            f"The file size limit is {plan.segment_bytes_max} bytes: it must be 1 or more."
        )
    read = {_ledger_of(file) for segment in plan.segments for file in segment.files}
    if read & set(ids):
        raise InvalidRequest(
            f"The plan reads ledger {min(set(ids) & read)}, to which it also writes."
        )


def _check_files(segment: CleanSegment) -> None:
    for record in segment.files:
        check_name(record)
        # Files of a cleaned segment have positions in ledger 0.
        ledger_id = record.first.ledger_id
        if not segment.is_cleaned and _ledger_of(record) != ledger_id:
            raise InvalidRequest(f"{record.path} is not a file of ledger {ledger_id}.")
        if not record.sealed:
            raise InvalidRequest(f"Segment {record.path} of the plan is not sealed.")


def _ledger_of(file: SegmentRecord) -> int | None:
    return parse_ledger_dir(file.path.partition("/")[0])
