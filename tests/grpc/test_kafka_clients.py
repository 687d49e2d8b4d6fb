"""Producers, readers and table views of Kafka topics, against the real broker."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from ledgerfold import aio
from ledgerfold.broker.client import (
    BatchingType,
    Client,
    CompressionType,
    MessageId,
    Result,
)
from ledgerfold.broker.client.administration.admin import Admin
from ledgerfold.broker.client.administration.kafka_answers import Origin
from ledgerfold.broker.client.sync.reader import Reader
from ledgerfold.storage.errors import (
    AlreadyClosed,
    InvalidRequest,
    KafkaError,
    KafkaErrorKind,
    NotAllowed,
    RecordsRefused,
)
from ledgerfold.storage.kafka.batch import read_batch_header
from ledgerfold.storage.kafka.compression import KafkaCompression
from ledgerfold.storage.kafka.records import KafkaRecord, build_batch, records_of
from tests.conftest import MakeBroker
from tests.support.broker_process import BrokerProcess
from tests.support.waiting import WAIT_MS


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One for all tests: each has a separate topic."""
    data_dir = tmp_path_factory.mktemp("kafka-clients") / "data"
    with BrokerProcess(data_dir, arguments=["--compactor", "off"]) as broker:
        yield broker


@pytest.fixture
def topic(topic: str, admin: Admin) -> str:
    admin.create_topic(topic, kafka={"cleanup.policy": "compact"})
    return topic


def offsets(reader: Reader) -> list[int | None]:
    return [message.offset() for message in reader]


def test_batches_are_stored_as_kafka_stores_them(admin: Admin, client: Client, topic: str) -> None:
    with client.create_producer(topic, batching_enabled=True) as producer:
        producer.send_async(b"1", None, {"a": "x", "b": "ä"}, "k", event_timestamp=77)
        producer.send_async(b"", None, partition_key="")
        tombstone = producer.send(None, partition_key="k")
    assert tombstone == MessageId(-1, 0, 2)
    (batch,) = admin.kafka.describe_log(topic, batches=True).batches
    first, empty, last = records_of(batch)
    header = read_batch_header(batch)
    headers = (("a", b"x"), ("b", "ä".encode()))
    assert first == KafkaRecord(0, 77, b"k", b"1", headers)
    assert (empty.key, empty.value, last.key, last.value) == (b"", b"", b"k", None)
    assert last.timestamp_ms == empty.timestamp_ms > 77
    assert (header.producer_id >= 0, header.producer_epoch, header.base_sequence) == (True, 0, 0)
    with client.create_reader(topic, MessageId.earliest) as reader:
        one, two, three = reader
    assert [each.message_id() for each in (one, two, three)] == [
        MessageId(-1, 0, offset) for offset in range(3)
    ]
    assert (one.value(), two.value(), three.value()) == (b"1", b"", None)
    assert (one.properties(), one.event_timestamp()) == ({"a": "x", "b": "ä"}, 77)
    assert [each.is_tombstone() for each in (one, two, three)] == [False, False, True]


@pytest.mark.parametrize("compression", ["NONE", "GZIP", "SNAPPY", "LZ4", "ZSTD"])
@pytest.mark.parametrize("batching", [False, True])
def test_every_codec_of_kafka_works(
    admin: Admin, client: Client, topic: str, compression: str, batching: bool
) -> None:
    with client.create_producer(
        topic, compression_type=CompressionType[compression], batching_enabled=batching
    ) as producer:
        for number in range(100):
            producer.send_async(b"%d" % number * 50, None, partition_key=f"k{number}")
    batches = admin.kafka.describe_log(topic, batches=True).batches
    assert {read_batch_header(each).compression for each in batches} == {
        KafkaCompression[compression]
    }
    with client.create_reader(topic, start_offset=50) as reader:
        assert [(each.offset(), each.data()) for each in reader] == [
            (number, b"%d" % number * 50) for number in range(50, 100)
        ]


def test_features_of_pulsar_topics_are_rejected(client: Client, topic: str) -> None:
    with pytest.raises(InvalidRequest, match="GZIP, SNAPPY, LZ4, ZSTD"):
        client.create_producer(topic, compression_type=CompressionType.ZLib)
    with pytest.raises(InvalidRequest, match="for Kafka topics"):
        client.create_producer("native", compression_type=CompressionType.GZIP)
    producer = client.create_producer(topic)
    for unknown in ({"ordering_key": "o"}, {"sequence_id": 5}):
        with pytest.raises(InvalidRequest, match="Kafka topics"):
            producer.send(b"", partition_key="k", **unknown)
    with pytest.raises(InvalidRequest, match="Kafka topics"):
        client.create_producer(topic, initial_sequence_id=3)
    with pytest.raises(NotAllowed, match="Kafka topic"):
        client.subscribe(topic, "s")
    with pytest.raises(NotAllowed, match="Kafka topic"):
        client.create_reader(topic, MessageId.earliest, is_read_compacted=True)


@pytest.mark.parametrize("batching_type", list(BatchingType))
def test_a_refused_batch_does_not_affect_later_ones(
    admin: Admin, client: Client, topic: str, batching_type: BatchingType
) -> None:
    """Later batches are stored in order, once each, under new numbers."""
    heard: list[tuple[Result, MessageId | None]] = []
    with client.create_producer(
        topic, batching_enabled=True, batching_max_messages=2, batching_type=batching_type
    ) as producer:
        for number in range(40):
            key = None if number in (0, 7, 8, 21) else "k"
            producer.send_async(b"%d" % number, lambda *told: heard.append(told), partition_key=key)
        producer.flush()
        with pytest.raises(RecordsRefused, match="cannot accept message without key") as refused:
            producer.send(b"x")
        assert refused.value.kind is KafkaErrorKind.INVALID_RECORD
        producer.send(b"40", partition_key="k")
    stored = [result is Result.Ok for result, _ in heard]
    assert len(heard) == 40
    with client.create_reader(topic, MessageId.earliest) as reader:
        values = [int(message.data()) for message in reader]
    assert values == sorted(values)
    assert len(values) == sum(stored) + 1
    ids = [message_id for _, message_id in heard if message_id is not None]
    assert ids == [MessageId(-1, 0, offset) for offset in range(len(values) - 1)]


def test_batches_fill_up_to_the_topics_limit(admin: Admin, client: Client) -> None:
    admin.create_topic("limited", kafka={"max.message.bytes": "1000"})
    with client.create_producer("limited", batching_enabled=True) as producer:
        for _ in range(100):
            producer.send_async(b"x" * 90, None)
        producer.flush()
        with pytest.raises(KafkaError) as refused:
            producer.send(b"x" * 2000)
        assert refused.value.kind is KafkaErrorKind.RECORD_LIST_TOO_LARGE or (
            refused.value.kind is KafkaErrorKind.MESSAGE_TOO_LARGE
        )
        producer.send(b"last")
    sizes = list(map(len, admin.kafka.describe_log("limited", batches=True).batches))
    assert max(sizes) <= 1000
    assert len(sizes) > 9


def test_a_reader_begins_at_the_requested_position(
    admin: Admin, client: Client, topic: str
) -> None:
    with client.create_producer(topic, batching_enabled=True) as producer:
        for number in range(30):
            producer.send_async(b"v", None, partition_key="k", event_timestamp=1000 + number)
            if number % 10 == 9:
                producer.flush()
    starts: list[tuple[dict[str, object], int]] = [
        ({"start_offset": 0}, 0),
        ({"start_offset": 17}, 17),
        ({"start_offset": 30}, 30),
        ({"start_message_id": MessageId.earliest}, 0),
        ({"start_message_id": MessageId(-1, 0, 17)}, 18),
        ({"start_message_id": MessageId(-1, 0, 17), "start_message_id_inclusive": True}, 17),
        ({"start_message_id": MessageId.latest}, 30),
        ({"start_message_id": MessageId.latest, "start_message_id_inclusive": True}, 29),
        ({"start_message_id": MessageId.latest, "isolation": "read_committed"}, 30),
        ({"start_time_ms": 1012}, 12),
        ({"start_time_ms": 5000}, 30),
    ]
    for start, first in starts:
        with client.create_reader(topic, **start) as reader:  # type: ignore[arg-type]
            assert reader.has_message_available() is (first < 30), start
            assert offsets(reader) == list(range(first, 30)), start
    with client.create_reader(topic, start_offset=3) as reader:
        assert reader.read_next().offset() == 3
        reader.seek_offset(25)
        assert offsets(reader) == [25, 26, 27, 28, 29]
        reader.seek(MessageId(-1, 0, 27))
        assert offsets(reader) == [28, 29]
        reader.seek(1028)
        assert offsets(reader) == [28, 29]
        reader.seek(MessageId.earliest)
        assert len(offsets(reader)) == 30
        for lost in (31, 10**9):
            with pytest.raises(KafkaError, match="segments in the range"):
                reader.seek_offset(lost)
            with pytest.raises(KafkaError):
                reader.has_message_available()
        reader.seek_offset(28)
        assert offsets(reader) == [28, 29]
        with pytest.raises(KafkaError):
            reader.seek_offset(31)
    with pytest.raises(AlreadyClosed):
        reader.seek_offset(28)
    for wrong in ({"start_offset": -1}, {}, {"start_offset": 1, "start_time_ms": 1}):
        with pytest.raises(InvalidRequest):
            client.create_reader(topic, **wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest, match="read_committed"):
        client.create_reader(topic, start_offset=0, isolation="snapshot")
    with pytest.raises(KafkaError) as refused:
        client.create_reader(topic, start_offset=31)
    assert refused.value.kind is KafkaErrorKind.OFFSET_OUT_OF_RANGE


def test_committed_transactions_are_read(admin: Admin, client: Client, topic: str) -> None:
    producer_id, epoch = admin.kafka.init_producer_id()

    def batch(sequence: int) -> bytes:
        return build_batch(
            [KafkaRecord(0, 5, b"k", b"%d" % sequence)],
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            is_transactional=True,
        )

    assert admin.kafka.append(topic, batch(0)).offsets == [(0, 0)]
    with (
        client.create_reader(topic, MessageId.earliest) as all_of_it,
        client.create_reader(topic, MessageId.earliest, isolation="read_committed") as committed,
    ):
        assert offsets(all_of_it) == [0]
        assert offsets(committed) == []
        assert admin.kafka.end_transaction(topic, producer_id, epoch, commit=False) == 1
        admin.kafka.append(topic, batch(1))
        assert offsets(committed) == []
        assert admin.kafka.end_transaction(topic, producer_id, epoch, commit=True) == 3
        assert offsets(committed) == offsets(all_of_it) == [2]
    log = admin.kafka.describe_log(topic)
    assert [(each.first_offset, each.last_offset) for each in log.aborted] == [(0, 1)]
    assert (log.high_watermark, log.last_stable_offset) == (4, 4)


def test_a_table_view_of_a_kafka_topic(client: Client, topic: str) -> None:
    """Only a null value removes a key."""
    producer = client.create_producer(topic)
    for key, value in (("a", b"1"), ("b", b"2"), ("c", b"3"), ("a", b""), ("b", None)):
        producer.send(value, partition_key=key)
    with client.create_table_view(topic) as view:
        assert view.snapshot() == {"a": b"", "c": b"3"}
        producer.send(b"4", partition_key="b")
        view.refresh()
        assert view.get("b") == b"4"


def test_log_operations_of_the_administration_client(
    admin: Admin, client: Client, topic: str
) -> None:
    with client.create_producer(topic) as producer:
        for number in range(4):
            producer.send(b"v", partition_key=f"k{number}")
    kafka = admin.kafka
    assert kafka.roll_segment(topic) == 4
    assert [each.base_offset for each in kafka.describe_log(topic).segments] == [0, 4]
    with pytest.raises(KafkaError) as refused:
        kafka.set_log_start(topic, 2)
    assert refused.value.kind is KafkaErrorKind.POLICY_VIOLATION
    kafka.change_config(topic, values={"cleanup.policy": "compact,delete"})
    assert kafka.set_log_start(topic, 2) == 2
    with client.create_reader(topic, MessageId.earliest) as reader:
        assert offsets(reader) == [2, 3]
    assert kafka.set_high_watermark(topic, 3) == 3
    with client.create_reader(topic, MessageId.earliest) as reader:
        assert offsets(reader) == [2]
    assert kafka.set_high_watermark(topic, None) == 4
    record = build_batch([KafkaRecord(10, 5, b"k", b"v")], base_offset=10)
    assert kafka.append(topic, record, Origin.REPLICATION).offsets == [(10, 10)]
    with client.create_reader(topic, start_offset=4) as reader:
        assert offsets(reader) == [10]
    assert admin.last_message_id(topic) == MessageId(-1, 0, 10)


def test_a_truncation_with_connected_clients(admin: Admin, client: Client, topic: str) -> None:
    """A reader beyond the new end is refused, and the producer of deleted batches; others
    continue.
    """
    producer = client.create_producer(topic)
    for number in range(4):
        producer.send(b"old", partition_key=f"k{number}")
    admin.kafka.roll_segment(topic)
    admin.kafka.set_checkpoint(topic, 4)
    with client.create_reader(topic, start_offset=4) as beyond:
        told = admin.kafka.truncate_log(topic, 2)
        assert (told.log_end_offset, told.log_start_offset, told.checkpoint) == (2, 0, 0)
        with pytest.raises(KafkaError) as refused:
            beyond.read_next(timeout_millis=WAIT_MS)
    assert refused.value.kind is KafkaErrorKind.OFFSET_OUT_OF_RANGE
    with pytest.raises(KafkaError, match="Out of order sequence number"):
        producer.send(b"new", partition_key="k2")
    with client.create_reader(topic, start_offset=2) as at_end:
        client.create_producer(topic).send(b"new", partition_key="k2")
        assert at_end.read_next(timeout_millis=WAIT_MS).value() == b"new"
    assert admin.kafka.describe_log(topic).log_end_offset == 3
    with pytest.raises(InvalidRequest):
        admin.kafka.truncate_log(topic, -1)


def test_the_administration_client_changes_settings(admin: Admin, topic: str) -> None:
    kafka = admin.kafka
    assert kafka.config(topic)["cleanup.policy"].source == "topic"
    kafka.change_config(topic, values={"segment.bytes": "2000000"})
    assert kafka.config(topic)["segment.bytes"].value == "2000000"
    kafka.change_config(topic, unset=["segment.bytes"])
    assert kafka.config(topic)["segment.bytes"].value == "1073741824"
    assert "log.cleaner.threads" in kafka.config()
    with pytest.raises(KafkaError) as refused:
        kafka.change_config(topic, values={"segment.bytes": "none"})
    assert refused.value.kind is KafkaErrorKind.INVALID_CONFIG


@pytest.fixture
def only(broker_process: MakeBroker) -> Iterator[Admin]:
    """Yields the administration of a broker without other topics."""
    with Admin(broker_process().url) as only:
        yield only


def test_the_plan_of_the_cleaner(only: Admin) -> None:
    """The plan, the status and retention concern all topics of a broker."""
    topic, kafka = "t", only.kafka
    only.create_topic(topic, kafka={"cleanup.policy": "compact"})
    batch = build_batch([KafkaRecord(offset, 0, b"k", b"v") for offset in range(3)])
    kafka.append(topic, batch)
    kafka.roll_segment(topic)
    (plan,) = kafka.plan_cleaning(topic)
    assert (plan.first_dirty_offset, plan.bound_offset, plan.ratio) == (0, 3, 1.0)
    kafka.set_checkpoint(topic, 1)
    assert kafka.describe_log(topic).checkpoint == 1
    kafka.set_checkpoint(topic, None)
    assert kafka.describe_log(topic).checkpoint is None
    assert kafka.pause_cleaning(topic) == "LogCleaningPaused{pausedCount=1}"
    assert kafka.resume_cleaning(topic) == ""
    kafka.mark_uncleanable(topic, "by hand")
    status = kafka.cleaner()
    assert list(status.uncleanable.values()) == ["by hand"]
    assert kafka.run_retention() == 0


def test_asyncio_and_partitions(broker: BrokerProcess, admin: Admin) -> None:
    for number in range(3):
        admin.create_topic(f"p-{number}", kafka={"cleanup.policy": "compact"})

    async def work() -> None:
        async with aio.Client(broker.url) as client:
            producer = await client.create_producer("p-0")
            ids = await asyncio.gather(
                *(producer.send(b"%d" % number, partition_key="k") for number in range(50))
            )
            assert ids == [MessageId(-1, 0, offset) for offset in range(50)]
            with pytest.raises(RecordsRefused, match="without key"):
                await producer.send(b"no key")
            reader = await client.create_reader("p-0", start_offset=10)
            assert [each.offset() async for each in reader] == list(range(10, 50))
            await reader.seek_offset(48)
            assert [each.offset() async for each in reader] == [48, 49]
            view = await client.create_table_view("p-0")
            assert view.snapshot() == {"k": b"49"}

    asyncio.run(work())
