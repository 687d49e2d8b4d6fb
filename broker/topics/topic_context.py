"""The parts of the broker that its topics use (broker/topics/broker.py)."""

from __future__ import annotations

from collections.abc import Coroutine
from concurrent.futures import Executor
from typing import Any, Protocol

from ledgerfold.broker.common.clock import Clock
from ledgerfold.broker.common.outgoing import Outgoing
from ledgerfold.broker.common.settings import BrokerSettings
from ledgerfold.broker.compaction.interfaces import CompactableTopic, CompactionSnapshot
from ledgerfold.broker.kafka.cleaner.cleaner import Cleaner
from ledgerfold.broker.kafka.config.config import BrokerConfig
from ledgerfold.broker.topics.partitions import Partitions
from ledgerfold.storage.ledger import LedgerStore
from ledgerfold.storage.metadata import MetadataStore


class NamedTopic(Protocol):
    @property
    def name(self) -> str: ...


class AnyTopicContext(Protocol):
    """The part that both kinds of topics use."""

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
    def is_loaded(self, topic: NamedTopic) -> bool:
        """Returns whether it is the broker's topic of its name: neither unloaded nor replaced."""
        ...


class TopicContext(AnyTopicContext, Protocol):
    """The part that a Pulsar topic uses."""

    @property
    def partitions(self) -> Partitions: ...
    def spawn(self, work: Coroutine[Any, Any, Any]) -> None:
        """Runs `work` in the background; logs its errors."""
        ...

    def rolled(self, topic: CompactableTopic) -> None:
        """Reports that `topic` has closed a ledger."""
        ...

    def snapshot_of(self, topic: str) -> CompactionSnapshot | None:
        """Returns the input of the topic's compaction run, until the run has ended."""
        ...


class KafkaTopicContext(AnyTopicContext, Protocol):
    """The part that a Kafka topic uses."""

    @property
    def cleaner(self) -> Cleaner: ...
    @property
    def kafka_config(self) -> BrokerConfig:
        """The broker's present settings."""
        ...
