"""The life cycle of subscriptions: creation (by a call or a consumer), loading, seek and deletion.

A topic keeps its subscriptions by name and writes and deletes cursor records; this module uses
nothing else of it. Records are found by the topic's name: after every await, and before a record is
written or deleted, the topic is checked to be still loaded under that name.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Protocol

from ledgerfold.broker.common.clock import Clock
from ledgerfold.broker.common.given_names import called, check_name, check_properties
from ledgerfold.broker.common.outgoing import Outgoing
from ledgerfold.broker.common.shielding import runs_to_completion
from ledgerfold.broker.faults.faults import Faults
from ledgerfold.broker.faults.rules import Subject
from ledgerfold.broker.log.log import TopicLog
from ledgerfold.broker.policies.profiles import Emulation
from ledgerfold.broker.subscriptions.consumer import Consumer, ConsumerOptions
from ledgerfold.broker.subscriptions.cursor import Cursor
from ledgerfold.broker.subscriptions.delivery import DeliveryRules
from ledgerfold.broker.subscriptions.faulty_consumer import consumer_kind
from ledgerfold.broker.subscriptions.reading import mark_delete_before
from ledgerfold.broker.subscriptions.subscription import Subscription
from ledgerfold.storage.entry import EARLIEST, Position
from ledgerfold.storage.errors import (
    LedgerfoldError,
    Moved,
    StorageError,
    SubscriptionBusy,
    SubscriptionNotFound,
)
from ledgerfold.storage.text import counted
from ledgerfold.v1.admin_pb2 import FAULT_OPERATION_SUBSCRIBE
from ledgerfold.v1.data_pb2 import StartPosition
from ledgerfold.v1.records_pb2 import CursorRecord


class SubscriptionTopic(Protocol):
    """The part of a topic (broker/topics/topic.py) that subscriptions use."""

    @property
    def name(self) -> str: ...

    @property
    def is_loaded(self) -> bool:
        """Returns whether it is neither unloaded nor deleted."""
        ...

    @property
    def log(self) -> TopicLog: ...

    @property
    def subscriptions(self) -> dict[str, Subscription]: ...

    @property
    def reader_names(self) -> Collection[str]:
        """The subscription names of connected readers."""
        ...

    @property
    def clock(self) -> Clock: ...

    @property
    def outgoing(self) -> Outgoing: ...

    @property
    def faults(self) -> Faults | None:
        """The rules of the broker; None: it allows none."""
        ...

    def emulation(self) -> Emulation:
        """Returns the profile's fields in force."""
        ...

    @property
    def delivery_rules(self) -> DeliveryRules: ...

    def new_incarnation(self) -> int:
        """Returns the incarnation of a new cursor, which no earlier one had."""
        ...

    async def persist_cursor(self, record: CursorRecord) -> None:
        """Writes the cursor in one synced metadata write."""
        ...

    async def delete_cursor(
        self, subscription: str, check: Callable[[], None], deleted: Callable[[], None]
    ) -> None:
        """Deletes the cursor in one synced metadata write if `check` passes; then calls `deleted`.

        Raises Moved (the topic was unloaded), StorageError.
        """
        ...

    def recorded_cursor(self, subscription: str) -> CursorRecord | None:
        """Returns the cursor as stored on disk."""
        ...


def load_subscription(topic: SubscriptionTopic, record: CursorRecord) -> Subscription:
    """Restores a durable subscription. Does not add it to `topic.subscriptions`."""
    cursor = Cursor.from_record(record)
    subscription = _subscription_of(topic, record.subscription, cursor, record.created_ms)
    subscription.recorded.is_recorded = True
    subscription.recorded.properties = dict(record.subscription_properties)
    return subscription


def _subscription_of(
    topic: SubscriptionTopic, name: str, cursor: Cursor, created_ms: int, *, durable: bool = True
) -> Subscription:
    return Subscription(
        topic.name,
        name,
        topic.log,
        cursor,
        topic.persist_cursor if durable else None,
        emulation=topic.emulation,
        clock=topic.clock,
        outgoing=topic.outgoing,
        consumers=consumer_kind(topic.faults, topic.name, name),
        rules=topic.delivery_rules,
        created_ms=created_ms,
    )


async def create_subscription(
    topic: SubscriptionTopic,
    name: str,
    start: StartPosition,
    *,
    durable: bool = True,
    read_compacted: bool = False,
    by_consumer: bool = False,
    created_ms: int = 0,
    properties: Mapping[str, str] | None = None,
) -> Subscription:
    """Returns the topic's subscription of that name, creating it at `start` if needed.

    `by_consumer`: created on behalf of a consumer, not by administration. `properties`: those of a
    new one; an existing one keeps its own, as in Pulsar.
    A new one is in `topic.subscriptions`, and durable, when this returns. Raises InvalidRequest
    (its name), SubscriptionBusy (a reader uses the name), StorageError, Moved (the topic was
    unloaded).
    """
    if by_consumer and topic.faults is not None:
        subject = Subject(topic.name, subscription=name)
        await topic.faults.apply_rules(FAULT_OPERATION_SUBSCRIBE, subject)
    properties = dict(properties or {})
    check_properties("a subscription", properties)
    # An existing one keeps its properties, even if it has none (observed on Pulsar 4.0.7).
    existing = await _created(topic, name)
    if existing is not None:
        return existing
    check_name("A subscription", name)
    with _while_loaded(topic):
        mark_delete = await _mark_delete_at(topic.log, start, read_compacted, by_consumer)
    # Another call may have created it during the await.
    existing = await _created(topic, name)
    if existing is not None:
        return existing
    if name in topic.reader_names:
        raise SubscriptionBusy(topic.name, name, "a reader or table view uses it.")
    cursor = Cursor(mark_delete, incarnation=topic.new_incarnation())
    subscription = _subscription_of(topic, name, cursor, created_ms, durable=durable)
    subscription.recorded.properties = properties
    topic.subscriptions[name] = subscription
    try:
        await subscription.persist()
    except Exception as error:
        # A deletion that runs meanwhile also deletes the cursor, which may be on disk.
        if not subscription.is_closed:
            await _withdraw(topic, subscription, error)
        raise
    return subscription


@runs_to_completion
async def _withdraw(topic: SubscriptionTopic, subscription: Subscription, error: Exception) -> None:
    """Removes a subscription whose creation failed, with its cursor, if another write succeeded.

    Another caller may have tried again meanwhile, or the writer itself. If the disk refuses the
    deletion, the subscription exists.
    """
    known = error if isinstance(error, LedgerfoldError) else None
    await subscription.close(known, keep_cursor=False)
    if subscription.recorded.is_recorded:
        with suppress(LedgerfoldError):
            await _delete_closed(topic, subscription)
    else:
        remove_subscription(topic, subscription)


async def connect_consumer(
    topic: SubscriptionTopic,
    name: str,
    start: StartPosition,
    options: ConsumerOptions,
    *,
    created_ms: int,
    properties: Mapping[str, str] | None = None,
) -> tuple[Subscription, Consumer]:
    """Connects a consumer to the subscription of that name, creating it at `start` if needed.

    Raises what create_subscription() and Subscription.attach() raise.
    """
    subscription = await create_subscription(
        topic,
        name,
        start,
        durable=options.durable,
        read_compacted=options.read_compacted,
        by_consumer=True,
        created_ms=created_ms,
        properties=properties,
    )
    try:
        return subscription, subscription.attach(options)
    finally:
        # It is in use if the consumer is connected.
        remove_abandoned(topic, subscription)


async def _created(topic: SubscriptionTopic, name: str) -> Subscription | None:
    """Returns the existing subscription of that name, once its record is durable, or None.

    Raises the error of the call that creates it, or the reason why it is closed.
    """
    while (existing := topic.subscriptions.get(name)) is not None:
        is_created = existing.recorded.is_recorded or not existing.is_durable
        if is_created and not existing.is_closed:
            return existing
        await existing.persist()
    return None


async def seek_subscription(
    topic: SubscriptionTopic, name: str, start: StartPosition
) -> Subscription:
    """Moves the subscription to `start`.

    Raises SubscriptionNotFound, SubscriptionBusy, StorageError, Moved (the topic was unloaded).
    """
    subscription = existing_subscription(topic, name)
    at, read_compacted = start.WhichOneof("at"), subscription.read_compacted
    looks_at_raw = at == "publish_time_ms" and not topic.emulation().seek_by_time_reads_view
    with _while_loaded(topic):
        position, _ = await topic.log.search.resolve_start(
            start, read_compacted and not looks_at_raw
        )
    if at == "earliest":
        mark_delete = EARLIEST
    elif looks_at_raw:
        # Entry id -1 if the target begins its ledger: then the whole view is sent (8.11).
        mark_delete = topic.log.positions.previous(position)
    else:
        mark_delete = mark_delete_before(topic.log, position)
    await subscription.move(mark_delete)
    return subscription


async def delete_subscription(topic: SubscriptionTopic, name: str, *, force: bool = False) -> None:
    """Deletes the subscription and its cursor. `force`: disconnects its consumers first.

    Raises SubscriptionNotFound, SubscriptionBusy, StorageError, Moved (the topic was unloaded).
    """
    subscription = existing_subscription(topic, name)
    name = subscription.name
    if subscription.consumers and not force:
        connected = counted(len(subscription.consumers), "consumer is", "consumers are")
        raise SubscriptionBusy(topic.name, name, f"{connected} connected. Close all, or use force.")
    await subscription.close(SubscriptionNotFound(topic.name, name), keep_cursor=False)
    await _delete_closed(topic, subscription)


async def _delete_closed(topic: SubscriptionTopic, subscription: Subscription) -> None:
    """Deletes the cursor of a closed subscription, and removes the subscription.

    Raises SubscriptionNotFound (another call did so), StorageError, Moved.
    """
    name = subscription.name

    def check() -> None:
        if topic.subscriptions.get(name) is not subscription:
            # Another call deleted it, and a new one may exist by now.
            raise SubscriptionNotFound(topic.name, name)

    def deleted() -> None:
        remove_subscription(topic, subscription)

    _check_loaded(topic)
    check()
    if not subscription.is_durable:
        deleted()
        return
    try:
        # It refuses consumers until deleted: a new one of the name must not be written before.
        await topic.delete_cursor(name, check, deleted)
    except StorageError:
        # It still exists on disk; the closed object would refuse all consumers.
        record = topic.recorded_cursor(name)
        if topic.is_loaded and topic.subscriptions.get(name) is subscription:
            if record is None:
                deleted()
            else:
                topic.subscriptions[name] = load_subscription(topic, record)
        raise


def remove_subscription(topic: SubscriptionTopic, subscription: Subscription) -> None:
    """Removes the subscription from `topic.subscriptions` if it is still the one of its name."""
    if topic.subscriptions.get(subscription.name) is subscription:
        del topic.subscriptions[subscription.name]


def remove_abandoned(topic: SubscriptionTopic, subscription: Subscription) -> None:
    """Removes a subscription that is not durable if no consumer uses it any more."""
    if subscription.is_abandoned:
        remove_subscription(topic, subscription)


def existing_subscription(topic: SubscriptionTopic, name: str) -> Subscription:
    """Returns the subscription with that name or display name. Raises SubscriptionNotFound."""
    subscription = topic.subscriptions.get(name)
    if subscription is None and (full_name := called(name, topic.subscriptions)) is not None:
        subscription = topic.subscriptions[full_name]
    if subscription is None:
        raise SubscriptionNotFound(topic.name, name)
    return subscription


@contextmanager
def _while_loaded(topic: SubscriptionTopic) -> Iterator[None]:
    """Checks after the block that the topic is still loaded, even if its ledgers were deleted.

    Raises Moved.
    """
    try:
        yield
    except StorageError:
        _check_loaded(topic)
        raise
    _check_loaded(topic)


def _check_loaded(topic: SubscriptionTopic) -> None:
    if not topic.is_loaded:
        raise Moved(f"{topic.name} was unloaded; try again.")


async def _mark_delete_at(
    log: TopicLog, start: StartPosition, read_compacted: bool, by_consumer: bool
) -> Position:
    """Returns the mark-delete of a new subscription.

    Latest is the current end of the log: on an empty ledger the mark-delete is (L, -1), and a
    read-compacted consumer begins with all of the compacted data, as in Pulsar. With `by_consumer`
    it is the last entry since the topic was loaded, even if that was trimmed: the consumer gets
    only later entries.
    """
    at = start.WhichOneof("at")
    if at == "earliest":
        return EARLIEST
    if at in (None, "latest") and not start.inclusive:
        return log.positions.last_published() if by_consumer else log.positions.last()
    position, _ = await log.search.resolve_start(start, read_compacted)
    return mark_delete_before(log, position)
