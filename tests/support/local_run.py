"""The tasks of a run in this process, one after the other: the pipeline without Spark."""

from __future__ import annotations

from ledgerfold.compactor.job.copy_survivors import copy_survivors
from ledgerfold.compactor.job.pipeline import kept_counts
from ledgerfold.compactor.job.plan import TaskPlan, cut
from ledgerfold.compactor.job.rows import Counts, Failure, Row, Written
from ledgerfold.compactor.job.tasks import merged, scanned
from ledgerfold.v1.compactor_pb2 import CompactionPlan
from ledgerfold.v1.records_pb2 import SegmentRecord


def run_tasks(plan: CompactionPlan | TaskPlan) -> tuple[list[SegmentRecord], Counts]:
    """The files in order of id, and the sum of all counts. Raises the task's error."""
    tasks = plan if isinstance(plan, TaskPlan) else cut(plan, 2)
    tasks.output.folder.mkdir(exist_ok=True)
    firsts = [run[0].ordinal for run in tasks.copies]
    found = [
        row
        for run in tasks.scans
        for row in scanned(run, tasks.strategy, tasks.buckets, tasks.retain_null_key)
    ]
    surviving = [
        row
        for bucket in range(tasks.buckets)
        for row in merged(_of(found, bucket), tasks.strategy, firsts, tasks.indexed)
    ]
    copied = [
        row
        for index, run in enumerate(tasks.copies)
        for row in copy_survivors(_of(surviving, index), run, tasks.output, tasks.renumber_batches)
    ]
    counts = kept_counts(tasks.indexed)
    records: list[SegmentRecord] = []
    for _, content in copied:
        if isinstance(content, Counts):
            counts = counts.plus(content)
        elif isinstance(content, Written):
            records.append(SegmentRecord.FromString(content.record))
        elif isinstance(content, Failure):
            raise content.error()
    return records, counts


def _of(rows: list[Row], number: int) -> list[Row]:
    return [row for row in rows if row[0] == number]
