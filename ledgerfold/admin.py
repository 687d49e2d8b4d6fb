"""Administration, with the verbs of pulsar-admin, and the types of its results.

    >>> from ledgerfold.admin import Admin, Policies
    >>> with Admin("127.0.0.1:7650") as admin:
    ...     admin.create_topic("prices")
    ...     admin.update_policies(topic="prices", values=Policies(retention_ms=60_000))
    ...     admin.policies(topic="prices").retention_ms
    60000

Errors are those of `ledgerfold.errors`.
"""

from __future__ import annotations

from ledgerfold.broker.client.administration.admin import Admin
from ledgerfold.broker.client.administration.kafka_admin import KafkaAdmin
from ledgerfold.broker.client.administration.kafka_answers import (
    Appended,
    CleanerStatus,
    CleanerTurn,
    CleaningPlan,
    CleaningStats,
    ConfigEntry,
    LogDescription,
    Origin,
    ProducerInfo,
    SegmentInfo,
)
from ledgerfold.storage.kafka.transaction_index import AbortedTransaction
from ledgerfold.v1.admin_pb2 import (
    CompactionPhase,
    CompactionStatus,
    CompactorState,
    Fault,
    FaultKind,
    FaultOperation,
)
from ledgerfold.v1.records_pb2 import (
    CompactionStrategy,
    Emulation,
    Policies,
    RunRecord,
    RunState,
    SchemaCompatibilityStrategy,
    SchemaDefinition,
    SchemaRecord,
    SchemaType,
    Snapshot,
)

__all__ = [
    "AbortedTransaction",
    "Admin",
    "Appended",
    "CleanerStatus",
    "CleanerTurn",
    "CleaningPlan",
    "CleaningStats",
    "CompactionPhase",
    "CompactionStatus",
    "CompactionStrategy",
    "CompactorState",
    "ConfigEntry",
    "Emulation",
    "Fault",
    "FaultKind",
    "FaultOperation",
    "KafkaAdmin",
    "LogDescription",
    "Origin",
    "Policies",
    "ProducerInfo",
    "RunRecord",
    "RunState",
    "SchemaCompatibilityStrategy",
    "SchemaDefinition",
    "SchemaRecord",
    "SchemaType",
    "SegmentInfo",
    "Snapshot",
]
