"""What a Kafka topic needs of its broker, and no more (broker/topics/broker.py satisfies it)."""

from __future__ import annotations

from concurrent.futures import Executor
from typing import Protocol

from ledgerfold.broker.ground.clock import Clock
from ledgerfold.broker.ground.outgoing import Outgoing
from ledgerfold.broker.ground.settings import BrokerSettings
from ledgerfold.broker.kafka.cleaner import Cleaner
from ledgerfold.broker.kafka.config import BrokerConfig
from ledgerfold.storage.ledger import LedgerStore
from ledgerfold.storage.metadata import MetadataStore


class NamedTopic(Protocol):
    @property
    def name(self) -> str: ...


class KafkaSurroundings(Protocol):
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
        """The settings of the broker, as they are now."""
        ...

    def is_loaded(self, topic: NamedTopic) -> bool:
        """Whether it is the broker's topic of its name: neither unloaded nor replaced."""
        ...
