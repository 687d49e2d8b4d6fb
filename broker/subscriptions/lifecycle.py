"""Subscriptions come into being here, and go: created, loaded from their record, deleted.

A topic keeps its subscriptions by name and knows how to write and delete a cursor record; nothing
else of it is needed. Records are found by the topic's name: after every wait, and before a record
is written or deleted, it is asked whether the topic is still the one of that name.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Protocol

from ledgerfold.broker.ground.clock import Clock
from ledgerfold.broker.ground.given_names import called, check_name
from ledgerfold.broker.ground.outgoing import Outgoing
from ledgerfold.broker.policies.profiles import Emulation
from ledgerfold.broker.subscriptions.cursor import Cursor
from ledgerfold.broker.subscriptions.reading import LogReader, mark_delete_before
from ledgerfold.broker.subscriptions.subscription import Subscription
from ledgerfold.storage.entry import EARLIEST, Position
from ledgerfold.storage.errors import Moved, StorageError, SubscriptionBusy, SubscriptionNotFound
from ledgerfold.storage.words import counted
from ledgerfold.v1.data_pb2 import StartPosition
from ledgerfold.v1.records_pb2 import CursorRecord


class SubscriptionTopic(Protocol):
    """What a topic (broker/topics/topic.py) is to its subscriptions."""

    @property
    def name(self) -> str: ...

    @property
    def is_loaded(self) -> bool:
        """Neither unloaded nor deleted."""
        ...

    @property
    def log(self) -> LogReader: ...

    @property
    def subscriptions(self) -> dict[str, Subscription]: ...

    @property
    def reader_names(self) -> Collection[str]:
        """Of the subscriptions that connected readers have."""
        ...

    @property
    def clock(self) -> Clock: ...

    @property
    def outgoing(self) -> Outgoing: ...

    def emulation(self) -> Emulation:
        """The profile's fields in force."""
        ...

    async def persist_cursor(self, record: CursorRecord) -> None:
        """One synced metadata write."""
        ...

    async def delete_cursor(
        self, subscription: str, check: Callable[[], None], deleted: Callable[[], None]
    ) -> None:
        """One synced metadata write, if `check` says then that it may be. `deleted`: it is done.

        Raises Moved (the topic was unloaded), StorageError.
        """
        ...

    def recorded_cursor(self, subscription: str) -> CursorRecord | None:
        """As it is on the disk."""
        ...


def load_subscription(topic: SubscriptionTopic, record: CursorRecord) -> Subscription:
    """A durable subscription as it was. Not put into `topic.subscriptions`."""
    subscription = Subscription(
        topic.name,
        record.subscription,
        topic.log,
        Cursor.from_record(record),
        topic.persist_cursor,
        emulation=topic.emulation,
        clock=topic.clock,
        outgoing=topic.outgoing,
        created_ms=record.created_ms,
    )
    subscription.is_recorded = True
    return subscription


async def create_subscription(
    topic: SubscriptionTopic,
    name: str,
    start: StartPosition,
    *,
    durable: bool = True,
    read_compacted: bool = False,
    by_consumer: bool = False,
    created_ms: int = 0,
) -> Subscription:
    """The topic's subscription of that name: a new one at `start`, or the one there is.

    `by_consumer`: it comes into being because a consumer wants it, not administration.
    A new one is in `topic.subscriptions`, and durable, when this returns. Raises InvalidRequest
    (its name), SubscriptionBusy (a reader has that name), StorageError, Moved (the topic was
    unloaded).
    """
    existing = await _created(topic, name)
    if existing is not None:
        return existing
    check_name("A subscription", name)
    with _while_loaded(topic):
        mark_delete = await _mark_delete_at(topic.log, start, read_compacted, by_consumer)
    # Another call may have been faster during the await.
    existing = await _created(topic, name)
    if existing is not None:
        return existing
    if name in topic.reader_names:
        raise SubscriptionBusy(topic.name, name, "a reader or table view is connected under it.")
    persist = topic.persist_cursor if durable else None
    subscription = Subscription(
        topic.name,
        name,
        topic.log,
        # With the time in it, so that the next subscription of the name has another one.
        Cursor(mark_delete, incarnation=created_ms),
        persist,
        emulation=topic.emulation,
        clock=topic.clock,
        outgoing=topic.outgoing,
        created_ms=created_ms,
    )
    topic.subscriptions[name] = subscription
    try:
        await subscription.persist()
    except Exception:
        remove_subscription(topic, subscription)
        await subscription.close(keep_cursor=False)
        raise
    return subscription


async def _created(topic: SubscriptionTopic, name: str) -> Subscription | None:
    """The one of that name, if there is one, and durable if it is to be.

    Raises what the call that creates it fails with.
    """
    while (found := topic.subscriptions.get(name)) is not None:
        if found.is_recorded or not found.is_durable:
            return found
        await found.persist()
    return None


async def seek_subscription(
    topic: SubscriptionTopic, name: str, start: StartPosition
) -> Subscription:
    """Moves it to `start`.

    Raises SubscriptionNotFound, SubscriptionBusy, StorageError, Moved (the topic was unloaded).
    """
    subscription = existing_subscription(topic, name)
    at, read_compacted = start.WhichOneof("at"), subscription.read_compacted
    looks_at_raw = at == "publish_time_ms" and not topic.emulation().seek_by_time_reads_view
    with _while_loaded(topic):
        position, _ = await topic.log.resolve_start(start, read_compacted and not looks_at_raw)
    if at == "earliest":
        mark_delete = EARLIEST
    elif looks_at_raw:
        # Entry id -1 where the target begins its ledger: then all of the view comes (8.11).
        mark_delete = topic.log.previous_position(position)
    else:
        mark_delete = mark_delete_before(topic.log, position)
    await subscription.move(mark_delete)
    return subscription


async def delete_subscription(topic: SubscriptionTopic, name: str, *, force: bool = False) -> None:
    """Deletes it with its cursor. `force`: disconnects its consumers first.

    Raises SubscriptionNotFound, SubscriptionBusy, StorageError, Moved (the topic was unloaded).
    """
    subscription = existing_subscription(topic, name)
    name = subscription.name
    if subscription.consumers and not force:
        connected = counted(len(subscription.consumers), "consumer is", "consumers are")
        raise SubscriptionBusy(topic.name, name, f"{connected} connected. Close all, or use force.")
    await subscription.close(SubscriptionNotFound(topic.name, name), keep_cursor=False)

    def check() -> None:
        if topic.subscriptions.get(name) is not subscription:
            # Another call was faster, and somebody may have made a new one.
            raise SubscriptionNotFound(topic.name, name)

    def deleted() -> None:
        remove_subscription(topic, subscription)

    _check_loaded(topic)
    check()
    if not subscription.is_durable:
        deleted()
        return
    try:
        # It refuses consumers until it is gone: a new one of the name must not be written before.
        await topic.delete_cursor(name, check, deleted)
    except StorageError:
        # It is there, as the disk has it: the closed one would refuse everybody.
        record = topic.recorded_cursor(name)
        if topic.is_loaded and topic.subscriptions.get(name) is subscription:
            if record is None:
                deleted()
            else:
                topic.subscriptions[name] = load_subscription(topic, record)
        raise


def remove_subscription(topic: SubscriptionTopic, subscription: Subscription) -> None:
    """Out of `topic.subscriptions`, if it is still the one of that name."""
    if topic.subscriptions.get(subscription.name) is subscription:
        del topic.subscriptions[subscription.name]


def existing_subscription(topic: SubscriptionTopic, name: str) -> Subscription:
    """The one of that name, or that is listed as it. Raises SubscriptionNotFound."""
    subscription = topic.subscriptions.get(name)
    if subscription is None and (found := called(name, topic.subscriptions)) is not None:
        subscription = topic.subscriptions[found]
    if subscription is None:
        raise SubscriptionNotFound(topic.name, name)
    return subscription


@contextmanager
def _while_loaded(topic: SubscriptionTopic) -> Iterator[None]:
    """What is found inside is true of the topic. Raises Moved; ledgers of one that goes, go."""
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
    log: LogReader, start: StartPosition, read_compacted: bool, by_consumer: bool
) -> Position:
    """The mark-delete of a new subscription.

    Latest is the end of the log as it is: on an empty ledger the mark-delete is (L, -1), and a
    read-compacted consumer begins with all of the compacted data, as in Pulsar. A consumer's own is
    behind the last entry since the topic was loaded, though it may be trimmed: it gets what comes.
    """
    at = start.WhichOneof("at")
    if at == "earliest":
        return EARLIEST
    if at in (None, "latest") and not start.inclusive:
        return log.last_published() if by_consumer else log.last_position()
    position, _ = await log.resolve_start(start, read_compacted)
    return mark_delete_before(log, position)
