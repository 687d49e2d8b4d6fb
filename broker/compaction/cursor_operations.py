"""Manual moves of `__compaction`: reset-cursor, skip, clear-backlog and expiry by its name.

Refused, unless the profile follows Pulsar 4 (docs/PROFILES.md, rule 6.6). In that case:

* The mark-delete moves at once, and trimming and thresholds use it. The current view stays until
  the topic is reloaded: then reads are routed by the moved position as horizon.
* The next run reads the compacted ledger, and the raw entries after the mark-delete or the horizon,
  whichever is later. Entries that the cursor has passed and no run has read are lost for the view.
  If the cursor has passed all entries, the run fails; Pulsar's run waits until it times out.
* Skip and clear-backlog remove the cursor's properties, including the compacted ledger's id. As
  after a truncation (broker/topics/operations.py), the next load has no compacted ledger, unless a
  run commits before it.
* A committed run restores the normal state, even a run that was in progress during the move.

Source: ManagedCursorImpl.internalResetCursor, PulsarCompactorSubscription, CompactedTopicImpl; and
the observed behaviour of Pulsar 4.0.7.
"""

from __future__ import annotations

from ledgerfold.broker.common.names import COMPACTION_CURSOR
from ledgerfold.broker.compaction.interfaces import CompactableTopic
from ledgerfold.broker.subscriptions.cursor_operations import (
    check_limit,
    closed_before,
    last_through,
    nth_after,
)
from ledgerfold.broker.subscriptions.reading import mark_delete_before
from ledgerfold.storage.entry import EARLIEST, Position
from ledgerfold.storage.errors import (
    InvalidRequest,
    NotAllowed,
    NothingExpired,
    SubscriptionNotFound,
)
from ledgerfold.storage.metadata import MetadataBatch
from ledgerfold.v1.data_pb2 import StartPosition
from ledgerfold.v1.records_pb2 import TopicRecord


async def reset(topic: CompactableTopic, start: StartPosition) -> None:
    """Moves the cursor durably to before `start`, forwards or backwards, but not beyond the end.

    Raises NotAllowed (by the profile), SubscriptionNotFound, Moved (the topic was unloaded),
    StorageError.
    """
    check_may_move(topic)
    log = topic.log
    position, _ = await log.search.resolve_start(start, read_compacted=False)
    if position <= EARLIEST:
        position = log.positions.first()
    await _move(topic, min(mark_delete_before(log, position), log.positions.last()))


async def expire(topic: CompactableTopic, limit_ms: int) -> int:
    """Passes entries older than `limit_ms`, durably; returns how many.

    Raises NothingExpired if no entry follows it, and what reset() raises.
    """
    check_limit(limit_ms)
    check_may_move(topic)
    log, at = topic.log, topic.compaction_mark_delete
    if not log.ledgers.entries_between(at, log.positions.last()):
        raise NothingExpired(topic.name, COMPACTION_CURSOR)
    before_ms = topic.clock.now_ms() - limit_ms
    passed = closed_before(log.ledgers.records(), before_ms, at)
    return await _pass(topic, await log.search.last_published_before(before_ms, passed))


async def expire_through(topic: CompactableTopic, through: Position) -> int:
    """Passes the entries up to `through`, durably; returns how many.

    Raises NothingExpired if the last entry is before it, and what reset() raises.
    """
    check_may_move(topic)
    return await _pass(topic, last_through(topic.log, through, topic.name, COMPACTION_CURSOR))


async def skip(topic: CompactableTopic, entries: int) -> int:
    """Passes up to `entries` entries and returns how many. Raises like reset()."""
    if entries < 1:
        raise InvalidRequest(f"Cannot skip {entries} entries; minimum: 1.")
    check_may_move(topic)
    through = nth_after(topic.log, topic.compaction_mark_delete, (), entries)
    return await _pass(topic, through, keeps_view=False)


async def clear(topic: CompactableTopic) -> int:
    """Passes all entries and returns how many. Raises like reset()."""
    check_may_move(topic)
    return await _pass(topic, topic.log.positions.last(), keeps_view=False)


def check_may_move(topic: CompactableTopic) -> None:
    """Raises NotAllowed, SubscriptionNotFound."""
    if not topic.emulation().compaction_cursor_moves:
        raise NotAllowed(
            f"Only compactions move {COMPACTION_CURSOR}: entries that it passes and no run has "
            "read would be lost. Trigger one, or delete it. (Profile pulsar-4 moves it.)"
        )
    if not topic.stored.record.compaction_cursor:
        raise SubscriptionNotFound(topic.name, COMPACTION_CURSOR)


async def _pass(topic: CompactableTopic, through: Position, *, keeps_view: bool = True) -> int:
    """Moves the cursor forwards only."""
    before = topic.compaction_mark_delete
    after = max(before, through)
    await _move(topic, after, keeps_view=keeps_view)
    return topic.log.ledgers.entries_between(before, after)


async def _move(topic: CompactableTopic, mark_delete: Position, *, keeps_view: bool = True) -> None:
    """Moves the cursor in one synced write.

    Raises what check_may_move() raises, Moved, DiskFailure.
    """

    def edit(record: TopicRecord, batch: MetadataBatch) -> None:
        check_may_move(topic)
        moved = record.compaction_moved_to
        moved.ledger_id, moved.entry_id = mark_delete
        if not keeps_view:
            record.truncated_upto.CopyFrom(moved)

    await topic.stored.change(edit)
