"""One round: a log's first segments are cleaned by the compactor, and what it wrote replaces them.

1. The range is fixed (ledgerfold/kafka/cleanable.py), and with it all that the worker goes by:
   now, the producers that are remembered, the transaction index, the bounds of the map and of the
   groups.
2. The segments are settled: closed, durable, in the topic's record. They cannot change any more.
3. The worker builds the offset map, groups the segments below its end, and writes a new ledger for
   each group, aside (compactor/kafka/).
4. Every file is verified, and one synced write puts the new segments in the place of the old ones
   and moves the checkpoint. Before it nothing has changed, after it nothing is left to do.

So a crash leaves either log whole, and no range is ever cleaned twice for want of a checkpoint. A
round that is cancelled while it commits goes on to its end: a write cannot be called back.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from ledgerfold.broker.ground.uncancelled import to_its_end
from ledgerfold.broker.kafka.defects import NO_DEFECTS, Defects
from ledgerfold.broker.kafka.partition import Partition
from ledgerfold.broker.kafka.segments import LiveSegment, figures_of
from ledgerfold.kafka.cleanable import LogView, Plan
from ledgerfold.kafka.segment import Segment
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
from ledgerfold.v1.records_pb2 import AbortedTransaction as AbortedRecord
from ledgerfold.v1.records_pb2 import KafkaSegment, LedgerRecord, TopicRecord

# A segment, and the record of its ledger, if anything is in it.
_Made = tuple[KafkaSegment, LedgerRecord | None]


class Worker(Protocol):
    """The compactor (broker/compaction/supervisor.py)."""

    async def clean(self, plan: CleanPlan) -> CleanManifest:
        """Cancelling the task ends the round in the worker before this raises CancelledError."""
        ...


@dataclass(frozen=True)
class RoundOutcome:
    """`manifest` tells what was counted; `checkpoint`: where the next round starts."""

    manifest: CleanManifest
    checkpoint: int


def view_of(partition: Partition) -> LogView:
    """The log as the cleaner's rules look at it."""
    return LogView(
        [each.facts for each in partition.log.segments],
        log_start=partition.log_start_offset,
        log_end=partition.log.end_offset,
        last_stable_offset=partition.last_stable_offset,
    )


def sources_of(partition: Partition, plan: Plan) -> list[LiveSegment]:
    """The segments below the round's bound, from the log's start."""
    return [each for each in partition.log.segments if each.base_offset < plan.bound]


async def clean(
    partition: Partition,
    plan: Plan,
    run_id: str,
    worker: Worker,
    store: LedgerStore,
    metadata: MetadataStore,
    *,
    now_ms: int,
    keys_max: int,
    io_bytes_per_second: float | None = None,
    defects: Defects = NO_DEFECTS,
) -> RoundOutcome:
    """Raises CompactionError, StorageError, Moved; nothing has changed then.

    `plan`: made a moment ago, of this log. `io_bytes_per_second`: None: as fast as it can.
    """
    sources = sources_of(partition, plan)
    await partition.log.settle()
    ledger_ids = await partition.log.in_thread(
        lambda: [metadata.allocate_ledger_id() for _ in sources]
    )
    asked = clean_plan(
        partition, plan, sources, run_id, str(store.ledgers_dir), now_ms=now_ms, keys_max=keys_max
    )
    asked.map_reopens_aborted = defects.map_reopens_aborted
    asked.full_index_fails_round = defects.full_index_fails_round
    asked.segment_bytes_max = store.settings.segment_bytes_max
    if io_bytes_per_second is not None:
        asked.io_bytes_per_second = io_bytes_per_second
    asked.ledger_ids.extend(ledger_ids)
    reach("clean.planned")
    try:
        manifest = await worker.clean(asked)
        reach("clean.manifest-received")
        replaced, by = await _verified(partition, sources, asked, manifest, store)
    except (LedgerfoldError, asyncio.CancelledError):
        await to_its_end(partition.log.delete_files(asked.ledger_ids))
        raise
    if manifest.failure:
        named = {ledger.ledger_id for _, ledger in by if ledger is not None}
        left = [each for each in asked.ledger_ids if each not in named]
        await to_its_end(partition.log.delete_files(left))
    # NOTE: from here on a cancellation comes too late: whoever asked for it waits until it is in
    # place, and the files of what it replaces are gone.
    putting = asyncio.ensure_future(_put_in_place(partition, replaced, by, manifest))
    while not putting.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait({putting})
    putting.result()
    if manifest.failure:
        raise SegmentIndexFull("copy", manifest.failure)
    return RoundOutcome(manifest, manifest.end_offset)


async def dry_run(
    partition: Partition,
    plan: Plan,
    run_id: str,
    worker: Worker,
    store: LedgerStore,
    *,
    now_ms: int,
    keys_max: int,
    defects: Defects = NO_DEFECTS,
) -> CleanManifest:
    """What clean() would do, and of its map a part that a person can read. Changes nothing.

    Raises CompactionError, StorageError, Moved.
    """
    sources = sources_of(partition, plan)
    await partition.log.settle()
    asked = clean_plan(
        partition, plan, sources, run_id, str(store.ledgers_dir), now_ms=now_ms, keys_max=keys_max
    )
    asked.map_reopens_aborted = defects.map_reopens_aborted
    asked.full_index_fails_round = defects.full_index_fails_round
    asked.dry_run = True
    return await worker.clean(asked)


def clean_plan(
    partition: Partition,
    plan: Plan,
    sources: list[LiveSegment],
    run_id: str,
    ledgers_dir: str,
    *,
    now_ms: int,
    keys_max: int,
) -> CleanPlan:
    """Without what a round writes to: a dry run's. Raises MissingFile, Moved."""
    log, config = partition.log, partition.config
    following = [*(each.base_offset for each in sources[1:]), plan.bound]
    return CleanPlan(
        run_id=run_id,
        topic=partition.label,
        ledgers_dir=ledgers_dir,
        segments=[
            clean_segment(partition, each, next_base)
            for each, next_base in zip(sources, following, strict=True)
        ],
        log_start_offset=partition.log_start_offset,
        first_dirty_offset=plan.first_dirty_offset,
        upper_bound=plan.bound,
        time_ms=now_ms,
        delete_retention_ms=config.delete_retention_ms,
        keys_max=keys_max,
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
    )


def clean_segment(partition: Partition, segment: LiveSegment, next_base: int) -> CleanSegment:
    """As a plan has it. Raises MissingFile, Moved."""
    facts = segment.facts
    return CleanSegment(
        base_offset=facts.base_offset,
        next_base_offset=next_base,
        is_cleaned=segment.is_cleaned,
        files=[
            file
            for record in partition.log.files_of(segment)
            for file in record.segments
            if file.entries
        ],
        size_bytes=facts.size_bytes,
        offset_index_bytes=facts.offset_index_bytes,
        time_index_bytes=facts.time_index_bytes,
    )


async def _verified(
    partition: Partition,
    sources: list[LiveSegment],
    plan: CleanPlan,
    manifest: CleanManifest,
    store: LedgerStore,
) -> tuple[list[LiveSegment], list[_Made]]:
    """What is to be replaced, and by what."""
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
        # NOTE: what a failed write may have published after all is the next start's to judge.
        if not (isinstance(error, DiskFailure) and error.may_be_durable):
            await partition.log.delete_files([ledger.ledger_id for _, ledger in by if ledger])
        raise


def _check(plan: CleanPlan, manifest: CleanManifest) -> None:
    """That the groups are the plan's first segments, in order. Raises CompactionFailed."""
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
    facts = Segment(
        ledger_id=group.ledger_id if group.files else -1,
        base_offset=group.base_offset,
        next_offset=group.next_offset,
        size_bytes=group.size_bytes,
        offset_index_bytes=group.offset_index_bytes,
        time_index_bytes=group.time_index_bytes,
        first_batch_timestamp_ms=group.first_batch_timestamp_ms,
        max_timestamp_ms=group.max_timestamp_ms,
        max_timestamp_offset=group.max_timestamp_offset,
        modified_ms=modified_ms,
    )
    aborted = [AbortedRecord.FromString(each.SerializeToString()) for each in group.aborted]
    return KafkaSegment(
        base_offset=group.base_offset,
        ledger_ids=[group.ledger_id] if group.files else [],
        is_cleaned=True,
        figures=figures_of(facts, aborted),
    )
