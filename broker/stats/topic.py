"""The stats of a topic, with the field names of Pulsar's `topics stats` and `stats-internal`.

Fields without a meaning in this broker are omitted, and so are rates, which depend on the time of
the query. Sources: Pulsar's TopicStatsImpl, CompactionStatsImpl, ManagedLedgerInternalStats.

Positions are written "ledger:entry". Once the topic has a compaction cursor, it is listed among the
subscriptions and cursors under Pulsar's name, `__compaction`. Each reader is listed as
`reader-...`.

Differences from Pulsar's values: the open ledger is listed with its entries and size (zeros in
Pulsar until it is closed), a ledger names in `heldBy` what keeps it (broker/topics/trimming.py), a
damaged one has a `damage`, and `averageMsgSize` covers all messages since the load.

Damage found at the start is included. A query checks names and sizes of the files of closed
ledgers, but does not read them (`ledgerfold verify` does).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ledgerfold.broker.common.given_names import shown
from ledgerfold.broker.common.names import COMPACTION_CURSOR
from ledgerfold.broker.common.traffic import iso_time
from ledgerfold.broker.compaction.history import CompactionStats
from ledgerfold.broker.log.backlog import LedgerSums
from ledgerfold.broker.log.ledger_record import size_bytes
from ledgerfold.broker.stats.subscription import (
    counters,
    cursor_stats,
    describe,
    describe_cursor,
    describe_reader,
    describe_reader_cursor,
)
from ledgerfold.broker.topics.broker import Broker
from ledgerfold.broker.topics.deduplication import is_deduplicated
from ledgerfold.broker.topics.topic import Topic
from ledgerfold.storage.entry import EARLIEST, Position
from ledgerfold.storage.errors import CompactedLedgerDamaged, MissingFile, StorageError
from ledgerfold.storage.ledger import LedgerStore
from ledgerfold.storage.segment import live_entries
from ledgerfold.strategies.catalogue import SETTINGS_MAX, VALUE_CHARACTERS_MAX
from ledgerfold.v1.records_pb2 import LEDGER_STATE_CLOSED, LedgerRecord, Policies

COMPACTED_LEDGER_PROPERTY = "CompactedTopicLedger"
_NO_LEDGER = {"ledgerId": -1, "entries": -1, "size": -1, "offloaded": False}


def topic_stats(topic: Topic, compaction: CompactionStats) -> dict[str, Any]:
    """Returns Pulsar's `topics stats`. Counters start when the topic is loaded."""
    # The ledgers are summed once for all subscriptions.
    sums = topic.log.ledgers.sums()
    subscriptions = {
        shown(name): describe(each, sums)
        | {"backlogSize": sums.estimated_bytes_after(each.mark_delete)}
        for name, each in topic.subscriptions.items()
    }
    durable = [each.mark_delete for each in topic.subscriptions.values() if each.is_durable]
    if topic.record.compaction_cursor:
        subscriptions[COMPACTION_CURSOR] = _compaction_subscription(topic, sums)
        durable.append(_compaction_mark_delete(topic))
    for reader in topic.readers:
        subscriptions[reader.subscription] = describe_reader(reader)
    return {
        **counters(topic),
        "storageSize": sums.size_bytes,
        **_quota_limits(topic.policies()),
        "backlogSize": sums.estimated_bytes_after(min(durable)) if durable else 0,
        "publishers": [
            {"producerName": name, "accessMode": each.claim.mode, **each.peer.stats()}
            for name, each in topic.producers.items()
        ],
        "waitingPublishers": topic.access.waiting,
        "subscriptions": subscriptions,
        "nonContiguousDeletedMessagesRanges": sum(
            each.cursor.range_count for each in topic.subscriptions.values()
        ),
        "deduplicationStatus": "Enabled" if is_deduplicated(topic.policies()) else "Disabled",
        "compaction": compaction_block(compaction),
    }


def _quota_limits(policies: Policies) -> dict[str, int]:
    """Returns the limits of the backlog quotas; -1: none."""
    size, age = policies.backlog_size_quota.limit_bytes, policies.backlog_age_quota.limit_ms
    has_size = policies.HasField("backlog_size_quota")
    return {
        "backlogQuotaLimitSize": size if has_size else -1,
        "backlogQuotaLimitTime": age // 1000 if age > 0 else -1,
    }


def compaction_block(stats: CompactionStats) -> dict[str, Any]:
    """Returns the compaction stats, with the known strategies in addition to Pulsar's fields."""
    strategies: dict[str, Any] = {}
    if stats.strategy is not None:
        own = stats.strategy
        strategies["strategy"] = {"name": shown(own.name), "settings": _settings(own.settings)}
    if stats.last is not None:
        strategies["lastCompactionStrategy"] = {
            "name": shown(stats.last.strategy),
            "settings": _settings(stats.last.strategy_settings),
            "version": stats.last.strategy_version,
        }
    return {
        "lastCompactionRemovedEventCount": stats.removed_events,
        "lastCompactionSucceedTimestamp": stats.succeeded_ms,
        "lastCompactionFailedTimestamp": stats.failed_ms,
        "lastCompactionDurationTimeInMills": stats.duration_ms,
        **strategies,
    }


def _settings(settings: Mapping[str, str]) -> dict[str, str]:
    """Returns the settings within their bounds: records of an earlier version may have more."""
    pairs = itertools.islice(settings.items(), SETTINGS_MAX)
    return {shown(name): value[:VALUE_CHARACTERS_MAX] for name, value in pairs}


def internal_stats(broker: Broker, topic: Topic) -> dict[str, Any]:
    """Returns Pulsar's `topics stats-internal`."""
    ledgers = topic.log.ledgers.records()
    current = ledgers[-1] if ledgers else LedgerRecord(ledger_id=-1)
    held_by = topic.keepers()
    cursors = {shown(name): describe_cursor(each) for name, each in topic.subscriptions.items()}
    if topic.record.compaction_cursor:
        cursors[COMPACTION_CURSOR] = _compaction_cursor(topic)
    for reader in topic.readers:
        cursors[reader.subscription] = describe_reader_cursor(reader)
    return {
        "entriesAddedCounter": topic.entries_in,
        "numberOfEntries": sum(map(_entries, ledgers)),
        "totalSize": sum(map(size_bytes, ledgers)),
        "currentLedgerEntries": _entries(current),
        "currentLedgerSize": size_bytes(current),
        "lastLedgerCreatedTimestamp": iso_time(current.created_ms),
        "lastConfirmedEntry": str(topic.log.positions.last_published()),
        "state": "Terminated" if topic.log.tail.is_terminated else "LedgerOpened",
        "ledgers": [_ledger(each) | {"heldBy": held_by[each.ledger_id]} for each in ledgers],
        "cursors": cursors,
        "compactedLedger": _compacted_ledger(broker, topic),
    }


def _entries(ledger: LedgerRecord) -> int:
    return sum(map(live_entries, ledger.segments))


def _ledger(record: LedgerRecord) -> dict[str, Any]:
    return {
        "ledgerId": record.ledger_id,
        "entries": _entries(record),
        "size": size_bytes(record),
        "offloaded": False,
    }


def _compacted_ledger(broker: Broker, topic: Topic) -> dict[str, Any]:
    """Describes the compacted ledger. 0 entries: all keys were deleted, unlike no ledger at all.

    `damage` is set if it is known to be unreadable: files are checked for, their content is not
    read.
    """
    if not topic.record.HasField("compacted") or topic.record.compacted.ledger_id < 0:
        return dict(_NO_LEDGER)
    ledger_id = topic.record.compacted.ledger_id
    record = broker.metadata.ledger(ledger_id)
    record = LedgerRecord(ledger_id=ledger_id) if record is None else record
    shown = _ledger(record)
    garbage_bytes = sum(segment.dead.bytes for segment in record.segments)
    if garbage_bytes:
        shown["garbageSize"] = garbage_bytes
    try:
        topic.log.views.check()
    except CompactedLedgerDamaged as error:
        shown["damage"] = str(error)
    return shown


def _compaction_mark_delete(topic: Topic) -> Position:
    """Returns the mark-delete; before the first ledger's first entry if nothing was passed.

    If all ledgers with entries were trimmed since the topic was loaded, it is in the last of them.
    Source: ManagedLedgerImpl.getFirstPosition.
    """
    if topic.compaction_mark_delete > EARLIEST:
        return topic.compaction_mark_delete
    ledger_ids = topic.log.ledgers.ids
    if not ledger_ids:
        return EARLIEST
    return Position(min(ledger_ids[0], topic.log.positions.last_published().ledger_id), -1)


def _compaction_subscription(topic: Topic, sums: LedgerSums) -> dict[str, Any]:
    mark_delete = _compaction_mark_delete(topic)
    backlog = sums.entries_between(mark_delete, topic.log.positions.last())
    return {
        "msgBacklog": backlog,
        "msgBacklogNoDelayed": backlog,
        "backlogSize": sums.estimated_bytes_after(mark_delete),
        "isDurable": True,
        "type": "Exclusive",
        "consumers": [],
    }


def _compaction_cursor(topic: Topic) -> dict[str, Any]:
    mark_delete = _compaction_mark_delete(topic)
    properties = {}
    if topic.record.HasField("compacted") and not topic.record.HasField("truncated_upto"):
        properties[COMPACTED_LEDGER_PROPERTY] = topic.record.compacted.ledger_id
    stats = cursor_stats(topic.log, mark_delete, mark_delete.next, is_active=False)
    return stats | {"properties": properties}


async def add_damage(
    rows: Iterable[dict[str, Any]],
    ids_of: Callable[[dict[str, Any]], Iterable[int]],
    broker: Broker,
    is_there: Callable[[int], bool],
) -> None:
    """Sets `damage` in the rows with damaged ledgers.

    `is_there`: returns whether the topic still has the ledger. A ledger deleted meanwhile is not
    missing.
    """
    rows = list(rows)
    ids = [ledger_id for row in rows for ledger_id in ids_of(row)]
    found = await broker.in_thread(lambda: damage_of(broker.store, ids))
    for row in rows:
        errors = [found[each] for each in ids_of(row) if each in found and is_there(each)]
        if errors:
            row["damage"] = " ".join(map(str, errors))


def damage_of(store: LedgerStore, ledger_ids: Iterable[int]) -> dict[int, StorageError]:
    """Returns the damage of those ledgers that have some."""
    found = ((each, store.damage_of(each) or _missing_of(store, each)) for each in ledger_ids)
    return {ledger_id: error for ledger_id, error in found if error is not None}


def _missing_of(store: LedgerStore, ledger_id: int) -> StorageError | None:
    try:
        record = store.record(ledger_id)
    except MissingFile as error:
        return error
    # Files of an open ledger do not have their recorded size yet.
    return store.missing_of(ledger_id) if record.state == LEDGER_STATE_CLOSED else None
