"""Deletion of raw ledgers: trimming what nothing retains, and truncation.

* **Trim** deletes the ledgers that every cursor, the horizon and every overtaken reader have
  passed, durably, and that retention does not keep (broker/policies/retention.py). A run's input
  stays until the run has ended, wherever `__compaction` was moved. A damaged ledger stays until it
  is repaired, and so do all ledgers after it.
* **Truncate** deletes all ledgers, read or not, and moves every cursor to the end. The profile
  decides about the compacted ledger (docs/PROFILES.md, rule 15.7): it is deleted, too; or, as in
  Pulsar 4, the loaded topic keeps serving it and the next load drops it, unless a run commits in
  between. In that case the entries of the open ledger stay until it is closed.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from ledgerfold.broker.common.clock import Clock
from ledgerfold.broker.compaction.commit import ViewedTopic, forget_compacted, show
from ledgerfold.broker.compaction.interfaces import CompactionSnapshot
from ledgerfold.broker.log.ledger_record import last_entry
from ledgerfold.broker.policies.retention import has_limit, ledgers_to_trim
from ledgerfold.broker.subscriptions.subscription import Subscription
from ledgerfold.broker.topics.deduplication import Deduplication
from ledgerfold.storage.entry import EARLIEST, Position
from ledgerfold.storage.errors import Moved
from ledgerfold.storage.metadata import MetadataBatch
from ledgerfold.v1.records_pb2 import LEDGER_STATE_CLOSED, Policies, TopicRecord
from ledgerfold.v1.records_pb2 import Position as PositionRecord

_log = logging.getLogger(__name__)


class TrimmedTopic(ViewedTopic, Protocol):
    """The part of a topic that trimming uses (broker/topics/topic.py)."""

    @property
    def clock(self) -> Clock: ...
    @property
    def record(self) -> TopicRecord: ...
    @property
    def deduplication(self) -> Deduplication: ...
    @property
    def subscriptions(self) -> Mapping[str, Subscription]: ...
    @property
    def held_positions(self) -> Iterable[Position | None]:
        """The first raw entries that readers still need although a run has overtaken them."""
        ...

    @property
    def compaction_mark_delete(self) -> Position: ...
    async def files_removed(self, ledger_id: int) -> None:
        """Removes the files of an unreferenced ledger. Raises nothing."""
        ...

    def running_snapshot(self) -> CompactionSnapshot | None:
        """Returns the input of the running compaction, until it has ended."""
        ...

    def policies(self) -> Policies: ...


async def trim(topic: TrimmedTopic) -> int:
    """Deletes the deletable ledgers and returns their number.

    0 if the topic is no longer loaded.
    """
    if not (topic.is_loaded and _deletable(topic)):
        return 0
    hides_compacted = has_limit(topic.policies()) and topic.emulation().retention_hides_compacted
    try:
        # Computed again inside the change: a new holder may have appeared meanwhile.
        deleted = await topic.log.drop_ledgers(
            lambda: _deletable(topic), hides_compacted=hides_compacted
        )
    except Moved:
        return 0
    _log.info("%s: trimmed ledgers %s", topic.name, deleted)
    return len(deleted)


def _deletable(topic: TrimmedTopic) -> list[int]:
    return ledgers_to_trim(
        topic.log.ledgers,
        _passed(topic),
        topic.policies(),
        topic.clock.now_ms(),
        without_cursor=topic.emulation().trim_without_cursor,
        through=_known_through(topic),
        held=topic.store.damaged_ids(),
    )


def _passed(topic: TrimmedTopic) -> list[Position]:
    """Returns the position that each cursor, the compaction and each overtaken reader has passed.

    Includes the start of a running compaction's input.
    """
    durable = (each for each in topic.subscriptions.values() if each.is_durable)
    passed = [each.durable_mark_delete for each in durable if each.is_recorded]
    if topic.record.compaction_cursor:
        passed.append(topic.compaction_mark_delete)
    run = topic.running_snapshot()
    if run is not None and run.horizon > (topic.log.horizon or EARLIEST):
        # It is not published yet.
        passed.append(run.raw_after)
    held = [*topic.held_positions, *(each.held_position for each in topic.subscriptions.values())]
    return passed + [topic.log.previous_position(each) for each in held if each is not None]


def _known_through(topic: TrimmedTopic) -> Position:
    """Returns the position after which ledgers stay, passed or not.

    Later headers are the only record of stored sequence ids, or a cursor is being created there.
    """
    created = (each for each in topic.subscriptions.values() if each.is_durable)
    limits = [each.mark_delete for each in created if not each.is_recorded]
    return min([*limits, topic.deduplication.recorded])


async def truncate(topic: TrimmedTopic) -> None:
    """Deletes all ledgers, while no run is running.

    Raises StorageError, Moved (it was unloaded).
    """
    log, drops_compacted = topic.log, topic.emulation().truncate_drops_compacted
    if drops_compacted:
        boundary = await log.roll()
        deletable = [each for each in log.ledger_records() if each.ledger_id < boundary]
        end = max(filter(None, map(last_entry, deletable)), default=EARLIEST)
    else:
        deletable = [each for each in log.ledger_records() if each.state == LEDGER_STATE_CLOSED]
        end = log.last_position()
    await _remove(
        topic, [each.ledger_id for each in deletable], end, drops_compacted=drops_compacted
    )
    for subscription in tuple(topic.subscriptions.values()):
        if not subscription.is_closed:
            subscription.pass_over(end)
            await subscription.persist()
    _log.info("%s: truncated through %s", topic.name, end)


async def _remove(
    topic: TrimmedTopic, deletable: Sequence[int], end: Position, *, drops_compacted: bool
) -> None:
    """Removes the ledgers that still exist in one batch, then their files."""
    deleted = list[int]()

    def edit(record: TopicRecord, batch: MetadataBatch) -> None:
        deleted.extend(each for each in deletable if topic.log.has_ledger(each))
        for ledger_id in deleted:
            record.ledger_ids.remove(ledger_id)
            topic.store.mark_deleting(ledger_id, batch)
        if drops_compacted:
            forget_compacted(topic, record, batch)
        else:
            record.ClearField("compaction_moved_to")
            record.truncated_upto.CopyFrom(PositionRecord(ledger_id=end[0], entry_id=end[1]))

    def applied() -> None:
        topic.log.forget_ledgers(deleted)
        topic.log.note_dropped(end)
        # Otherwise the current view stays until the next load.
        if drops_compacted:
            show(topic)

    await topic.stored.change(edit, applied)
    for ledger_id in deleted:
        await topic.files_removed(ledger_id)
