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

from ledgerfold.broker.compaction.interfaces import CompactableTopic
from ledgerfold.broker.compaction.snapshot import TopicSnapshot
from ledgerfold.broker.policies.retention import has_limit, ledgers_to_trim
from ledgerfold.broker.topics.deduplication import Deduplication
from ledgerfold.storage.entry import EARLIEST, Position
from ledgerfold.storage.errors import Moved

_log = logging.getLogger(__name__)


class TrimmedTopic(CompactableTopic, Protocol):
    """The part of a topic that trimming uses (broker/topics/topic.py)."""

    @property
    def deduplication(self) -> Deduplication: ...
    @property
    def held_positions(self) -> Iterable[Position | None]: ...
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
    if run is not None and run.horizon > (topic.log.views.horizon or EARLIEST):
        # It is not published yet.
        passed.append(run.raw_after)
    held = [*topic.held_positions, *(each.held_position for each in topic.subscriptions.values())]
    return passed + [topic.log.positions.previous(each) for each in held if each is not None]


def _known_through(topic: TrimmedTopic) -> Position:
    """Returns the position after which ledgers stay, even if all have passed them.

    Later headers are the only record of stored sequence ids, or a cursor is being created there.
    """
    created = (each for each in topic.subscriptions.values() if each.is_durable)
    limits = [each.durable_mark_delete for each in created if not each.is_recorded]
    return min([*limits, topic.deduplication.recorded])
