"""One cleaning: the worker cleans a log's first segments, and its output replaces them.

1. The range is fixed (ledgerfold/kafka/cleanable.py), together with all inputs of the worker: the
   time, known producers, the transaction index, the limits of the offset map and of groups.
2. The segments are settled: closed, durable and recorded. They cannot change any more.
3. The worker builds the offset map, groups the segments below its end, and writes a new ledger for
   each group, which no record names yet (compactor/kafka/).
4. Every file is verified, and one synced write replaces the old segments and moves the checkpoint.
   Nothing has changed before that write, and nothing is left to do after it.

A crash therefore leaves the old log or the new one, and no range is cleaned twice because a
checkpoint was lost. A cleaning that is cancelled during its commit completes: a write cannot be
undone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from ledgerfold.broker.common.shielding import run_to_completion
from ledgerfold.broker.kafka.config.config import NO_DEFECTS, Defects
from ledgerfold.broker.kafka.log.segments import LiveSegment, figures_of
from ledgerfold.broker.kafka.partition import Partition
from ledgerfold.broker.worker.compactor import Compactor
from ledgerfold.kafka.cleanable import LogView, Plan
from ledgerfold.storage.crash_points import reach
from ledgerfold.storage.errors import (
    CompactionFailed,
    DiskFailure,
    LedgerfoldError,
    SegmentIndexFull,
)
from ledgerfold.storage.ledger import LedgerStore
from ledgerfold.storage.metadata import MetadataBatch, MetadataStore
from ledgerfold.v1.compactor_pb2 import (
    ActiveProducer,
    CleanedGroup,
    CleanManifest,
    CleanPlan,
    CleanSegment,
)
from ledgerfold.v1.records_pb2 import KafkaSegment, LedgerRecord, TopicRecord

# A cleaned segment, and the record of its ledger unless it is empty.
_Made = tuple[KafkaSegment, LedgerRecord | None]


@dataclass(frozen=True)
class CleaningResult:
    """The worker's manifest, and the checkpoint where the next cleaning starts."""

    manifest: CleanManifest
    checkpoint: int


def view_of(partition: Partition) -> LogView:
    """Returns the log as the cleaner's rules see it."""
    return LogView(
        [each.facts for each in partition.log.segments],
        log_start=partition.log_start_offset,
        log_end=partition.log.end_offset,
        last_stable_offset=partition.last_stable_offset,
    )


@dataclass(frozen=True)
class Cleaning:
    """One cleaning. `plan`: made of the log's present state; `keys_max`: the offset map's limit."""

    partition: Partition
    plan: Plan
    run_id: str
    compactor: Compactor
    store: LedgerStore
    now_ms: int
    keys_max: int
    defects: Defects = NO_DEFECTS

    async def run(
        self, metadata: MetadataStore, io_bytes_per_second: float | None
    ) -> CleaningResult:
        """Cleans the log. Raises CompactionError, StorageError, Moved; nothing has changed then.

        `io_bytes_per_second`: None is unlimited.
        """
        partition, store = self.partition, self.store
        sources = await self._settled()
        ledger_ids = await partition.log.in_thread(
            lambda: [metadata.allocate_ledger_id() for _ in sources]
        )
        requested = self._request(sources)
        requested.segment_bytes_max = store.settings.segment_bytes_max
        if io_bytes_per_second is not None:
            requested.io_bytes_per_second = io_bytes_per_second
        requested.ledger_ids.extend(ledger_ids)
        reach("clean.planned")
        try:
            manifest = await self.compactor.clean(requested)
            reach("clean.manifest-received")
            replaced, by = await _verified(partition, sources, requested, manifest, store)
        except (LedgerfoldError, asyncio.CancelledError):
            await run_to_completion(partition.log.delete_files(requested.ledger_ids))
            raise
        if manifest.failure:
            named = {ledger.ledger_id for _, ledger in by if ledger is not None}
            unused = [each for each in requested.ledger_ids if each not in named]
            await run_to_completion(partition.log.delete_files(unused))
        # NOTE: from here on a cancellation is too late: the caller waits until the segments are
        # replaced and the old files are deleted.
        putting = asyncio.ensure_future(_put_in_place(partition, replaced, by, manifest))
        while not putting.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait({putting})
        putting.result()
        if manifest.failure:
            raise SegmentIndexFull("copy", manifest.failure)
        return CleaningResult(manifest, manifest.end_offset)

    async def dry_run(self) -> CleanManifest:
        """Returns what run() would do, with a readable excerpt of its offset map. Changes nothing.

        Raises CompactionError, StorageError, Moved.
        """
        requested = self._request(await self._settled())
        requested.dry_run = True
        return await self.compactor.clean(requested)

    async def _settled(self) -> list[LiveSegment]:
        """Settles the segments below the plan's bound and returns them."""
        segments, bound = self.partition.log.segments, self.plan.bound
        sources = [each for each in segments if each.base_offset < bound]
        await self.partition.log.settle()
        return sources

    def _request(self, sources: list[LiveSegment]) -> CleanPlan:
        """Returns the worker's plan without its outputs. Raises MissingFile, Moved."""
        partition, log, config = self.partition, self.partition.log, self.partition.config
        return CleanPlan(
            run_id=self.run_id,
            topic=partition.label,
            ledgers_dir=str(self.store.ledgers_dir),
            segments=clean_segments(partition, sources, self.plan.bound),
            log_start_offset=partition.log_start_offset,
            first_dirty_offset=self.plan.first_dirty_offset,
            upper_bound=self.plan.bound,
            time_ms=self.now_ms,
            delete_retention_ms=config.delete_retention_ms,
            keys_max=self.keys_max,
            log_segment_bytes=config.segment_bytes,
            index_bytes_max=config.segment_index_bytes,
            index_interval_bytes=config.index_interval_bytes,
            producers=[
                ActiveProducer(
                    producer_id=producer_id,
                    producer_epoch=last.epoch,
                    last_data_offset=last.last_data_offset,
                )
                for producer_id, last in partition.producers.last_entries().items()
            ],
            aborted=[each for segment in log.segments for each in segment.aborted],
            map_reopens_aborted=self.defects.map_reopens_aborted,
            full_index_fails_round=self.defects.full_index_fails_round,
        )


def clean_segments(
    partition: Partition, segments: Sequence[LiveSegment], end: int
) -> list[CleanSegment]:
    """Returns segments, up to offset `end`, as a plan describes them. Raises MissingFile, Moved."""
    facts = [each.facts for each in segments]
    following = [*(each.base_offset for each in segments[1:]), end]
    return [
        CleanSegment(
            base_offset=segment.base_offset,
            next_base_offset=next_base,
            is_cleaned=segment.is_cleaned,
            files=[
                file
                for record in partition.log.files_of(segment)
                for file in record.segments
                if file.entries
            ],
            size_bytes=own.size_bytes,
            offset_index_bytes=own.offset_index_bytes,
            time_index_bytes=own.time_index_bytes,
        )
        for segment, own, next_base in zip(segments, facts, following, strict=True)
    ]


async def _verified(
    partition: Partition,
    sources: list[LiveSegment],
    plan: CleanPlan,
    manifest: CleanManifest,
    store: LedgerStore,
) -> tuple[list[LiveSegment], list[_Made]]:
    """Verifies the manifest and returns the segments to replace and their replacements."""
    groups = list(manifest.groups)
    _check(plan, manifest)
    replaced, by = list[LiveSegment](), list[_Made]()
    for group in groups:
        members = sources[len(replaced) : len(replaced) + group.source_segments]
        replaced += members
        segment = _segment_of(group, members[-1].facts.modified_ms)
        record = None
        if group.files:
            verify = partial(_verified_group, store, partition.name, group, segment)
            record = await partition.log.in_thread(verify)
        by.append((segment, record))
    return replaced, by


def _verified_group(
    store: LedgerStore, topic: str, group: CleanedGroup, segment: KafkaSegment
) -> LedgerRecord:
    """Verifies the files of a group and labels their ledger."""
    record = store.verify_compacted(group.ledger_id, topic, group.files)
    store.label_compacted(record, segment=segment)
    return record


async def _put_in_place(
    partition: Partition, replaced: list[LiveSegment], by: list[_Made], manifest: CleanManifest
) -> None:
    def advance(record: TopicRecord, batch: MetadataBatch) -> None:
        record.kafka.first_dirty_offset = manifest.end_offset

    try:
        await partition.log.replace(replaced, by, advance)
    except LedgerfoldError as error:
        # NOTE: the next start decides about a failed write that may be durable after all.
        if not (isinstance(error, DiskFailure) and error.may_be_durable):
            await partition.log.delete_files([ledger.ledger_id for _, ledger in by if ledger])
        raise


def _check(plan: CleanPlan, manifest: CleanManifest) -> None:
    """Checks that the groups are the plan's first segments, in order. Raises CompactionFailed."""
    count = sum(each.source_segments for each in manifest.groups)
    bases, at = [each.base_offset for each in plan.segments], 0
    for group in manifest.groups:
        if group.source_segments < 1 or at >= len(bases) or group.base_offset != bases[at]:
            raise CompactionFailed("manifest", "its groups are not the plan's segments")
        at += group.source_segments
    if count > len(bases) or not plan.first_dirty_offset <= manifest.end_offset <= plan.upper_bound:
        why = f"it names {count} segments up to {manifest.end_offset}"
        raise CompactionFailed("manifest", why)


def _segment_of(group: CleanedGroup, modified_ms: int) -> KafkaSegment:
    return KafkaSegment(
        base_offset=group.base_offset,
        ledger_ids=[group.ledger_id] if group.files else [],
        is_cleaned=True,
        figures=figures_of(group, group.aborted, modified_ms),
    )
