"""The parts of the broker that compaction control uses.

The scheduler, a run and the threshold monitor depend on these protocols, so that each can be tested
without a broker, files or Spark. broker/topics/broker.py, broker/topics/topic.py and
broker/worker/supervisor.py satisfy them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from typing import Protocol

from ledgerfold.broker.common.settings import BrokerSettings
from ledgerfold.broker.log.stored_topic import StoredTopic
from ledgerfold.broker.policies.profiles import Emulation
from ledgerfold.storage.entry import Position
from ledgerfold.storage.ledger import LedgerStore
from ledgerfold.storage.metadata import MetadataStore
from ledgerfold.v1.compactor_pb2 import (
    Manifest,
)
from ledgerfold.v1.records_pb2 import (
    Policies,
    RunRecord,
    SegmentRecord,
    TopicRecord,
)


class CompactionSnapshot(Protocol):
    """The range of a run: sealed segments, those of the previous compacted ledger first."""

    @property
    def segments(self) -> Sequence[SegmentRecord]: ...
    @property
    def compacted_segments(self) -> int: ...
    @property
    def horizon(self) -> Position: ...
    @property
    def horizon_previous(self) -> Position | None: ...
    @property
    def previous_ledger_id(self) -> int: ...
    @property
    def raw_after(self) -> Position: ...
    @property
    def floor(self) -> Position:
        """The view's retention floor: no run reads what retention removed below it."""
        ...

    @property
    def epoch(self) -> int:
        """The topic's epoch, which changes with each load."""
        ...


class CompactableLog(Protocol):
    @property
    def horizon(self) -> Position | None: ...
    @property
    def has_damage(self) -> bool: ...
    def last_position(self) -> Position: ...
    def entries_between(self, after: Position, through: Position) -> int: ...


class CompactableTopic(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def record(self) -> TopicRecord: ...
    @property
    def stored(self) -> StoredTopic: ...
    @property
    def log(self) -> CompactableLog: ...
    def own_policies(self) -> Policies:
        """Returns the policies set on it, or on the partitioned topic that it belongs to."""
        ...

    def policies(self) -> Policies:
        """Returns the effective policies."""
        ...

    def emulation(self) -> Emulation:
        """Returns the profile's fields in force."""
        ...

    def compaction_backlog_bytes(self) -> int: ...
    async def enable_compaction_cursor(self) -> None: ...

    # The last run number assigned before the topic was loaded.
    last_run_before_load: int

    async def snapshot_for_compaction(self, *, again: bool = False) -> CompactionSnapshot | None:
        """Seals the open segment; returns None if there is nothing to compact and not `again`."""
        ...

    async def commit_compaction(
        self, run: RunRecord, manifest: Manifest, snapshot: CompactionSnapshot
    ) -> None:
        """Verifies the files, then publishes view and run record in one write.

        Raises CompactionFenced.
        """
        ...


class CompactionBroker(Protocol):
    @property
    def settings(self) -> BrokerSettings: ...
    @property
    def metadata(self) -> MetadataStore: ...
    @property
    def store(self) -> LedgerStore: ...
    @property
    def executor(self) -> Executor: ...
    @property
    def clock_ms(self) -> Callable[[], int]: ...
    @property
    def topics(self) -> Mapping[str, CompactableTopic]:
        """The loaded topics by full name."""
        ...
