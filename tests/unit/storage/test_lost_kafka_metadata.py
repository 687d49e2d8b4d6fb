"""Metadata of Kafka topics that have lost their last writes: see test_lost_metadata.py."""

from __future__ import annotations

from contextlib import suppress

import pytest

from ledgerfold.broker.kafka.producers.producer import Origin
from ledgerfold.broker.topics.kafka_truncation import truncate_log
from ledgerfold.broker.topics.snapshots import BrokerSnapshots
from ledgerfold.storage.kafka.batch import read_batch_header
from ledgerfold.storage.kafka.span import Span
from ledgerfold.storage.metadata import MetadataStore
from ledgerfold.storage.records import STORE_KEY
from ledgerfold.storage.repair.kafka import adopt_cleaned
from ledgerfold.storage.repair.kafka_raw import LedgerFacts, list_raw
from ledgerfold.v1.records_pb2 import KafkaLog, KafkaSegment
from tests.model.broker_lab import DATA, TOPIC
from tests.support.kafka_lab import KafkaLab
from tests.support.lost_writes import LOST, History, files_with_entries, recorded, resumed
from tests.support.offline import Offline
from tests.support.versions import add_records, add_versions, restore_snapshot


def clean_twice(lab: KafkaLab) -> None:
    for first in (0, 8):
        add_versions(lab, range(first, first + 8), keys=3)
        lab.run(lab.kafka.roll())
        assert lab.clean().failure is None
    lab.add([(b"9", b"9")])


def truncate(lab: KafkaLab) -> None:
    """Leaves a copy of the batches before the offset, as the only one, and one after them."""
    add_records(lab, range(4))
    lab.run(truncate_log(lab.broker, TOPIC, 3))
    lab.add([(b"9", b"9")])


def truncate_what_is_cleaned(lab: KafkaLab) -> None:
    """Leaves a copy of batches of a cleaned segment; it begins before what it replaces ends."""
    clean_twice(lab)
    lab.run(truncate_log(lab.broker, TOPIC, 15))
    lab.run(truncate_log(lab.broker, TOPIC, 14))
    lab.add([(b"9", b"8")])


def truncate_to_a_segment(lab: KafkaLab) -> None:
    """Leaves no copy: the next batch gets an offset that another one had."""
    for n in range(3):
        add_records(lab, [n])
        lab.run(lab.kafka.roll())
    lab.add([(b"7", b"7")])
    lab.run(truncate_log(lab.broker, TOPIC, 2))
    lab.add([(b"9", b"9")])


def restore_what_is_cleaned(lab: KafkaLab) -> None:
    """Leaves the cleaned segments of the snapshot, and a batch after them."""
    snapshots = BrokerSnapshots(lab.broker)
    clean_twice(lab)
    lab.run(snapshots.save("s"))
    for _ in range(2):
        lab.add([(b"%d" % n, b"x") for n in range(3)])
        lab.run(lab.kafka.roll())
        assert lab.clean().failure is None
    restore_snapshot(lab, snapshots)
    lab.add([(b"a", b"y")])


def restore_what_is_older(lab: KafkaLab) -> None:
    """Leaves the raw ledgers of the snapshot, older than all that have replaced them."""
    snapshots = BrokerSnapshots(lab.broker)
    add_records(lab, range(6))
    lab.run(snapshots.save("s"))
    lab.run(lab.kafka.roll())
    clean_twice(lab)
    lab.run(lab.broker.delete_topic(TOPIC, force=True))
    restore_snapshot(lab, snapshots)
    lab.add([(b"a", b"y")])


def restore_what_was_truncated(lab: KafkaLab) -> None:
    """Leaves the raw ledgers of the snapshot; its topic has existed all the time."""
    snapshots = BrokerSnapshots(lab.broker)
    for n in range(6):
        add_records(lab, [n])
        lab.run(lab.kafka.roll())
    lab.settle()
    lab.run(snapshots.save("s"))
    lab.run(truncate_log(lab.broker, TOPIC, 1))
    restore_snapshot(lab, snapshots)
    lab.add([(b"a", b"y")])


KAFKA_HISTORIES = [
    clean_twice,
    truncate,
    truncate_what_is_cleaned,
    truncate_to_a_segment,
    restore_what_is_cleaned,
    restore_what_is_older,
    restore_what_was_truncated,
]


@pytest.fixture(scope="module", params=KAFKA_HISTORIES, ids=lambda each: each.__name__)
def kafka_history(request: pytest.FixtureRequest) -> History:
    lab = KafkaLab({"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"})
    return recorded(lab, lambda: request.param(lab))


def test_lost_metadata_leave_the_only_copy_of_a_kafka_topic_in_place(
    kafka_history: History,
) -> None:
    """After a round the raw segments are deleted: its output is the only copy."""
    lab = resumed(KafkaLab, *kafka_history.lost(0).disk())
    wanted = lab.records()
    lab.stop()
    assert wanted
    for lost in kafka_history.losses():
        snapshot = kafka_history.lost(lost)
        files, pairs = snapshot.disk()
        before = files_with_entries(snapshot, files)
        if pairs.get(STORE_KEY) is None:
            continue
        lab = resumed(KafkaLab, files, pairs)
        with suppress(*LOST):
            assert {*wanted} <= {*lab.records()}, lost
        lab.stop()
        assert files_with_entries(snapshot, files) == before, lost


def test_a_kafka_topic_is_restored(kafka_history: History) -> None:
    """Each record at its offset; and new ones get offsets behind them.

    The histories of truncated and restored logs show what no test had: a repair whose records name
    batches that are gone, and files whose offsets begin below theirs.
    """
    lab = resumed(KafkaLab, *kafka_history.lost(0).disk())
    wanted = lab.records()
    next_offset = wanted[-1][0] + 1
    lab.stop()
    for lost in kafka_history.losses():
        files, pairs = kafka_history.lost(lost).disk()
        offline = Offline(DATA, pairs, files)
        offline.repair()
        assert offline.damage() == [], lost
        lab = resumed(KafkaLab, files, pairs)
        assert {*wanted} <= {*lab.records()}, lost
        assert lab.add([(b"a", b"z")])[0][0] >= next_offset, lost
        lab.stop()


def follow(lab: KafkaLab) -> None:
    lab.add([(b"a", b"1")])
    lab.add([(b"b", b"2")], origin=Origin.REPLICATION, base_offset=1, leader_epoch=5)


def test_appends_after_a_repair_continue_at_the_leader_epoch_of_a_followed_log() -> None:
    """No test of lost metadata had a log with batches of another broker: epochs fell in it."""
    lab = KafkaLab({"cleanup.policy": "compact"})
    history = recorded(lab, lambda: follow(lab))
    for lost in history.losses():
        files, pairs = history.lost(lost).disk()
        Offline(DATA, pairs, files).repair()
        lab = resumed(KafkaLab, files, pairs)
        lab.add([(b"c", b"3")])
        told = lab.run(lab.kafka.describe(batches=True))
        epochs = [read_batch_header(each.batch).leader_epoch for each in told.batches]
        assert epochs == [0, 5, 5], lost
        lab.stop()


def test_producers_of_a_replaced_log_are_forgotten() -> None:
    """Readers of committed records would wait for their transactions.

    No test had restored an older log below the one that the record describes.
    """
    log = KafkaLog(
        segments=[{"base_offset": 0, "ledger_ids": [8]}],
        rolled={"end_offset": 5, "producers": [{"producer_id": 7}]},
    )
    facts = {each: LedgerFacts(each, False, Span()) for each in (3, 8)}
    facts[3].span.join(Span(0, 5, 5))
    facts[8].span.join(Span(5, 9, 4))
    list_raw(log, [3, 8], facts)
    assert [list(each.ledger_ids) for each in log.segments] == [[3], [8]]
    assert not log.HasField("rolled")


def test_a_ledger_whose_offsets_newer_ones_have_is_not_listed_below_them() -> None:
    """It is unknown which is live: a truncation deleted one, or a lost restore the other.

    No test had left the files of both.
    """
    log = KafkaLog(segments=[{"base_offset": 2, "ledger_ids": [8]}])
    facts = {each: LedgerFacts(each, False, Span()) for each in (3, 8)}
    facts[3].span.join(Span(0, 5, 5))
    facts[8].span.join(Span(2, 9, 4))
    assert list_raw(log, [3, 8], facts).removed == {3}
    assert [list(each.ledger_ids) for each in log.segments] == [[8]]


def test_a_ledger_behind_all_offsets_of_a_newer_one_was_truncated() -> None:
    """The segments were in no order of base offset: the broker could not open the topic.

    No test had ended a truncation between the deletion of a ledger's first file and of its last,
    with the copy of its first batches ending below what is left.
    """
    log = KafkaLog(segments=[{"base_offset": 4, "ledger_ids": [8]}])
    facts = {3: LedgerFacts(3, False, Span(7, 9, 1)), 8: LedgerFacts(8, False, Span(4, 6, 1))}
    assert list_raw(log, [3, 8], facts).removed == {3}
    assert [list(each.ledger_ids) for each in log.segments] == [[8]]


def test_an_empty_segment_is_moved_behind_the_batches_of_a_restored_one() -> None:
    """Its base offset is of the log that was replaced; a new batch would get an offset again.

    No test had left an empty ledger of a log whose older one came back.
    """
    log = KafkaLog(segments=[{"ledger_ids": [3]}, {"base_offset": 3, "ledger_ids": [8]}])
    facts = {3: LedgerFacts(3, False, Span(0, 5, 5)), 8: LedgerFacts(8, False, Span())}
    list_raw(log, [3, 8], facts)
    assert [(each.base_offset, list(each.ledger_ids)) for each in log.segments] == [(0, [3, 8])]


@pytest.mark.parametrize("is_incomplete", [True, False])
def test_a_ledger_at_the_offset_of_an_empty_segment_joins_it(is_incomplete: bool) -> None:
    """Two segments with one base offset are read as one: the ledger's batches were not found."""
    log = KafkaLog(segments=[KafkaSegment(base_offset=1, ledger_ids=[5])])
    facts = {5: LedgerFacts(5, False, Span()), 6: LedgerFacts(6, False, Span(1, 2, 1))}
    list_raw(log, [5, 6], facts, is_incomplete=is_incomplete)
    assert [(each.base_offset, list(each.ledger_ids)) for each in log.segments] == [(1, [5, 6])]


def test_producers_before_a_restored_cleaning_are_forgotten() -> None:
    """They are those of other batches, if the log was truncated before it was cleaned.

    No test had restored a cleaned segment whose offsets had been given to other batches before.
    """
    log = KafkaLog(
        segments=[{"base_offset": 0, "ledger_ids": [3]}],
        rolled={"end_offset": 5, "producers": [{"producer_id": 7}]},
    )
    cleaned = KafkaSegment(ledger_ids=[9], is_cleaned=True, figures={"next_offset": 7})
    adopted, replaced = adopt_cleaned(log, [cleaned], {3: LedgerFacts(3, False, Span(0, 5, 5))})
    assert (adopted, replaced) == ([cleaned], [3])
    assert not log.HasField("rolled")


def test_a_segment_that_lost_a_ledger_is_replaced_by_its_cleaned_one() -> None:
    """The rest of it does not hold what the cleaning kept of the lost ledger.

    No test had removed some of the ledgers of one segment, before the write that cleaned it was
    lost.
    """
    log = KafkaLog(segments=[{"base_offset": 0, "ledger_ids": [3, 4]}])
    facts = {
        3: LedgerFacts(3, False, Span(), lost_offsets=5, has_losses=True),
        4: LedgerFacts(4, False, Span(5, 9, 4)),
    }
    cleaned = KafkaSegment(ledger_ids=[9], is_cleaned=True, figures={"next_offset": 9})
    assert adopt_cleaned(log, [cleaned], facts) == ([cleaned], [3, 4])
    facts[3] = LedgerFacts(3, False, Span(0, 5, 5))
    log = KafkaLog(segments=[{"base_offset": 0, "ledger_ids": [3, 4]}])
    assert adopt_cleaned(log, [cleaned], facts) == ([], [])


@pytest.mark.parametrize("is_repaired", [False, True])
def test_a_new_producer_of_a_kafka_topic_gets_no_id_used_by_batches(is_repaired: bool) -> None:
    """Its first batches would be taken for duplicates, and dropped.

    No test had lost the write that reserves ids.
    """

    def act() -> None:
        lab.add([(b"a", b"1")])
        producer_id = lab.metadata.producer_ids.allocate()
        lab.add([(b"b", b"2")], producer_id=producer_id, producer_epoch=0, base_sequence=0)

    lab = KafkaLab({"cleanup.policy": "delete"})
    history = recorded(lab, act)
    files, pairs = history.lost(1).disk()
    store = MetadataStore(pairs).store()
    assert store is not None
    assert store.next_producer_id == 0
    if is_repaired:
        Offline(DATA, pairs, files).repair()
    lab = resumed(KafkaLab, files, pairs)
    assert len(lab.records()) == 2
    assert lab.metadata.producer_ids.allocate() > 0
    lab.stop()


@pytest.mark.parametrize("is_repaired", [False, True])
def test_a_new_producer_gets_no_id_that_another_one_has(is_repaired: bool) -> None:
    """Another one may have published nothing so far, or what is only in snapshots.

    Tests had lost the reservations of ids that batches have: a load skips those.
    """
    given: list[int] = []

    def act() -> None:
        lab.add([(b"a", b"1")])
        given.append(lab.metadata.producer_ids.allocate())
        lab.add([(b"b", b"2")])

    lab = KafkaLab({"cleanup.policy": "delete"})
    history = recorded(lab, act)
    files, pairs = history.lost(1).disk()
    if is_repaired:
        Offline(DATA, pairs, files).repair()
    lab = resumed(KafkaLab, files, pairs)
    assert lab.metadata.producer_ids.allocate() not in given
    lab.stop()
