"""The jobs of a cleaning: the map, then the copy.

    files -> scan -> (bucket, fragments) -> merge -> (copy task, surviving records)
    surviving records -> copy -> files

The groups of segments, and their copy tasks, are known before: the driver reads where the offsets
of each task begin. Between the jobs it decides from small results, which have a partition of their
own: the number of keys, and the transactions. The other partitions remain in the engine.

If there are more keys than the map takes, the driver finds the record at which it is full, by the
first offset of each key, and the map is rebuilt up to there. If there are fewer records, tasks do
not look for first offsets.

Tasks share the I/O limit of the cleaning. The driver's own reads are not limited: headers, and the
records at which a full map stops.

Memory of the driver: 24 bytes for each transactional batch and each surviving batch, and 16 for
each key of the limit if it is reached.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from math import inf
from operator import index
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from ledgerfold.compactor.job.engine import Engine, Rows
from ledgerfold.compactor.job.pipeline import Clock
from ledgerfold.compactor.job.plan import InputSegment, Output
from ledgerfold.compactor.job.rows import Written, succeeded
from ledgerfold.compactor.kafka.batches import batches_of
from ledgerfold.compactor.kafka.grouping import Limits, groups_of
from ledgerfold.compactor.kafka.growth import IndexFull, group_of
from ledgerfold.compactor.kafka.map_limit import Stop, full_at, skipped_lines, stop_after
from ledgerfold.compactor.kafka.plan import CleaningTasks, Range, copy_runs
from ledgerfold.compactor.kafka.record_filter import Rules
from ledgerfold.compactor.kafka.rows import (
    Copied,
    Distinct,
    Facts,
    Mapped,
    Row,
    Shown,
)
from ledgerfold.compactor.kafka.tasks import CopyRun, CopyTask, MergeTask, ScanTask
from ledgerfold.compactor.kafka.transactions import decide
from ledgerfold.kafka.rolling import Growth
from ledgerfold.storage.entry import position_of
from ledgerfold.storage.kafka.transaction_index import AbortedTransaction
from ledgerfold.v1.compactor_pb2 import (
    CleanedGroup,
    CleanManifest,
    CleanPlan,
    CleanSegment,
    MappedKey,
)
from ledgerfold.v1.records_pb2 import SegmentRecord

Kind = TypeVar("Kind")
# The number of keys that a dry run shows.
MAP_SHOWN_MAX = 1_000


class CleaningJob:
    """One cleaning. The engine's progress is updated as tasks end."""

    def __init__(
        self,
        engine: Engine,
        plan: CleanPlan,
        tasks: CleaningTasks,
        clock: Clock,
    ) -> None:
        self._engine, self._plan, self._tasks = engine, plan, tasks
        self._progress, self._clock = engine.progress, clock
        self._cores = engine.cores
        # The number of copy tasks, once known.
        self.copies = 0
        self._skipped: tuple[AbortedTransaction, ...] = ()
        numbered = iter(tasks.files)
        self._segments: list[tuple[CleanSegment, tuple[InputSegment, ...]]] = [
            (segment, tuple(next(numbered) for _ in segment.files)) for segment in plan.segments
        ]

    def run(self, make: Callable[[Path], None]) -> CleanManifest:
        """Runs the cleaning. `make`: creates a new ledger's folder, before any file in it.

        Raises the errors of tasks: Corruption, MissingFile, DiskFailure; or Spark's own errors.
        """
        began = self._clock()
        if self._plan.map_reopens_aborted:
            self._skipped = skipped_lines(self._plan, self._segments, self._tasks.lines)
        with self._map() as offset_map:
            mapped = self._clock()
            manifest = self._copy(offset_map, make)
        manifest.stats.map_ms = round((mapped - began) * 1000)
        manifest.stats.copy_ms = round((self._clock() - mapped) * 1000)
        return manifest

    @contextmanager
    def _map(self) -> Iterator[_Map]:
        """Builds the map; its records are available until the block ends."""
        first, bound = self._plan.first_dirty_offset, self._plan.upper_bound
        firsts_max = self._plan.keys_max if self._tasks.may_fill else 0
        with self._mapped(Range(first, bound - 1, bound), firsts_max) as offset_map:
            stop = self._stop(offset_map)
            if stop is None:
                yield offset_map
                return
        with self._mapped(Range(first, stop.last_mapped, stop.offset)) as offset_map:
            yield offset_map

    @contextmanager
    def _mapped(self, mapped: Range, firsts_max: int = 0) -> Iterator[_Map]:
        tasks, progress, engine = self._tasks, self._progress, self._engine
        plan = self._plan
        groups = groups_of(
            [segment for segment in plan.segments if segment.base_offset <= mapped.last],
            Limits(plan.log_segment_bytes, plan.index_bytes_max),
            plan.upper_bound,
        )
        runs, owners = self._copy_runs(groups)
        scans = max(len(tasks.scans), 1)
        rate = self._bytes_per_second(scans)
        scan = ScanTask(
            tasks.lines, mapped, tasks.buckets, progress, self._skipped, rate, firsts_max > 0
        )
        rows: Rows = engine.context.parallelize(tasks.scans, scans).mapPartitions(scan)
        if not tasks.is_solo:
            rows = rows.partitionBy(tasks.buckets, index)
        shown_max = MAP_SHOWN_MAX if plan.dry_run else 0
        merge = MergeTask(tuple(run.first_offset for run in runs), firsts_max, progress, shown_max)
        partitions = merge.results + 1 + (tasks.buckets if firsts_max else 0)
        rows = rows.mapPartitionsWithIndex(merge).partitionBy(partitions, index)
        rows = engine.keep(rows)
        try:
            results = engine.context.runJob(rows, list, [merge.results])
            contents = succeeded(content for _, content in results)
            yield _Map(mapped.last, rows, groups, runs, owners, contents)
        finally:
            rows.unpersist()

    def _stop(self, offset_map: _Map) -> Stop | None:
        """Returns where the map is full; None if it is not."""
        if sum(each.keys for each in offset_map.of(Distinct)) < self._plan.keys_max:
            return None
        run_job, after = self._engine.context.runJob, len(offset_map.runs) + 1
        firsts = (
            content
            for bucket in range(self._tasks.buckets)
            for _, content in run_job(offset_map.rows, list, [after + bucket])
        )
        at = full_at(firsts, self._plan.keys_max)
        assert at is not None
        segments = [
            (segment.next_base_offset, files)
            for segment, files in self._segments
            if segment.next_base_offset > at
        ]
        return stop_after(segments, (*self._tasks.lines, *self._skipped), at)

    def _copy(self, offset_map: _Map, make: Callable[[Path], None]) -> CleanManifest:
        plan, end_offset = self._plan, offset_map.latest + 1
        groups, runs = offset_map.groups, offset_map.runs
        facts = chain.from_iterable(each.rows.tolist() for each in offset_map.facts())
        bound = groups[-1][-1].next_base_offset
        decided = decide((tuple(fact) for fact in facts if fact[0] < bound), self._tasks.lines)
        rules = Rules(
            latest=offset_map.latest,
            upper_bound=plan.upper_bound,
            time_ms=plan.time_ms,
            delete_retention_ms=plan.delete_retention_ms,
            lines=self._tasks.lines,
            discardable=decided.discardable,
            producers={
                each.producer_id: (each.last_data_offset, each.producer_epoch)
                for each in plan.producers
            },
        )
        self.copies = len(runs)
        for output in dict.fromkeys(run.output for run in runs if run.output is not None):
            make(output.folder)
        copied = self._copied(offset_map.rows, runs, rules)
        manifest = CleanManifest(run_id=plan.run_id, end_offset=end_offset)
        for number, group in enumerate(groups):
            own = [content for task, content in copied if offset_map.owners[task] == number]
            ledger_id = 0 if plan.dry_run else plan.ledger_ids[number]
            try:
                manifest.groups.append(self._group(group, own, decided.lines, ledger_id))
            except IndexFull as full:
                # As in Kafka, earlier groups are kept, and the cleaning starts over.
                manifest.failure, manifest.end_offset = str(full), plan.first_dirty_offset
                break
        self._count(manifest, groups, offset_map, [content for _, content in copied])
        manifest.map.extend(_shown(offset_map.of(Shown)))
        return manifest

    def _copy_runs(self, groups: list[list[CleanSegment]]) -> tuple[tuple[CopyRun, ...], list[int]]:
        """Returns the inputs and output of each copy task, and the group of each."""
        plan, runs, owners = self._plan, list[CopyRun](), list[int]()
        segments = iter(self._segments)
        for number, group in enumerate(groups):
            files = tuple(chain.from_iterable(next(segments)[1] for _ in group))
            output = None
            if not plan.dry_run:
                output = Output(plan.ledgers_dir, plan.ledger_ids[number], plan.segment_bytes_max)
            for run in copy_runs(files, self._cores):
                # One batch of a chunk is enough.
                first = next(batches_of(run, 1), None)
                if first is not None:
                    runs.append(CopyRun(run, output, int(first.base_offset[0])))
                    owners.append(number)
        return tuple(runs), owners

    def _copied(self, rows: Rows, runs: tuple[CopyRun, ...], rules: Rules) -> list[Row]:
        if not runs:
            return []
        copy = CopyTask(runs, rules, self._progress, self._bytes_per_second(len(runs)))
        rows = rows.mapPartitionsWithIndex(copy)
        copied = self._engine.context.runJob(rows, list, range(len(runs)))
        succeeded(content for _, content in copied)
        return list(copied)

    def _bytes_per_second(self, tasks: int) -> float:
        """Returns the rate of each task: the tasks that run concurrently share the limit."""
        if not self._plan.HasField("io_bytes_per_second"):
            return inf
        return self._plan.io_bytes_per_second / min(tasks, self._engine.tasks_at_once)

    def _group(
        self,
        group: list[CleanSegment],
        copied: list[Any],
        lines: list[AbortedTransaction],
        ledger_id: int,
    ) -> CleanedGroup:
        parts = sorted(each for each in copied if isinstance(each, Copied))
        batches = np.frombuffer(b"".join(part.batches for part in parts), "<i8").reshape(-1, 3)
        base_offset, bound = group[0].base_offset, group[-1].next_base_offset
        plan = self._plan
        growth = Growth(
            base_offset,
            0,
            index_interval_bytes=plan.index_interval_bytes,
            index_bytes_max=plan.index_bytes_max,
        )
        result = group_of(batches, growth, must_fit=plan.full_index_fails_round)
        result.ledger_id, result.source_segments = ledger_id, len(group)
        files = [
            SegmentRecord.FromString(each.record) for each in copied if isinstance(each, Written)
        ]
        result.files.extend(sorted(files, key=lambda file: position_of(file.first)))
        result.aborted.extend(
            line.record() for line in lines if base_offset <= line.last_offset < bound
        )
        return result

    def _count(
        self,
        manifest: CleanManifest,
        groups: list[list[CleanSegment]],
        offset_map: _Map,
        copied: list[Any],
    ) -> None:
        stats = manifest.stats
        stats.map_keys = sum(each.keys for each in offset_map.of(Distinct))
        for scanned in offset_map.of(Mapped):
            stats.map_messages_read += scanned.messages
            stats.invalid_messages_read += scanned.keyless
        for part in copied:
            if isinstance(part, Copied):
                stats.messages_read += part.messages_read
                stats.messages_written += part.messages_written
        stats.bytes_read = sum(segment.size_bytes for group in groups for segment in group)
        stats.bytes_written = sum(group.size_bytes for group in manifest.groups)


@dataclass(frozen=True)
class _Map:
    """The last offset of the map, its records by copy task, and the other results of tasks."""

    latest: int
    rows: Rows
    groups: list[list[CleanSegment]]
    # The copy tasks, and the group of each.
    runs: tuple[CopyRun, ...]
    owners: list[int]
    results: list[Any]

    def of(self, kind: type[Kind]) -> list[Kind]:
        return [each for each in self.results if isinstance(each, kind)]

    def facts(self) -> list[Facts]:
        """Returns the transaction facts in offset order."""
        return sorted(self.of(Facts), key=lambda each: int(each.rows[0, 0]))


def _shown(buckets: list[Shown]) -> list[MappedKey]:
    """Returns the lowest offsets of all buckets."""
    entries = sorted(
        (offset, key)
        for each in buckets
        for key, offset in zip(each.keys, each.offsets, strict=True)
    )
    return [MappedKey(key=key, offset=offset) for offset, key in entries[:MAP_SHOWN_MAX]]
