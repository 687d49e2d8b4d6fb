"""What a topic needs of its broker, and no more (broker/topics/broker.py satisfies it)."""

from __future__ import annotations

from collections.abc import Coroutine
from concurrent.futures import Executor
from typing import Any, Protocol

from ledgerfold.broker.compaction.interfaces import CompactableTopic, CompactionSnapshot
from ledgerfold.broker.ground.clock import Clock
from ledgerfold.broker.ground.outgoing import Outgoing
from ledgerfold.broker.ground.settings import BrokerSettings
from ledgerfold.broker.topics.partitions import Partitions
from ledgerfold.storage.ledger import LedgerStore
from ledgerfold.storage.metadata import MetadataStore


class Surroundings(Protocol):
    @property
    def settings(self) -> BrokerSettings: ...
    @property
    def metadata(self) -> MetadataStore: ...
    @property
    def store(self) -> LedgerStore: ...
    @property
    def executor(self) -> Executor: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def outgoing(self) -> Outgoing: ...
    @property
    def partitions(self) -> Partitions: ...
    def is_loaded(self, topic: CompactableTopic) -> bool:
        """Whether it is the broker's topic of its name: neither unloaded nor replaced."""
        ...

    def spawn(self, work: Coroutine[Any, Any, Any]) -> None:
        """Runs in the background; its errors are logged."""
        ...

    def rolled(self, topic: CompactableTopic) -> None:
        """A ledger of it was closed."""
        ...

    def snapshot_of(self, topic: str) -> CompactionSnapshot | None:
        """What the topic's run reads, until it has ended."""
        ...
