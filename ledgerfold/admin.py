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

from ledgerfold.broker.client.administration.admin import Admin as Admin
from ledgerfold.broker.client.administration.kafka_admin import KafkaAdmin as KafkaAdmin
from ledgerfold.broker.client.administration.kafka_answers import Appended as Appended
from ledgerfold.broker.client.administration.kafka_answers import CleanerStatus as CleanerStatus
from ledgerfold.broker.client.administration.kafka_answers import CleanerTurn as CleanerTurn
from ledgerfold.broker.client.administration.kafka_answers import CleaningPlan as CleaningPlan
from ledgerfold.broker.client.administration.kafka_answers import CleaningStats as CleaningStats
from ledgerfold.broker.client.administration.kafka_answers import ConfigEntry as ConfigEntry
from ledgerfold.broker.client.administration.kafka_answers import LogDescription as LogDescription
from ledgerfold.broker.client.administration.kafka_answers import Origin as Origin
from ledgerfold.broker.client.administration.kafka_answers import ProducerInfo as ProducerInfo
from ledgerfold.broker.client.administration.kafka_answers import SegmentInfo as SegmentInfo
from ledgerfold.exports import export
from ledgerfold.storage.kafka.transaction_index import AbortedTransaction as AbortedTransaction
from ledgerfold.v1.admin_pb2 import CompactionPhase as CompactionPhase
from ledgerfold.v1.admin_pb2 import CompactionStatus as CompactionStatus
from ledgerfold.v1.admin_pb2 import CompactorState as CompactorState
from ledgerfold.v1.admin_pb2 import Fault as Fault
from ledgerfold.v1.admin_pb2 import FaultKind as FaultKind
from ledgerfold.v1.admin_pb2 import FaultOperation as FaultOperation
from ledgerfold.v1.records_pb2 import CompactionStrategy as CompactionStrategy
from ledgerfold.v1.records_pb2 import Emulation as Emulation
from ledgerfold.v1.records_pb2 import Policies as Policies
from ledgerfold.v1.records_pb2 import RunRecord as RunRecord
from ledgerfold.v1.records_pb2 import RunState as RunState
from ledgerfold.v1.records_pb2 import SchemaCompatibilityStrategy as SchemaCompatibilityStrategy
from ledgerfold.v1.records_pb2 import SchemaDefinition as SchemaDefinition
from ledgerfold.v1.records_pb2 import SchemaRecord as SchemaRecord
from ledgerfold.v1.records_pb2 import SchemaType as SchemaType
from ledgerfold.v1.records_pb2 import Snapshot as Snapshot

export(globals())
