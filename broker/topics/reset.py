"""A reset: the broker becomes empty, as on a new data directory.

Topics, subscriptions, schemas, policies, namespaces, tenants and faults are deleted;
`public/default` always exists. Runs in progress are ended. Clients that stay connected reconnect,
as after a deletion. The broker's clock, its compactor, and the ids of ledgers (which are never
reused) continue.

1. All topics are unloaded, and none is loaded meanwhile (`all_unloaded`).
2. One synced write deletes all records, and marks the ledgers for deletion: that is the reset.
   After a crash, a start finds everything or nothing.
3. The files are deleted in the background; a start continues a deletion that was interrupted.

On a full disk both use the disk reserve, as the deletion of a topic does (freeing.py).

Only brokers that allow it can be reset: those with a manual clock, and with `serve --allow-reset`.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple

from ledgerfold.broker.common.shielding import runs_to_completion
from ledgerfold.broker.topics.broker import Broker
from ledgerfold.broker.topics.freeing import retry_with_reserve
from ledgerfold.storage.crash_points import reach
from ledgerfold.storage.errors import (
    DiskFailure,
    LedgerfoldError,
    NotAllowed,
    StorageError,
    TopicNotFound,
    Unavailable,
)
from ledgerfold.storage.metadata import MetadataBatch

_log = logging.getLogger(__name__)


def check_allowed(broker: Broker) -> None:
    """Raises NotAllowed."""
    if broker.manual_clock is None and not broker.settings.allow_reset:
        raise NotAllowed(
            "This broker does not allow resets and snapshots. Start it with --allow-reset or "
            "--test-clock; any client can then delete everything."
        )


@runs_to_completion
async def reset(broker: Broker) -> int:
    """Deletes everything. Returns the number of deleted topics, partitions included.

    Raises NotAllowed, MetadataLost (a repair can restore what was lost), StorageError.
    """
    check_allowed(broker)
    if broker.faults is not None:
        # First: a disk that is said to be full would refuse the reset.
        broker.faults.clear()
    async with all_unloaded(broker):
        names = broker.metadata.topic_names()
        ledger_ids = await replace_records(broker, lambda: _delete_records(broker))
        reach("reset.recorded")
        forget(broker, names)
        delete_later(broker, ledger_ids)
    return len(names)


def _delete_records(broker: Broker) -> list[int]:
    ledger_ids = list[int]()

    def edit(batch: MetadataBatch) -> None:
        ledger_ids[:] = batch.delete_everything()

    broker.metadata.change(edit)
    return ledger_ids


async def replace_records(broker: Broker, write: Callable[[], list[int]]) -> list[int]:
    """Calls `write` on a thread; on a full disk again, with the disk reserve.

    Returns its result: the ids of the ledgers that are DELETING then. Raises its errors.
    """
    ledger_ids = list[int]()

    async def free() -> None:
        ledger_ids[:] = await broker.in_thread(write)
        if broker.store.reserve.is_lent:
            # At once: afterwards there may be no space to record what is removed.
            await broker.in_thread(lambda: broker.store.delete_all_files(ledger_ids))

    await retry_with_reserve(broker.store, free)
    return ledger_ids


class Emptied(NamedTuple):
    """The topics to load again, to which others may be added, and why some were not written
    completely when they were unloaded.
    """

    to_load: set[str]
    failures: list[StorageError]


@asynccontextmanager
async def all_unloaded(broker: Broker) -> AsyncIterator[Emptied]:
    """Unloads all topics and keeps them unloaded inside; no namespace changes, either.

    Topics that exist afterwards are loaded again in the background, even after an error.
    Non-persistent topics continue.

    Raises MetadataLost if the records of a topic are lost.
    """
    for lost in broker.store.unrecorded.values():
        raise lost
    async with broker.locks.every(), broker.policies.turn:
        loaded = {*broker.topics, *broker.kafka_topics}
        try:
            failures = await broker.unload_all()
            reach("reset.unloaded")
            yield Emptied(loaded, failures)
        finally:
            broker.spawn(_load_again(broker, loaded))


async def _load_again(broker: Broker, loaded: Collection[str]) -> None:
    """Loads these topics and, as a start does, all Kafka topics, if they exist.

    Otherwise idle ones would be neither cleaned nor trimmed until a client uses them.
    """
    for record in broker.metadata.topics():
        if record.name in loaded or record.HasField("kafka"):
            try:
                await broker.any_topic(record.name, create=False)
            except (TopicNotFound, Unavailable):
                # Deleted meanwhile, or the broker is stopping.
                continue
            except LedgerfoldError as error:
                _log.error("%s cannot be loaded: %s", record.name, error)
            except Exception:
                _log.exception("%s cannot be loaded", record.name)


def forget(broker: Broker, names: Sequence[str]) -> None:
    """Drops the state of deleted topics, and notifies watchers of names.

    Non-persistent topics end, including those that began after the others were unloaded.
    """
    for topic in broker.non_persistent:
        broker.non_persistent.end(topic.name)
    for name in names:
        for callback in broker.on_deleted:
            callback(name)


def delete_later(broker: Broker, ledger_ids: Sequence[int]) -> None:
    """Deletes the files of ledgers that are marked as DELETING, in the background."""
    broker.spawn(_delete_files(broker, ledger_ids))


async def _delete_files(broker: Broker, ledger_ids: Sequence[int]) -> None:
    work = functools.partial(broker.store.delete_all_files, ledger_ids)
    try:
        await retry_with_reserve(broker.store, lambda: broker.in_thread(work))
    except DiskFailure as error:
        _log.warning("%d ledgers are not removed yet: %s", len(ledger_ids), error)
