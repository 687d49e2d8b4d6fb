"""Administrative operations on a topic: truncate, terminate, disable compaction.

Truncation ends a running compaction; disabling compaction waits for it. No other run begins
meanwhile. Sources: Pulsar's PersistentTopicsBase and PersistentTopic; docs/PROFILES.md, rules 7.1
and 15.7.

* **Truncate** deletes all ledgers, read or not, and moves every cursor to the end. A running
  compaction is ended, because its input is deleted. The profile decides about the compacted ledger
  (docs/PROFILES.md, rule 15.7): it is deleted, too; or, as in Pulsar 4, the loaded topic keeps
  serving it and the next load drops it, unless a run commits in between. In that case the entries
  of the open ledger stay until it is closed.
* **Terminate**: publishing is forbidden permanently; readers see the end.
* **Disable compaction** is what deleting the subscription `__compaction` does. It waits for a
  running compaction and deletes its output with the rest of the compacted view; trimming no longer
  waits for a horizon. The profile decides whether a failed run prevents it. A threshold that is
  still set enables compaction again.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from ledgerfold.broker.common.names import COMPACTION_CURSOR
from ledgerfold.broker.compaction.commit import drop, forget_compacted, show
from ledgerfold.broker.log.ledger_record import last_entry
from ledgerfold.broker.topics.broker import Broker
from ledgerfold.broker.topics.topic import Topic
from ledgerfold.storage.entry import EARLIEST, Position
from ledgerfold.storage.errors import CompactionFailed, SubscriptionNotFound, TopicTerminated
from ledgerfold.storage.metadata import MetadataBatch
from ledgerfold.v1.records_pb2 import (
    LEDGER_STATE_CLOSED,
    RUN_STATE_CANCELLED,
    RUN_STATE_ERROR,
    TopicRecord,
)
from ledgerfold.v1.records_pb2 import Position as PositionRecord

_log = logging.getLogger(__name__)


async def truncate_topic(broker: Broker, name: str) -> None:
    """Deletes the topic's data.

    Raises TopicNotFound, SubscriptionBusy (another operation is in progress), StorageError.
    """
    topic = await broker.topic(name, create=False, to_write=True)
    if topic.failure is not None:
        # The disk is full, and may have no reserve. Opening the log again cuts off the failed
        # write, which is enough space for the truncation.
        async with broker.kept_unloaded(name):
            pass
    async with _without_compaction(broker, name) as topic:
        await _truncate(topic)


async def _truncate(topic: Topic) -> None:
    """Deletes all ledgers, while no run is running.

    Raises StorageError, Moved (it was unloaded).
    """
    log, drops_compacted = topic.log, topic.emulation().truncate_drops_compacted
    if drops_compacted:
        boundary = await log.tail.roll()
        deletable = [each for each in log.ledgers.records() if each.ledger_id < boundary]
        end = max(filter(None, map(last_entry, deletable)), default=EARLIEST)
    else:
        deletable = [each for each in log.ledgers.records() if each.state == LEDGER_STATE_CLOSED]
        end = log.positions.last()
    await _delete_ledgers(
        topic, [each.ledger_id for each in deletable], end, drops_compacted=drops_compacted
    )
    for subscription in tuple(topic.subscriptions.values()):
        if not subscription.is_closed:
            subscription.pass_over(end)
            await subscription.persist()
    _log.info("%s: truncated through %s", topic.name, end)


async def _delete_ledgers(
    topic: Topic, deletable: Sequence[int], end: Position, *, drops_compacted: bool
) -> None:
    """Removes the ledgers that still exist in one batch, then their files."""
    deleted = list[int]()

    def edit(record: TopicRecord, batch: MetadataBatch) -> None:
        deleted.extend(each for each in deletable if each in topic.log.ledgers)
        for ledger_id in deleted:
            record.ledger_ids.remove(ledger_id)
            topic.store.mark_deleting(ledger_id, batch)
        if drops_compacted:
            forget_compacted(topic, record, batch)
        else:
            record.ClearField("compaction_moved_to")
            record.truncated_upto.CopyFrom(PositionRecord(ledger_id=end[0], entry_id=end[1]))

    def applied() -> None:
        topic.log.positions.forget(deleted)
        topic.log.positions.note_dropped(end)
        # Otherwise the current view stays until the next load.
        if drops_compacted:
            show(topic)

    await topic.stored.change(edit, applied)
    for ledger_id in deleted:
        await topic.files_removed(ledger_id)


async def terminate_topic(broker: Broker, name: str) -> Position:
    """Terminates the topic; returns its final position. Raises TopicNotFound, StorageError."""
    topic = await broker.topic(name, create=False, to_write=True)
    end = await topic.log.terminate()
    for producer in tuple(topic.producers.values()):
        producer.end(TopicTerminated(name))
    for reader in tuple(topic.readers):
        reader.wake()
    return end


async def disable_compaction(broker: Broker, name: str) -> None:
    """Deletes the compacted view and the compaction cursor.

    Raises TopicNotFound, SubscriptionNotFound, SubscriptionBusy, CompactionFailed (by the profile's
    rule), StorageError.
    """
    topic = await broker.topic(name, create=False, to_write=True)
    if not topic.record.compaction_cursor:
        raise SubscriptionNotFound(name, COMPACTION_CURSOR)
    async with _without_compaction(broker, name, waits=True) as topic:
        if topic.emulation().failed_run_blocks_disabling:
            _check_last_run(topic)
        await drop(topic)
        await topic.trim()


@asynccontextmanager
async def _without_compaction(
    broker: Broker, name: str, *, waits: bool = False
) -> AsyncIterator[Topic]:
    """Holds the topic loaded with no compaction.

    `waits`: awaits a running one instead of ending it.
    """
    await broker.topic(name, create=False, to_write=True)
    with broker.compaction.barred(name):
        if waits:
            await broker.compaction.ended(name)
        else:
            await broker.compaction.fence(name, "truncated")
        async with broker.held(name) as topic:
            yield topic


def _check_last_run(topic: Topic) -> None:
    runs = topic.broker.metadata.runs(topic.name)
    if not runs or runs[-1].number <= topic.last_run_before_load:
        return
    if runs[-1].state in (RUN_STATE_ERROR, RUN_STATE_CANCELLED):
        raise CompactionFailed(f"run {runs[-1].number}", runs[-1].error_message)
