"""The metadata: typed records in a key-value store, changed in batches that are counted.

Everything that must change together goes into one batch, which is one synced write:

    >>> from ledgerfold.storage.key_value import MemoryKeyValue
    >>> metadata = MetadataStore(MemoryKeyValue())
    >>> with metadata.batch() as batch:
    ...     batch.put_topic(TopicRecord(name="t", ledger_ids=[7]))
    ...     batch.put_ledger(LedgerRecord(ledger_id=7, topic="t"))
    >>> metadata.ledger(7).topic
    't'

Keys and values: storage/records.py. Each batch raises the record `writes` by one, and a file beside
the store repeats that count (storage/write_mark.py): so a store that has lost its last writes is
known as one.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from google.protobuf.message import Message

from ledgerfold.storage.errors import DiskFailure
from ledgerfold.storage.key_value import KeyValueStore
from ledgerfold.storage.partition_names import parse_partition
from ledgerfold.storage.records import (
    STORE_KEY,
    WRITES_KEY,
    M,
    decode,
    encode_record,
    key,
    key_of,
    ledger_key,
    new_store_record,
)
from ledgerfold.storage.write_mark import WriteMark
from ledgerfold.v1.records_pb2 import (
    LEDGER_STATE_DELETING,
    CursorRecord,
    LedgerRecord,
    NamespaceRecord,
    PartitionedTopicRecord,
    ProducerRecord,
    RunRecord,
    StoreRecord,
    TopicRecord,
    WriteCountRecord,
)

# Ids are handed out from blocks: one synced write a block.
_LEDGER_IDS_PER_BLOCK = 64
# So few free ones are a reason for the next block.
_LEDGER_IDS_LOW = 32
# Kafka's producer ids, as Kafka's broker asks for them.
_PRODUCER_IDS_PER_BLOCK = 1000


class MetadataBatch:
    """Puts and deletes that become durable together, or not at all.

    `marks_deleting`: it puts a ledger in state DELETING, whose files may go once it is durable.
    """

    def __init__(self, store: KeyValueStore) -> None:
        self._store = store
        self.puts: dict[bytes, bytes] = {}
        self.deletes: set[bytes] = set()
        self.marks_deleting = False

    def _put(self, record: Message) -> None:
        at = key_of(record)
        self.deletes.discard(at)
        self.puts[at] = encode_record(record)

    def _delete(self, at: bytes) -> None:
        self.puts.pop(at, None)
        self.deletes.add(at)

    def put_store(self, record: StoreRecord) -> None:
        self._put(record)

    def put_namespace(self, record: NamespaceRecord) -> None:
        self._put(record)

    def put_topic(self, record: TopicRecord) -> None:
        self._put(record)

    def put_partitioned_topic(self, record: PartitionedTopicRecord) -> None:
        self._put(record)

    def put_ledger(self, record: LedgerRecord) -> None:
        self.marks_deleting |= record.state == LEDGER_STATE_DELETING
        self._put(record)

    def put_cursor(self, record: CursorRecord) -> None:
        self._put(record)

    def put_producer(self, record: ProducerRecord) -> None:
        self._put(record)

    def delete_producer(self, topic: str, name: str) -> None:
        self._delete(key("producer", topic, name))

    def put_run(self, record: RunRecord) -> None:
        self._put(record)

    def delete_topic(self, name: str) -> None:
        """Deletes its cursors, producers and runs, too; its ledgers are the caller's business."""
        self._delete(key("topic", name))
        for kind in ("cursor", "producer", "run"):
            for at, _ in self._store.scan(key(kind, name, "")):
                self._delete(at)

    def delete_partitioned_topic(self, name: str) -> None:
        """Deletes the record alone; its partitions are topics."""
        self._delete(key("partitioned", name))

    def delete_ledger(self, ledger_id: int) -> None:
        self._delete(ledger_key(ledger_id))

    def delete_cursor(self, topic: str, subscription: str) -> None:
        self._delete(key("cursor", topic, subscription))

    def delete_run(self, topic: str, number: int) -> None:
        self._delete(key("run", topic, f"{number:020d}"))

    def delete_namespace(self, name: str) -> None:
        self._delete(key("namespace", name))


class MetadataStore:
    """Reads answer from the last batch that was written. Threads may share it, but no batch."""

    def __init__(self, store: KeyValueStore) -> None:
        """Raises Corruption, IncompatibleFormat."""
        self._store = store
        self._mark: WriteMark | None = None
        self._free_ledger_ids: deque[int] = deque()
        self._free_producer_ids: deque[int] = deque()
        # NOTE: held while a block is reserved, on the disk: whoever comes meanwhile needs it, too.
        self._ids_lock = threading.Lock()
        # Held while a batch is written: batches are counted in the order in which they are durable.
        self._write_lock = threading.Lock()
        counted = self._get(WriteCountRecord, WRITES_KEY)
        self._writes = 0 if counted is None else counted.writes
        # The last write that allowed files to be removed.
        self._deleting_write = 0

    @property
    def writes(self) -> int:
        """How many batches were written, as far as the store tells."""
        return self._writes

    def follow(self, mark: WriteMark) -> None:
        """Counts writes in the mark, too, from now on. Lost ones stay counted."""
        self._mark = mark
        self._writes = max(self._writes, mark.highest)
        # Any of those before this process may have allowed it.
        self._deleting_write = self._writes

    def _get(self, kind: type[M], at: bytes) -> M | None:
        value = self._store.get(at)
        return None if value is None else decode(kind, at, value)

    def _all(self, kind: type[M], prefix: bytes) -> list[M]:
        return [decode(kind, at, value) for at, value in self._store.scan(prefix)]

    def store(self) -> StoreRecord | None:
        """None in a directory in which no ledger was ever made. Raises IncompatibleFormat when a
        later build has made the store its own.
        """
        return self._get(StoreRecord, STORE_KEY)

    def topic(self, name: str) -> TopicRecord | None:
        return self._get(TopicRecord, key("topic", name))

    def topics(self) -> list[TopicRecord]:
        return self._all(TopicRecord, b"topic/")

    def partitioned_topic(self, name: str) -> PartitionedTopicRecord | None:
        return self._get(PartitionedTopicRecord, key("partitioned", name))

    def partitioned_topics(self) -> list[PartitionedTopicRecord]:
        return self._all(PartitionedTopicRecord, b"partitioned/")

    def siblings(self, topic: str) -> int:
        """Returns how many partitions there are of the topic that this one is a partition of.

        0: it is none.
        """
        partition = parse_partition(topic)
        parent = None if partition is None else self.partitioned_topic(partition.topic)
        return 0 if parent is None else parent.partitions

    def namespace(self, name: str) -> NamespaceRecord | None:
        return self._get(NamespaceRecord, key("namespace", name))

    def ledger(self, ledger_id: int) -> LedgerRecord | None:
        return self._get(LedgerRecord, ledger_key(ledger_id))

    def ledgers(self) -> list[LedgerRecord]:
        return self._all(LedgerRecord, b"ledger/")

    def cursors(self, topic: str) -> list[CursorRecord]:
        return self._all(CursorRecord, key("cursor", topic, ""))

    def producers(self, topic: str) -> list[ProducerRecord]:
        return self._all(ProducerRecord, key("producer", topic, ""))

    def runs(self, topic: str | None = None) -> list[RunRecord]:
        """Oldest first within a topic."""
        return self._all(RunRecord, key("run", topic, "") if topic is not None else b"run/")

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
        with self._write_lock:
            self._commit(batch)
        self._top_up()

    def change(self, edit: Callable[[MetadataBatch], object]) -> None:
        """Writes what `edit` puts into a batch; no other write comes between its reads and that.

        Raises DiskFailure, and what `edit` raises; nothing has changed then.
        """
        with self._write_lock:
            batch = self.begin()
            edit(batch)
            if batch.puts or batch.deletes:
                self._commit(batch)
        self._top_up()

    def _top_up(self) -> None:
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

    def _commit(self, batch: MetadataBatch) -> None:
        """Writes and counts it, with the lock of writes held."""
        writes = self._writes + 1
        counted = encode_record(WriteCountRecord(writes=writes))
        self._store.write({**batch.puts, WRITES_KEY: counted}, batch.deletes)
        self._writes = writes
        if batch.marks_deleting:
            self._deleting_write = writes
        if self._mark is not None:
            self._mark.note(writes)

    def allow_removal(self) -> None:
        """Makes durable that the writes that marked ledgers as DELETING were made.

        Called before files are removed: a start that finds fewer writes knows by that what may be
        missing in the records, and removes nothing. Raises DiskFailure.
        """
        if self._mark is not None:
            with self._write_lock:
                if self._mark.synced < self._deleting_write:
                    self._mark.sync(self._writes)

    def change_store(self, edit: Callable[[StoreRecord], object]) -> None:
        """Changes the store record, and writes it if it is another then. Raises DiskFailure."""
        with self._ids_lock:
            self._change_store(edit)

    def _change_store(self, edit: Callable[[StoreRecord], object]) -> StoreRecord:
        """Changes it with the lock of the ids held."""
        before = self.store()
        record = new_store_record()
        if before is not None:
            record.CopyFrom(before)
        edit(record)
        if record != before:
            batch = self.begin()
            batch.put_store(record)
            with self._write_lock:
                self._commit(batch)
        return record

    def need_feature(self, feature: str) -> None:
        """Makes builds that do not know it leave the directory alone. Raises DiskFailure."""

        def edit(record: StoreRecord) -> None:
            if feature not in record.features:
                record.features.append(feature)

        self.change_store(edit)

    def skip_ledger_ids(self, upto: int) -> None:
        """Counts ids up to there as taken, whatever the store record says."""

        def edit(record: StoreRecord) -> None:
            record.next_ledger_id = max(record.next_ledger_id, upto + 1)

        self.change_store(edit)

    def _reserve_ledger_ids(self, least: int) -> None:
        def edit(record: StoreRecord) -> None:
            record.next_ledger_id += _LEDGER_IDS_PER_BLOCK

        with self._ids_lock:
            if len(self._free_ledger_ids) < least:
                end = self._change_store(edit).next_ledger_id
                self._free_ledger_ids.extend(range(end - _LEDGER_IDS_PER_BLOCK, end))

    def allocate_producer_id(self) -> int:
        """Of a Kafka producer: never given out before, nor will it be again. Raises DiskFailure."""

        def edit(record: StoreRecord) -> None:
            record.next_producer_id += _PRODUCER_IDS_PER_BLOCK

        with self._ids_lock:
            if not self._free_producer_ids:
                end = self._change_store(edit).next_producer_id
                self._free_producer_ids.extend(range(end - _PRODUCER_IDS_PER_BLOCK, end))
            return self._free_producer_ids.popleft()

    def close(self) -> None:
        self._store.close()
