"""The common part of topics of all kinds: counters and resources; for stored topics, the record."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, Protocol

from ledgerfold.broker.common.clock import Clock
from ledgerfold.broker.common.outgoing import Outgoing
from ledgerfold.broker.common.traffic import Traffic
from ledgerfold.broker.compaction.interfaces import BrokerContext
from ledgerfold.broker.compaction.scheduler import CompactionScheduler
from ledgerfold.broker.faults.faults import Faults
from ledgerfold.broker.faults.rules import Subject
from ledgerfold.broker.kafka.cleaner.cleaner import Cleaner
from ledgerfold.broker.kafka.config.config import BrokerConfig
from ledgerfold.broker.log.record_writes import RecordWrites
from ledgerfold.broker.log.stored_topic import StoredTopic
from ledgerfold.storage.ledger import LedgerStore
from ledgerfold.v1.admin_pb2 import FaultOperation
from ledgerfold.v1.records_pb2 import TopicRecord


class TopicContext(BrokerContext, Protocol):
    """The part of the broker that its topics use (broker/topics/broker.py)."""

    @property
    def clock(self) -> Clock: ...
    @property
    def outgoing(self) -> Outgoing: ...
    @property
    def faults(self) -> Faults | None:
        """None: the broker allows none."""
        ...

    @property
    def record_writes(self) -> RecordWrites: ...
    @property
    def compaction(self) -> CompactionScheduler: ...
    @property
    def cleaner(self) -> Cleaner: ...
    @property
    def kafka_config(self) -> BrokerConfig:
        """The broker's present settings."""
        ...

    def is_loaded(self, topic: LoadedTopic) -> bool: ...
    def spawn(self, work: Coroutine[Any, Any, Any]) -> None:
        """Runs `work` in the background; logs its errors."""
        ...


class ServedTopic:
    """A topic that clients publish to and read, stored or not."""

    def __init__(self, broker: TopicContext) -> None:
        self.broker = broker
        # Since it was loaded. Out: to consumers and readers, including disconnected ones.
        self.messages_in = self.bytes_in = self.entries_in = 0
        self.messages_out = self.bytes_out = 0

    @property
    def clock(self) -> Clock:
        return self.broker.clock

    @property
    def outgoing(self) -> Outgoing:
        return self.broker.outgoing

    @property
    def faults(self) -> Faults | None:
        return self.broker.faults

    @property
    def entry_bytes_max(self) -> int:
        """The size limit of an entry."""
        return self.broker.settings.entry_bytes_max

    def count_in(self, messages: int, size_bytes: int, entries: int = 1) -> None:
        self.messages_in += messages
        self.bytes_in += size_bytes
        self.entries_in += entries

    def count_out(self, sent: Traffic) -> None:
        self.messages_out += sent.messages
        self.bytes_out += sent.bytes


class LoadedTopic(ServedTopic):
    """A stored topic between its load and its unload."""

    def __init__(self, broker: TopicContext, record: TopicRecord) -> None:
        super().__init__(broker)
        self.stored = StoredTopic(record, broker.record_writes)

    @property
    def name(self) -> str:
        return self.stored.name

    @property
    def record(self) -> TopicRecord:
        """The record as stored on disk; changed only through `stored`."""
        return self.stored.record

    @property
    def store(self) -> LedgerStore:
        return self.broker.store

    @property
    def is_loaded(self) -> bool:
        """Returns whether it is the broker's topic of its name: neither unloaded nor replaced."""
        return self.broker.is_loaded(self)

    async def apply_faults(
        self, operation: FaultOperation, *, producer: str = "", subscription: str = ""
    ) -> None:
        """Delays or refuses what a client asks of it, as the rules of the broker say."""
        if self.faults is not None:
            await self.faults.apply_rules(operation, Subject(self.name, producer, subscription))

    def close_ledgers(self) -> None:
        """Closes ledgers left open by a failure at their last durable entry.

        On a thread, after the unload. Entries that were not acknowledged must not be found later.
        Raises DiskFailure.
        """
        self.store.recover_ledgers(self.record.ledger_ids)
