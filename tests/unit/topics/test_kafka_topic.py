"""A Kafka topic on a whole broker: offsets, segments, durability, visibility for readers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from ledgerfold.broker.kafka import partition
from ledgerfold.broker.kafka.log import record_access as opened
from ledgerfold.broker.kafka.log.begin_segment import LAST_BASE_OFFSET, begin_segment
from ledgerfold.broker.kafka.producers.producer import Origin
from ledgerfold.broker.topics import kafka_topic
from ledgerfold.storage.entry import Codec, Compression, EntryFields, build_entry
from ledgerfold.storage.errors import (
    InvalidRequest,
    KafkaError,
    KafkaErrorKind,
    NotAllowed,
    TopicNotFound,
)
from ledgerfold.storage.kafka.batch import BATCH_HEADER_BYTES, read_batch_header
from ledgerfold.storage.kafka.compression import KafkaCompression
from ledgerfold.storage.kafka.entries import entry_of
from ledgerfold.v1.data_pb2 import StartPosition
from ledgerfold.v1.records_pb2 import MessageId
from tests.model.broker_lab import TOPIC
from tests.support.kafka_lab import KafkaLab

A, B = (b"a", b"1"), (b"b", b"2")


@pytest.fixture
def lab() -> Iterator[KafkaLab]:
    lab = KafkaLab({"cleanup.policy": "compact"})
    yield lab
    lab.close()


def bases(lab: KafkaLab) -> list[int]:
    return [each.base_offset for each in lab.kafka.log.segments]


def test_offsets_increase_by_one_and_are_read_from_any_position(lab: KafkaLab) -> None:
    assert lab.add([A, B], [A], [B, A, B]) == [(0, 1), (2, 2), (3, 5)]
    assert [offset for offset, *_ in lab.records()] == [0, 1, 2, 3, 4, 5]
    assert [offset for offset, *_ in lab.records(4)] == [4, 5]
    assert lab.records(6) == []


@pytest.mark.parametrize("header_bytes", [0, 60, 62])
def test_an_entry_with_wrong_section_lengths_is_refused(lab: KafkaLab, header_bytes: int) -> None:
    """Its lengths would differ from the stored ones."""
    batch = lab.batch([A])
    fields = EntryFields(message_count=1, codec=Codec.KAFKA)
    entry = build_entry(batch[:header_bytes], batch[header_bytes:], fields)
    producer = lab.kafka.attach_producer("p")
    with pytest.raises(InvalidRequest, match="is not the header of a batch"):
        producer.append(memoryview(entry))
    assert lab.records() == []


def test_with_a_test_clock_decompression_stays_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Tests topics that set each record's time, with any other settings."""
    monkeypatch.setattr(opened, "BYTES_MAX", 100_000)
    lab = KafkaLab({"cleanup.policy": "delete", "max.message.bytes": "10000"})
    producer = lab.kafka.attach_producer("p")

    async def sent(value_bytes: int) -> object:
        batch = lab.batch([(b"k", bytes(value_bytes))], compression=KafkaCompression.ZSTD)
        producer.append(memoryview(entry_of(batch, sequence_id=0, publish_time_ms=7)))
        (receipt,) = await producer.receipts()
        return isinstance(receipt.refusal, KafkaError) and receipt.refusal.kind

    assert lab.run(sent(99_000)) is False
    assert lab.run(sent(100_001)) is KafkaErrorKind.MESSAGE_TOO_LARGE
    lab.close()


@pytest.mark.parametrize(
    "fields",
    [
        EntryFields(message_count=5, codec=Codec.KAFKA),
        EntryFields(message_count=1, codec=Codec.KAFKA, compression=Compression.ZSTD),
    ],
)
def test_an_entry_whose_header_describes_another_batch_is_refused(
    lab: KafkaLab, fields: EntryFields
) -> None:
    """Readers could not decode it."""
    batch = lab.batch([A])
    entry = build_entry(batch[:BATCH_HEADER_BYTES], batch[BATCH_HEADER_BYTES:], fields)
    producer = lab.kafka.attach_producer("p")
    with pytest.raises(InvalidRequest, match="gives"):
        producer.append(memoryview(entry))
    assert lab.records() == []


@pytest.mark.parametrize("offset", [-1, 7])
def test_an_offset_outside_of_the_log_is_refused(lab: KafkaLab, offset: int) -> None:
    lab.add([A])
    with pytest.raises(KafkaError) as refused:
        lab.records(offset)
    assert refused.value.kind is KafkaErrorKind.OFFSET_OUT_OF_RANGE


def test_a_segment_spans_ledgers_and_ends_as_in_kafka(lab: KafkaLab) -> None:
    """The lab's ledgers end after six entries."""
    for _ in range(8):
        lab.add([A])
    assert bases(lab) == [0]
    assert len(lab.kafka.log.segments.active.parts) == 2
    assert lab.run(lab.kafka.roll()) == 8
    lab.add([B])
    lab.restart()
    lab.add([B])
    assert bases(lab) == [0, 8]
    assert [offset for offset, *_ in lab.records(6)] == [6, 7, 8, 9]


def test_rolling_an_empty_segment_does_nothing(lab: KafkaLab) -> None:
    lab.add([A])
    lab.run(lab.kafka.roll())
    lab.run(lab.kafka.roll())
    lab.restart()
    lab.run(lab.kafka.roll())
    assert bases(lab) == [0, 1]
    assert lab.add([B]) == [(1, 1)]


@pytest.mark.parametrize("ending", ["restart", "crash"])
def test_acknowledged_batches_survive_a_restart(lab: KafkaLab, ending: str) -> None:
    for at in range(10):
        lab.add([A, B])
        if at % 4 == 3:
            lab.run(lab.kafka.roll())
    before = lab.records()
    getattr(lab, ending)()
    assert lab.records() == before
    assert bases(lab) == [0, 8, 16]
    assert lab.add([A]) == [(20, 20)]


def test_a_resent_batch_is_stored_once(lab: KafkaLab) -> None:
    first = lab.add([A, B], producer_id=7, producer_epoch=0, base_sequence=0)
    assert lab.add([A, B], producer_id=7, producer_epoch=0, base_sequence=0) == first
    lab.crash()
    assert lab.add([A, B], producer_id=7, producer_epoch=0, base_sequence=0) == first
    assert lab.add([A], producer_id=7, producer_epoch=0, base_sequence=2) == [(2, 2)]
    with pytest.raises(KafkaError) as refused:
        lab.add([A], producer_id=7, producer_epoch=0, base_sequence=9)
    assert refused.value.kind is KafkaErrorKind.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_batch_with_a_keyless_record_is_refused(lab: KafkaLab) -> None:
    with pytest.raises(KafkaError) as refused:
        lab.add([A, (None, b"1")])
    assert refused.value.kind is KafkaErrorKind.INVALID_RECORD
    assert lab.add([A]) == [(0, 0)]


@pytest.mark.parametrize("is_reloaded", [False, True])
def test_transactions_are_visible_when_they_are_decided(lab: KafkaLab, is_reloaded: bool) -> None:
    def send(producer_id: int, sequence: int) -> None:
        lab.add(
            [A],
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=sequence,
            is_transactional=True,
        )

    def end(producer_id: int, *, commit: bool) -> None:
        work = lab.kafka.end_transaction(producer_id, 0, commit=commit, timestamp_ms=5)
        lab.run(work)

    send(1, 0)
    send(2, 0)
    lab.add([B])
    assert lab.records(committed=True) == []
    end(1, commit=False)
    assert lab.records(committed=True) == []
    if is_reloaded:
        lab.crash()
    end(2, commit=True)
    assert [offset for offset, *_ in lab.records(committed=True)] == [1, 2]
    assert [offset for offset, *_ in lab.records()] == [0, 1, 2]
    assert [each.first_offset for each in lab.kafka.partition.aborted()] == [0]
    if is_reloaded:
        lab.restart()
        assert [offset for offset, *_ in lab.records(committed=True)] == [1, 2]


def test_a_held_high_watermark_hides_later_records(lab: KafkaLab) -> None:
    lab.add([A], [B])
    lab.kafka.partition.hold_high_watermark(1)
    assert [offset for offset, *_ in lab.records()] == [0]
    lab.kafka.partition.hold_high_watermark(None)
    assert [offset for offset, *_ in lab.records()] == [0, 1]


def test_a_follower_keeps_given_offsets(lab: KafkaLab) -> None:
    lab.add([A], base_offset=40, origin=Origin.REPLICATION)
    lab.add([B], base_offset=90, origin=Origin.REPLICATION)
    lab.crash()
    assert [offset for offset, *_ in lab.records(41)] == [90]
    assert lab.add([B]) == [(91, 91)]


def test_only_a_topic_with_the_policy_delete_deletes_records_on_request(lab: KafkaLab) -> None:
    """The rule of Kafka's leader, before any other; a follower takes over any log start."""
    lab.add([A, B])
    with pytest.raises(KafkaError) as refused:
        lab.run(lab.kafka.partition.delete_records(9))
    assert refused.value.kind is KafkaErrorKind.POLICY_VIOLATION
    assert str(refused.value) == (
        "Records of partition t-0 can not be deleted due to the configured policy"
    )
    lab.run(lab.kafka.partition.change_config({"cleanup.policy": "compact,delete"}))
    assert lab.run(lab.kafka.partition.delete_records(1)) == 1
    lab.run(lab.kafka.partition.change_config({"cleanup.policy": "compact"}))
    assert lab.run(lab.kafka.partition.set_log_start(2)) == 2


def test_the_log_starts_after_deleted_records(lab: KafkaLab) -> None:
    lab.add([A], [B], [A])
    assert lab.run(lab.kafka.partition.set_log_start(2)) == 2
    lab.crash()
    assert [offset for offset, *_ in lab.records()] == [2]
    with pytest.raises(KafkaError):
        lab.records(1)


def test_pulsar_and_kafka_topics_are_not_interchangeable(lab: KafkaLab) -> None:
    with pytest.raises(NotAllowed, match="is a Kafka topic"):
        lab.run(lab.broker.topic(TOPIC))
    lab.run(lab.broker.create_topic(TOPIC + "2"))
    with pytest.raises(NotAllowed, match="is no Kafka topic"):
        lab.run(lab.broker.kafka_topic(TOPIC + "2"))


def test_using_a_missing_topic_does_not_create_it(lab: KafkaLab) -> None:
    """It would be one of Pulsar's."""
    with pytest.raises(TopicNotFound):
        lab.run(lab.broker.kafka_topic(TOPIC + "2"))
    assert lab.metadata.topic(TOPIC + "2") is None


def test_an_empty_log_that_begins_late_has_no_last_offset(lab: KafkaLab) -> None:
    """All had been deleted only in tests that asked for something else."""
    lab.add([A])
    assert lab.kafka.last_offset == 0
    lab.run(lab.kafka.partition.set_log_start(1))
    assert lab.kafka.last_offset == -1


def test_a_time_is_found_within_a_batch(lab: KafkaLab) -> None:
    lab.add([A, B], [A])
    times = [each.facts.max_timestamp_ms for each in lab.kafka.log.segments]
    start = StartPosition(publish_time_ms=times[-1])
    assert lab.run(lab.kafka.resolve_start(start, read_committed=False)) == 2


def test_a_deleted_topic_leaves_no_state(lab: KafkaLab) -> None:
    lab.add([A])
    lab.run(lab.broker.delete_topic(TOPIC, force=True))
    assert lab.metadata.ledgers() == []
    lab.run(lab.broker.create_topic(TOPIC, {"cleanup.policy": "delete"}))
    assert lab.add([(None, b"1")]) == [(0, 0)]


@pytest.mark.parametrize(("jitter_ms", "expected"), [("0", [0]), ("1000", [0, 1])])
def test_random_jitter_shortens_a_segments_age(
    monkeypatch: pytest.MonkeyPatch, jitter_ms: str, expected: list[int]
) -> None:
    monkeypatch.setattr(partition, "getrandbits", lambda _: 900)
    lab = KafkaLab({"segment.ms": "1000", "segment.jitter.ms": jitter_ms})
    lab.add([A])
    lab.run(lab.clock.move_to(lab.clock.now_ms() + 500))
    lab.add([A])
    assert bases(lab) == expected
    lab.close()


def test_appends_continue_at_the_leader_epoch_of_a_followed_log(lab: KafkaLab) -> None:
    """The epochs of logs with batches of two brokers had not been compared."""
    lab.add([A], origin=Origin.REPLICATION, leader_epoch=5)
    lab.add([A], origin=Origin.REPLICATION, base_offset=1, leader_epoch=3)
    lab.add([A])
    lab.crash()
    lab.add([A])
    lab.run(lab.kafka.end_transaction(7, 0, commit=True, timestamp_ms=5))
    told = lab.run(lab.kafka.describe(batches=True))
    epochs = [read_batch_header(each.batch).leader_epoch for each in told.batches]
    assert epochs == [5, 3, 5, 5, 5]


def test_batches_are_shown_in_pages(lab: KafkaLab, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page is the limit for every request, unless a batch is larger than that.

    Until this test had a large batch after a small one, a page could have a page more.
    """
    monkeypatch.setattr(kafka_topic, "PAGE_BYTES", 150)
    lab.add([A], [B], [A, B], [A], [A] * 20, [B])
    pages, start = list[list[int]](), 0
    while True:
        asked = lab.kafka.describe(batches=True, batches_from=start, bytes_max=1 << 30)
        told = lab.run(asked)
        pages.append([read_batch_header(each.batch).base_offset for each in told.batches])
        if not told.HasField("more_from"):
            break
        start = told.more_from
    assert pages == [[0, 1], [2, 4], [5], [25]]


def test_an_append_yields_between_its_batches(lab: KafkaLab) -> None:
    topic, batch = lab.kafka, lab.batch([(b"a", b"1")])

    async def both() -> list[list[int]]:
        calls = [topic.append_batches(batch * 2, Origin.CLIENT) for _ in range(2)]
        return [[each.first_offset for each in call] for call in await asyncio.gather(*calls)]

    assert lab.run(both()) == [[0, 2], [1, 3]]


@pytest.mark.parametrize("name", ["odd name", "ümlaut", "a" * 250, "..", "a+b"])
def test_a_name_that_kafka_refuses_is_refused(lab: KafkaLab, name: str) -> None:
    """Kafka's files, an export's among them, could not tell of it. Pulsar's topics may have it."""
    full = f"persistent://public/default/{name}"
    for made in (
        lab.broker.create_topic(full, {"cleanup.policy": "compact"}),
        lab.broker.create_partitioned_topic(full, 2, {}),
    ):
        with pytest.raises(KafkaError, match="Topic name is invalid: ") as refused:
            lab.run(made)
        assert refused.value.kind is KafkaErrorKind.INVALID_TOPIC_EXCEPTION
    assert [each.name for each in lab.broker.metadata.topics()] == [TOPIC]
    lab.run(lab.broker.create_topic(full))


def test_an_id_of_another_ledger_is_no_start_position(lab: KafkaLab) -> None:
    """A Pulsar message's id, say: no test had sent one with ledger 1."""
    lab.add([A, B])
    for ledger_id in (1, 2):
        at = MessageId(ledger_id=ledger_id, entry_id=0)
        start = StartPosition(message_id=at, inclusive=True)
        with pytest.raises(InvalidRequest, match="has the id 0:N"):
            lab.run(lab.kafka.resolve_start(start, read_committed=False))


def test_a_start_after_an_id_excludes_its_record(lab: KafkaLab) -> None:
    lab.add([A, B], [A])

    def started(offset: int, *, inclusive: bool) -> int:
        start = StartPosition(message_id=MessageId(entry_id=offset), inclusive=inclusive)
        return lab.run(lab.kafka.resolve_start(start, read_committed=False))

    assert [started(offset, inclusive=True) for offset in (0, 1, 3)] == [0, 1, 3]
    assert [started(offset, inclusive=False) for offset in (0, 1, 2)] == [1, 2, 3]
    with pytest.raises(KafkaError, match="offset 4"):
        started(3, inclusive=False)


def begin(lab: KafkaLab, base_offset: int) -> int:
    topic = lab.kafka
    begun = lab.run(begin_segment(topic.log, topic.stored, base_offset, None, None))
    return begun.base_offset


def test_a_segment_does_not_begin_below_the_log_end(lab: KafkaLab) -> None:
    """Offsets would be given twice."""
    lab.add([A, B, A])
    with pytest.raises(KafkaError, match="cannot begin at 2: the log's end is 3") as refused:
        begin(lab, 2)
    assert refused.value.kind is KafkaErrorKind.OFFSET_OUT_OF_RANGE
    assert bases(lab) == [0]
    assert begin(lab, 3) == 3


def test_a_segment_does_not_begin_where_its_offsets_would_not_fit(lab: KafkaLab) -> None:
    for base_offset in (LAST_BASE_OFFSET + 1, 2**63 - 1):
        with pytest.raises(KafkaError, match="offsets end at") as refused:
            begin(lab, base_offset)
        assert refused.value.kind is KafkaErrorKind.OFFSET_OUT_OF_RANGE
    assert bases(lab) == [0]
