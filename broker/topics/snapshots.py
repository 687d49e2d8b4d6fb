"""Snapshots of the broker's whole state: saved, restored and deleted (storage/snapshots.py).

A save and a restore unload all topics, as a reset does (broker/topics/reset.py): clients that stay
connected reconnect, and runs in progress are ended. A restore brings back what a reset deletes; the
broker's clock and the ids of ledgers go on. All topics are loaded after it, in the background:
timed work, such as retention, does not depend on whether a topic was loaded before. Brokers that
can be reset allow it.
"""

from __future__ import annotations

import asyncio
import functools
from contextlib import suppress

from ledgerfold.broker.common.shielding import runs_to_completion
from ledgerfold.broker.topics.broker import Broker
from ledgerfold.broker.topics.reset import (
    all_unloaded,
    check_allowed,
    delete_later,
    forget,
    replace_records,
)
from ledgerfold.storage.errors import NotAllowed, TopicNotFound
from ledgerfold.storage.snapshot_folder import described, topics_of
from ledgerfold.storage.snapshots import Snapshots
from ledgerfold.v1.records_pb2 import LEDGER_STATE_OPEN, Snapshot


class BrokerSnapshots:
    """The snapshots of one broker. One operation runs at a time."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._snapshots = Snapshots(
            broker.settings.data_dir, broker.metadata, broker.store.files, broker.clock_ms
        )
        self._turn = asyncio.Lock()

    @runs_to_completion
    async def save(self, name: str) -> Snapshot:
        """Raises NotAllowed, InvalidRequest, SnapshotExists, LimitExceeded, StorageError."""
        check_allowed(self._broker)
        self._check_undamaged()
        async with self._turn:
            await self._load_unclosed()
            async with all_unloaded(self._broker) as emptied:
                save = functools.partial(self._snapshots.save, name)
                try:
                    return await self._broker.in_thread(save)
                except NotAllowed:
                    # A ledger is open: the failure of its topic says why.
                    if emptied.failures:
                        raise emptied.failures[0] from None
                    raise

    async def _load_unclosed(self) -> None:
        """Loads topics whose ledgers an earlier unload could not close; the next unload can.

        Raises StorageError.
        """
        broker = self._broker
        ledgers = await broker.in_thread(broker.metadata.ledgers)
        unclosed = {each.topic for each in ledgers if each.state == LEDGER_STATE_OPEN}
        for name in sorted(unclosed.difference(broker.topics, broker.kafka_topics)):
            with suppress(TopicNotFound):
                await broker.any_topic(name, create=False)

    def _check_undamaged(self) -> None:
        """Raises the damage of a ledger: a snapshot would contain it, too."""
        for ledger_id in self._broker.store.damaged_ids():
            damage = self._broker.store.damage_of(ledger_id)
            if damage is not None:
                raise damage

    async def listed(self) -> list[Snapshot]:
        """Raises NotAllowed, StorageError."""
        check_allowed(self._broker)
        async with self._turn:
            return await self._broker.in_thread(self._snapshots.listed)

    @runs_to_completion
    async def restore(self, name: str) -> Snapshot:
        """Raises NotAllowed, InvalidRequest, SnapshotNotFound, StorageError; then nothing has
        changed.
        """
        broker = self._broker
        check_allowed(broker)
        async with self._turn:
            records = await broker.in_thread(functools.partial(self._snapshots.load, name))
            async with all_unloaded(broker) as emptied:
                before, restored = broker.metadata.topic_names(), topics_of(records)
                restore = functools.partial(
                    self._snapshots.restore, records, broker.store.delete_all_files
                )
                gone = await replace_records(broker, restore)
                broker.store.restored()
                emptied.to_load.update(restored)
                forget(broker, before)
                broker.names.created(restored)
                delete_later(broker, gone)
        return described(records)

    @runs_to_completion
    async def delete(self, name: str) -> None:
        """Raises NotAllowed, InvalidRequest, SnapshotNotFound, StorageError."""
        check_allowed(self._broker)
        async with self._turn:
            await self._broker.in_thread(functools.partial(self._snapshots.delete, name))
