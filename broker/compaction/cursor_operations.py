"""Moving `__compaction` by hand: reset-cursor, skip, clear-backlog, expiry by its name.

Refused, unless the profile wants what Pulsar 4 does (docs/PROFILES.md, rule 6.6). There:

* The mark-delete moves at once, and trimming and thresholds go by it. The view that is shown stays
  until the topic is loaded anew: then it is the horizon that reads are routed by.
* The next run reads the compacted ledger and the raw entries behind the mark-delete, or the horizon
  if that is further: what it passed, and no run had seen, is left out for good. When all there is
  has been passed so, the run fails: Pulsar's waits in vain until its time is up.
* Skip and clear-backlog take the cursor's properties, the compacted ledger's id among them: the
  next load finds none, as after a truncation (broker/topics/trimming.py), unless a run came in
  between.
* A run that is committed makes good for everything, also one that was on its way.

Source: ManagedCursorImpl.internalResetCursor, PulsarCompactorSubscription, CompactedTopicImpl; and
what a Pulsar 4.0.7 answered.
"""

from __future__ import annotations

from typing import Protocol

from ledgerfold.broker.common.clock import Clock
from ledgerfold.broker.common.names import COMPACTION_CURSOR
from ledgerfold.broker.log.log import TopicLog
from ledgerfold.broker.log.stored_topic import StoredTopic
from ledgerfold.broker.policies.profiles import Emulation
from ledgerfold.broker.subscriptions.cursor_operations import check_limit, closed_before, nth_behind
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


class CompactedTopic(Protocol):
    """What is needed of a topic (broker/topics/topic.py)."""

    @property
    def name(self) -> str: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def log(self) -> TopicLog: ...
    @property
    def stored(self) -> StoredTopic: ...
    @property
    def compaction_mark_delete(self) -> Position: ...
    def emulation(self) -> Emulation: ...


async def reset(topic: CompactedTopic, start: StartPosition) -> None:
    """Moves it to before `start`, forwards or backwards, durably; not beyond the end.

    Raises NotAllowed (the profile), SubscriptionNotFound, Moved (the topic was unloaded),
    StorageError.
    """
    check_may_move(topic)
    log = topic.log
    position, _ = await log.resolve_start(start, read_compacted=False)
    if position <= EARLIEST:
        position = log.first_position()
    await _move(topic, min(mark_delete_before(log, position), log.last_position()))


async def expire(topic: CompactedTopic, limit_ms: int) -> int:
    """Passes what is older than `limit_ms`, durably; how many entries that were.

    Raises NothingExpired when nothing is behind it, and what reset() raises.
    """
    check_limit(limit_ms)
    check_may_move(topic)
    log, at = topic.log, topic.compaction_mark_delete
    if not log.entries_between(at, log.last_position()):
        raise NothingExpired(topic.name, COMPACTION_CURSOR)
    before_ms = topic.clock.now_ms() - limit_ms
    passed = closed_before(log.ledger_records(), before_ms, at)
    return await _pass(topic, await log.last_published_before(before_ms, passed))


async def skip(topic: CompactedTopic, entries: int) -> int:
    """Passes so many entries, or as many as there are; how many it were. Raises as reset()."""
    if entries < 1:
        raise InvalidRequest(f"Skip {entries}? 1 is the least.")
    check_may_move(topic)
    upto = nth_behind(topic.log, topic.compaction_mark_delete, (), entries)
    return await _pass(topic, upto, keeps_view=False)


async def clear(topic: CompactedTopic) -> int:
    """Passes everything there is; how many entries that were. Raises as reset()."""
    check_may_move(topic)
    return await _pass(topic, topic.log.last_position(), keeps_view=False)


def check_may_move(topic: CompactedTopic) -> None:
    """Raises NotAllowed, SubscriptionNotFound."""
    if not topic.emulation().compaction_cursor_moves:
        raise NotAllowed(
            f"{COMPACTION_CURSOR} moves with compactions only, for what it passes, and no run has "
            "seen, would be lost. Trigger one, or delete it. (Profile pulsar-4 moves it.)"
        )
    if not topic.stored.record.compaction_cursor:
        raise SubscriptionNotFound(topic.name, COMPACTION_CURSOR)


async def _pass(topic: CompactedTopic, upto: Position, *, keeps_view: bool = True) -> int:
    """Forwards only."""
    before = topic.compaction_mark_delete
    after = max(before, upto)
    await _move(topic, after, keeps_view=keeps_view)
    return topic.log.entries_between(before, after)


async def _move(topic: CompactedTopic, mark_delete: Position, *, keeps_view: bool = True) -> None:
    """One synced write. Raises what check_may_move() raises, Moved, DiskFailure."""

    def edit(record: TopicRecord, batch: MetadataBatch) -> None:
        check_may_move(topic)
        moved = record.compaction_moved_to
        moved.ledger_id, moved.entry_id = mark_delete
        if not keeps_view:
            record.truncated_upto.CopyFrom(moved)

    await topic.stored.change(edit)
