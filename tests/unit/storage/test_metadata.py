"""The metadata store, its two key-value stores, and the lock on the directory."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ledgerfold.storage.errors import (
    Corruption,
    DirectoryLocked,
    DiskFailure,
    IncompatibleFormat,
    InvalidRequest,
)
from ledgerfold.storage.key_value import KeyValueStore, MemoryKeyValue
from ledgerfold.storage.lock import DirectoryLock
from ledgerfold.storage.metadata import MetadataStore
from ledgerfold.storage.records import STORE_VERSION, encode_record
from ledgerfold.storage.rocks import RocksKeyValue
from ledgerfold.v1.records_pb2 import (
    CursorRecord,
    LedgerRecord,
    NamespaceRecord,
    ProducerRecord,
    RunRecord,
    SchemaRecord,
    StoreRecord,
    TenantRecord,
    TopicRecord,
)


@pytest.fixture(params=["rocks", "memory"])
def pairs(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[KeyValueStore]:
    store: KeyValueStore
    store = RocksKeyValue(tmp_path / "metadata") if request.param == "rocks" else MemoryKeyValue()
    yield store
    store.close()


def test_pairs_are_found_by_key_and_prefix_in_order(pairs: KeyValueStore) -> None:
    """The store in memory is a twin of RocksDB."""
    pairs.write({b"b/2": b"2", b"b/1": b"1", b"c": b"", b"a": b"\0\xff", b"b/10": b"10"}, ())
    assert pairs.get(b"a") == b"\0\xff"
    assert pairs.get(b"c") == b""
    assert pairs.get(b"d") is None
    assert pairs.scan(b"b/") == [(b"b/1", b"1"), (b"b/10", b"10"), (b"b/2", b"2")]
    pairs.write({b"b/3": b"3"}, {b"b/1", b"none"})
    assert [key for key, _ in pairs.scan(b"b/")] == [b"b/10", b"b/2", b"b/3"]
    assert pairs.scan(b"x") == []
    assert pairs.last(b"b/") == (b"b/3", b"3")
    assert pairs.last(b"b") == (b"b/3", b"3")
    assert pairs.last(b"c") == (b"c", b"")
    assert pairs.last(b"b/1") == (b"b/10", b"10")
    # The key after the prefix exists, and the one before.
    pairs.write({b"b0": b"", b"b.": b""}, {b"b/2", b"b/3", b"b/10"})
    assert [pairs.last(each) for each in (b"b/", b"x", b"A")] == [None, None, None]


def test_rocks_keeps_its_data(tmp_path: Path) -> None:
    """Written pairs are there when the folder is opened again."""
    store = RocksKeyValue(tmp_path / "metadata")
    store.write({b"k": b"v"}, ())
    store.close()
    store = RocksKeyValue(tmp_path / "metadata")
    assert store.get(b"k") == b"v"
    store.close()


def test_a_damaged_rocks_store_is_a_typed_error(tmp_path: Path) -> None:
    """The message contains RocksDB's error."""
    store = RocksKeyValue(tmp_path)
    store.write({b"k": b"v"}, ())
    store.close()
    for manifest in tmp_path.glob("MANIFEST-*"):
        manifest.write_bytes(b"garbage garbage garbage")
    with pytest.raises(Corruption, match="MANIFEST"):
        RocksKeyValue(tmp_path)


def test_a_closed_rocks_store_refuses(tmp_path: Path) -> None:
    """Errors of the binding are typed too."""
    store = RocksKeyValue(tmp_path)
    store.close()
    with pytest.raises(DiskFailure):
        store.write({b"k": b"v"}, ())
    with pytest.raises(DiskFailure):
        store.get(b"k")


def test_every_kind_of_record_is_restored(pairs: KeyValueStore) -> None:
    """Each under its key, listed with its kind only."""
    metadata = MetadataStore(pairs)
    topic, twin = (
        TopicRecord(name="persistent://a/b/t", created_ms=1),
        TopicRecord(name="persistent://a/b/t2"),
    )
    namespace = NamespaceRecord(name="a/b")
    tenant = TenantRecord(name="a", admin_roles=["root"])
    ledgers = [LedgerRecord(ledger_id=number) for number in (2, 10, 9)]
    cursor = CursorRecord(topic=topic.name, subscription="s/1")
    producer = ProducerRecord(topic=topic.name, name="p", number=3)
    runs = [RunRecord(topic=topic.name, number=number) for number in (9, 10, 1)]
    schemas = [SchemaRecord(topic=topic.name, version=number) for number in (10, 9)]
    with metadata.batch() as batch:
        for each in (topic, twin):
            batch.put(each)
        batch.put(namespace)
        batch.put(tenant)
        for ledger in ledgers:
            batch.put(ledger)
        batch.put(cursor)
        batch.put(CursorRecord(topic=twin.name, subscription="other"))
        batch.put(producer)
        for run in runs:
            batch.put(run)
        batch.put(RunRecord(topic=twin.name, number=1))
        for schema in (*schemas, SchemaRecord(topic=twin.name, version=1)):
            batch.put(schema)
    assert metadata.topic(topic.name) == topic
    assert metadata.topics() == [topic, twin]
    assert metadata.namespace("a/b") == namespace
    assert metadata.namespaces() == [namespace]
    assert metadata.tenant("a") == tenant
    assert metadata.tenants() == [tenant]
    assert metadata.topic_names("persistent://a/b/")
    assert not metadata.topic_names("persistent://a/c/")
    assert metadata.ledger(10) == ledgers[1]
    assert [each.ledger_id for each in metadata.ledgers()] == [2, 9, 10]
    assert metadata.cursors(topic.name) == [cursor]
    assert metadata.schemas(topic.name) == schemas[::-1]
    assert metadata.producers(topic.name) == [producer]
    assert [each.number for each in metadata.runs(topic.name)] == [1, 9, 10]
    assert len(metadata.runs()) == 4
    assert metadata.topic("other") is None
    assert metadata.ledger(3) is None
    assert metadata.store() is None


def test_deleting_a_topic_deletes_its_records(pairs: KeyValueStore) -> None:
    """Its cursors, producers, runs and schemas, but nothing of a topic whose name begins alike."""
    metadata = MetadataStore(pairs)
    with metadata.batch() as batch:
        for name in ("t", "t2"):
            batch.put(TopicRecord(name=name))
            batch.put(CursorRecord(topic=name, subscription="s"))
            batch.put(ProducerRecord(topic=name, name="p"))
            batch.put(RunRecord(topic=name, number=1))
            batch.put(SchemaRecord(topic=name, version=1))
    with metadata.batch() as batch:
        batch.delete_topic("t")
    assert [each.name for each in metadata.topics()] == ["t2"]
    lists = (metadata.cursors, metadata.producers, metadata.runs, metadata.schemas)
    assert [each("t") for each in lists] == [[], [], [], []]
    assert [len(each("t2")) for each in lists] == [1, 1, 1, 1]
    with metadata.batch() as batch:
        batch.delete("cursor", "t2", "s")
        batch.delete("run", "t2", 1)
        batch.put(LedgerRecord(ledger_id=1))
        batch.delete("ledger", 1)
    assert (metadata.cursors("t2"), metadata.runs("t2"), metadata.ledgers()) == ([], [], [])


def test_a_batch_that_raises_writes_nothing(pairs: KeyValueStore) -> None:
    """All or nothing; of a put and a delete of one record the later one counts."""
    metadata = MetadataStore(pairs)

    def fail() -> None:
        with metadata.batch() as batch:
            batch.put(TopicRecord(name="t"))
            raise InvalidRequest("no")

    with pytest.raises(InvalidRequest):
        fail()
    assert metadata.topics() == []
    with metadata.batch() as batch:
        batch.delete_topic("t")
        batch.put(TopicRecord(name="t"))
    assert metadata.topics() == [TopicRecord(name="t")]


@pytest.mark.parametrize(
    ("value", "error"),
    [(b"", Corruption), (b"\x02", IncompatibleFormat), (b"\x01\x0a\xff", Corruption)],
    ids=["empty", "newer", "garbage"],
)
def test_a_value_that_cannot_be_read_is_an_error(value: bytes, error: type[Exception]) -> None:
    """Errors of a newer version and of damage differ, and name the record."""
    pairs = MemoryKeyValue()
    pairs.write({b"topic/t": value}, ())
    with pytest.raises(error, match="topic/t"):
        MetadataStore(pairs).topic("t")
    with pytest.raises(error):
        MetadataStore(pairs).topics()


def test_ledger_ids_are_never_assigned_twice() -> None:
    """Not by several threads, not after a restart, and with one write for many."""
    pairs = MemoryKeyValue()
    given: list[int] = []
    for _ in range(3):
        metadata = MetadataStore(pairs)
        threads = [
            threading.Thread(
                target=lambda store=metadata: given.extend(
                    store.allocate_ledger_id() for _ in range(50)
                )
            )
            for _ in range(3)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(set(given)) == len(given) == 450
    assert min(given) == 1
    store = MetadataStore(pairs).store()
    assert isinstance(store, StoreRecord)
    assert store.next_ledger_id > max(given)


def test_a_store_has_its_version_from_its_first_ledger_on() -> None:
    """However the record is created; later writes keep the version."""
    makers: list[Callable[[MetadataStore], object]] = [
        MetadataStore.allocate_ledger_id,
        lambda metadata: metadata.skip_ledger_ids(5),
    ]
    for make in makers:
        pairs = MemoryKeyValue()
        make(MetadataStore(pairs))
        store = MetadataStore(pairs).store()
        assert store is not None
        assert store.store_version == STORE_VERSION


def test_a_store_from_before_versions_is_served() -> None:
    """As version 1, and it stays without."""
    pairs = MemoryKeyValue()
    pairs.write({b"store": encode_record(StoreRecord(next_ledger_id=9))}, ())
    assert MetadataStore(pairs).allocate_ledger_id() == 9
    store = MetadataStore(pairs).store()
    assert store is not None
    assert store.store_version == 0


def test_a_later_builds_store_is_refused() -> None:
    """No id is assigned from it, and nothing is written."""
    pairs = MemoryKeyValue()
    later = encode_record(StoreRecord(next_ledger_id=9, store_version=STORE_VERSION + 1))
    pairs.write({b"store": later}, ())
    metadata = MetadataStore(pairs)
    for use in (metadata.store, metadata.allocate_ledger_id, lambda: metadata.skip_ledger_ids(20)):
        with pytest.raises(IncompatibleFormat, match=r"format version 4; .* Use a newer build"):
            use()
    assert pairs.get(b"store") == later


_HOLD = """
import sys
from pathlib import Path
from ledgerfold.storage.lock import DirectoryLock
with DirectoryLock(Path(sys.argv[1]), "9.9"):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.mark.process
def test_a_second_process_gets_the_owners_pid(tmp_path: Path) -> None:
    """Process id and version of the owner; when it is killed the directory is free."""
    command = [sys.executable, "-c", _HOLD, str(tmp_path)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "held\n"
        with pytest.raises(DirectoryLocked) as raised, DirectoryLock(tmp_path, "1.0"):
            pass
        assert raised.value.owner == f"process {owner.pid} (ledgerfold 9.9)"
        owner.kill()
        owner.wait()
        with DirectoryLock(tmp_path, "1.0"):
            pass


def test_a_process_cannot_lock_a_directory_twice(tmp_path: Path) -> None:
    """The second attempt fails, the first lock stays, and it ends with its block."""
    with DirectoryLock(tmp_path, "1.0"):
        for _ in range(2):
            with pytest.raises(DirectoryLocked, match=f"process {os.getpid()}"):
                DirectoryLock(tmp_path, "1.0").__enter__()
    with DirectoryLock(tmp_path, "1.0"):
        (tmp_path / "lock").write_bytes(b"not json")
        with pytest.raises(DirectoryLocked, match="another process"):
            DirectoryLock(tmp_path, "1.0").__enter__()


def test_the_same_boot_is_reported_after_a_complete_recovery(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An owner that ended before its recovery did leaves no mark."""
    boot_id = tmp_path / "boot_id"
    monkeypatch.setattr("ledgerfold.storage.lock._BOOT_ID", boot_id)

    def is_same_boot(boot: str, *, recovers: bool) -> bool:
        boot_id.write_text(boot)
        with DirectoryLock(tmp_path, "1.0") as lock:
            if recovers:
                lock.record_boot()
            return lock.is_same_boot

    assert not is_same_boot("first\n", recovers=False)
    assert not is_same_boot("first\n", recovers=True)
    assert is_same_boot("first\n", recovers=False)
    assert is_same_boot("first\n", recovers=True)
    assert not is_same_boot("second\n", recovers=False)
    assert not is_same_boot("second\n", recovers=True)
    assert is_same_boot("second\n", recovers=True)
    assert not is_same_boot("", recovers=True)
    assert not is_same_boot("", recovers=True)


def test_a_machine_without_boot_ids(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Never the same; nor is there one in the lock that an older build wrote."""
    (tmp_path / "lock").write_text('{"pid": 1, "version": "0.1"}\n')
    with DirectoryLock(tmp_path, "1.0") as lock:
        assert not lock.is_same_boot
        lock.record_boot()
    monkeypatch.setattr("ledgerfold.storage.lock._BOOT_ID", tmp_path / "no such file")
    with DirectoryLock(tmp_path, "1.0") as lock:
        assert not lock.is_same_boot
        lock.record_boot()
    with DirectoryLock(tmp_path, "1.0") as lock:
        assert not lock.is_same_boot


def test_ids_are_reserved_in_blocks_before_they_run_out() -> None:
    """The next write reserves it: callers that need an id do not wait for a disk."""
    pairs = MemoryKeyValue()
    metadata = MetadataStore(pairs)
    taken = [metadata.allocate_ledger_id() for _ in range(40)]
    with metadata.batch() as batch:
        batch.put(TopicRecord(name="t"))
    record = metadata.store()
    assert record is not None
    assert record.next_ledger_id == 129
    taken += [metadata.allocate_ledger_id() for _ in range(88)]
    assert taken == list(range(1, 129))
    assert metadata.store() == record
