"""The snapshot and the commit of a compaction.

1. The snapshot seals the open segment; later entries belong to the next run. Its input is the
   compacted ledger and the raw segments after its horizon, never the whole topic. A range that they
   do not cover without a gap is refused (broker/compaction/coverage.py), as is a damaged one.
2. The commit repeats both checks, and checks that the view is still the one that the run began
   with. Then it makes the run's output the topic's view in one synced batch: the new ledger, the
   horizon, the run's record, and the old ledger marked for deletion. The old files are deleted when
   no read pins them.
3. Disabling compaction drops the view, also in one batch.

Rules: docs/ARCHITECTURE.md, "A compaction".
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple, Protocol

from ledgerfold.broker.common.names import COMPACTION_CURSOR
from ledgerfold.broker.compaction.coverage import check_coverage
from ledgerfold.broker.compaction.interfaces import CompactionSnapshot
from ledgerfold.broker.log.ledger_record import last_entry
from ledgerfold.broker.log.log import TopicLog
from ledgerfold.broker.log.stored_topic import StoredTopic
from ledgerfold.broker.policies.profiles import Emulation
from ledgerfold.storage.crash_points import reach
from ledgerfold.storage.entry import EARLIEST, Position
from ledgerfold.storage.errors import CompactionFailed, CompactionFenced, Moved
from ledgerfold.storage.ledger import LedgerStore
from ledgerfold.storage.metadata import MetadataBatch
from ledgerfold.storage.segment import record_position, segments_sealed
from ledgerfold.v1.compactor_pb2 import Manifest
from ledgerfold.v1.records_pb2 import LedgerRecord, RunRecord, SegmentRecord, TopicRecord


class ViewedTopic(Protocol):
    """The part of a topic that the snapshot and the commit use (broker/topics/topic.py)."""

    @property
    def name(self) -> str: ...
    @property
    def is_loaded(self) -> bool: ...
    @property
    def log(self) -> TopicLog: ...
    @property
    def store(self) -> LedgerStore: ...
    @property
    def stored(self) -> StoredTopic: ...
    @property
    def compaction_moved_to(self) -> Position | None: ...
    def emulation(self) -> Emulation: ...
    async def trim(self) -> int: ...
    def remove_files(self, ledger_id: int) -> None:
        """Removes the files of an unreferenced ledger."""
        ...


class TopicSnapshot(NamedTuple):
    """The range of a run. Segments of the previous compacted ledger come first."""

    segments: list[SegmentRecord]
    compacted_segments: int
    horizon: Position
    horizon_previous: Position | None
    previous_ledger_id: int
    # The horizon, or a cursor moved by an administrator: raw entries through it are not read.
    raw_after: Position
    # Retention removed everything below it, from the compacted ledger too.
    floor: Position
    # Identifies a load of the topic.
    epoch: int


async def snapshot(topic: ViewedTopic, *, again: bool = False) -> TopicSnapshot | None:
    """Returns a run's input; None if there is nothing to compact and not `again`.

    Raises CompactedLedgerDamaged; Corruption or MissingFile of a damaged raw ledger in the range;
    CompactionFailed if an entry of the range is in no sealed segment, or `__compaction` was moved
    after all entries.
    """
    log = topic.log
    log.check_compacted()
    last, view = await log.seal(), log.view
    compacted, routed_by = log.compacted_segments(), view.horizon or EARLIEST
    covered = record_position(compacted[-1], last=True) if compacted else EARLIEST
    after = max(routed_by, covered, topic.compaction_moved_to or EARLIEST)
    if last is None or last <= routed_by or not log.has_ledger(last.ledger_id):
        is_skipped = topic.emulation().skip_run_without_new_data
        if view.horizon is None or (is_skipped and not again):
            return None
        # Pulsar's second run ends with the last entry it reads: that of the compacted ledger.
        last = covered if compacted and not is_skipped else view.horizon
    elif covered < last <= after:
        raise CompactionFailed(
            "phase one",
            f"it timed out: {COMPACTION_CURSOR} was moved to {after}, and no later entry exists "
            "for a run to end with. Publish, or move it back.",
        )
    raw = [
        segment
        for record in log.ledger_records()
        for segment in segments_sealed(record, after)
        if (segment.first.ledger_id, segment.first.entry_id) <= last
    ]
    taken = TopicSnapshot(
        segments=compacted + raw,
        compacted_segments=len(compacted),
        horizon=last,
        horizon_previous=view.horizon,
        previous_ledger_id=view.ledger_id,
        raw_after=after,
        floor=log.floor,
        epoch=topic.stored.record.epoch,
    )
    _check_range(topic, taken)
    return taken


def _check_range(topic: ViewedTopic, snapshot: CompactionSnapshot) -> None:
    after = snapshot.raw_after
    ledgers = topic.log.ledger_records()
    for ledger in ledgers:
        damage = topic.store.damage_of(ledger.ledger_id)
        last = last_entry(ledger)
        is_in_range = ledger.ledger_id <= snapshot.horizon.ledger_id and (last or after) > after
        if damage is not None and is_in_range:
            raise damage
    raw = snapshot.segments[snapshot.compacted_segments :]
    check_coverage(ledgers, raw, after=after, through=snapshot.horizon)


async def commit(
    topic: ViewedTopic, run: RunRecord, manifest: Manifest, snapshot: CompactionSnapshot
) -> None:
    """Publishes a run's output. `snapshot`: its input.

    Raises CompactionFenced if the topic is no longer loaded or has another view, Corruption and
    MissingFile if the files do not match the manifest, and what snapshot() raises. Nothing has
    changed then.
    """
    ledger = await asyncio.to_thread(_verified, topic, run, manifest)
    previous = topic.log.horizon

    def edit(record: TopicRecord, batch: MetadataBatch) -> None:
        _check_unchanged(topic, snapshot)
        reach("commit.before-batch")
        forget_compacted(topic, record, batch)
        record.compacted.ledger_id = run.ledger_id
        record.compacted.horizon.CopyFrom(run.horizon)
        record.compacted.run_number = run.number
        batch.put_ledger(ledger)
        batch.put_run(run)

    def applied() -> None:
        reach("commit.after-batch")
        show(topic)

    try:
        await topic.stored.change(edit, applied)
    except Moved as error:
        raise CompactionFenced(f"{topic.name} was unloaded while it was compacted.") from error
    # As in Pulsar, a cursor that stays in its ledger triggers no trimming.
    if run.horizon.ledger_id != (previous or topic.log.first_position()).ledger_id:
        await topic.trim()


def _verified(topic: ViewedTopic, run: RunRecord, manifest: Manifest) -> LedgerRecord:
    """Verifies the run's files and labels their ledger."""
    store, segments = topic.store, list(manifest.segments)
    ledger = store.verify_compacted(run.ledger_id, topic.name, segments)
    store.label_compacted(ledger, run=run)
    return ledger


def _check_unchanged(topic: ViewedTopic, snapshot: CompactionSnapshot) -> None:
    """Raises CompactionFenced, and what _check_range() raises."""
    if not topic.is_loaded or topic.log.failure is not None:
        raise CompactionFenced(
            f"{topic.name} was unloaded, or its disk failed, while it was compacted."
        )
    if topic.stored.record.epoch != snapshot.epoch:
        raise CompactionFenced(f"{topic.name} was reloaded while it was compacted.")
    view = topic.log.view
    if (view.ledger_id, view.horizon) != (snapshot.previous_ledger_id, snapshot.horizon_previous):
        raise CompactionFenced(f"{topic.name} got another compacted view during the run.")
    _check_range(topic, snapshot)


async def drop(topic: ViewedTopic) -> None:
    """Drops the compacted view and its cursor, while no run of the topic is running."""

    def edit(record: TopicRecord, batch: MetadataBatch) -> None:
        record.compaction_cursor = False
        forget_compacted(topic, record, batch)

    await topic.stored.change(edit, lambda: show(topic))


def forget_compacted(topic: ViewedTopic, changed: TopicRecord, batch: MetadataBatch) -> None:
    """Removes the compacted view from the record `changed`, in `batch`."""
    if changed.HasField("compacted"):
        topic.store.mark_deleting(changed.compacted.ledger_id, batch)
    changed.ClearField("compacted")
    changed.ClearField("truncated_upto")
    changed.ClearField("compaction_moved_to")


def show(topic: ViewedTopic) -> None:
    """Switches reads to the recorded view. The old view's ledger is deleted with its last read.

    (Not before: a failed batch must leave nothing for a later one to publish.)
    """
    previous = topic.log.renew_view()
    if previous.ledger_id >= 0:
        previous.retire(lambda: topic.remove_files(previous.ledger_id))
