"""The encoding of metadata records as keys and values, and its compatibility checks.

A key begins with the kind of its record (docs/FORMATS.md, "Metadata"): store, writes,
tenant/<name>, namespace/<tenant>/<ns>, topic/<name>, partitioned/<name>, ledger/<id, 20 digits>,
cursor/<topic>NUL<subscription>, producer/<topic>NUL<name>, run/<topic>NUL<number, 20 digits>,
schema/<topic>NUL<version, 20 digits>. A value is a version byte and a protobuf message of
ledgerfold.v1.records.

    >>> key_of(RunRecord(topic="t", number=3))
    b'run/t\\x0000000000000000000003'
    >>> decode_record(b"topic/t", encode_record(TopicRecord(name="t"))).name
    't'

The store record lists what a build must support to read the directory (docs/FORMATS.md,
"Versions"): a store version up to 2, and from 3 on the names of features.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from ledgerfold.storage.errors import (
    Corruption,
    IncompatibleFormat,
    LimitExceeded,
    UnknownFeatures,
)
from ledgerfold.storage.limits import RECORD_BYTES_MAX
from ledgerfold.v1.records_pb2 import (
    CursorRecord,
    KafkaLog,
    KafkaSegment,
    LedgerRecord,
    NamespaceRecord,
    PartitionedTopicRecord,
    ProducerRecord,
    RunCounts,
    RunRecord,
    SchemaRecord,
    StoreRecord,
    TenantRecord,
    TopicRecord,
    WriteCountRecord,
)

# The version of every record but the store's: builds from before features were recorded read only
# version 1, and therefore refuse the directory.
RECORD_VERSION = 1
STORE_RECORD_VERSION = 2
# The version of the whole store. Versions 1 and 2 (a Kafka topic exists) recorded no features.
STORE_VERSION = 3
# Every ledger folder has a label (storage/label.py), and the writes are counted.
LABELS = "ledger-labels"
KAFKA_TOPICS = "kafka-topics"
# A segment of a compacted ledger has a deletion vector, or had one.
DELETION_VECTORS = "deletion-vectors"
# A tenant was created.
TENANTS = "tenants"
# A schema was registered.
SCHEMAS = "schemas"
# A client of Pulsar was connected to publish: its entries are stored as they are sent.
PULSAR_ENTRIES = "pulsar-entries"
# A role was granted permissions.
GRANTS = "grants"
FEATURES = frozenset(
    {LABELS, KAFKA_TOPICS, DELETION_VECTORS, TENANTS, SCHEMAS, PULSAR_ENTRIES, GRANTS}
)
STORE_KEY = b"store"
WRITES_KEY = b"writes"
# A strategy's name in run records from before each strategy had a name.
_OLD_STRATEGY, _ITS_NAME = "latest", "publishing-order"

M = TypeVar("M", bound=Message)

# The type of the value for each prefix of a key, and its fields that follow the prefix.
_KINDS: dict[str, tuple[type[Message], tuple[str, ...]]] = {
    "store": (StoreRecord, ()),
    "writes": (WriteCountRecord, ()),
    "tenant": (TenantRecord, ("name",)),
    "namespace": (NamespaceRecord, ("name",)),
    "topic": (TopicRecord, ("name",)),
    "partitioned": (PartitionedTopicRecord, ("name",)),
    "ledger": (LedgerRecord, ("ledger_id",)),
    "cursor": (CursorRecord, ("topic", "subscription")),
    "producer": (ProducerRecord, ("topic", "name")),
    "run": (RunRecord, ("topic", "number")),
    "schema": (SchemaRecord, ("topic", "version")),
}
_PARTS = {kind: (prefix, fields) for prefix, (kind, fields) in _KINDS.items()}


def key(prefix: str, *parts: str | int) -> bytes:
    texts = (f"{part:020d}" if isinstance(part, int) else part for part in parts)
    return f"{prefix}/{chr(0).join(texts)}".encode() if parts else prefix.encode()


def key_of(record: Message) -> bytes:
    """Returns the key under which a record is stored."""
    prefix, fields = _PARTS[type(record)]
    return key(prefix, *(getattr(record, name) for name in fields))


def encode_record(record: Message) -> bytes:
    """Encodes a value of the store. Raises LimitExceeded."""
    is_featured = isinstance(record, StoreRecord) and record.store_version >= STORE_VERSION
    version = STORE_RECORD_VERSION if is_featured else RECORD_VERSION
    encoded = record.SerializeToString()
    if len(encoded) > RECORD_BYTES_MAX:
        raise LimitExceeded(
            f"Bytes of the metadata record {key_of(record).decode(errors='replace')!r}",
            len(encoded),
            RECORD_BYTES_MAX,
            "It lists too many ledgers, segments or producers: publish to a partitioned topic, let "
            "retention delete old ledgers, or restart the broker with a larger --segment-size.",
        )
    return bytes((version,)) + encoded


def decode(kind: type[M], record_key: bytes, value: bytes) -> M:
    """Decodes a record of `kind`.

    Raises Corruption, IncompatibleFormat (a later build wrote it).
    """
    name = f"metadata record {record_key.decode(errors='replace')!r}"
    if not value:
        raise Corruption(name, 0, "a version byte", "nothing")
    highest = STORE_RECORD_VERSION if kind is StoreRecord else RECORD_VERSION
    if not RECORD_VERSION <= value[0] <= highest:
        raise IncompatibleFormat(name, value[0], f"version {highest}")
    try:
        record = kind.FromString(value[1:])
    except DecodeError as error:
        raise Corruption(name, 1, f"a {kind.__name__}", str(error)) from error
    if isinstance(record, StoreRecord):
        _check_readable(record)
    if isinstance(record, RunRecord) and record.strategy == _OLD_STRATEGY:
        record.strategy = _ITS_NAME
    return record


def _check_readable(store: StoreRecord) -> None:
    if store.store_version > STORE_VERSION:
        supported = f"version {STORE_VERSION}"
        raise IncompatibleFormat("the metadata store", store.store_version, supported)
    unknown = sorted(set(store.features) - FEATURES)
    if unknown:
        raise UnknownFeatures(unknown)


def decode_record(record_key: bytes, value: bytes) -> Message:
    """Decodes a record of any kind, which must match its key.

    Raises Corruption, IncompatibleFormat (a later build wrote it).
    """
    kind, _ = _KINDS.get(record_key.partition(b"/")[0].decode(errors="replace"), (None, ()))
    if kind is None:
        raise Corruption(f"metadata record {record_key!r}", 0, "a known kind of record", "this key")
    record = decode(kind, record_key, value)
    if key_of(record) != record_key:
        name = f"metadata record {record_key.decode(errors='replace')!r}"
        raise Corruption(name, 1, "a record with that key", f"one with {key_of(record)!r}")
    return record


def put_segments(log: KafkaLog, segments: Iterable[KafkaSegment]) -> None:
    """Replaces the segments of a Kafka log. They may be its own: protobuf copies them first."""
    relisted = KafkaLog(segments=segments)
    log.ClearField("segments")
    log.MergeFrom(relisted)


def first_fall(log: KafkaLog) -> tuple[int, int] | None:
    """Returns the first two base offsets of consecutive segments of which the second is lower.

    Segments without ledgers do not count: a load drops them. None: the segments are in order.

    >>> first_fall(KafkaLog(segments=[{"base_offset": 7, "ledger_ids": [1]}, {"base_offset": 3}]))
    """
    bases = [each.base_offset for each in log.segments if each.is_cleaned or each.ledger_ids]
    return next(((one, other) for one, other in pairwise(bases) if one > other), None)


def bytes_written(counts: RunCounts) -> int:
    """Returns the bytes that a run wrote: segments that it did not share, and deletion vectors."""
    return counts.bytes_out - counts.bytes_kept + counts.vector_bytes


def new_store_record() -> StoreRecord:
    """Returns the store record of a new directory."""
    return StoreRecord(next_ledger_id=1, store_version=STORE_VERSION, features=[LABELS])
