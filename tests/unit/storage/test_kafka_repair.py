"""Tests `verify` on a Kafka topic's segments, and the repair of damage to them."""

from __future__ import annotations

from pathlib import Path

import pytest

from ledgerfold.broker.kafka.producers.producer import Origin
from ledgerfold.storage.limits import PRODUCER_IDS_MAX
from ledgerfold.storage.metadata import MetadataStore
from ledgerfold.storage.records import (
    KAFKA_TOPICS,
    SCHEMAS,
    TENANTS,
    encode_record,
    key_of,
    put_segments,
)
from ledgerfold.v1.records_pb2 import (
    LedgerRecord,
    SchemaRecord,
    StoreRecord,
    TenantRecord,
    TopicRecord,
)
from tests.model.broker_lab import DATA, TOPIC
from tests.support.kafka_lab import KafkaLab
from tests.support.lossy_files import LossyFiles
from tests.support.offline import LEDGERS, Offline, Snapshot, taken
from tests.support.versions import add_versions

CLEANED_OFFSETS = [3, 4, 5, 6, 7, 8]
RAW_OFFSETS = [9, 10, 11, 12, 13]
ALL_OFFSETS = CLEANED_OFFSETS + RAW_OFFSETS
# Behind the last one.
END = 14


@pytest.fixture(scope="module")
def snapshot() -> Snapshot:
    """Returns nine cleaned batches, three of them superseded, and five more, in two segments."""
    lab = KafkaLab({"cleanup.policy": "compact"})
    add_versions(lab, range(9), keys=6)
    lab.run(lab.kafka.roll())
    assert lab.clean().failure is None
    for n in range(9, END):
        if n == 12:
            lab.run(lab.kafka.roll())
        lab.add([(b"%d" % n, b"%d" % n)])
    lab._drop()
    return taken(lab.files, lab._pairs)


def _spoil_byte(files: LossyFiles, path: Path, at: int) -> None:
    files.damage(path, lambda data: data[:at] + b"?" + data[at + 1 :])


class Disk:
    def __init__(self, snapshot: Snapshot) -> None:
        self.files, self.pairs = snapshot.disk()
        self.metadata = MetadataStore(self.pairs)
        self.offline = Offline(DATA, self.pairs, self.files)

    @property
    def topic(self) -> TopicRecord:
        topic = self.metadata.topic(TOPIC)
        assert topic is not None
        return topic

    def ledger(self, at: int) -> int:
        """The first one of a segment."""
        return self.topic.kafka.segments[at].ledger_ids[0]

    def spoil(self, key: bytes) -> None:
        self.pairs.write({key: b"\x01\xff\xff\xff"}, ())

    def flip(self, ledger_id: int, entry: int) -> None:
        """The last byte of that entry's batch. All entries of the ledger have one size."""
        record = self.metadata.ledger(ledger_id)
        assert record is not None
        for segment in record.segments:
            path = LEDGERS / segment.path
            entry_bytes = self.entry_bytes(ledger_id)
            entries = self.files.size(path) // entry_bytes
            if entry < entries:
                _spoil_byte(self.files, path, entry_bytes * (entry + 1) - 1)
                return
            entry -= entries

    def entry_bytes(self, ledger_id: int) -> int:
        (first, *_) = self.offline.survey().ledgers[ledger_id].extents()
        return first.record.size_bytes // first.record.entries

    def remove(self, ledger_id: int) -> None:
        with self.metadata.batch() as batch:
            batch.delete("ledger", ledger_id)
        self.files.remove_dir(LEDGERS / str(ledger_id))

    def mended(self) -> list[int]:
        """Offsets that a broker reads after a repair."""
        self.offline.repair()
        assert self.offline.damage() == []
        lab = started(self)
        try:
            found = [offset for offset, *_ in lab.records()]
            (appended,) = lab.add([(b"x", b"x")])
            assert appended[0] >= END
            return found
        finally:
            lab.close()


def started(disk: Disk) -> KafkaLab:
    lab = KafkaLab.__new__(KafkaLab)
    lab.resume(disk.files, disk.pairs)
    return lab


@pytest.fixture
def disk(snapshot: Snapshot) -> Disk:
    return Disk(snapshot)


def test_verify_finds_an_intact_topic(disk: Disk) -> None:
    assert disk.offline.damage() == []
    assert disk.offline.plan().steps == []
    assert disk.mended() == ALL_OFFSETS


@pytest.mark.parametrize(("entry", "lost"), [(0, 3), (2, 5), (5, 8)])
def test_good_batches_of_a_damaged_cleaned_ledger_are_kept(
    disk: Disk, entry: int, lost: int
) -> None:
    disk.flip(disk.ledger(0), entry)
    assert {each.kind for each in disk.offline.damage()} == {"entry"}
    (step,) = disk.offline.plan().steps
    assert (step.ledger_id, step.messages) == (disk.ledger(0), 1)
    size_bytes = disk.topic.kafka.segments[0].figures.size_bytes
    assert disk.mended() == [each for each in ALL_OFFSETS if each != lost]
    assert disk.topic.kafka.segments[0].figures.size_bytes == size_bytes * 5 // 6


def test_a_lost_cleaned_ledger_leaves_an_empty_segment(disk: Disk) -> None:
    ledger_id = disk.ledger(0)
    disk.remove(ledger_id)
    assert [each.kind for each in disk.offline.damage()] == ["reference"]
    (step,) = disk.offline.plan().steps
    assert (step.ledger_id, step.entries) == (ledger_id, "all")
    disk.offline.repair()
    empty = disk.topic.kafka.segments[0]
    assert (empty.base_offset, list(empty.ledger_ids), empty.figures.next_offset) == (0, [], 9)
    assert disk.mended() == RAW_OFFSETS


def test_a_cleaned_ledgers_record_is_made_from_its_files(disk: Disk) -> None:
    disk.spoil(key_of(LedgerRecord(ledger_id=disk.ledger(0))))
    assert disk.mended() == ALL_OFFSETS


@pytest.mark.parametrize(("segment", "left"), [(1, [12, 13]), (2, [9, 10, 11])])
def test_offsets_of_a_lost_raw_ledger_are_not_reused(
    disk: Disk, segment: int, left: list[int]
) -> None:
    for ledger_id in disk.topic.kafka.segments[segment].ledger_ids:
        disk.remove(ledger_id)
    disk.offline.repair()
    assert disk.offline.damage() == []
    lab = started(disk)
    assert [offset for offset, *_ in lab.records()] == CLEANED_OFFSETS + left
    # Nothing tells any more how far a last segment went, but where it began.
    assert lab.add([(b"x", b"x")])[0][0] >= (END if segment == 1 else 12)
    assert [offset for offset, *_ in lab.records()][:-1] == CLEANED_OFFSETS + left
    lab.close()


def test_a_segment_without_batches_hides_none_after_it(disk: Disk) -> None:
    """All of the middle one."""
    folder = LEDGERS / str(disk.ledger(1))
    for name in disk.files.listdir(folder):
        disk.files.damage(folder / name, lambda data: bytes(len(data)))
    assert disk.mended() == [*CLEANED_OFFSETS, 12, 13]


def test_offsets_lost_at_a_segments_end_are_not_reused(disk: Disk) -> None:
    """Behind it a segment begins that holds nothing, and tells where they ended."""
    lab = started(disk)
    lab.run(lab.kafka.roll())
    lab._drop()
    disk = Disk(taken(lab.files, lab._pairs))
    disk.flip(disk.ledger(2), 1)
    assert disk.mended() == ALL_OFFSETS[:-1]


def test_a_topic_record_is_made_from_its_ledgers(disk: Disk) -> None:
    """Nothing is deleted before an administrator has set its policies."""
    disk.spoil(key_of(disk.topic))
    assert disk.mended() == ALL_OFFSETS
    log = disk.topic.kafka
    assert dict(log.config)["retention.ms"] == "-1"
    assert [each.base_offset for each in log.segments][:3] == [3, 9, 12]
    assert disk.offline.damage() == []


def test_a_rebuilt_store_record_lists_the_features(disk: Disk) -> None:
    tenant = TenantRecord(name="acme")
    schema = SchemaRecord(topic="persistent://acme/ns/t")
    disk.pairs.write({key_of(each): encode_record(each) for each in (tenant, schema)}, [b"store"])
    disk.offline.repair()
    store = disk.metadata.store()
    assert store is not None
    assert {KAFKA_TOPICS, TENANTS, SCHEMAS} <= set(store.features)
    assert store.next_producer_id > 7
    assert disk.offline.damage() == []


def test_a_repair_after_lost_writes_reserves_the_ids_of_producers(disk: Disk) -> None:
    """Until this test only a store record that was missing altogether had been repaired."""
    with disk.metadata.batch() as batch:
        batch.put(StoreRecord(store_version=3, next_ledger_id=1, is_incomplete=True))
    disk.offline.repair()
    assert disk.metadata.producer_ids.allocate() == 1000
    assert disk.offline.damage() == []


def test_a_repair_ignores_ids_that_are_never_assigned() -> None:
    """They do not fit into the store record with their block."""
    lab = KafkaLab({"cleanup.policy": "compact"})
    for at, producer_id in enumerate([3, PRODUCER_IDS_MAX, 2**63 - 1]):
        fields = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": 0}
        lab.add([(b"k", b"v")], origin=Origin.REPLICATION, base_offset=at, **fields)
    lab._drop()
    disk = Disk(taken(lab.files, lab._pairs))
    disk.pairs.write({}, [b"store"])
    disk.offline.repair()
    assert disk.metadata.producer_ids.allocate() == 1000


def test_segments_with_inconsistent_raw_ledgers_are_corrected(disk: Disk) -> None:
    topic = disk.topic
    del topic.kafka.segments[1]
    with disk.metadata.batch() as batch:
        batch.put(topic)
    assert [each.kind for each in disk.offline.damage()] == ["reference"]
    assert disk.mended() == ALL_OFFSETS
    assert disk.topic.kafka.segments[1].base_offset == 9


@pytest.mark.parametrize("swapped", ["segments", "offsets", "cleaned"])
def test_segments_that_are_out_of_order_are_found_and_sorted(disk: Disk, swapped: str) -> None:
    """A load refuses them.

    Tests had compared the ledgers of a record and of its segments, never offsets.
    """
    topic = disk.topic
    cleaned, one, other = topic.kafka.segments
    found = "base offset 9 after 12"
    match swapped:
        case "segments":
            put_segments(topic.kafka, [cleaned, other, one])
        case "offsets":
            one.base_offset, other.base_offset = other.base_offset, one.base_offset
        case _:
            cleaned.base_offset, found = 10, "base offset 9 after 10"
    with disk.metadata.batch() as batch:
        batch.put(topic)
    damage = [each for each in disk.offline.damage() if "offset" in each.expected]
    assert [(each.kind, each.topic, each.found) for each in damage] == [("reference", TOPIC, found)]
    assert disk.mended() == ALL_OFFSETS
    assert [each.base_offset for each in disk.topic.kafka.segments[:3]] == [3, 9, 12]


def test_a_follower_continues_after_lost_data(disk: Disk) -> None:
    disk.flip(disk.ledger(0), 5)
    disk.offline.repair()
    lab = started(disk)
    assert [offset for offset, *_ in lab.records(8)] == RAW_OFFSETS
    assert lab.add([(b"x", b"x")], base_offset=40, origin=Origin.REPLICATION) == [(40, 40)]
    lab.close()
