"""Single entries of a topic: by their place in a backlog or in the topic, or by their id.

A read has no effect on a subscription. An entry is one message or a batch. Places count entries
from 1. Only raw ledgers are read: not what a compaction kept of trimmed ones. Source: Pulsar's
PersistentTopicsBase (internalPeekNthMessageAsync, internalExamineMessageAsync,
internalGetMessageById).
"""

from __future__ import annotations

from ledgerfold.broker.common.names import COMPACTION_CURSOR
from ledgerfold.broker.subscriptions.cursor import Cursor
from ledgerfold.broker.subscriptions.cursor_operations import nth_after
from ledgerfold.broker.subscriptions.lifecycle import existing_subscription
from ledgerfold.broker.topics.broker import Broker
from ledgerfold.broker.topics.topic import Topic
from ledgerfold.storage.entry import EARLIEST, LATEST, Position
from ledgerfold.storage.errors import InvalidRequest, MessageNotFound, NotAllowed
from ledgerfold.storage.ledger import StoredEntry
from ledgerfold.storage.text import counted

# The size of the entries that are peeked at once, without the last one.
PEEK_BYTES_MAX = 1024 * 1024
# Acknowledged entries are read, too, if they are among the others.
_READ_BYTES = 64 * 1024


async def peeked_entries(
    broker: Broker, name: str, subscription: str, nth: int, messages: int = 1
) -> list[StoredEntry]:
    """Returns entries of a subscription's backlog, from the `nth` on: so many that they hold
    `messages`, or PEEK_BYTES_MAX, or all that are left.

    Entries that consumers have not acknowledged yet are in the backlog; so are those after the
    horizon in that of `__compaction`. Raises InvalidRequest, TopicNotFound, SubscriptionNotFound,
    NotAllowed (by the kind of the topic), Moved, StorageError.
    """
    _check_positive("position", nth)
    _check_positive("number of messages", messages)
    topic = await _topic(broker, name)
    cursor = _cursor(topic, subscription)
    peeked: list[StoredEntry] = []
    size_bytes = 0
    while messages > 0 and size_bytes < PEEK_BYTES_MAX:
        # Consumers may acknowledge entries meanwhile.
        entries = await _peek(topic, cursor, nth + len(peeked))
        if not entries:
            break
        for entry in entries:
            peeked.append(entry)
            messages -= entry.header.message_count
            size_bytes += entry.header.size_bytes
            if messages <= 0 or size_bytes >= PEEK_BYTES_MAX:
                break
    return peeked


async def examined_entry(
    broker: Broker, name: str, nth: int, *, from_earliest: bool
) -> StoredEntry:
    """Returns the `nth` entry of a topic, counted from the first one, or back from the last one.

    Raises InvalidRequest (the topic has fewer), MessageNotFound (it has none), TopicNotFound,
    NotAllowed (by the kind of the topic), Moved, StorageError.
    """
    _check_positive("position", nth)
    topic = await _topic(broker, name)
    total = topic.log.ledgers.entries_between(EARLIEST, LATEST)
    if not total:
        raise MessageNotFound(name, "messages")
    if nth > total:
        entries = counted(total, "entry", "entries")
        raise InvalidRequest(f"{name} has {entries}: the position must be 1 to {total}.")
    nth_from_start = nth if from_earliest else total - nth + 1
    return await _entry_at(topic, nth_after(topic.log, EARLIEST, (), nth_from_start))


async def entry_by_id(broker: Broker, name: str, at: Position) -> StoredEntry:
    """Returns the entry with an id.

    Raises MessageNotFound, TopicNotFound, NotAllowed (by the kind of the topic), Moved,
    StorageError.
    """
    return await _entry_at(await _topic(broker, name), at)


async def _topic(broker: Broker, name: str) -> Topic:
    if broker.partitions.count(name):
        raise NotAllowed(f"A message belongs to one partition: name {name}-partition-0 or another.")
    return await broker.topic(name, create=False)


def _cursor(topic: Topic, subscription: str) -> Cursor:
    if subscription == COMPACTION_CURSOR and topic.record.compaction_cursor:
        return Cursor(topic.compaction_mark_delete)
    return existing_subscription(topic, subscription).cursor


async def _peek(topic: Topic, cursor: Cursor, nth: int) -> list[StoredEntry]:
    """Returns the `nth` entry of a backlog, and those of the entries read with it that are in the
    backlog; empty if the backlog is shorter.
    """
    log = topic.log
    sums, last = log.ledgers.sums(), log.positions.last()
    backlog = sums.entries_between(cursor.mark_delete, last) - sums.entries_in(cursor.bounds())
    if nth > backlog:
        return []
    at = nth_after(log, cursor.mark_delete, cursor.ranges, nth)
    entries = (await log.reads.read_raw(at, _READ_BYTES)).entries
    return [each for each in entries if not cursor.is_acknowledged(each.header.position)]


async def _entry_at(topic: Topic, at: Position) -> StoredEntry:
    entries = (await topic.log.reads.read_raw(at, 1)).entries
    # If there is none at this position, the next one was read.
    if not entries or entries[0].header.position != at:
        raise MessageNotFound(topic.name, f"entry {at}")
    return entries[0]


def _check_positive(subject: str, number: int) -> None:
    if number < 1:
        raise InvalidRequest(f"The {subject} must be 1 or more, not {number}.")
