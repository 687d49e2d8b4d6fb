"""The parts of the broker and its topics that compaction uses.

The scheduler, a run and the threshold monitor depend on these protocols, so that each can be tested
without a broker, files or Spark. broker/topics/broker.py and broker/topics/topic.py satisfy them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from typing import Protocol, TypeVar

from ledgerfold.broker.common.settings import BrokerSettings
from ledgerfold.broker.log.stored_topic import StoredTopic
from ledgerfold.broker.policies.effective import PolicyLevels
from ledgerfold.broker.subscriptions.lifecycle import SubscriptionTopic
from ledgerfold.storage.entry import Position
from ledgerfold.storage.ledger import LedgerStore
from ledgerfold.storage.metadata import MetadataStore
from ledgerfold.v1.records_pb2 import Policies, TopicRecord

_T = TypeVar("_T")


class CompactableTopic(SubscriptionTopic, Protocol):
    # The last run number assigned before the topic was loaded.
    last_run_before_load: int

    @property
    def record(self) -> TopicRecord: ...
    @property
    def stored(self) -> StoredTopic: ...
    @property
    def store(self) -> LedgerStore: ...
    @property
    def compaction_mark_delete(self) -> Position: ...
    @property
    def compaction_moved_to(self) -> Position | None: ...
    def policies(self) -> Policies:
        """Returns the effective policies."""
        ...

    def compaction_backlog_bytes(self) -> int: ...
    async def enable_compaction_cursor(self) -> None: ...
    async def trim(self) -> int: ...
    def remove_files(self, ledger_id: int) -> None:
        """Removes the files of an unreferenced ledger."""
        ...


class BrokerContext(Protocol):
    """The resources that compaction and topics share."""

    @property
    def settings(self) -> BrokerSettings: ...
    @property
    def metadata(self) -> MetadataStore: ...
    @property
    def store(self) -> LedgerStore: ...
    @property
    def executor(self) -> Executor: ...
    @property
    def policy_levels(self) -> PolicyLevels: ...
    async def in_thread(self, work: Callable[[], _T]) -> _T:
        """Runs `work` on a thread of `executor`."""
        ...


class CompactionBroker(BrokerContext, Protocol):
    @property
    def clock_ms(self) -> Callable[[], int]: ...
    @property
    def topics(self) -> Mapping[str, CompactableTopic]:
        """The loaded topics by full name."""
        ...
