"""Typed, versioned records in the key-value store.

Everything that must change together goes into one batch, which is one synced write:

    >>> from ledgerfold.storage.key_value import MemoryKeyValue
    >>> metadata = MetadataStore(MemoryKeyValue())
    >>> with metadata.batch() as batch:
    ...     batch.put_topic(TopicRecord(name="t", ledger_ids=[7]))
    ...     batch.put_ledger(LedgerRecord(ledger_id=7, topic="t"))
    >>> metadata.ledger(7).topic
    't'

Keys (docs/FORMATS.md, "Metadata"): store, namespace/<tenant>/<ns>, topic/<name>,
partitioned/<name>, ledger/<id, 20 digits>, cursor/<topic>NUL<subscription>,
producer/<topic>NUL<name>, run/<topic>NUL<number, 20 digits>. A value is a version byte and a
protobuf message of ledgerfold.v1.records.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from ledgerfold.storage.errors import Corruption, DiskFailure, IncompatibleFormat
from ledgerfold.storage.key_value import KeyValueStore
from ledgerfold.v1.records_pb2 import (
    CursorRecord,
    LedgerRecord,
    NamespaceRecord,
    PartitionedTopicRecord,
    ProducerRecord,
    RunRecord,
    StoreRecord,
    TopicRecord,
)

RECORD_VERSION = 1
# Of all records together: the store record tells it (docs/FORMATS.md, "Versions"). The highest
# that is known, what a new directory begins with, and what one with a Kafka topic has.
STORE_VERSION = 2
FIRST_STORE_VERSION = 1
KAFKA_STORE_VERSION = 2
# Ids are handed out from blocks: one synced write a block.
_LEDGER_IDS_PER_BLOCK = 64
# So few free ones are a reason for the next block.
_LEDGER_IDS_LOW = 32
# Kafka's producer ids, as Kafka's broker asks for them.
_PRODUCER_IDS_PER_BLOCK = 1000
_STORE = b"store"

M = TypeVar("M", bound=Message)


def _key(kind: str, *parts: str) -> bytes:
    return f"{kind}/{chr(0).join(parts)}".encode()


def _ledger_key(ledger_id: int) -> bytes:
    return _key("ledger", f"{ledger_id:020d}")


def _encode(record: Message) -> bytes:
    return bytes((RECORD_VERSION,)) + record.SerializeToString()


def _decode(kind: type[M], key: bytes, value: bytes) -> M:
    name = f"metadata record {key.decode(errors='replace')!r}"
    if not value:
        raise Corruption(name, 0, "a version byte", "nothing")
    if value[0] != RECORD_VERSION:
        raise IncompatibleFormat(name, value[0], f"version {RECORD_VERSION}")
    try:
        record = kind.FromString(value[1:])
    except DecodeError as error:
        raise Corruption(name, 1, f"a {kind.__name__}", str(error)) from error
    if isinstance(record, StoreRecord) and record.store_version > STORE_VERSION:
        supported = f"version {STORE_VERSION}"
        raise IncompatibleFormat("the metadata store", record.store_version, supported)
    return record


def new_store_record(next_ledger_id: int = 1) -> StoreRecord:
    """Of a directory that has none yet."""
    return StoreRecord(next_ledger_id=next_ledger_id, store_version=FIRST_STORE_VERSION)


# What begins a key, and what its value is.
_KINDS: dict[str, type[Message]] = {
    "store": StoreRecord,
    "namespace": NamespaceRecord,
    "topic": TopicRecord,
    "partitioned": PartitionedTopicRecord,
    "ledger": LedgerRecord,
    "cursor": CursorRecord,
    "producer": ProducerRecord,
    "run": RunRecord,
}


def decode_record(key: bytes, value: bytes) -> Message:
    """A record of any kind, which must be that of its key.

    Raises Corruption, IncompatibleFormat (a later build wrote it).
    """
    kind = _KINDS.get(key.partition(b"/")[0].decode(errors="replace"))
    if kind is None:
        raise Corruption(f"metadata record {key!r}", 0, "a known kind of record", "this key")
    record = _decode(kind, key, value)
    if key_of(record) != key:
        name = f"metadata record {key.decode(errors='replace')!r}"
        raise Corruption(name, 1, "the record of that key", f"that of {key_of(record)!r}")
    return record


def encode_record(record: Message) -> bytes:
    return _encode(record)


def key_of(record: Message) -> bytes:
    """Under which a record is kept."""
    match record:
        case NamespaceRecord():
            return _key("namespace", record.name)
        case TopicRecord():
            return _key("topic", record.name)
        case PartitionedTopicRecord():
            return _key("partitioned", record.name)
        case LedgerRecord():
            return _ledger_key(record.ledger_id)
        case CursorRecord():
            return _key("cursor", record.topic, record.subscription)
        case ProducerRecord():
            return _key("producer", record.topic, record.name)
        case RunRecord():
            return _key("run", record.topic, f"{record.number:020d}")
    return _STORE


class MetadataBatch:
    """Puts and deletes that become durable together, or not at all."""

    def __init__(self, store: KeyValueStore) -> None:
        self._store = store
        self.puts: dict[bytes, bytes] = {}
        self.deletes: set[bytes] = set()

    def _put(self, key: bytes, record: Message) -> None:
        self.deletes.discard(key)
        self.puts[key] = _encode(record)

    def _delete(self, key: bytes) -> None:
        self.puts.pop(key, None)
        self.deletes.add(key)

    def put_store(self, record: StoreRecord) -> None:
        self._put(_STORE, record)

    def put_namespace(self, record: NamespaceRecord) -> None:
        self._put(_key("namespace", record.name), record)

    def put_topic(self, record: TopicRecord) -> None:
        self._put(_key("topic", record.name), record)

    def put_partitioned_topic(self, record: PartitionedTopicRecord) -> None:
        self._put(_key("partitioned", record.name), record)

    def put_ledger(self, record: LedgerRecord) -> None:
        self._put(_ledger_key(record.ledger_id), record)

    def put_cursor(self, record: CursorRecord) -> None:
        self._put(_key("cursor", record.topic, record.subscription), record)

    def put_producer(self, record: ProducerRecord) -> None:
        self._put(_key("producer", record.topic, record.name), record)

    def delete_producer(self, topic: str, name: str) -> None:
        self._delete(_key("producer", topic, name))

    def put_run(self, record: RunRecord) -> None:
        self._put(_key("run", record.topic, f"{record.number:020d}"), record)

    def delete_topic(self, name: str) -> None:
        """With its cursors, producers and runs; its ledgers are the caller's business."""
        self._delete(_key("topic", name))
        for kind in ("cursor", "producer", "run"):
            for key, _ in self._store.scan(_key(kind, name, "")):
                self._delete(key)

    def delete_partitioned_topic(self, name: str) -> None:
        """The record alone; its partitions are topics."""
        self._delete(_key("partitioned", name))

    def delete_ledger(self, ledger_id: int) -> None:
        self._delete(_ledger_key(ledger_id))

    def delete_cursor(self, topic: str, subscription: str) -> None:
        self._delete(_key("cursor", topic, subscription))

    def delete_run(self, topic: str, number: int) -> None:
        self._delete(_key("run", topic, f"{number:020d}"))

    def delete_namespace(self, name: str) -> None:
        self._delete(_key("namespace", name))


class MetadataStore:
    """Reads answer from the last batch that was written. Threads may share it, but no batch."""

    def __init__(self, store: KeyValueStore) -> None:
        self._store = store
        self._free_ledger_ids: deque[int] = deque()
        self._free_producer_ids: deque[int] = deque()
        # NOTE: held while a block is reserved, on the disk: whoever comes meanwhile needs it, too.
        self._ids_lock = threading.Lock()

    def _get(self, kind: type[M], key: bytes) -> M | None:
        value = self._store.get(key)
        return None if value is None else _decode(kind, key, value)

    def _all(self, kind: type[M], prefix: bytes) -> list[M]:
        return [_decode(kind, key, value) for key, value in self._store.scan(prefix)]

    def store(self) -> StoreRecord | None:
        """None in a directory in which no ledger was ever made. Raises IncompatibleFormat when a
        later build has made the store its own.
        """
        return self._get(StoreRecord, _STORE)

    def topic(self, name: str) -> TopicRecord | None:
        return self._get(TopicRecord, _key("topic", name))

    def topics(self) -> list[TopicRecord]:
        return self._all(TopicRecord, b"topic/")

    def partitioned_topic(self, name: str) -> PartitionedTopicRecord | None:
        return self._get(PartitionedTopicRecord, _key("partitioned", name))

    def partitioned_topics(self) -> list[PartitionedTopicRecord]:
        return self._all(PartitionedTopicRecord, b"partitioned/")

    def namespace(self, name: str) -> NamespaceRecord | None:
        return self._get(NamespaceRecord, _key("namespace", name))

    def ledger(self, ledger_id: int) -> LedgerRecord | None:
        return self._get(LedgerRecord, _ledger_key(ledger_id))

    def ledgers(self) -> list[LedgerRecord]:
        return self._all(LedgerRecord, b"ledger/")

    def cursors(self, topic: str) -> list[CursorRecord]:
        return self._all(CursorRecord, _key("cursor", topic, ""))

    def producers(self, topic: str) -> list[ProducerRecord]:
        return self._all(ProducerRecord, _key("producer", topic, ""))

    def runs(self, topic: str | None = None) -> list[RunRecord]:
        """Oldest first within a topic."""
        return self._all(RunRecord, _key("run", topic, "") if topic is not None else b"run/")

    @contextmanager
    def batch(self) -> Iterator[MetadataBatch]:
        """Written when the block ends well; nothing is, when it raises. Raises DiskFailure."""
        batch = self.begin()
        yield batch
        self.write(batch)

    def begin(self) -> MetadataBatch:
        """An empty one, for write()."""
        return MetadataBatch(self._store)

    def write(self, batch: MetadataBatch) -> None:
        """Returns when it is durable; one that is empty costs nothing. Raises DiskFailure."""
        if not (batch.puts or batch.deletes):
            return
        self._store.write(batch.puts, batch.deletes)
        if 0 < len(self._free_ledger_ids) < _LEDGER_IDS_LOW:
            # Who waits for the disk anyway spares those who would have to when all are used up;
            # they hear of it if it fails.
            with suppress(DiskFailure):
                self._reserve_ledger_ids(_LEDGER_IDS_LOW)

    def allocate_ledger_id(self) -> int:
        """An id that was never given out and never will be again, not even after a crash."""
        while True:
            with suppress(IndexError):
                return self._free_ledger_ids.popleft()
            self._reserve_ledger_ids(1)

    def need_version(self, version: int) -> None:
        """From now on builds that do not know it leave the directory alone. Raises DiskFailure."""
        with self._ids_lock:
            record = self.store() or new_store_record()
            if max(record.store_version, FIRST_STORE_VERSION) < version:
                record.store_version = version
                with self.batch() as batch:
                    batch.put_store(record)

    def skip_ledger_ids(self, upto: int) -> None:
        """Ids up to there are taken, whatever the store record says."""
        with self._ids_lock:
            record = self.store() or new_store_record()
            if record.next_ledger_id <= upto:
                record.next_ledger_id = upto + 1
                with self.batch() as batch:
                    batch.put_store(record)

    def _reserve_ledger_ids(self, least: int) -> None:
        with self._ids_lock:
            if len(self._free_ledger_ids) >= least:
                return
            record = self.store() or new_store_record()
            first = record.next_ledger_id
            record.next_ledger_id = first + _LEDGER_IDS_PER_BLOCK
            batch = self.begin()
            batch.put_store(record)
            self._store.write(batch.puts, batch.deletes)
            self._free_ledger_ids.extend(range(first, record.next_ledger_id))

    def allocate_producer_id(self) -> int:
        """Of a Kafka producer: never given out before, nor will it be again. Raises DiskFailure."""
        with self._ids_lock:
            if not self._free_producer_ids:
                record = self.store() or new_store_record()
                first = record.next_producer_id
                record.next_producer_id = first + _PRODUCER_IDS_PER_BLOCK
                batch = self.begin()
                batch.put_store(record)
                self._store.write(batch.puts, batch.deletes)
                self._free_producer_ids.extend(range(first, record.next_producer_id))
            return self._free_producer_ids.popleft()

    def close(self) -> None:
        self._store.close()
