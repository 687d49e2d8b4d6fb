"""Metadata that have lost their last writes: any number of writes, up to all of them.

RocksDB opens such a store without a word. Until this test no other had given a start an older store
than its files: tests of crashes kept every write that had returned, and tests of damage flipped
bits.

Promised, however little is left: a start removes no file that holds an entry; a read gets all that
was there, or an error; and after a repair all of it is there again.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ledgerfold.broker.topics.reset import reset
from ledgerfold.broker.topics.snapshots import BrokerSnapshots
from ledgerfold.storage.entry import EARLIEST, read_header
from ledgerfold.storage.errors import (
    Corruption,
    LedgerfoldError,
    MetadataLost,
)
from ledgerfold.storage.metadata import MetadataStore
from ledgerfold.storage.names import write_mark_path
from ledgerfold.storage.partition_names import partition_name
from ledgerfold.storage.records import STORE_KEY, encode_record, key_of
from ledgerfold.v1.records_pb2 import ProducerRecord, StoreRecord
from tests.model.broker_lab import DATA, STORE, TOPIC, BrokerLab
from tests.model.log_model import Read
from tests.support.archives import copy_topic
from tests.support.lossy_files import CountedKeyValue, Crash, LossyFiles
from tests.support.lost_writes import LOST, History, Pairs, files_with_entries, recorded, resumed
from tests.support.offline import LEDGERS, Offline, Snapshot, taken
from tests.support.property_tests import stride
from tests.support.versions import compact_twice, publish_versions, restore_snapshot


def publish_only(lab: BrokerLab) -> None:
    publish_versions(lab, 0, 20)


def compact_and_trim(lab: BrokerLab) -> None:
    """Leaves one ledger: the compacted one, and the later entries."""
    publish_versions(lab, 0, 14)
    lab.compact()
    publish_versions(lab, 14, 3)
    lab.compact()
    lab.run(lab.broker.unload_topic(TOPIC))
    lab.settle()


def delete_another(lab: BrokerLab) -> None:
    other = "persistent://public/default/other"
    publish_versions(lab, 0, 4)
    publish_versions(lab, 0, 8, other)
    lab.run(lab.broker.delete_topic(other, force=True))
    publish_versions(lab, 4, 4)


def reset_and_restore(lab: BrokerLab) -> None:
    snapshots = BrokerSnapshots(lab.broker)
    compact_twice(lab)
    lab.run(snapshots.save("s"))
    lab.run(reset(lab.broker))
    restore_snapshot(lab, snapshots)
    publish_versions(lab, 18, 3)


def import_archive(lab: BrokerLab) -> None:
    source = BrokerLab()
    compact_twice(source)
    source.stop()
    copy_topic(source, lab)


HISTORIES = [
    publish_only,
    compact_twice,
    compact_and_trim,
    delete_another,
    reset_and_restore,
    import_archive,
]


@pytest.fixture(scope="module", params=HISTORIES, ids=lambda each: each.__name__)
def history(request: pytest.FixtureRequest) -> History:
    lab = BrokerLab()
    return recorded(lab, lambda: request.param(lab))


def all_reads(lab: BrokerLab) -> dict[bool, list[Read]]:
    return {each: lab.read(EARLIEST, read_compacted=each) for each in (False, True)}


@pytest.fixture(scope="module")
def whole(history: History) -> dict[bool, list[Read]]:
    """Returns the messages that readers received before the loss."""
    lab = resumed(BrokerLab, *history.lost(0).disk())
    try:
        return all_reads(lab)
    finally:
        lab.stop()


def test_a_start_removes_nothing_and_readers_get_an_error(
    history: History, whole: dict[bool, list[Read]]
) -> None:
    """Tests two starts, because the second one finds the first one's writes."""
    for lost in history.losses():
        snapshot = history.lost(lost)
        files, pairs = snapshot.disk()
        before = files_with_entries(snapshot, files)
        for _ in range(2):
            if pairs.get(STORE_KEY) is None:
                with pytest.raises(Corruption, match="no store record"):
                    resumed(BrokerLab, files, pairs)
                break
            lab = resumed(BrokerLab, files, pairs)
            assert lab.report.is_incomplete
            for read_compacted, wanted in whole.items():
                try:
                    found = lab.read(EARLIEST, read_compacted=read_compacted)
                except LOST:
                    continue
                assert {*wanted} <= {*found}, (lost, read_compacted)
            lab.stop()
        assert files_with_entries(snapshot, files) == before, lost


def test_a_repair_restores_everything_that_the_ledgers_hold(
    history: History, whole: dict[bool, list[Read]]
) -> None:
    """Every message, raw and compacted, returns under its id; then a start works as before."""
    for lost in history.losses():
        files, pairs = history.lost(lost).disk()
        offline = Offline(DATA, pairs, files)
        assert "metadata" in {each.kind for each in offline.damage()}, lost
        plan = offline.repair()
        assert plan.rebuilds_metadata
        assert offline.damage() == [], lost
        lab = resumed(BrokerLab, files, pairs)
        assert not lab.report.is_incomplete
        assert (lab.report.damaged, lab.report.preserved) == ({}, [])
        assert {*whole[False]} <= {*lab.read(EARLIEST, read_compacted=False)}, lost
        assert lab.read(EARLIEST, read_compacted=True) == whole[True], lost
        publish_versions(lab, 0, 1)
        lab.stop()


def restore(lab: BrokerLab) -> None:
    """The last write is that of the restore."""
    snapshots = BrokerSnapshots(lab.broker)
    publish_versions(lab, 0, 8)
    lab.run(snapshots.save("s"))
    lab.run(lab.broker.delete_topic(TOPIC, force=True))
    lab.settle()
    lab.run(snapshots.restore("s"))


@pytest.mark.parametrize("act", [import_archive, restore])
def test_ledgers_brought_in_are_not_removed_after_a_power_loss(
    act: Callable[[BrokerLab], None],
) -> None:
    """Until this test, no other had lost the last note of the write mark with the last write."""
    lab = BrokerLab()
    writes = list[Pairs]()

    def note(call: str) -> None:
        if call == "write metadata":
            writes.append(lab._pairs.scan(b""))

    lab.files.during = note
    act(lab)
    lab.files.during = lambda call: None
    lab._drop()
    lab.files.crash()
    before = next(
        each for each in reversed(writes) if (b"topic/" + TOPIC.encode()) not in dict(each)
    )
    snapshot = Snapshot(taken(lab.files, lab._pairs).contents, before)
    files, pairs = snapshot.disk()
    there = files_with_entries(snapshot, files)
    lab = resumed(BrokerLab, files, pairs)
    assert lab.report.is_incomplete
    lab.stop()
    assert files_with_entries(snapshot, files) == there != set()


@pytest.mark.parametrize("is_repaired", [False, True])
def test_ids_of_ledgers_in_snapshots_are_not_allocated_again(is_repaired: bool) -> None:
    """A restore would overwrite one of the ledgers, or be refused.

    No test had restored a snapshot that is newer than the metadata.
    """

    def act(lab: BrokerLab) -> None:
        publish_versions(lab, 0, 4)
        lab.run(BrokerSnapshots(lab.broker).save("s"))
        wanted.update(all_reads(lab))
        lab.run(reset(lab.broker))
        lab.settle()

    wanted: dict[bool, list[Read]] = {}
    lab = BrokerLab()
    files, pairs = Snapshot(recorded(lab, lambda: act(lab)).end.contents, []).disk()
    if is_repaired:
        Offline(DATA, pairs, files).repair()
    lab = resumed(BrokerLab, files, pairs)
    publish_versions(lab, 0, 4, "persistent://public/default/other")
    lab.run(BrokerSnapshots(lab.broker).restore("s"))
    lab.settle()
    assert all_reads(lab) == wanted
    lab.stop()


def test_a_trimmed_ledger_covered_by_the_view_is_no_loss() -> None:
    """Verify and repair report no loss."""

    def act() -> None:
        publish_versions(lab, 0, STORE.ledger_entries_max)
        lab.compact()
        lab.run(lab.broker.unload_topic(TOPIC))
        lab.settle()

    lab = BrokerLab()
    history = recorded(lab, act)
    told = list[str]()
    for lost in history.losses():
        files, pairs = history.lost(lost).disk()
        steps = Offline(DATA, pairs, files).repair().steps
        told += [each.what for each in steps if "trimmed" in each.what]
    assert {*told} == {"was trimmed: the compacted view covers it"}


def test_a_killed_repair_of_everything_can_be_repeated() -> None:
    """At each of its calls to the disk; the next one ends as it would have."""
    lab = BrokerLab()
    history = recorded(lab, lambda: compact_and_trim(lab))

    def directory() -> tuple[LossyFiles, CountedKeyValue]:
        files, pairs = history.lost(0).disk()
        pairs.write({}, [key for key, _ in pairs.scan(b"")])
        return files, pairs

    files, pairs = directory()
    before = len(files.calls)
    Offline(DATA, pairs, files).repair()
    wanted = pairs.scan(b"ledger/") + pairs.scan(b"topic/")
    for number in range(1, len(files.calls) - before + 1, stride(4)):
        files, pairs = directory()
        files.crash_at(number)
        with pytest.raises(Crash):
            Offline(DATA, pairs, files).repair()
        files.crash()
        offline = Offline(DATA, pairs, files)
        offline.repair()
        assert offline.damage() == [], number
        assert pairs.scan(b"ledger/") + pairs.scan(b"topic/") == wanted, number


def test_a_topic_that_misses_records_is_refused_and_others_are_served() -> None:
    lab = BrokerLab()
    other = "persistent://public/default/other"

    def act() -> None:
        publish_versions(lab, 0, 2, other)
        publish_versions(lab, 0, 2)
        lab.run(lab.topic.log.tail.roll())
        publish_versions(lab, 2, 2)

    history = recorded(lab, act)
    # The first segment of the second ledger, and later ones.
    lab = resumed(BrokerLab, *history.lost(2).disk())
    with pytest.raises(MetadataLost, match=r"ledgers/3 .* repair DATA"):
        publish_versions(lab, 9, 1)
    with pytest.raises(MetadataLost):
        lab.run(lab.broker.delete_topic(TOPIC, force=True))
    publish_versions(lab, 9, 1, other)
    lab.stop()


def test_a_repair_restores_the_number_of_partitions() -> None:
    """Also those that have no entry: keys choose their partition by the number."""
    lab, name = BrokerLab(), "persistent://public/default/orders"

    def act() -> None:
        lab.run(lab.broker.create_partitioned_topic(name, 4))
        publish_versions(lab, 0, 2, partition_name(name, 1))

    files, pairs = recorded(lab, act).lost(0).disk()
    pairs.write({}, [key for key, _ in pairs.scan(b"")])
    with pytest.raises(Corruption):
        resumed(BrokerLab, files, pairs)
    Offline(DATA, pairs, files).repair()
    lab = resumed(BrokerLab, files, pairs)
    assert lab.broker.partitions.count(name) == 4
    assert lab.broker.names.listed("") == [partition_name(name, each) for each in range(4)]
    lab.stop()


def test_a_partitioned_topic_is_not_created_over_a_lost_partition() -> None:
    lab, name = BrokerLab(), "persistent://public/default/orders"

    def act() -> None:
        lab.run(lab.broker.create_topic(TOPIC))
        lab.run(lab.broker.create_partitioned_topic(name, 2))
        publish_versions(lab, 0, 2, partition_name(name, 1))

    history = recorded(lab, act)
    for lost in range(1, len(history.stores) - 1):
        try:
            lab = resumed(BrokerLab, *history.lost(lost).disk())
        except Corruption:
            continue
        if lab.broker.partitions.count(name) == 0:
            with pytest.raises(MetadataLost):
                lab.run(lab.broker.create_partitioned_topic(name, 3))
            with pytest.raises(MetadataLost):
                publish_versions(lab, 0, 1, partition_name(name, 1))
        lab.stop()


def test_a_new_producer_gets_no_number_used_by_entries() -> None:
    """Else its messages were taken for those of the old one, and dropped as sent before."""
    lab = BrokerLab()
    files, pairs = recorded(lab, lambda: publish_versions(lab, 0, 3)).lost(0).disk()
    pairs.write({}, [key for key, _ in pairs.scan(b"")])
    Offline(DATA, pairs, files).repair()
    lab = resumed(BrokerLab, files, pairs)
    (known,) = lab.metadata.producers(TOPIC)
    assert (known.name, known.number, known.last_sequence_id) == ("p", 1, 3)
    found = lab.run(lab.topic.deduplication.register("another", lambda: None))
    assert isinstance(found, ProducerRecord)
    assert found.number == 2
    lab.stop()


@pytest.mark.parametrize(("torn", "sequence_ids"), [(0, []), (1, [1])])
def test_a_torn_tail_is_no_evidence_after_a_power_loss(torn: int, sequence_ids: list[int]) -> None:
    """It proves neither the ledger's entries nor a producer's sequence ids, which are sent again.

    The test of metadata lost at a kill found every written entry whole, and the simulator rarely
    lost both the metadata's last writes and pages in the middle of a write.
    """
    lab = BrokerLab()
    snapshot = recorded(lab, lambda: publish_versions(lab, 0, 3)).lost(0)
    (path,) = (each for each in snapshot.contents if each.suffix == ".log")
    entries = bytearray(snapshot.contents[path])
    entries[torn * read_header(entries).size_bytes] ^= 1
    files, pairs = Snapshot({**snapshot.contents, path: bytes(entries)}, []).disk()
    offline = Offline(DATA, pairs, files, is_same_boot=False)
    offline.repair()
    assert offline.damage() == []
    lab = resumed(BrokerLab, files, pairs)
    assert not lab.report.is_incomplete
    assert [each.last_sequence_id for each in lab.metadata.producers(TOPIC)] == sequence_ids
    lab.stop()


@pytest.mark.parametrize(("is_known", "number"), [(True, 1), (False, 0)])
def test_a_rebuilt_topic_continues_its_producers_numbers(is_known: bool, number: int) -> None:
    """The topic's record alone is lost; without producers the next one gets the first number."""
    lab = BrokerLab()
    files, pairs = recorded(lab, lambda: publish_versions(lab, 0, 3)).lost(0).disk()
    metadata = MetadataStore(pairs)
    gone = [key for key, _ in pairs.scan(b"") if key.startswith(b"topic/")]
    gone += [] if is_known else [key_of(each) for each in metadata.producers(TOPIC)]
    pairs.write({}, gone)
    Offline(DATA, pairs, files).repair()
    mended = MetadataStore(pairs).topic(TOPIC)
    assert mended is not None
    assert mended.last_producer_number == number


def test_a_store_without_labels_has_no_damage_and_keeps_existing_labels() -> None:
    """Data of builds from before labels: a missing one is no damage, an unreadable one is."""
    lab = BrokerLab()
    files, pairs = recorded(lab, lambda: publish_versions(lab, 0, 20)).lost(0).disk()
    pairs.write({STORE_KEY: encode_record(StoreRecord(next_ledger_id=99, store_version=1))}, ())
    offline, labels = Offline(DATA, pairs, files), [LEDGERS / each / "label" for each in "12"]
    files.remove(labels[1])
    assert offline.findings() == []
    files.damage(labels[0], lambda data: data[:-1] + bytes([data[-1] ^ 1]))
    assert [(each.kind, each.ledger_id) for each in offline.damage()] == [("label", 1)]
    assert offline.repair().copies == {"1/label"}
    assert offline.findings() == []


def test_entries_of_unknown_topics_are_kept_and_counted() -> None:
    lab = BrokerLab()
    files, pairs = recorded(lab, lambda: publish_versions(lab, 0, 3)).lost(0).disk()
    (folder,) = files.listdir(LEDGERS)
    files.remove(LEDGERS / folder / "label")
    files.sync_dir(LEDGERS / folder)
    pairs.write({}, [key for key, _ in pairs.scan(b"")])
    offline = Offline(DATA, pairs, files)
    assert "unrecorded" in {each.kind for each in offline.damage()}
    plan = offline.repair()
    assert sum(each.messages or 0 for each in plan.steps) == 3
    (repair,) = files.listdir(DATA / "repairs")
    copies = files.listdir(DATA / "repairs" / repair / "ledgers" / folder)
    assert [each for each in copies if each.endswith(".log")]
    assert offline.damage() == []


def test_a_copy_of_the_metadata_survives_a_power_loss() -> None:
    """The store has real files here, unlike on the disk in memory."""
    lab = BrokerLab()
    files, pairs = recorded(lab, lambda: publish_versions(lab, 0, 3)).lost(0).disk()
    pairs.write({}, [key for key, _ in pairs.scan(b"")])
    files.make_dir(DATA / "metadata")
    file = files.create(DATA / "metadata" / "000004.log")
    file.write([b"damaged"])
    file.sync()
    Offline(DATA, pairs, files).repair()
    files.crash()
    (repair,) = files.listdir(DATA / "repairs")
    assert files.listdir(DATA / "repairs" / repair / "metadata") == ["000004.log"]


def test_a_missing_write_mark_is_reported_and_restored() -> None:
    lab = BrokerLab()
    files, pairs = recorded(lab, lambda: publish_versions(lab, 0, 3)).lost(0).disk()
    files.remove(write_mark_path(DATA))
    lab = resumed(BrokerLab, files, pairs)
    assert lab.report.is_incomplete
    assert len(lab.read(EARLIEST, read_compacted=False)) == 3
    lab.stop()
    offline = Offline(DATA, pairs, files)
    assert [each.kind for each in offline.damage()] == ["metadata"]
    offline.repair()
    lab = resumed(BrokerLab, files, pairs)
    assert not lab.report.is_incomplete
    lab.stop()


def test_a_ledger_that_was_being_deleted_stays_as_a_copy() -> None:
    """A lost write may have cancelled the deletion, as that of a restore does."""
    lab = BrokerLab()

    def act() -> None:
        publish_versions(lab, 0, 3)
        with lab.metadata.batch() as batch:
            lab.store.mark_deleting(1, batch)

    files, pairs = recorded(lab, act).lost(0).disk()
    files.remove(write_mark_path(DATA))
    Offline(DATA, pairs, files).repair()
    (repair,) = files.listdir(DATA / "repairs")
    copies = files.listdir(DATA / "repairs" / repair / "ledgers" / "1")
    assert copies == ["00000000000000000000.log", "label"]
    lab = resumed(BrokerLab, files, pairs)
    assert lab.report.deleted == [1]
    lab.stop()


def test_the_error_is_sent_to_clients() -> None:
    error = MetadataLost("persistent://public/default/t", [3, 5])
    assert isinstance(error, LedgerfoldError)
    assert "ledgers/3, ledgers/5" in error.message
