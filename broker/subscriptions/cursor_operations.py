"""Advancing a subscription without its consumers: expiry, skip, clear-backlog.

Passed entries count as acknowledged; consumers stay connected. (A seek, forwards or backwards, is a
different operation: broker/subscriptions/lifecycle.py.) Rules of expiry, as in Pulsar's
PersistentMessageExpiryMonitor and PersistentSubscription.expireMessages:

* An entry has expired when more than the limit has passed since it was published. The cursor moves
  up to the first entry that has not.
* A closed ledger has expired as a whole when more than the limit has passed since it was closed:
  publish times come from producers' clocks, and may be in the future.
* An expiry up to a message passes its whole entry. It is refused after the last entry, and has no
  effect before the cursor.
* An explicit expiry of a subscription is refused if it would have no effect: without a backlog, or
  if a consumer is connected, has nearly caught up and its oldest message has not expired (Pulsar
  answers 409).
* `__compaction` is not a subscription: broker/compaction/cursor_operations.py.
"""

from __future__ import annotations

from collections.abc import Sequence

from ledgerfold.broker.log.ledger_record import last_entry, nth_before
from ledgerfold.broker.log.log import TopicLog
from ledgerfold.broker.subscriptions.cursor import Range
from ledgerfold.broker.subscriptions.lifecycle import SubscriptionTopic
from ledgerfold.broker.subscriptions.reading import mark_delete_before
from ledgerfold.broker.subscriptions.subscription import Subscription
from ledgerfold.storage.entry import EARLIEST, Position
from ledgerfold.storage.errors import InvalidRequest, NothingExpired
from ledgerfold.v1.records_pb2 import LEDGER_STATE_CLOSED, LedgerRecord

# Pulsar's MINIMUM_BACKLOG_FOR_EXPIRY_CHECK.
NEARLY_CAUGHT_UP_ENTRIES = 1000


async def expire_messages(
    topic: SubscriptionTopic, subscription: Subscription, limit_ms: int
) -> int:
    """Passes entries older than `limit_ms`, durably; returns how many left the backlog.

    Raises NothingExpired if it would have no effect (see above), StorageError.
    """
    check_limit(limit_ms)
    refused = NothingExpired(topic.name, subscription.name)
    backlog = subscription.backlog_entries()
    if not backlog:
        raise refused
    expired = await _expire(topic, subscription, limit_ms)
    if not expired and subscription.consumers and backlog < NEARLY_CAUGHT_UP_ENTRIES:
        raise refused
    return expired


async def expire_through(
    topic: SubscriptionTopic, subscription: Subscription, through: Position
) -> int:
    """Passes the entries up to `through`, durably; returns how many left the backlog.

    Raises NothingExpired if the last entry is before it, StorageError.
    """
    expired = await subscription.pass_over_durably(
        lambda: last_through(topic.log, through, topic.name, subscription.name)
    )
    subscription.expired_ms = topic.clock.now_ms()
    subscription.entries_expired += expired
    return expired


def last_through(log: TopicLog, position: Position, topic: str, subscription: str) -> Position:
    """Returns the last entry up to `position`, or EARLIEST.

    Raises NothingExpired if the position is after the last entry.
    """
    if position > log.positions.last():
        raise NothingExpired(topic, subscription, "the message is after the last one")
    found = mark_delete_before(log, log.positions.existing(position.next))
    return found if found.entry_id >= 0 else EARLIEST


async def expire_all(topic: SubscriptionTopic, limit_ms: int) -> int:
    """Expires messages in every subscription that has a backlog; returns the number of entries."""
    check_limit(limit_ms)
    return sum(
        [await _expire(topic, each, limit_ms) for each in tuple(topic.subscriptions.values())]
    )


async def _expire(topic: SubscriptionTopic, subscription: Subscription, limit_ms: int) -> int:
    if not subscription.backlog_entries():
        return 0
    now_ms, incarnation = topic.clock.now_ms(), subscription.incarnation
    before_ms = now_ms - limit_ms
    passed = closed_before(topic.log.ledgers.records(), before_ms, subscription.mark_delete)
    through = await topic.log.search.last_published_before(before_ms, passed)
    subscription.expired_ms = now_ms
    if subscription.is_closed:
        return 0

    def find() -> Position:
        # If a seek moved it: the search began at its old position.
        return through if subscription.incarnation == incarnation else EARLIEST

    expired = await subscription.pass_over_durably(find)
    subscription.entries_expired += expired
    return expired


def closed_before(records: Sequence[LedgerRecord], time_ms: int, after: Position) -> Position:
    """Returns the last entry of the ledgers after `after` that were closed by that time, or
    `after`.
    """
    for record in records:
        if record.ledger_id < after.ledger_id:
            continue
        if record.state != LEDGER_STATE_CLOSED or record.closed_ms >= time_ms:
            break
        after = max(after, last_entry(record) or EARLIEST)
    return after


async def skip_messages(topic: SubscriptionTopic, subscription: Subscription, entries: int) -> int:
    """Passes up to `entries` entries of the backlog, durably, and returns how many.

    Counts entries, not messages in batches: as in Pulsar, whose option counts "messages". Raises
    InvalidRequest, StorageError.
    """
    if entries < 1:
        raise InvalidRequest(f"Cannot skip {entries} entries; minimum: 1.")
    cursor = subscription.cursor
    return await subscription.pass_over_durably(
        lambda: nth_after(topic.log, cursor.mark_delete, cursor.ranges, entries)
    )


async def clear_backlog(topic: SubscriptionTopic, subscription: Subscription) -> int:
    """Passes the whole backlog, durably; returns its number of entries. Raises StorageError."""
    return await subscription.pass_over_durably(topic.log.positions.last)


def nth_after(
    log: TopicLog, mark_delete: Position, acknowledged: Sequence[Range], count: int
) -> Position:
    """Returns the `count`-th unacknowledged entry after `mark_delete`.

    The last if there are fewer.
    """
    at, sums = mark_delete, log.ledgers.sums()
    for after, through in acknowledged:
        between = sums.entries_between(at, after)
        if between >= count:
            break
        count -= between
        at = through
    for record in log.ledgers.records():
        last = last_entry(record)
        if last is None or last <= at:
            continue
        available = sums.entries_between(at, last)
        if available >= count:
            return Position(record.ledger_id, nth_before(record, last.entry_id, available - count))
        count -= available
        at = last
    return log.positions.last()


def check_limit(limit_ms: int) -> None:
    """Raises InvalidRequest if the limit is below 1 ms."""
    if limit_ms < 1:
        raise InvalidRequest(
            f"Cannot expire messages older than {limit_ms} ms. Name an age of 1 ms or more, or a "
            "message id."
        )
