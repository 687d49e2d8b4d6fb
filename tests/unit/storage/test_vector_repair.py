"""Compacted views with deletion vectors: what verify reports of a damaged one, what repair does."""

from __future__ import annotations

import pytest

from ledgerfold.broker.stats.topic import internal_stats
from ledgerfold.storage.entry import EARLIEST
from ledgerfold.storage.errors import CompactedLedgerDamaged, Corruption, UnknownFeatures
from ledgerfold.storage.metadata import MetadataStore
from ledgerfold.storage.names import deletion_vector_path
from ledgerfold.storage.records import DELETION_VECTORS, FEATURES, STORE_KEY, key_of
from ledgerfold.storage.recovery_report import RecoveryReport
from ledgerfold.storage.removal import sweep
from ledgerfold.storage.unnamed import unnamed_files
from ledgerfold.v1.records_pb2 import LedgerRecord, SegmentRecord
from tests.model.broker_lab import DATA, TOPIC, BrokerLab
from tests.model.log_model import Message, Read
from tests.support.offline import LEDGERS, Offline, Snapshot, started, taken

KEYS = 30


def _batch(keys: range, value: bytes) -> tuple[list[Message], bool]:
    return [Message(b"%d" % key, value) for key in keys], True


@pytest.fixture(scope="module")
def snapshot() -> Snapshot:
    """A view of three batches of ten keys, then three runs over one or two new messages each.

    The first batch is dead in part, and so is the second; the last run deletes a key.
    """
    lab = BrokerLab()
    lab.publish([_batch(range(at, at + 10), b"old") for at in range(0, KEYS, 10)])
    lab.compact()
    lab.publish([_batch(range(3, 5), b"new")])
    lab.compact()
    lab.publish([_batch(range(12, 13), b"newer")])
    lab.compact()
    lab.publish([_batch(range(4, 5), b"")])
    lab.compact()
    lab._drop()
    return taken(lab.files, lab._pairs)


class Disk:
    def __init__(self, snapshot: Snapshot) -> None:
        self.files, self.pairs = snapshot.disk()
        self.metadata = MetadataStore(self.pairs)
        self.offline = Offline(DATA, self.pairs, self.files)

    @property
    def ledger(self) -> LedgerRecord:
        topic = self.metadata.topic(TOPIC)
        assert topic is not None
        found = self.metadata.ledger(topic.compacted.ledger_id)
        assert found is not None
        return found

    @property
    def segment(self) -> SegmentRecord:
        """The one that has a vector."""
        [found] = [each for each in self.ledger.segments if each.HasField("dead")]
        return found

    def damage_vector(self) -> None:
        path = LEDGERS / deletion_vector_path(self.segment.path)
        self.files.damage(path, lambda data: data[:-1] + bytes([data[-1] ^ 1]))

    def trim(self) -> None:
        """Removes raw ledgers for good."""
        topic = self.metadata.topic(TOPIC)
        assert topic is not None
        ids = list(topic.ledger_ids)
        del topic.ledger_ids[:]
        with self.metadata.batch() as batch:
            batch.put(topic)
            for each in ids:
                batch.delete("ledger", each)
        for each in ids:
            self.files.remove_dir(LEDGERS / str(each))

    def read(self) -> list[Read]:
        lab = started(self.files, self.pairs)
        try:
            return lab.read(EARLIEST, read_compacted=True)
        finally:
            lab.stop()


@pytest.fixture
def disk(snapshot: Snapshot) -> Disk:
    return Disk(snapshot)


def _values(found: list[Read]) -> dict[bytes | None, list[bytes]]:
    values: dict[bytes | None, list[bytes]] = {}
    for each in found:
        values.setdefault(each.message.key, []).append(each.message.value)
    return values


EXPECTED = {b"%d" % key: [b"old"] for key in range(KEYS) if key != 4}
EXPECTED |= {b"3": [b"new"], b"12": [b"newer"]}


def test_verify_finds_intact_vectors(disk: Disk) -> None:
    """Two runs have linked the segment of the first one, each with more dead messages."""
    assert disk.offline.findings() == []
    assert disk.segment.messages == KEYS
    assert disk.segment.dead.messages == 3
    assert _values(disk.read()) == EXPECTED


def test_stats_count_live_entries_and_describe_the_dead_ones(disk: Disk) -> None:
    lab = started(disk.files, disk.pairs)
    try:
        lab.run(lab.broker.topic(TOPIC))
        shown = internal_stats(lab.broker, lab.topic)["compactedLedger"]
    finally:
        lab.stop()
    assert shown["entries"] == 3 + 2
    assert shown["garbageSize"] == disk.segment.dead.bytes > 0


def test_runs_report_the_size_of_new_data(disk: Disk) -> None:
    first, *_, last = sorted(disk.metadata.runs(TOPIC), key=lambda run: run.number)
    assert 0 < last.counts.bytes_new < first.counts.bytes_new / 4


def test_a_build_without_vectors_refuses_the_directory(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the write on that publishes the first one."""
    store = disk.metadata.store()
    assert store is not None
    assert DELETION_VECTORS in store.features
    monkeypatch.setattr("ledgerfold.storage.records.FEATURES", FEATURES - {DELETION_VECTORS})
    with pytest.raises(UnknownFeatures, match="'deletion-vectors'"):
        disk.metadata.store()


@pytest.mark.parametrize("change", ["damage", "missing"])
def test_damage_fails_readers_and_runs_and_shows_no_dead_message(disk: Disk, change: str) -> None:
    """The topic is served; reads of the view fail with an error that says so."""
    if change == "damage":
        disk.damage_vector()
    else:
        disk.files.remove(LEDGERS / deletion_vector_path(disk.segment.path))
    lab = started(disk.files, disk.pairs)
    try:
        with pytest.raises(CompactedLedgerDamaged):
            lab.read(EARLIEST, read_compacted=True)
        assert len(lab.read(EARLIEST, read_compacted=False)) == KEYS + 4
        lab._sequence = 100
        lab.publish([_batch(range(20, 21), b"newest")])
        run = lab.compact()
        assert run is not None
        assert (run.error_reason, lab.succeeded(run)) == (CompactedLedgerDamaged.reason, False)
    finally:
        lab.stop()


def test_a_run_that_finds_a_damaged_vector_fails(disk: Disk) -> None:
    """It changes nothing."""
    disk.damage_vector()
    before = disk.ledger
    lab = started(disk.files, disk.pairs)
    try:
        lab._sequence = 100
        lab.publish([_batch(range(20, 21), b"newest")])
        run = lab.compact()
        assert run is not None
        assert (run.error_reason, lab.succeeded(run)) == (Corruption.reason, False)
    finally:
        lab.stop()
    assert disk.ledger == before


def test_a_view_that_raw_ledgers_cover_is_dropped(disk: Disk) -> None:
    disk.damage_vector()
    assert [each.kind for each in disk.offline.damage()] == ["vector"]
    segment = disk.segment.path
    plan = disk.offline.repair()
    assert sum(each.messages or 0 for each in plan.steps) == 0
    assert {segment, deletion_vector_path(segment)} <= plan.copies
    assert disk.offline.damage() == []
    assert len(disk.read()) == KEYS + 4


def test_a_repair_lists_the_messages_that_reappear(disk: Disk) -> None:
    """Losing the segment would be worse if the raw data are trimmed."""
    disk.trim()
    disk.damage_vector()
    [step] = disk.offline.plan().steps
    assert step.what.startswith("3 messages that had been replaced or deleted are in")
    disk.offline.repair()
    assert disk.offline.damage() == []
    expected = dict(EXPECTED) | {b"3": [b"old", b"new"], b"4": [b"old"], b"12": [b"old", b"newer"]}
    assert _values(disk.read()) == expected


def test_good_entries_around_a_damaged_one_keep_their_dead_messages(disk: Disk) -> None:
    """They move to separate files, with separate vectors."""
    disk.trim()
    path = LEDGERS / disk.segment.path
    middle = disk.segment.size_bytes // 2
    disk.files.damage(
        path, lambda data: data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]
    )
    disk.offline.repair()
    assert disk.offline.findings() == []
    found = _values(disk.read())
    lost = {b"%d" % key for key in range(10, 20)} - {b"12"}
    assert found == {key: values for key, values in EXPECTED.items() if key not in lost}


def test_a_vector_survives_the_loss_of_its_record(disk: Disk) -> None:
    """A ledger whose record is lost has it in its label; without both, beside the segment."""
    for is_labelled in (True, False):
        fresh = disk
        key = key_of(fresh.ledger)
        folder = LEDGERS / str(fresh.ledger.ledger_id)
        fresh.pairs.write({key: b"\x01\xff\xff\xff"}, ())
        if not is_labelled:
            fresh.files.remove(folder / "label")
        fresh.offline.repair()
        assert fresh.offline.damage() == []
        assert _values(fresh.read()) == EXPECTED


def test_a_start_with_lost_metadata_keeps_vectors_and_segments(disk: Disk) -> None:
    """A repair needs both. No test had a start between the loss and the repair."""
    folder, name = LEDGERS / str(disk.ledger.ledger_id), deletion_vector_path(disk.segment.path)
    unnamed = unnamed_files(LEDGERS, {}, disk.files)
    sweep(LEDGERS, unnamed, disk.files, RecoveryReport(is_incomplete=True))
    assert disk.files.exists(LEDGERS / name)
    sweep(LEDGERS, unnamed, disk.files, RecoveryReport())
    assert not disk.files.exists(folder)


def test_a_rebuilt_store_record_names_the_feature(disk: Disk) -> None:
    disk.pairs.write({STORE_KEY: b"\x01\xff\xff\xff"}, ())
    disk.offline.repair()
    store = disk.metadata.store()
    assert store is not None
    assert DELETION_VECTORS in store.features
