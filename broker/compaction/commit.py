"""The commit of a compaction, which makes a run's output the topic's view.

It repeats the checks of the snapshot, and checks that the view is still the one that the run began
with. Then one synced batch has the new ledger, the horizon, the run's record, and the old ledger
marked for deletion. The old files are deleted when no read pins them. Disabling compaction drops
the view, also in one batch.

Rules: docs/ARCHITECTURE.md, "A compaction".
"""

from __future__ import annotations

import asyncio

from ledgerfold.broker.compaction.interfaces import CompactableTopic
from ledgerfold.broker.compaction.snapshot import TopicSnapshot, check_range
from ledgerfold.storage.crash_points import reach
from ledgerfold.storage.errors import CompactionFenced, Moved
from ledgerfold.storage.metadata import MetadataBatch
from ledgerfold.storage.records import DELETION_VECTORS
from ledgerfold.v1.compactor_pb2 import Manifest
from ledgerfold.v1.records_pb2 import LedgerRecord, RunRecord, TopicRecord


async def commit(
    topic: CompactableTopic, run: RunRecord, manifest: Manifest, snapshot: TopicSnapshot
) -> None:
    """Publishes a run's output. `snapshot`: its input.

    Raises CompactionFenced if the topic is no longer loaded or has another view, Corruption and
    MissingFile if the files do not match the manifest, and what snapshot() raises. Nothing has
    changed then.
    """
    ledger = await asyncio.to_thread(_verified, topic, run, manifest, snapshot)
    previous = topic.log.views.horizon

    def edit(record: TopicRecord, batch: MetadataBatch) -> None:
        _check_unchanged(topic, snapshot)
        reach("commit.before-batch")
        forget_compacted(topic, record, batch)
        record.compacted.ledger_id = run.ledger_id
        record.compacted.horizon.CopyFrom(run.horizon)
        record.compacted.run_number = run.number
        batch.put(ledger)
        batch.put(run)

    def applied() -> None:
        reach("commit.after-batch")
        show(topic)

    try:
        await topic.stored.change(edit, applied)
    except Moved as error:
        raise CompactionFenced(f"{topic.name} was unloaded while it was compacted.") from error
    # As in Pulsar, a cursor that stays in its ledger triggers no trimming.
    if run.horizon.ledger_id != (previous or topic.log.positions.first()).ledger_id:
        await topic.trim()


def _verified(
    topic: CompactableTopic, run: RunRecord, manifest: Manifest, snapshot: TopicSnapshot
) -> LedgerRecord:
    """Verifies the run's files and labels their ledger.

    Older builds refuse the directory from the first deletion vector on.
    """
    store, segments = topic.store, list(manifest.segments)
    previous = snapshot.segments[: snapshot.compacted_segments]
    ledger = store.verify_compacted(run.ledger_id, topic.name, segments, previous)
    if any(segment.HasField("dead") for segment in ledger.segments):
        store.need_feature(DELETION_VECTORS)
    store.label_compacted(ledger, run=run)
    return ledger


def _check_unchanged(topic: CompactableTopic, snapshot: TopicSnapshot) -> None:
    """Raises CompactionFenced, and what check_range() raises."""
    if not topic.is_loaded or topic.log.state.failure is not None:
        raise CompactionFenced(
            f"{topic.name} was unloaded, or its disk failed, while it was compacted."
        )
    if topic.stored.record.epoch != snapshot.epoch:
        raise CompactionFenced(f"{topic.name} was reloaded while it was compacted.")
    view = topic.log.views.current
    if (view.ledger_id, view.horizon) != (snapshot.previous_ledger_id, snapshot.horizon_previous):
        raise CompactionFenced(f"The compacted view of {topic.name} was replaced during the run.")
    check_range(topic, snapshot)


async def drop(topic: CompactableTopic) -> None:
    """Drops the compacted view and its cursor, while no run of the topic is running."""

    def edit(record: TopicRecord, batch: MetadataBatch) -> None:
        record.compaction_cursor = False
        forget_compacted(topic, record, batch)

    await topic.stored.change(edit, lambda: show(topic))


def forget_compacted(topic: CompactableTopic, changed: TopicRecord, batch: MetadataBatch) -> None:
    """Removes the compacted view from the record `changed`, in `batch`."""
    if changed.HasField("compacted"):
        topic.store.mark_deleting(changed.compacted.ledger_id, batch)
    changed.ClearField("compacted")
    changed.ClearField("truncated_upto")
    changed.ClearField("compaction_moved_to")


def show(topic: CompactableTopic) -> None:
    """Switches reads to the recorded view. The old view's ledger is deleted with its last read.

    (Not before: a failed batch must leave nothing for a later one to publish.)
    """
    previous = topic.log.views.renew()
    if previous.ledger_id >= 0:
        previous.retire(lambda: topic.remove_files(previous.ledger_id))
