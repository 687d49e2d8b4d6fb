"""Raw ledgers go: those that nothing holds back, or all of them.

* **Trim** deletes the ledgers that every cursor, the horizon and every reader that was overtaken
  have passed, durably, and that retention does not keep (broker/policies/retention.py). A damaged
  ledger stays until it is repaired, and all behind it.
* **Truncate** deletes all there is, whoever has read it, and moves every cursor to the end. The
  profile decides about the compacted ledger (docs/PROFILES.md, rule 15.7): it goes, too; or, as in
  Pulsar 4, the loaded topic goes on serving it and the next load loses it, unless a run comes in
  between. There, the entries of the open ledger stay until it is closed.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ledgerfold.broker.compaction.commit import delete_quietly, forget_compacted, show
from ledgerfold.broker.log.tail import copy_of
from ledgerfold.broker.policies.retention import has_limit, last_entry, ledgers_to_trim
from ledgerfold.storage.entry import EARLIEST, Position
from ledgerfold.v1.records_pb2 import LEDGER_STATE_CLOSED
from ledgerfold.v1.records_pb2 import Position as PositionRecord

if TYPE_CHECKING:
    from ledgerfold.broker.topics.topic import Topic

_log = logging.getLogger(__name__)


def trim(topic: Topic) -> int:
    """How many ledgers went. None of a topic that is not loaded any more."""
    if not topic.is_loaded:
        return 0
    log, policies, emulation = topic.log, topic.policies(), topic.emulation()
    doomed = ledgers_to_trim(
        log.ledgers,
        _passed(topic),
        policies,
        topic.clock.now_ms(),
        without_cursor=emulation.trim_without_cursor,
        upto=_known_upto(topic),
        held=topic.broker.store.damaged_ids(),
    )
    if doomed:
        hides_compacted = has_limit(policies) and emulation.retention_hides_compacted
        log.drop_ledgers(doomed, hides_compacted=hides_compacted)
        _log.info("%s: trimmed ledgers %s", topic.name, doomed)
    return len(doomed)


def _passed(topic: Topic) -> list[Position]:
    """Up to where each cursor, the compaction and each reader that was overtaken have gone."""
    durable = (each for each in topic.subscriptions.values() if each.is_durable)
    passed = [each.durable_mark_delete for each in durable if each.is_recorded]
    if topic.record.compaction_cursor:
        passed.append(topic.compaction_mark_delete)
    held = [each.held_position for each in topic.readers]
    held += [each.held_position for each in topic.subscriptions.values()]
    return passed + [topic.log.previous_position(each) for each in held if each is not None]


def _known_upto(topic: Topic) -> Position:
    """What lies behind it stays, whoever has passed it: its headers are all that tells of sequence
    ids that were stored, or it is behind a cursor that is being created.
    """
    created = (each for each in topic.subscriptions.values() if each.is_durable)
    limits = [each.mark_delete for each in created if not each.is_recorded]
    return min([*limits, topic.deduplication.recorded])


async def truncate(topic: Topic) -> None:
    """While no run of the topic is on its way. Raises StorageError, Moved (it was unloaded)."""
    log, drops_compacted = topic.log, topic.emulation().truncate_drops_compacted
    if drops_compacted:
        boundary = await log.roll()
        doomed = [each for each in log.ledger_records() if each.ledger_id < boundary]
        end = max(filter(None, map(last_entry, doomed)), default=EARLIEST)
    else:
        doomed = [each for each in log.ledger_records() if each.state == LEDGER_STATE_CLOSED]
        end = log.last_position()
    _remove(topic, [each.ledger_id for each in doomed], end, drops_compacted=drops_compacted)
    for subscription in tuple(topic.subscriptions.values()):
        if not subscription.is_closed:
            subscription.pass_over(end)
            await subscription.persist()
    _log.info("%s: truncated up to %s", topic.name, end)


def _remove(topic: Topic, doomed: Sequence[int], end: Position, *, drops_compacted: bool) -> None:
    """One batch, then the files."""
    store, changed = topic.broker.store, copy_of(topic.record)
    with topic.broker.metadata.batch() as batch:
        for ledger_id in doomed:
            changed.ledger_ids.remove(ledger_id)
            store.mark_deleting(ledger_id, batch)
        if drops_compacted:
            forget_compacted(topic, changed, batch)
        else:
            changed.ClearField("compaction_moved_to")
            changed.truncated_upto.CopyFrom(PositionRecord(ledger_id=end[0], entry_id=end[1]))
        batch.put_topic(changed)
    topic.log.forget_ledgers(doomed)
    topic.log.note_dropped(end)
    if drops_compacted:
        show(topic, changed)
    else:
        # The view that is shown stays; its record is for the next load.
        topic.record.CopyFrom(changed)
    for ledger_id in doomed:
        delete_quietly(topic, ledger_id)
