"""A batch of changes of the metadata, which become durable together (storage/metadata.py)."""

from __future__ import annotations

from google.protobuf.message import Message

from ledgerfold.storage.key_value import KeyValueStore
from ledgerfold.storage.records import (
    STORE_KEY,
    WRITES_KEY,
    decode,
    encode_record,
    key,
    key_of,
)
from ledgerfold.v1.records_pb2 import LEDGER_STATE_DELETING, LedgerRecord


class MetadataBatch:
    """Puts and deletes that become durable together, or not at all.

    `marks_deleting`: it puts a ledger in state DELETING, whose files may be removed once the batch
    is durable.
    """

    def __init__(self, store: KeyValueStore) -> None:
        self._store = store
        self.puts: dict[bytes, bytes] = {}
        self.deletes: set[bytes] = set()
        self.marks_deleting = False

    @property
    def is_empty(self) -> bool:
        return not (self.puts or self.deletes)

    def put(self, record: Message) -> None:
        """Puts a record of any kind under its key."""
        if isinstance(record, LedgerRecord):
            self.marks_deleting |= record.state == LEDGER_STATE_DELETING
        at = key_of(record)
        self.deletes.discard(at)
        self.puts[at] = encode_record(record)

    def put_being_made(self, record: LedgerRecord) -> None:
        """Lists a ledger before its files exist: a start deletes it, unless `record` is put."""
        listed = LedgerRecord()
        listed.CopyFrom(record)
        listed.state, listed.being_made = LEDGER_STATE_DELETING, True
        self.put(listed)

    def delete(self, kind: str, *parts: str | int) -> None:
        """Deletes the record of that key (storage/records.py)."""
        self._delete(key(kind, *parts))

    def _delete(self, at: bytes) -> None:
        self.puts.pop(at, None)
        self.deletes.add(at)

    def _delete_all(self, prefix: bytes) -> None:
        """Deletes the records that are in the store now."""
        for at, _ in self._store.scan(prefix):
            self._delete(at)

    def follow_with(self, later: MetadataBatch) -> None:
        """Adds the changes of a later batch."""
        self.deletes -= later.puts.keys()
        self.puts.update(later.puts)
        for at in later.deletes:
            self._delete(at)
        self.marks_deleting |= later.marks_deleting

    def delete_everything(self) -> list[int]:
        """Deletes the records of all topics, namespaces and tenants, and marks all ledgers as
        DELETING. Returns the ids of the ledgers, whose files the caller deletes.
        """
        ledger_ids = []
        for at, value in self._store.scan(b""):
            if at.startswith(key("ledger", "")):
                record = decode(LedgerRecord, at, value)
                record.state = LEDGER_STATE_DELETING
                self.put(record)
                ledger_ids.append(record.ledger_id)
            elif at not in (STORE_KEY, WRITES_KEY):
                self._delete(at)
        return ledger_ids

    def put_encoded(self, at: bytes, value: bytes) -> None:
        """Puts a record as it was read from this store."""
        self.deletes.discard(at)
        self.puts[at] = value

    def delete_topic(self, name: str) -> None:
        """Deletes a topic with its cursors, producers, runs and schemas; the caller deletes its
        ledgers.
        """
        self.delete("topic", name)
        for kind in ("cursor", "producer", "run", "schema"):
            self._delete_all(key(kind, name, ""))

    def delete_partitioned_topic(self, name: str) -> None:
        """Deletes the record and the schemas; the partitions are separate topics."""
        self.delete("partitioned", name)
        self.delete_schemas(name)

    def delete_schemas(self, topic: str) -> None:
        """Deletes all versions of a topic's schema."""
        self._delete_all(key("schema", topic, ""))

    def delete_namespace(self, name: str) -> None:
        """Deletes the record, and schemas of topics that were never created."""
        self.delete("namespace", name)
        self._delete_all(key("schema", f"persistent://{name}/"))
