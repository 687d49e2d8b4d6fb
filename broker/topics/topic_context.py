"""The part of the broker that a topic uses (broker/topics/broker.py)."""

from __future__ import annotations

from collections.abc import Coroutine
from concurrent.futures import Executor
from typing import Any, Protocol

from ledgerfold.broker.common.clock import Clock
from ledgerfold.broker.common.outgoing import Outgoing
from ledgerfold.broker.common.settings import BrokerSettings
from ledgerfold.broker.compaction.interfaces import CompactableTopic, CompactionSnapshot
from ledgerfold.broker.topics.partitions import Partitions
from ledgerfold.storage.ledger import LedgerStore
from ledgerfold.storage.metadata import MetadataStore


class TopicContext(Protocol):
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
        """Returns whether `topic` is the loaded topic of its name.

        Neither unloaded nor replaced.
        """
        ...

    def spawn(self, work: Coroutine[Any, Any, Any]) -> None:
        """Runs `work` in the background; logs its errors."""
        ...

    def rolled(self, topic: CompactableTopic) -> None:
        """Reports that `topic` has closed a ledger."""
        ...

    def snapshot_of(self, topic: str) -> CompactionSnapshot | None:
        """Returns the input of the topic's compaction run, until the run has ended."""
        ...
