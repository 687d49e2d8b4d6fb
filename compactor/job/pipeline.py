"""The Spark job of a run: scan, merge, copy, with a shuffle between each two.

    segments -> scan -> (bucket, fragments) -> merge -> (copy task, positions) -> copy -> files

Both phases are one job. Positions never pass through the driver, which gets a row for each file and
each count.

Rows are few and large, so Spark only has to move them: the tasks are plain functions over RDD
partitions. Measured against the same functions with DataFrame.mapInArrow and repartitionById
(Spark 4.3, two cores): warm three-stage job 0.40 s against 0.53 s, first job after start 6 s
against 20 s (no query planner to load, no code to generate), no need of pandas. A group-by in Spark
SQL over one row per message takes 4-5 s for 10 million rows before anything is copied; this whole
job takes about as long.

A small plan is one task: the same three functions in sequence, without a shuffle (0.1 s each).
There is no shuffle between a single task and a single following task either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from operator import index
from typing import NamedTuple

from ledgerfold.compactor.job.engine import Context, Progress
from ledgerfold.compactor.job.plan import InputSegment, TaskPlan
from ledgerfold.compactor.job.rows import Content, CopyBegan, Counts, WriteTimes, Written, succeeded
from ledgerfold.compactor.job.tasks import CopyTask, MergeTask, ScanTask
from ledgerfold.storage.entry import position_of
from ledgerfold.storage.errors import CompactionFailed
from ledgerfold.storage.limits import check_run_segments
from ledgerfold.storage.segment import live_entries, live_messages
from ledgerfold.v1.records_pb2 import RunCounts, SegmentRecord

Clock = Callable[[], float]


class JobResult(NamedTuple):
    """The files that the tasks wrote, in order of id, and their counts."""

    segments: list[SegmentRecord]
    counts: RunCounts


def run_job(context: Context, tasks: TaskPlan, progress: Progress, clock: Clock) -> JobResult:
    """Runs the job. Raises the tasks' errors (Corruption, MissingFile, DiskFailure), or Spark's
    own.

    `clock` returns seconds since the epoch, here and in the tasks.
    """
    if not tasks.scans:
        return JobResult([], RunCounts())
    began = clock()
    contents = _collect(context, tasks, progress, clock)
    ended = clock()
    succeeded(contents)
    segments = _in_order(contents)
    counts = _counts([*contents, kept_counts(tasks.indexed)], segments)
    known = {each.record.dead.checksum for each in tasks.indexed}
    written = (each.dead for each in segments if each.dead.checksum not in known)
    counts.vector_bytes = sum(each.size_bytes for each in written)
    # Another machine's clock may differ from ours: the parts must not exceed the total.
    copy_began = min(content.at for content in contents if isinstance(content, CopyBegan))
    copy_began = min(max(copy_began, began), ended)
    counts.phase_one_ms = round((copy_began - began) * 1000)
    counts.phase_two_ms = round((ended - copy_began) * 1000)
    return JobResult(segments, counts)


def _collect(context: Context, tasks: TaskPlan, progress: Progress, clock: Clock) -> list[Content]:
    rows = context.parallelize(tasks.scans, len(tasks.scans)).mapPartitions(
        ScanTask(tasks.strategy, tasks.buckets, tasks.retain_null_key, progress)
    )
    if len(tasks.scans) > 1 or tasks.buckets > 1:
        rows = rows.partitionBy(tasks.buckets, index)
    firsts = tuple(run[0].ordinal for run in tasks.copies)
    rows = rows.mapPartitions(MergeTask(tasks.strategy, firsts, tasks.indexed, progress))
    if tasks.buckets > 1 or len(tasks.copies) > 1:
        rows = rows.partitionBy(len(tasks.copies), index)
    copied = rows.mapPartitionsWithIndex(CopyTask(tasks, progress, clock))
    return [content for _, content in copied.collect()]


def _in_order(contents: Iterable[Content]) -> list[SegmentRecord]:
    """Returns the written files, after proving that their ids ascend without overlap."""
    records = [
        SegmentRecord.FromString(content.record)
        for content in contents
        if isinstance(content, Written)
    ]
    check_run_segments(len(records))
    records.sort(key=lambda record: position_of(record.first))
    for before, after in pairwise(records):
        if position_of(before.last) >= position_of(after.first):
            raise CompactionFailed(
                "phase two", f"{before.path} and {after.path} have overlapping entry ids"
            )
    return records


def kept_counts(indexed: Iterable[InputSegment]) -> Counts:
    """Returns the counts of the segments that are looked up, as if they were scanned.

    Their keys are counted as if there were no new messages with them: a merge counts the others.
    """
    records = [segment.record for segment in indexed]
    # Dead messages of an indexed segment had a key: only a run that looked it up lists them.
    keyed = sum(record.key_index.keyed_messages - record.dead.messages for record in records)
    messages = sum(map(live_messages, records))
    return Counts(
        messages_in=messages,
        entries_in=sum(map(live_entries, records)),
        bytes_in=sum(record.size_bytes for record in records),
        null_keys=messages - keyed,
        keys=keyed,
    )


def _counts(contents: Sequence[Content], segments: Sequence[SegmentRecord]) -> RunCounts:
    total, writes = Counts(), WriteTimes()
    for content in contents:
        if isinstance(content, Counts):
            total = total.plus(content)
        elif isinstance(content, WriteTimes):
            writes = writes.plus(content)
    return RunCounts(
        **total._asdict(),
        write_latency_counts=writes.counts,
        write_latency_us=writes.total_us,
        messages_out=sum(map(live_messages, segments)),
        entries_out=sum(map(live_entries, segments)),
        bytes_out=sum(record.size_bytes for record in segments),
        garbage_bytes=sum(record.dead.bytes for record in segments),
        bytes_kept=sum(each.kept_bytes for each in contents if isinstance(each, Written)),
    )
