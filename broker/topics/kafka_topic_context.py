"""The part of the broker that a Kafka topic uses (broker/topics/broker.py)."""

from __future__ import annotations

from concurrent.futures import Executor
from typing import Protocol

from ledgerfold.broker.common.clock import Clock
from ledgerfold.broker.common.outgoing import Outgoing
from ledgerfold.broker.common.settings import BrokerSettings
from ledgerfold.broker.kafka.cleaner.cleaner import Cleaner
from ledgerfold.broker.kafka.config.config import BrokerConfig
from ledgerfold.storage.ledger import LedgerStore
from ledgerfold.storage.metadata import MetadataStore


class NamedTopic(Protocol):
    @property
    def name(self) -> str: ...


class KafkaTopicContext(Protocol):
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
    def cleaner(self) -> Cleaner: ...
    @property
    def kafka_config(self) -> BrokerConfig:
        """The broker's present settings."""
        ...

    def is_loaded(self, topic: NamedTopic) -> bool:
        """Returns whether it is the broker's topic of its name: neither unloaded nor replaced."""
        ...
