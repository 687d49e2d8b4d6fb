"""The metadata: typed records in a key-value store, written in counted batches.

All changes that must be atomic are put into one batch, which is one synced write:

    >>> from ledgerfold.storage.key_value import MemoryKeyValue
    >>> metadata = MetadataStore(MemoryKeyValue())
    >>> with metadata.batch() as batch:
    ...     batch.put(TopicRecord(name="t", ledger_ids=[7]))
    ...     batch.put(LedgerRecord(ledger_id=7, topic="t"))
    >>> metadata.ledger(7).topic
    't'

Batches that threads write while another write waits for the disk become one write: many new topics
at once cost a few syncs. They succeed or fail together.

Keys and values: storage/records.py. Each write increments the record `writes`, and a file next to
the store repeats that count (storage/write_mark.py), so that a loss of the last writes is detected.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from copy import deepcopy

from ledgerfold.storage.errors import DiskFailure
from ledgerfold.storage.key_value import KeyValueStore
from ledgerfold.storage.metadata_batch import MetadataBatch as MetadataBatch
from ledgerfold.storage.partition_names import parse_partition
from ledgerfold.storage.producer_ids import ProducerIds
from ledgerfold.storage.records import (
    STORE_KEY,
    WRITES_KEY,
    M,
    decode,
    encode_record,
    key,
    new_store_record,
)
from ledgerfold.storage.shared_lock import SharedLock
from ledgerfold.storage.write_mark import WriteMark
from ledgerfold.v1.records_pb2 import (
    LEDGER_STATE_DELETING,
    CursorRecord,
    LedgerRecord,
    NamespaceRecord,
    PartitionedTopicRecord,
    ProducerRecord,
    RunRecord,
    SchemaRecord,
    StoreRecord,
    TenantRecord,
    TopicRecord,
    WriteCountRecord,
)

# Ids are allocated from blocks, which take one synced write each.
_LEDGER_IDS_PER_BLOCK = 64
# With fewer free ids than this, the next block is reserved.
_LEDGER_IDS_LOW = 32
# A cursor has 2**_SEEK_BITS incarnations, one after each seek.
_SEEK_BITS = 20


class _QueuedWrite:
    """A batch that waits to be written. `error`: the reason why it was not."""

    __slots__ = ("batch", "error", "is_done")

    def __init__(self, batch: MetadataBatch) -> None:
        self.batch = batch
        self.is_done = False
        self.error: BaseException | None = None


class MetadataStore:
    """The metadata store. Reads return the last written batch. Threads share it, but no batch."""

    def __init__(self, store: KeyValueStore) -> None:
        """Opens the metadata in `store`. Raises Corruption, IncompatibleFormat."""
        self._store = store
        self._mark: WriteMark | None = None
        self._free_ledger_ids: deque[int] = deque()
        self.producer_ids = ProducerIds(self.change_store)
        # NOTE: held while a block is reserved on the disk, because all callers need that block.
        self._ids_lock = threading.Lock()
        # Held while a batch is written: batches are counted in the order in which they are durable.
        self._write_lock = threading.Lock()
        # Oldest first; the next holder of the lock writes all of them.
        self._queued: deque[_QueuedWrite] = deque()
        counted = self._get(WriteCountRecord, WRITES_KEY)
        self._writes = 0 if counted is None else counted.writes
        self._incarnations = 0
        # The last write that allowed files to be removed.
        self._deleting_write = 0
        # Shared by removals of ledgers; held by a restore of a snapshot, which lists its ledgers.
        self.removals = SharedLock()
        self.restored: set[int] = set()

    @property
    def writes(self) -> int:
        """The number of writes, as far as the store records it."""
        return self._writes

    def new_incarnation(self, now_ms: int) -> int:
        """Returns the incarnation of a new cursor: no earlier one had it, or reached it by seeks.

        The number of writes makes it differ after a restart, even if a manual clock does not
        advance.
        """
        self._incarnations = max(self._incarnations + 1, now_ms + self._writes)
        return self._incarnations << _SEEK_BITS

    def follow(self, mark: WriteMark) -> None:
        """Counts writes in the mark from now on, too. Writes stay counted even if they are lost."""
        self._mark = mark
        self._writes = max(self._writes, mark.highest)
        # Any write of an earlier process may have allowed a removal.
        self._deleting_write = self._writes

    def _get(self, kind: type[M], at: bytes) -> M | None:
        value = self._store.get(at)
        return None if value is None else decode(kind, at, value)

    def _all(self, kind: type[M], prefix: bytes) -> list[M]:
        return [decode(kind, at, value) for at, value in self._store.scan(prefix)]

    def store(self) -> StoreRecord | None:
        """Returns the store record; None if no ledger was ever created in the directory.

        Raises IncompatibleFormat if a later build has upgraded the store.
        """
        return self._get(StoreRecord, STORE_KEY)

    def pairs(self) -> list[tuple[bytes, bytes]]:
        """Returns all records as they are stored, in order of key."""
        return self._store.scan(b"")

    def is_restored(self, ledger_id: int) -> bool:
        """Returns whether a snapshot has brought the ledger back, so that its deletion ends."""
        record = self.ledger(ledger_id) if ledger_id in self.restored else None
        return record is not None and record.state != LEDGER_STATE_DELETING

    def topic(self, name: str) -> TopicRecord | None:
        return self._get(TopicRecord, key("topic", name))

    def topics(self) -> list[TopicRecord]:
        return self._all(TopicRecord, b"topic/")

    def topic_names(self, prefix: str = "", kind: str = "topic") -> list[str]:
        """Returns names without decoding records."""
        return [at.decode()[len(kind) + 1 :] for at, _ in self._store.scan(key(kind, prefix))]

    def partitioned_topic(self, name: str) -> PartitionedTopicRecord | None:
        return self._get(PartitionedTopicRecord, key("partitioned", name))

    def partitioned_topics(self) -> list[PartitionedTopicRecord]:
        return self._all(PartitionedTopicRecord, b"partitioned/")

    def siblings(self, topic: str) -> int:
        """Returns the partition count of this partition's topic; 0 if it is not a partition."""
        partition = parse_partition(topic)
        parent = None if partition is None else self.partitioned_topic(partition.topic)
        return 0 if parent is None else parent.partitions

    def tenant(self, name: str) -> TenantRecord | None:
        return self._get(TenantRecord, key("tenant", name))

    def tenants(self) -> list[TenantRecord]:
        return self._all(TenantRecord, key("tenant", ""))

    def namespaces(self) -> list[NamespaceRecord]:
        return self._all(NamespaceRecord, key("namespace", ""))

    def namespace(self, name: str) -> NamespaceRecord | None:
        return self._get(NamespaceRecord, key("namespace", name))

    def namespace_as_stored(self, name: str) -> bytes | None:
        """Returns the bytes of a namespace's record, for callers that keep what they decoded."""
        return self._store.get(key("namespace", name))

    def ledger(self, ledger_id: int) -> LedgerRecord | None:
        return self._get(LedgerRecord, key("ledger", ledger_id))

    def ledgers(self) -> list[LedgerRecord]:
        return self._all(LedgerRecord, b"ledger/")

    def cursors(self, topic: str) -> list[CursorRecord]:
        return self._all(CursorRecord, key("cursor", topic, ""))

    def producers(self, topic: str) -> list[ProducerRecord]:
        return self._all(ProducerRecord, key("producer", topic, ""))

    def runs(self, topic: str | None = None) -> list[RunRecord]:
        """Returns the runs of a topic or of all, oldest first within a topic."""
        return self._all(RunRecord, key("run", topic, "") if topic is not None else b"run/")

    def schemas(self, topic: str) -> list[SchemaRecord]:
        """Returns the versions of a topic's schema, oldest first, with the mark of a deletion."""
        return self._all(SchemaRecord, key("schema", topic, ""))

    def schema(self, topic: str, number: int | None = None) -> SchemaRecord | None:
        """Returns one of schemas(topic), by default the latest. Does not decode others."""
        if number is not None:
            return self._get(SchemaRecord, key("schema", topic, number))
        latest = self._store.last(key("schema", topic, ""))
        return None if latest is None else decode(SchemaRecord, *latest)

    @contextmanager
    def batch(self) -> Iterator[MetadataBatch]:
        """Writes the yielded batch when the block ends; if the block raises, nothing. Raises
        DiskFailure.
        """
        batch = self.begin()
        yield batch
        self.write(batch)

    def begin(self) -> MetadataBatch:
        """Returns an empty batch for write()."""
        return MetadataBatch(self._store)

    def write(self, batch: MetadataBatch) -> None:
        """Writes a batch durably; an empty one costs nothing. Raises DiskFailure.

        The batches of other threads may be part of the same write.
        """
        if batch.is_empty:
            return
        queued = _QueuedWrite(batch)
        self._queued.append(queued)
        with self._write_lock:
            # Another thread may have written it, with its own.
            if not queued.is_done:
                self._commit_queued()
        if queued.error is not None:
            raise queued.error
        self._top_up()

    def _commit_queued(self) -> None:
        """Writes all queued batches at once. The caller holds the write lock."""
        group = [self._queued.popleft() for _ in range(len(self._queued))]
        together = group[0].batch
        if len(group) > 1:
            together = self.begin()
            for each in group:
                together.follow_with(each.batch)
        error: BaseException | None = None
        try:
            self._commit(together)
        except BaseException as raised:
            error = raised
        for each in group:
            each.is_done, each.error = True, error

    def change(self, edit: Callable[[MetadataBatch], object]) -> None:
        """Writes the batch that `edit` fills; no other write comes between its reads and this one.

        Raises DiskFailure, and what `edit` raises; in both cases nothing has changed.
        """
        with self._write_lock:
            batch = self.begin()
            edit(batch)
            if not batch.is_empty:
                self._commit(batch)
        self._top_up()

    def _top_up(self) -> None:
        if 0 < len(self._free_ledger_ids) < _LEDGER_IDS_LOW:
            # This thread has waited for the disk anyway, so it reserves a block for later callers,
            # which may be unable to wait. If it fails, they get the error.
            with suppress(DiskFailure):
                self._reserve_ledger_ids(_LEDGER_IDS_LOW)

    def free_ledger_id(self) -> int | None:
        """Allocates an id without waiting for the disk; None if none is reserved."""
        with suppress(IndexError):
            return self._free_ledger_ids.popleft()
        return None

    def allocate_ledger_id(self) -> int:
        """Returns an id that was never allocated before and never will be, even after a crash."""
        while (free := self.free_ledger_id()) is None:
            self._reserve_ledger_ids(1)
        return free

    def _commit(self, batch: MetadataBatch) -> None:
        """Writes and counts the batch. The caller holds the write lock."""
        writes = self._writes + 1
        counted = encode_record(WriteCountRecord(writes=writes))
        self._store.write({**batch.puts, WRITES_KEY: counted}, batch.deletes)
        self._writes = writes
        if batch.marks_deleting:
            self._deleting_write = writes
        if self._mark is not None:
            self._mark.note(writes)

    def allow_removal(self) -> None:
        """Makes the count of the writes that marked ledgers as DELETING durable.

        Called before files are removed: a start that finds fewer writes then knows that records may
        be missing, and removes nothing. Raises DiskFailure.
        """
        if self._mark is not None:
            with self._write_lock:
                if self._mark.synced < self._deleting_write:
                    self._mark.sync(self._writes)

    def count_durably(self) -> None:
        """Makes the count of all writes durable, if the disk allows it.

        Called after a write that makes ledgers live which were listed as being made: a start that
        finds it lost, after a power loss, would take them for those of a crash, and remove them.
        """
        if self._mark is not None:
            with self._write_lock, suppress(DiskFailure):
                self._mark.sync(self._writes)

    def change_store(self, edit: Callable[[StoreRecord], object]) -> StoreRecord:
        """Changes the store record, and writes it if it differs. Raises DiskFailure."""
        with self._ids_lock:
            return self._change_store(edit)

    def _change_store(self, edit: Callable[[StoreRecord], object]) -> StoreRecord:
        """Changes the store record. The caller holds the lock of the ids."""
        before = self.store()
        record = new_store_record() if before is None else deepcopy(before)
        edit(record)
        if record != before:
            batch = self.begin()
            batch.put(record)
            with self._write_lock:
                self._commit(batch)
        return record

    def need_feature(self, feature: str) -> None:
        """Makes builds that do not know `feature` refuse the directory. Raises DiskFailure."""

        def edit(record: StoreRecord) -> None:
            if feature not in record.features:
                record.features.append(feature)

        self.change_store(edit)

    def skip_ledger_ids(self, through: int) -> None:
        """Treats ids up to and including `through` as allocated, even if the store record does
        not."""

        def edit(record: StoreRecord) -> None:
            record.next_ledger_id = max(record.next_ledger_id, through + 1)

        self.change_store(edit)

    def _reserve_ledger_ids(self, least: int) -> None:
        def edit(record: StoreRecord) -> None:
            record.next_ledger_id += _LEDGER_IDS_PER_BLOCK

        with self._ids_lock:
            if len(self._free_ledger_ids) < least:
                end = self._change_store(edit).next_ledger_id
                self._free_ledger_ids.extend(range(end - _LEDGER_IDS_PER_BLOCK, end))

    def close(self) -> None:
        self._store.close()
