"""Tests the state of producers and their transactions, against answers of Kafka 4.1.0."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgerfold.broker.kafka.config.settings import INT_MAX
from ledgerfold.broker.kafka.producers.producer import Origin
from ledgerfold.broker.kafka.producers.producers import LastEntry, Producers
from ledgerfold.storage.errors import KafkaError
from ledgerfold.storage.kafka.batch import BatchHeader
from ledgerfold.storage.kafka.records import EndMarker
from ledgerfold.storage.kafka.transaction_index import AbortedTransaction

DAY_MS = 86_400_000


class Partition:
    """Gives offsets out, as an append does."""

    def __init__(self) -> None:
        self.producers = Producers("t-0", DAY_MS)
        self.end = 0
        self.index: list[AbortedTransaction] = []
        # When the broker takes the batches.
        self.now_ms = 0

    def send(
        self,
        producer: int,
        sequence: int,
        *,
        epoch: int = 0,
        records: int = 1,
        transactional: bool = False,
        origin: Origin = Origin.CLIENT,
        time_ms: int = 0,
    ) -> tuple[int, int]:
        header = BatchHeader(
            self.end,
            0,
            0,
            2,
            0,
            0x10 if transactional else 0,
            records - 1,
            time_ms,
            time_ms,
            producer,
            epoch,
            sequence,
            records,
        )
        return self.append(header, None, origin)

    def mark(self, producer: int, *, abort: bool, epoch: int = 0, coordinator: int = 0) -> int:
        header = BatchHeader(self.end, 0, 0, 2, 0, 0x30, 0, 0, 0, producer, epoch, -1, 1)
        marker = EndMarker(abort, coordinator, 0)
        return self.append(header, marker, Origin.COORDINATOR)[0]

    def append(
        self, header: BatchHeader, marker: EndMarker | None, origin: Origin
    ) -> tuple[int, int]:
        prepared = self.producers.prepare(header, marker, origin)
        if prepared.duplicate:
            return prepared.duplicate.first_offset, prepared.duplicate.last_offset
        self.index += self.producers.commit(prepared, self.now_ms)
        self.end = header.next_offset
        return header.base_offset, header.last_offset

    def stable(self, high_watermark: int | None = None) -> int:
        mark = self.end if high_watermark is None else high_watermark
        self.producers.pass_high_watermark(mark)
        return self.producers.last_stable_offset(mark)


def test_the_last_five_batches_are_recognised() -> None:
    log = Partition()
    sent = [log.send(1, at * 2, records=2) for at in range(6)]
    assert [log.send(1, at * 2, records=2) for at in range(1, 6)] == sent[1:]
    with pytest.raises(KafkaError) as caught:
        log.send(1, 0, records=2)
    assert (caught.value.kafka_code, str(caught.value)) == (
        45,
        "Out of order sequence number for producer 1 at offset 12 in partition t-0: 0 (incoming "
        "seq. number), 11 (current end sequence number)",
    )
    assert log.end == 12


def test_equal_sequences_with_other_boundaries_are_no_duplicate() -> None:
    log = Partition()
    log.send(1, 0, records=2)
    with pytest.raises(KafkaError, match="Out of order sequence number"):
        log.send(1, 0, records=1)


def test_sequence_numbers_wrap_around() -> None:
    log = Partition()
    log.send(1, INT_MAX - 1, records=2)
    assert log.send(1, 0) == (2, 2)
    assert log.send(1, INT_MAX - 1, records=2) == (0, 1)
    across = Partition()
    across.send(1, INT_MAX, records=2)
    assert across.send(1, INT_MAX, records=2) == (0, 1)
    assert across.send(1, 1) == (2, 2)


def test_an_unknown_producer_may_begin_with_any_sequence() -> None:
    assert Partition().send(1, 17) == (0, 0)


def test_a_new_epoch_begins_at_zero() -> None:
    log = Partition()
    log.send(1, 0)
    with pytest.raises(KafkaError) as caught:
        log.send(1, 1, epoch=1)
    assert str(caught.value) == (
        "Invalid sequence number for new epoch of producer 1at offset 1 in partition t-0: 1 "
        "(request epoch), 1 (seq. number), 0 (current producer epoch)"
    )
    assert log.send(1, 0, epoch=1) == (1, 1)
    with pytest.raises(KafkaError) as caught:
        log.send(1, 0)
    assert (caught.value.kafka_code, str(caught.value)) == (
        47,
        "Epoch of producer 1 at offset 2 in t-0 is 0, which is smaller than the last seen epoch 1",
    )


def test_replicated_batches_are_accepted_unchecked() -> None:
    log = Partition()
    log.send(1, 5, epoch=3)
    assert log.send(1, 90, epoch=2, origin=Origin.REPLICATION) == (1, 1)
    assert log.producers.entries[1].epoch == 2


def test_a_known_batch_is_a_duplicate_even_if_its_sequence_is_next() -> None:
    """A leader's batches are accepted with any sequence numbers: they may start over in between."""
    log = Partition()
    first = log.send(1, 10, records=10, origin=Origin.REPLICATION)
    log.send(1, 0, records=10, origin=Origin.REPLICATION)
    assert log.send(1, 10, records=10) == first


def test_a_coordinators_records_have_no_sequence_numbers() -> None:
    log = Partition()
    log.send(1, 0)
    assert log.send(1, 5, origin=Origin.COORDINATOR) == (1, 1)


def test_a_nontransactional_write_during_a_transaction() -> None:
    log = Partition()
    log.send(1, 0, transactional=True)
    with pytest.raises(KafkaError) as caught:
        log.send(1, 1)
    assert (caught.value.kafka_code, str(caught.value)) == (
        48,
        "Expected transactional write from producer 1 at offset (offset=1, segment=[-1:-1]) in "
        "partition t-0",
    )


def test_a_replaced_coordinator_is_fenced() -> None:
    log = Partition()
    log.mark(1, abort=False, coordinator=4)
    with pytest.raises(KafkaError) as caught:
        log.mark(1, abort=False, coordinator=3)
    assert str(caught.value) == (
        "Invalid coordinator epoch for producerId 1 at offset 1 in partition t-0: 3 (zombie), "
        "4 (current)"
    )


def test_the_last_stable_offset() -> None:
    log = Partition()
    log.send(1, 0, transactional=True)
    log.send(2, 0, transactional=True)
    log.send(3, 0)
    assert log.stable() == 0
    log.mark(1, abort=False)
    assert log.stable(high_watermark=3) == 0
    assert log.stable(high_watermark=4) == 1
    log.mark(2, abort=True)
    assert log.stable() == 5
    assert log.index == [AbortedTransaction(2, 1, 4, 5)]


def test_the_transaction_index_has_the_last_stable_offset_at_the_marker() -> None:
    log = Partition()
    log.send(1, 0, transactional=True)
    log.send(2, 0, transactional=True)
    log.mark(1, abort=True)
    assert log.index == [AbortedTransaction(1, 0, 2, 1)]


def test_a_marker_without_data_leaves_nothing_in_the_index() -> None:
    log = Partition()
    log.mark(1, abort=True)
    assert (log.index, log.stable()) == ([], 1)
    assert log.producers.last_entries() == {1: LastEntry(-1, 0)}


def test_a_marker_resets_sequence_numbers_of_another_epoch_only() -> None:
    log = Partition()
    log.send(1, 0, transactional=True)
    log.mark(1, abort=False)
    assert log.producers.last_entries() == {1: LastEntry(0, 0)}
    assert log.send(1, 0, transactional=True) == (0, 0)
    log.mark(1, abort=False, epoch=1)
    assert log.producers.last_entries() == {1: LastEntry(-1, 1)}


def test_a_marker_reduced_to_its_header() -> None:
    log = Partition()
    header = BatchHeader(0, 0, 0, 2, 0, 0x30, 0, -1, 0, 1, 0, -1, 0)
    log.append(header, None, Origin.REPLICATION)
    assert log.producers.entries[1].epoch == -1


def test_rejected_batches_change_nothing() -> None:
    log = Partition()
    log.send(1, 0, records=3, time_ms=9)
    before = list(log.producers.snapshot())
    with pytest.raises(KafkaError):
        log.send(1, 7)
    assert list(log.producers.snapshot()) == before


def test_producers_expire_by_record_time_and_not_during_a_transaction() -> None:
    log = Partition()
    log.send(1, 0, time_ms=5)
    log.send(2, 0, time_ms=5, transactional=True)
    assert log.producers.expire(DAY_MS + 4) == []
    assert log.producers.expire(DAY_MS + 5) == [1]
    log.mark(2, abort=False)
    assert log.producers.expire(DAY_MS) == [2]
    assert log.send(1, 17) == (3, 3)


def test_a_resend_is_recognized_at_any_age() -> None:
    """A producer that Kafka forgets keeps nothing in the log; its duplicates are still known."""
    log = Partition()
    log.now_ms = 9 * DAY_MS
    log.send(1, 0, records=2, time_ms=5)
    assert log.producers.expire(log.now_ms) == []
    assert log.producers.last_entries() == {}
    assert log.send(1, 0, records=2, time_ms=5) == (0, 1)
    with pytest.raises(KafkaError, match="Out of order sequence number"):
        log.send(1, 1)
    assert log.send(1, 2, time_ms=5) == (2, 2)
    assert log.producers.last_entries() == {1: LastEntry(2, 0)}
    assert log.producers.expire(log.now_ms + DAY_MS - 1) == []
    assert log.producers.expire(log.now_ms + DAY_MS) == [1]


@pytest.mark.parametrize("by_record_time", [False, True])
def test_a_load_restores_the_time_of_the_last_append(by_record_time: bool) -> None:
    """Or, as Kafka, uses the records' time alone."""
    log = Partition()
    log.now_ms = 9 * DAY_MS
    log.send(1, 0, time_ms=5)
    log.send(2, 0, time_ms=12 * DAY_MS)
    for now_ms, known in ((9 * DAY_MS, [1, 2]), (10 * DAY_MS, [2]), (13 * DAY_MS, [])):
        loaded = Producers("t-0", DAY_MS, lambda: by_record_time)
        loaded.load(log.producers.snapshot(), log.end, now_ms)
        assert list(loaded.entries) == [each for each in known if each == 2 or not by_record_time]
        assert list(loaded.last_entries()) == [each for each in known if each == 2]


def test_a_snapshot_of_an_older_build_has_no_append_times() -> None:
    """The producers' age is that of their records."""
    log = Partition()
    log.now_ms = 9 * DAY_MS
    log.send(1, 0, time_ms=5)
    (snapshot,) = log.producers.snapshot()
    loaded = Producers("t-0", DAY_MS)
    snapshot.ClearField("last_append_time_ms")
    loaded.load([snapshot], log.end, log.now_ms)
    assert loaded.entries == {}


def test_a_snapshot_keeps_the_last_batch_and_the_open_transaction() -> None:
    log = Partition()
    log.send(1, 0, records=2, transactional=True)
    log.send(1, 2, records=2, transactional=True)
    log.send(2, 0)
    loaded = Partition()
    loaded.producers.load(log.producers.snapshot(), log.end, now_ms=0)
    loaded.end = log.end
    assert list(loaded.producers.snapshot()) == list(log.producers.snapshot())
    assert loaded.stable() == 0
    assert loaded.send(1, 2, records=2, transactional=True) == (2, 3)
    with pytest.raises(KafkaError, match="Out of order sequence number"):
        loaded.send(1, 0, records=2, transactional=True)
    loaded.mark(1, abort=True)
    assert loaded.index == [AbortedTransaction(1, 0, 5, 6)]


def test_a_load_expires_old_producers() -> None:
    log = Partition()
    log.send(1, 0)
    loaded = Producers("t-0", DAY_MS)
    loaded.load(log.producers.snapshot(), 1, now_ms=DAY_MS)
    assert (loaded.entries, loaded.end_offset) == ({}, 1)


def test_a_replay_restores_the_state() -> None:
    log = Partition()
    log.send(1, 0, records=2)
    header = BatchHeader(0, 0, 0, 2, 0, 0, 1, 0, 0, 1, 0, 0, 2)
    replayed = Producers("t-0", DAY_MS)
    assert replayed.replay(header, None, 0) == ()
    assert list(replayed.snapshot()) == list(log.producers.snapshot())
    assert replayed.end_offset == 2


def test_a_truncated_log_restores_its_state_from_snapshot_and_replay() -> None:
    """As in Kafka: all batches after the snapshot, the last one before it."""
    log = Partition()
    for sequence in (0, 2):
        log.send(1, sequence, records=2)
    at_roll, end = list(log.producers.snapshot()), log.end
    log.send(1, 4, records=2)
    log.send(1, 6, records=2)
    log.producers.load(at_roll, end, now_ms=0)
    kept = BatchHeader(4, 0, 0, 2, 0, 0, 1, 0, 0, 1, 0, 4, 2)
    log.producers.replay(kept, None, 0)
    log.end = 6
    assert log.send(1, 4, records=2) == (4, 5)
    assert log.send(1, 2, records=2) == (2, 3)
    with pytest.raises(KafkaError, match="Out of order sequence number"):
        log.send(1, 0, records=2)
    assert log.send(1, 6, records=2) == (6, 7)


def test_the_log_start_advances() -> None:
    log = Partition()
    log.send(1, 0, transactional=True)
    log.mark(1, abort=False)
    log.send(2, 0, transactional=True)
    log.producers.start_at(2)
    assert log.producers.first_unstable_offset == 2
    assert log.producers.last_stable_offset(9, log_start=5, start_batch=4) == 4
    log.producers.start_at(50)
    assert log.producers.end_offset == 50


@given(st.lists(st.tuples(st.integers(1, 3), st.sampled_from("tdca")), max_size=40))
def test_the_last_stable_offset_is_that_of_the_first_open_transaction(
    steps: list[tuple[int, str]],
) -> None:
    """By any order of writes and markers, with everything below the high watermark."""
    log, sequences, opened = Partition(), dict.fromkeys(range(4), 0), dict[int, int]()
    for producer, step in steps:
        if step in "ca":
            log.mark(producer, abort=step == "a")
            opened.pop(producer, None)
            continue
        transactional = step == "t"
        if transactional:
            opened.setdefault(producer, log.end)
        elif producer in opened:
            continue
        log.send(producer, sequences[producer], transactional=transactional)
        sequences[producer] += 1
        assert log.stable() == min(opened.values(), default=log.end)


def test_a_producer_with_only_a_marker_has_no_last_offset() -> None:
    """Kafka's -1. Descriptions had been compared for producers with batches."""
    partition = Partition()
    partition.mark(7, abort=True)
    assert partition.producers.entries[7].last_data_offset == -1
