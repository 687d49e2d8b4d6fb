"""Tests `verify` on records and references, and the repair of each."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ledgerfold.broker.subscriptions.lifecycle import create_subscription
from ledgerfold.storage.entry import EARLIEST, EntryFields, build_entry, crc32c, read_header, stamp
from ledgerfold.storage.errors import Corruption
from ledgerfold.storage.metadata import MetadataBatch, MetadataStore
from ledgerfold.storage.names import write_mark_path
from ledgerfold.storage.records import STORE_VERSION, encode_record, key_of
from ledgerfold.storage.repair.plan import make_plan
from ledgerfold.storage.repair.repair import Repair
from ledgerfold.storage.repair.survey import take
from ledgerfold.v1.data_pb2 import StartPosition
from ledgerfold.v1.records_pb2 import (
    LEDGER_STATE_CLOSED,
    LEDGER_STATE_DELETING,
    CursorRecord,
    LedgerRecord,
    StoreRecord,
    TopicRecord,
)
from tests.model.broker_lab import DATA, TOPIC, BrokerLab
from tests.model.log_model import Message
from tests.support.lossy_files import CountedKeyValue, LossyFiles
from tests.support.offline import LEDGERS, NOW_MS, Offline, Snapshot, started, taken
from tests.support.versions import publish_versions

RAW, VIEW = 20, 5 + 11  # Messages; the view has five keys, and later messages follow.


class Disk:
    """A directory with ledgers 1 and 2 raw, 3 compacted (of both), 4 and 5 raw; 5 is open."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.files, self.pairs = snapshot.disk()
        self.metadata = MetadataStore(self.pairs)
        self.offline = Offline(DATA, self.pairs, self.files)
        first, _ = self.files.listdir(LEDGERS / "1")
        self.entry_bytes = self.files.size(LEDGERS / "1" / first) // 6

    def kinds(self) -> list[tuple[str, int]]:
        return [(each.kind, each.ledger_id) for each in self.offline.damage()]

    def spoil(self, key: bytes) -> None:
        """A value that is no record."""
        assert self.pairs.get(key) is not None
        self.pairs.write({key: b"\x01\xff\xff\xff"}, ())

    def mended(self) -> tuple[int, int]:
        """Messages that a broker reads raw, and read-compacted; after a repair."""
        self.offline.repair()
        assert self.offline.damage() == []
        return self.read()

    def read(self) -> tuple[int, int]:
        lab = started(self.files, self.pairs)
        try:
            found = [len(lab.read(EARLIEST, read_compacted=each)) for each in (False, True)]
            return found[0], found[1]
        finally:
            lab.stop()

    def flip(self, ledger_id: int, at: int, segment: int = 0) -> None:
        folder = LEDGERS / str(ledger_id)
        path = folder / self.files.listdir(folder)[segment]
        self.files.damage(path, lambda data: data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])

    def set_version(self, ledger_id: int, version: int, entry: int = 2) -> None:
        """Sets the version in an entry's header, which is otherwise valid."""
        folder = LEDGERS / str(ledger_id)
        path = folder / self.files.listdir(folder)[0]

        def change(data: bytes) -> bytes:
            at = entry * self.entry_bytes
            body = bytes([version]) + data[at + 5 : at + 72]
            return data[:at] + crc32c(body).to_bytes(4, "little") + body + data[at + 72 :]

        self.files.damage(path, change)

    def trim(self, *ledger_ids: int) -> None:
        """Removes raw ledgers for good, as retention does."""
        topic = self.metadata.topic(TOPIC)
        assert topic is not None
        topic.ledger_ids[:] = [each for each in topic.ledger_ids if each not in ledger_ids]
        with self.metadata.batch() as batch:
            batch.put(topic)
            for each in ledger_ids:
                batch.delete("ledger", each)
        for each in ledger_ids:
            self.files.remove_dir(LEDGERS / str(each))


@pytest.fixture(scope="module")
def snapshot() -> Snapshot:
    lab = BrokerLab()
    lab.run(create_subscription(lab.topic, "s", StartPosition(earliest=True)))
    publish_versions(lab, 0, 9)
    lab.compact()
    lab.publish([([Message(b"%d" % n, b"w%d" % n)], False) for n in range(11)])
    lab._drop()
    return taken(lab.files, lab._pairs)


@pytest.fixture
def disk(snapshot: Snapshot) -> Disk:
    return Disk(snapshot)


def test_verify_finds_an_intact_directory(disk: Disk) -> None:
    assert disk.offline.findings() == []
    assert disk.offline.plan().steps == []
    assert disk.read() == (RAW, VIEW)


# Records


def test_a_ledger_record_is_made_from_its_files(disk: Disk) -> None:
    """Nothing is lost; also of the compacted ledger, when the raw ones are trimmed."""
    disk.trim(1)
    for ledger_id in (2, 3):
        disk.spoil(key_of(LedgerRecord(ledger_id=ledger_id)))
    assert {each for each in disk.kinds() if each[0] == "record"} == {("record", 2), ("record", 3)}
    assert disk.mended() == (RAW - 6, VIEW)
    assert {each.messages for each in disk.offline.plan().steps} == set()


def test_a_topic_record_is_made_from_its_ledgers(disk: Disk) -> None:
    """With its view, its runs and the numbers of its producers."""
    before = disk.metadata.topic(TOPIC)
    assert before is not None
    disk.spoil(key_of(before))
    assert ("record", -1) in disk.kinds()
    disk.offline.repair()
    after = disk.metadata.topic(TOPIC)
    assert after is not None
    assert after.ledger_ids == before.ledger_ids
    assert after.compacted == before.compacted
    assert after.last_run_number == before.last_run_number
    assert after.last_producer_number == before.last_producer_number
    assert after.compaction_cursor
    assert after.epoch > before.epoch
    assert disk.read() == (RAW, VIEW)


def test_a_rebuilt_subscription_begins_at_the_oldest_message(disk: Disk) -> None:
    """Again rather than never."""
    disk.spoil(key_of(CursorRecord(topic=TOPIC, subscription="s")))
    disk.offline.repair()
    (cursor,) = disk.metadata.cursors(TOPIC)
    assert (cursor.mark_delete.ledger_id, cursor.mark_delete.entry_id) == (1, -1)
    assert disk.offline.damage() == []


def test_a_subscription_of_an_empty_topic_begins_at_the_start(
    disk: Disk,
) -> None:
    """Every topic had had ledgers."""
    name = "persistent://public/default/empty"
    with disk.metadata.batch() as batch:
        batch.put(TopicRecord(name=name))
        batch.put(CursorRecord(topic=name, subscription="s"))
    disk.spoil(key_of(CursorRecord(topic=name, subscription="s")))
    disk.offline.repair()
    (cursor,) = disk.metadata.cursors(name)
    assert (cursor.mark_delete.ledger_id, cursor.mark_delete.entry_id) == EARLIEST


def test_a_store_without_ledgers_restarts_its_ids() -> None:
    """Only the store record is damaged."""
    files = LossyFiles(Path("/disk"))
    files.make_dir(LEDGERS)
    pairs = CountedKeyValue(files)
    pairs.write({b"store": b"\x01\xff\xff\xff"}, ())
    Offline(DATA, pairs, files).repair()
    store = MetadataStore(pairs).store()
    assert store is not None
    assert store.next_ledger_id == 1


@pytest.mark.parametrize("prefix", [b"producer/", b"run/"])
def test_other_unreadable_records_are_deleted(disk: Disk, prefix: bytes) -> None:
    ((key, _),) = disk.pairs.scan(prefix)
    disk.spoil(key)
    assert len(disk.kinds()) == 1
    assert disk.mended() == (RAW, VIEW)
    assert disk.pairs.get(key) is None


def test_a_rebuilt_store_record_is_above_every_id(disk: Disk) -> None:
    """Missing, unreadable or too low."""
    low = encode_record(StoreRecord(next_ledger_id=5))
    harms: list[tuple[Callable[[], None], int]] = [
        (lambda: disk.pairs.write({}, [b"store"]), STORE_VERSION),
        (lambda: disk.spoil(b"store"), STORE_VERSION),
        (lambda: disk.pairs.write({b"store": low}, ()), 0),
    ]
    for harm, version in harms:
        harm()
        assert len(disk.kinds()) == 1
        disk.offline.repair()
        store = disk.metadata.store()
        assert store is not None
        assert (store.next_ledger_id, store.store_version) == (6, version)
        assert disk.offline.damage() == []


def test_a_missing_write_mark_next_to_a_damaged_store_record_is_restored(disk: Disk) -> None:
    """Else the next start takes its absence for a loss. Each had been missing alone."""
    disk.files.remove(write_mark_path(DATA))
    disk.spoil(b"store")
    assert disk.mended() == (RAW, VIEW)
    assert disk.offline.findings() == []


def test_a_record_without_a_topic_is_deleted(disk: Disk) -> None:
    cursor = CursorRecord(topic="persistent://public/default/gone", subscription="s")
    disk.pairs.write({key_of(cursor): encode_record(cursor)}, ())
    assert disk.kinds() == [("reference", -1)]
    disk.offline.repair()
    assert disk.pairs.get(key_of(cursor)) is None
    assert disk.offline.damage() == []


def test_a_ledger_missing_in_its_topics_record_is_added(disk: Disk) -> None:
    topic = disk.metadata.topic(TOPIC)
    assert topic is not None
    topic.ledger_ids.remove(2)
    with disk.metadata.batch() as batch:
        batch.put(topic)
    assert disk.kinds() == [("reference", 2)]
    assert disk.mended() == (RAW, VIEW)


def test_a_ledger_without_record_and_files_is_removed_from_its_topic(disk: Disk) -> None:
    with disk.metadata.batch() as batch:
        batch.delete("ledger", 2)
    disk.files.remove_dir(LEDGERS / "2")
    assert disk.kinds() == [("reference", 2)]
    (step,) = disk.offline.plan().steps
    assert (step.ledger_id, step.entries, step.messages) == (2, "all", None)
    # Three of its six were compacted before.
    assert disk.mended() == (RAW - 6, VIEW - 3)


def test_files_of_a_newer_build_are_not_changed(disk: Disk) -> None:
    """With a record of a later version the repair does nothing."""
    key = key_of(LedgerRecord(ledger_id=4))
    value = disk.pairs.get(key)
    assert value is not None
    disk.pairs.write({key: b"\x63" + value[1:]}, ())
    assert ("record", 4) in disk.kinds()
    plan = disk.offline.plan()
    assert (len(plan.refused), plan.steps, plan.puts) == (1, [], {})
    assert "Use a newer build" in plan.refused[0].what


def test_a_store_of_a_newer_build_is_not_changed(disk: Disk) -> None:
    """Tests any other defect in addition."""
    later = StoreRecord(next_ledger_id=1, store_version=STORE_VERSION + 1)
    disk.pairs.write({b"store": encode_record(later)}, ())
    disk.flip(2, 50)
    assert ("record", -1) in disk.kinds()
    plan = disk.offline.plan()
    assert (len(plan.refused), plan.steps, plan.puts) == (1, [], {})
    assert plan.refused[0].what.startswith("the metadata store has format version 4")


def test_an_entry_of_a_newer_build_is_kept(disk: Disk) -> None:
    """Also when something else of its ledger is damaged; other ledgers are mended."""
    disk.set_version(4, 99)
    disk.flip(4, 2 * disk.entry_bytes - 1)
    disk.flip(2, 50)
    assert {("format", 4), ("entry", 2)} <= set(disk.kinds())
    plan = disk.offline.repair()
    assert [each.ledger_id for each in plan.refused] == [4]
    assert ("format", 4) in disk.kinds()
    assert ("entry", 2) not in disk.kinds()


@pytest.mark.parametrize("ledger_id", [3, 5])
def test_a_ledger_with_only_an_entry_of_a_newer_build_is_kept(disk: Disk, ledger_id: int) -> None:
    """A compacted or an open one, otherwise readable by this build. No other entry is damaged, and
    the record names no more entries.
    """
    disk.set_version(ledger_id, 99, entry=0 if ledger_id == 3 else 1)
    assert disk.kinds() == [("format", ledger_id)]
    plan = disk.offline.repair()
    assert ([each.ledger_id for each in plan.refused], plan.steps) == ([ledger_id], [])
    assert disk.kinds() == [("format", ledger_id)]


# Raw ledgers


def test_ids_do_not_change_and_counts_are_reported(disk: Disk) -> None:
    """The second and third of six entries are damaged: a value, and a header."""
    disk.flip(4, 2 * disk.entry_bytes - 1)
    disk.flip(4, 2 * disk.entry_bytes + 10)
    assert disk.kinds() == [("entry", 4), ("entry", 4)]
    (step,) = disk.offline.plan().steps
    assert (step.ledger_id, step.entries, step.messages) == (4, "1 to 2", 2)
    assert disk.mended() == (RAW - 2, VIEW - 2)
    record = disk.metadata.ledger(4)
    assert record is not None
    assert [each.path[-7:] for each in record.segments] == ["000.log", "003.log"]
    assert [(each.first_entry_id, each.last_entry_id) for each in record.lost] == [(1, 2)]


def test_damage_to_an_open_ledger_closes_it(disk: Disk) -> None:
    """The number of messages that a bad header hid is unknown."""
    disk.flip(5, 10)
    (step,) = disk.offline.plan().steps
    assert (step.entries, step.messages) == ("0", None)
    disk.offline.repair()
    record = disk.metadata.ledger(5)
    assert record is not None
    assert record.state == LEDGER_STATE_CLOSED
    assert disk.read() == (RAW - 1, VIEW - 1)


def test_a_view_with_a_damaged_record_is_restored(disk: Disk) -> None:
    """Only RocksDB reports the damage; the count of writes is complete."""
    topic = disk.metadata.topic(TOPIC)
    assert topic is not None
    topic.ClearField("compacted")
    with disk.metadata.batch() as batch:
        batch.delete("ledger", 3)
        batch.put(topic)
    damage = Corruption("metadata/000004.log", 7, "a good record", "a bad one")
    survey = take(DATA, disk.pairs, disk.files, damage, is_same_boot=True)
    assert survey.losses == []
    plan = make_plan(survey, NOW_MS)
    Repair(DATA, disk.pairs, lambda _: disk.pairs, disk.files, NOW_MS).do(plan)
    assert disk.read() == (RAW, VIEW)


def test_a_rewritten_label_survives_a_power_loss(disk: Disk) -> None:
    """Repairs had been killed, and no power had been lost when one was done."""
    path = LEDGERS / "1" / "label"
    disk.files.damage(path, lambda data: data[:-1] + bytes([data[-1] ^ 1]))
    disk.offline.repair()
    disk.files.crash()
    assert disk.offline.findings() == []


def test_a_segment_missing_in_the_record_is_added_in_its_place() -> None:
    """Not behind those that it names: the last segments alone had been missing from a record."""
    lab = BrokerLab()
    lab.publish([([Message(b"%d" % n, bytes(250))], False) for n in range(6)])
    lab._drop()
    files, pairs = taken(lab.files, lab._pairs).disk()
    metadata = MetadataStore(pairs)
    record = metadata.ledger(1)
    assert record is not None
    paths = [each.path for each in record.segments]
    assert len(paths) > 2
    del record.segments[1]
    with metadata.batch() as batch:
        batch.put(record)
    Offline(DATA, pairs, files).repair()
    mended = metadata.ledger(1)
    assert mended is not None
    assert [each.path for each in mended.segments] == paths


def test_a_replaced_label_is_copied_first(disk: Disk) -> None:
    """A label that is missing is only written."""
    path = LEDGERS / "1" / "label"
    disk.files.damage(path, lambda data: data[:-1] + bytes([data[-1] ^ 1]))
    damaged = disk.files.open_read(path).pread(1 << 20, 0)
    disk.files.remove(LEDGERS / "2" / "label")
    plan = disk.offline.repair()
    assert plan.copies == {"1/label"}
    (repair,) = disk.files.listdir(DATA / "repairs")
    copy = DATA / "repairs" / repair / "ledgers" / "1" / "label"
    assert disk.files.open_read(copy).pread(1 << 20, 0) == damaged
    assert disk.offline.findings() == []


def test_a_repaired_ledger_keeps_its_times(disk: Disk) -> None:
    """Compares the times of a record that a repair creates again."""
    before = disk.metadata.ledger(5)
    assert before is not None
    disk.flip(5, 10)
    disk.offline.repair()
    after = disk.metadata.ledger(5)
    assert after is not None
    assert after.created_ms == before.created_ms


def test_a_torn_tail_is_a_note(disk: Disk) -> None:
    """Recovery would cut it."""
    folder = LEDGERS / "5"
    name, _ = disk.files.listdir(folder)
    disk.files.damage(folder / name, lambda data: data[:-3])
    (finding,) = disk.offline.findings()
    assert (finding.kind, finding.is_note) == ("torn-tail", True)
    assert disk.mended() == (RAW - 1, VIEW - 1)


def test_traces_of_a_power_loss_are_only_a_note(disk: Disk) -> None:
    """Nothing proves that the open ledger's last entry was acknowledged: a start cuts it, too."""
    disk.flip(5, disk.entry_bytes + 10)
    assert disk.kinds() == [("entry", 5)]
    after_power_loss = Offline(DATA, disk.pairs, disk.files, is_same_boot=False)
    (finding,) = after_power_loss.findings()
    assert (finding.kind, finding.is_note) == ("torn-tail", True)
    assert after_power_loss.plan().steps == []


def test_bytes_behind_a_sealed_segment_are_no_lost_entry(disk: Disk) -> None:
    """Nothing was acknowledged there; behind a segment, files had only been cut."""
    (name, _) = disk.files.listdir(LEDGERS / "4")
    disk.files.damage(LEDGERS / "4" / name, lambda data: data + b"garbage" * 20)
    assert {each[1] for each in disk.kinds()} == {4}
    assert disk.mended() == (RAW, VIEW)
    record = disk.metadata.ledger(4)
    assert record is not None
    assert list(record.lost) == []


def test_a_repair_changes_no_file_in_place(disk: Disk) -> None:
    """A snapshot may share it."""
    (name, _) = disk.files.listdir(LEDGERS / "4")
    disk.files.damage(LEDGERS / "4" / name, lambda data: data + b"garbage" * 20)
    shared = DATA / "shared"
    disk.files.link(LEDGERS / "4" / name, shared)
    before = disk.files.size(shared)
    assert disk.mended() == (RAW, VIEW)
    assert disk.files.size(LEDGERS / "4" / name) < before
    assert disk.files.size(shared) == before


def test_after_a_power_loss_an_intact_entry_proves_only_earlier_writes(
    disk: Disk,
) -> None:
    """Entries of one flush prove nothing about each other. The entry before a torn one had been
    good, and none had followed it.
    """
    disk.flip(5, 10)
    after_power_loss = Offline(DATA, disk.pairs, disk.files, is_same_boot=False)
    assert [(each.kind, each.is_note) for each in after_power_loss.findings()] == [
        ("torn-tail", True)
    ]
    assert after_power_loss.plan().steps == []


def test_a_missing_segment_is_a_lost_range(disk: Disk) -> None:
    disk.files.remove(LEDGERS / "2" / disk.files.listdir(LEDGERS / "2")[0])
    assert disk.kinds() == [("file", 2)]
    (step,) = disk.offline.plan().steps
    lost = step.messages or 0
    assert lost > 0
    assert disk.mended() == (RAW - lost, VIEW)


def test_an_unrecorded_gap_is_found(disk: Disk) -> None:
    """A segment that the record does not list."""
    record = disk.metadata.ledger(2)
    assert record is not None
    assert len(record.segments) == 2
    del record.segments[0]
    with disk.metadata.batch() as batch:
        batch.put(record)
    assert disk.kinds() == [("metadata", -1), ("record", 2)]
    disk.offline.repair()
    assert disk.offline.damage() == []


def test_wrong_sums_are_found_and_corrected(disk: Disk) -> None:
    """Each field of a segment's record."""
    good = disk.metadata.ledger(1)
    assert good is not None
    for name in ("entries", "messages", "key_bytes", "publish_time_max_ms", "checksum"):
        record = LedgerRecord()
        record.CopyFrom(good)
        setattr(record.segments[0], name, getattr(record.segments[0], name) + 1)
        with disk.metadata.batch() as batch:
            batch.put(record)
        assert ("sums", 1) in disk.kinds(), name
        disk.offline.repair()
        mended = disk.metadata.ledger(1)
        assert mended is not None
        assert mended.segments == good.segments, name


def test_a_value_that_resembles_an_entry_is_ignored(disk: Disk) -> None:
    """Behind a bad header every byte is looked at; an entry of another ledger is not taken."""
    frame = build_entry(b"k", b"v", EntryFields(message_count=1))
    inner = stamp(frame, 9, 1, append_time_ms=1, producer_number=1)
    folder = LEDGERS / "5"
    name, _ = disk.files.listdir(folder)
    disk.files.damage(folder / name, lambda data: inner + data[len(inner) :])
    assert read_header(inner).ledger_id == 9
    disk.offline.repair()
    assert disk.offline.damage() == []
    assert disk.read() == (RAW - 1, VIEW - 1)


# Compacted views


def test_a_view_that_raw_ledgers_cover_is_dropped(disk: Disk) -> None:
    """Nothing is lost, and raw ledgers go on waiting for the next compaction."""
    disk.flip(3, 50)
    plan = disk.offline.repair()
    assert sum(each.messages or 0 for each in plan.steps) == 0
    topic, ledger = disk.metadata.topic(TOPIC), disk.metadata.ledger(3)
    assert topic is not None
    assert ledger is not None
    assert not topic.HasField("compacted")
    assert topic.compaction_cursor
    assert ledger.state == LEDGER_STATE_DELETING
    assert disk.read() == (RAW, RAW)
    lab = started(disk.files, disk.pairs)
    run = lab.compact()
    assert run is not None
    assert lab.succeeded(run)
    assert len(lab.read(EARLIEST, read_compacted=True)) == 11
    lab.stop()


def test_the_intact_entries_of_a_view_are_kept_if_raw_data_are_trimmed(disk: Disk) -> None:
    """One of its five messages is lost, and the report names it."""
    disk.trim(1)
    disk.flip(3, 2 * disk.entry_bytes - 1)
    (step,) = disk.offline.plan().steps
    assert step.messages == 1
    assert step.entries == "1 between 1:4 and 1:5"
    assert disk.mended() == (RAW - 6, VIEW - 1)


def test_a_view_over_a_lost_raw_ledger_is_not_covered(disk: Disk) -> None:
    """The lost ledger is not the first one, which trimming removes first."""
    disk.trim(2)
    disk.flip(3, 1 * disk.entry_bytes - 1)
    (step,) = disk.offline.plan().steps
    assert step.messages == 1
    assert disk.mended() == (RAW - 6, VIEW - 1 - 3)


def test_a_lost_view_loses_only_trimmed_data(disk: Disk) -> None:
    disk.trim(1)
    disk.files.remove_dir(LEDGERS / "3")
    (step,) = disk.offline.plan().steps
    assert (step.entries, step.messages) == ("all", 5)
    assert disk.mended() == (RAW - 6, RAW - 6)


def test_a_horizon_before_the_last_compacted_entry_is_found(disk: Disk) -> None:
    topic = disk.metadata.topic(TOPIC)
    assert topic is not None
    topic.compacted.horizon.entry_id = 0
    with disk.metadata.batch() as batch:
        batch.put(topic)
    assert disk.kinds() == [("reference", 3)]
    assert disk.mended() == (RAW, RAW)


def test_an_unreferenced_compacted_ledger_is_deleted(disk: Disk) -> None:
    topic = disk.metadata.topic(TOPIC)
    assert topic is not None
    topic.ClearField("compacted")
    with disk.metadata.batch() as batch:
        batch.put(topic)
    assert disk.kinds() == [("reference", 3)]
    plan = disk.offline.repair()
    assert any(path.startswith("3/") for path in plan.copies)
    assert disk.read() == (RAW, RAW)


# Notes


def test_defects_that_a_start_repairs_are_only_a_note(disk: Disk) -> None:
    """Files that no record names, half written ones, copies of torn tails."""
    for name in ("99.tmp", "00000000000000000009.log", "0.log.torn"):
        disk.files.create(LEDGERS / "1" / name).write([b"x"])
    assert sorted(each.kind for each in disk.offline.findings()) == ["aside", "orphan", "torn-copy"]
    assert disk.offline.damage() == []
    assert disk.offline.plan().steps == []


def test_the_record_types_on_disk_are_those_of_the_store(disk: Disk) -> None:
    """A batch writes the types that verify reads."""
    batch = MetadataBatch(disk.pairs)
    record = disk.metadata.ledger(1)
    assert record is not None
    batch.put(record)
    assert batch.puts == {key_of(record): encode_record(record)}
