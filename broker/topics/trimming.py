"""Trimming: the deletion of raw ledgers that nothing retains.

It deletes the ledgers that every cursor, the horizon and every overtaken reader have passed,
durably, and that retention does not keep (broker/policies/retention.py). A run's input stays until
the run has ended, even if `__compaction` was moved. A damaged ledger stays until it is repaired,
and so do all ledgers after it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Protocol

from ledgerfold.broker.common.given_names import shown
from ledgerfold.broker.compaction.interfaces import CompactableTopic
from ledgerfold.broker.compaction.snapshot import TopicSnapshot
from ledgerfold.broker.policies.retention import (
    Hold,
    Holds,
    has_limit,
    kept_by,
    ledgers_to_trim,
)
from ledgerfold.broker.topics.deduplication import Deduplication
from ledgerfold.storage.entry import EARLIEST, Position
from ledgerfold.storage.errors import Moved

_log = logging.getLogger(__name__)


class TrimmedTopic(CompactableTopic, Protocol):
    """The part of a topic that trimming uses (broker/topics/topic.py)."""

    @property
    def deduplication(self) -> Deduplication: ...
    @property
    def held_by_readers(self) -> Iterable[tuple[str, Position | None]]: ...
    def running_snapshot(self) -> TopicSnapshot | None: ...


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


def keepers(topic: TrimmedTopic) -> dict[int, list[str]]:
    """Returns what keeps each raw ledger, by the rule of `trim`."""
    return kept_by(topic.log.ledgers, _holds(topic), topic.policies(), topic.clock.now_ms())


def _deletable(topic: TrimmedTopic) -> list[int]:
    return ledgers_to_trim(topic.log.ledgers, _holds(topic), topic.policies(), topic.clock.now_ms())


def _holds(topic: TrimmedTopic) -> Holds:
    return Holds(
        _cursors(topic),
        _unrecorded(topic),
        topic.store.damaged_ids(),
        topic.emulation().trim_without_cursor,
    )


def _cursors(topic: TrimmedTopic) -> list[Hold]:
    """Returns the position that each cursor, the compaction and each overtaken reader has passed.

    Includes the start of a running compaction's input.
    """
    named = [(shown(name), each) for name, each in topic.subscriptions.items()]
    passed = [
        Hold(f"cursor {name}", each.durable_mark_delete)
        for name, each in named
        if each.is_durable and each.recorded.is_recorded
    ]
    if topic.record.compaction_cursor:
        passed.append(Hold("compaction horizon", topic.compaction_mark_delete))
    run = topic.running_snapshot()
    if run is not None and run.horizon > (topic.log.views.horizon or EARLIEST):
        # It is not published yet.
        passed.append(Hold("running compaction", run.raw_after))
    cursors = [(f"reader {name}", position) for name, position in topic.held_by_readers]
    cursors += [(f"consumer of {name}", each.held_position) for name, each in named]
    previous = topic.log.positions.previous
    return passed + [Hold(what, previous(at)) for what, at in cursors if at is not None]


def _unrecorded(topic: TrimmedTopic) -> list[Hold]:
    """Returns the positions after which ledgers stay, even if all have passed them.

    Later headers are the only record of stored sequence ids, or a cursor is being created there.
    """
    created = [
        Hold(f"new cursor {shown(name)}", each.durable_mark_delete)
        for name, each in topic.subscriptions.items()
        if each.is_durable and not each.recorded.is_recorded
    ]
    return [*created, Hold("unrecorded sequence ids", topic.deduplication.recorded)]
