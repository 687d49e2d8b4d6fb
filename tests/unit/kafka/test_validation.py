"""Tests the validation of appends: the answers of Kafka 4.1.0 to the same batches."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgerfold.broker.kafka.config.config import LogConfig
from ledgerfold.broker.kafka.log.record_access import keyless_rows
from ledgerfold.broker.kafka.log.validation import AppendRules, ValidatedBatch
from ledgerfold.broker.kafka.producers.producer import Origin
from ledgerfold.storage.errors import KafkaError, KafkaErrorKind, RecordsRefused
from ledgerfold.storage.kafka.batch import (
    BatchParts,
    TimestampType,
    check_batch,
    read_batch_header,
    sealed,
)
from ledgerfold.storage.kafka.compression import KafkaCompression, compress
from ledgerfold.storage.kafka.records import (
    ControlType,
    EndMarker,
    build_columns,
    columns_of,
    end_marker,
    read_end_marker,
)
from tests.support.kafka_golden import TIME_MS, golden

NOW_MS = 10_000_000
HOUR_MS = 3_600_000
DATED = {"message.timestamp.type": "LogAppendTime"}
COMPACT = {"cleanup.policy": "compact"}
Row = tuple[bytes | None, bytes | None, int, list[tuple[str, bytes | None]]]
NO_KEY = "Compacted topic cannot accept message without key in topic partition t-0"


def batch_of(*keys: bytes | None, times: list[int] | None = None, codec: str = "none") -> bytes:
    return build_columns(
        keys, [b"v"] * len(keys), times or [NOW_MS] * len(keys), compression=compression(codec)
    )


def compression(codec: str) -> KafkaCompression:
    return KafkaCompression[codec.upper()]


def lead(
    batch: bytes, settings: dict[str, str] | None = None, origin: Origin = Origin.CLIENT
) -> ValidatedBatch:
    rules = AppendRules("t-0", LogConfig.of(settings or {}))
    return rules.lead(BatchParts.of(batch), origin, offset=7, now_ms=NOW_MS)


def whole(taken: ValidatedBatch) -> bytes:
    return taken.header_bytes + taken.section


def dated(batch: bytes) -> bytes:
    """By another broker, whose clock it has."""
    rules = AppendRules("t-0", LogConfig.of(DATED))
    return whole(rules.lead(BatchParts.of(batch), Origin.CLIENT, offset=0, now_ms=NOW_MS))


def refusal(
    batch: bytes, settings: dict[str, str] | None = None, origin: Origin = Origin.CLIENT
) -> KafkaError:
    with pytest.raises(KafkaError) as caught:
        lead(batch, settings, origin)
    return caught.value


def records_refused(batch: bytes, settings: dict[str, str] | None = None) -> RecordsRefused:
    error = refusal(batch, settings)
    assert isinstance(error, RecordsRefused)
    return error


@pytest.mark.parametrize(
    ("batch", "rows"),
    [
        (batch_of(None, b"k"), [0]),
        (batch_of(None), [0]),
        (batch_of(b"k", None, codec="gzip"), [1]),
        (batch_of(*[None] * 5), [0, 1, 2, 3, 4]),
    ],
)
def test_t95_a_compacted_topic_refuses_records_without_a_key(batch: bytes, rows: list[int]) -> None:
    error = records_refused(batch, COMPACT)
    assert error.records == tuple((row, NO_KEY) for row in rows[:3])
    assert error.keyless == len(rows)
    shown = ", ".join(f"RecordError(batchIndex={row}, message='{NO_KEY}')" for row in rows[:3])
    assert (error.kafka_code, str(error)) == (
        87,
        f"One or more records have been rejected due to {len(rows)} record errors in total, and "
        f"only showing the first three errors at most: [{shown}]",
    )
    lead(batch)


def test_an_empty_key_is_a_key_and_a_tombstone_is_a_record() -> None:
    lead(build_columns([b""], [None], [NOW_MS]), COMPACT)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_an_accepted_batch_is_unchanged(codec: str) -> None:
    batch = batch_of(b"a", b"b", times=[5, 9], codec=codec)
    taken = lead(batch, COMPACT)
    assert whole(taken)[16:] == batch[16:]
    assert taken.header == check_batch(whole(taken))
    assert columns_of(whole(taken)).offsets == [7, 8]


def test_appended_bytes_equal_kafkas() -> None:
    """At offset 0, under Kafka's clock at 10,000,000: the md5 of the real log's bytes."""
    batch = BatchParts.of(build_columns([b""], [b"v"], [NOW_MS]))
    rules = AppendRules("v-4", LogConfig.of(COMPACT))
    taken = rules.lead(batch, Origin.CLIENT, offset=0, now_ms=NOW_MS)
    assert hashlib.md5(whole(taken)).hexdigest() == "8a24d0d027055be4cadd8893856eabbe"


def test_timestamps_may_be_ahead_within_the_limit() -> None:
    lead(batch_of(b"k", times=[NOW_MS + HOUR_MS]))
    late = [NOW_MS + HOUR_MS + 1, NOW_MS, NOW_MS + HOUR_MS + 2]
    error = records_refused(batch_of(b"k", b"k", b"k", times=late, codec="lz4"))
    assert (error.kafka_code, str(error)) == (
        32,
        "One or more records have been rejected due to invalid timestamp",
    )
    assert error.records == tuple(
        (
            row,
            f"Timestamp {late[row]} of message with offset {row} is out of range. The timestamp "
            "should be within [-9223372036844775807, 13600000]",
        )
        for row in (0, 2)
    )


def test_timestamps_may_be_old_within_the_limit() -> None:
    bound = {"message.timestamp.before.max.ms": "10"}
    lead(batch_of(b"k", b"k", times=[NOW_MS - 10, -1]), bound)
    error = records_refused(batch_of(b"k", b"k", times=[NOW_MS, NOW_MS - 11]), bound)
    assert [row for row, _ in error.records] == [1]
    assert error.records[0][1].endswith("should be within [9999990, 13600000]")


def test_a_missing_key_is_found_first_but_a_wrong_time_is_the_error() -> None:
    late = NOW_MS + HOUR_MS + 1
    only_key = records_refused(batch_of(None, times=[late]), COMPACT)
    assert (only_key.kafka_code, only_key.records) == (87, ((0, NO_KEY),))
    both = records_refused(batch_of(None, b"k", times=[NOW_MS, late]), COMPACT)
    assert (both.kafka_code, [row for row, _ in both.records]) == (32, [0, 1])


@pytest.mark.parametrize("origin", [Origin.CLIENT, Origin.COORDINATOR])
def test_the_brokers_clock(origin: Origin) -> None:
    batch = batch_of(b"k", b"l", times=[5, NOW_MS * 9], codec="zstd")
    taken = lead(batch, DATED, origin)
    assert taken.append_time_ms == NOW_MS
    assert taken.header == check_batch(whole(taken))
    assert columns_of(whole(taken)).timestamps_ms == [NOW_MS, NOW_MS]
    assert bytes(taken.section) == batch[61:]


def test_append_time_is_stamped_byte_for_byte() -> None:
    """As Kafka's classes do; the base timestamp is unchanged."""
    rules, batch = AppendRules("t-0", LogConfig.of(DATED)), BatchParts.of(golden("none"))
    time_ms = TIME_MS + 50_000
    taken = rules.lead(batch, Origin.COORDINATOR, offset=40, now_ms=time_ms, leader_epoch=5)
    assert whole(taken) == golden("append time")
    assert taken.header.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert taken.header.base_timestamp_ms == TIME_MS
    assert columns_of(whole(taken)).timestamps_ms == [time_ms] * 4


def test_a_clients_timestamp_is_replaced() -> None:
    error = records_refused(dated(batch_of(b"k")), DATED)
    assert error.records == (
        (
            0,
            "Invalid timestamp type in message DefaultRecord(offset=0, timestamp=10000000, key=1 "
            "bytes, value=1 bytes). Producer should not set timestamp type to LogAppendTime.",
        ),
    )


def test_the_flag_of_log_append_time_is_removed() -> None:
    taken = lead(dated(batch_of(b"k", times=[5])))
    assert taken.header.timestamp_type is TimestampType.CREATE_TIME
    assert taken.header.max_timestamp_ms == NOW_MS
    assert columns_of(whole(taken)).timestamps_ms == [5]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (
            {"last_offset_delta": 3},
            "Inconsistent batch offset range [0, 3] and count of records 1 in topic partition t-0",
        ),
        ({"record_count": 0}, "Invalid reported count for record batch: 0 in topic partition t-0"),
        (
            {"attributes": 0x30, "producer_id": 1},
            "Clients are not allowed to write control records in topic partition t-0",
        ),
        (
            {"producer_id": 5},
            "Invalid sequence number -1 in record batch with producerId 5 in topic partition t-0",
        ),
        (
            {"base_offset": 4},
            "The baseOffset of the record batch in the append to t-0 should be 0, but it is 4",
        ),
    ],
)
def test_headers_that_no_client_may_send_are_refused(change: dict[str, int], why: str) -> None:
    batch = batch_of(b"k")
    header = read_batch_header(batch)._replace(**change)
    error = refusal(sealed(header, batch[61:]))
    assert (error.kafka_code, str(error)) == (87, why)


def test_sizes() -> None:
    batch = batch_of(b"k")
    lead(batch, {"max.message.bytes": "70"})
    error = refusal(batch, {"max.message.bytes": "69"})
    assert (error.kafka_code, str(error)) == (
        10,
        "The record batch size in the append to t-0 is 70 bytes which exceeds the maximum "
        "configured value of 69).",
    )
    error = refusal(batch, {"internal.segment.bytes": "60"})
    assert (error.kafka_code, str(error)) == (
        18,
        "Message batch size is 70 bytes in append to partition t-0, which exceeds the maximum "
        "configured segment size of 60.",
    )


def test_damaged_batches_are_refused() -> None:
    batch = bytearray(batch_of(b"k"))
    batch[-1] ^= 1
    assert refusal(bytes(batch)).kafka_code == 2


@pytest.mark.parametrize("source", ["none", "zstd", "gzip"])
@pytest.mark.parametrize("target", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_batches_get_the_topics_codec(source: str, target: str) -> None:
    batch = batch_of(b"a", b"b", codec=source)
    taken = lead(batch, {"compression.type": target})
    expected = compression("none" if target == "uncompressed" else target)
    assert taken.header.compression == expected
    assert columns_of(whole(taken)).keys == [b"a", b"b"]
    assert columns_of(whole(taken)).offsets == [7, 8]


def test_a_batch_that_grows_under_the_topics_codec() -> None:
    error = refusal(batch_of(b"k"), {"max.message.bytes": "75", "compression.type": "gzip"})
    assert str(error).startswith("Message batch size is ")
    assert str(error).endswith(
        " bytes in append topartition t-0 which exceeds the maximum configured size of 75."
    )


def test_markers_are_neither_compressed_nor_checked_for_keys() -> None:
    marker = end_marker(
        ControlType.ABORT, base_offset=0, timestamp_ms=5, producer_id=1, producer_epoch=0
    )
    taken = lead(marker, COMPACT | {"compression.type": "gzip"}, Origin.COORDINATOR)
    assert taken.header.compression == KafkaCompression.NONE
    assert read_end_marker(whole(taken)) == EndMarker(
        is_abort=True, coordinator_epoch=0, timestamp_ms=5
    )


def test_a_follower_keeps_the_leaders_offsets() -> None:
    rules = AppendRules("w-0", LogConfig.of({"message.timestamp.type": "LogAppendTime"}))
    batch = build_columns([None, b"k"], [b"1", b"2"], [1, 1], None, [0, 3], base_offset=20)
    taken = rules.follow(BatchParts.of(batch), log_end=9, log_start=0, fits_segment=True)
    assert (whole(taken), taken.header.last_offset) == (batch, 23)
    before = BatchParts.of(build_columns([b"k"] * 3, [b"v"] * 3, [1] * 3, base_offset=5))
    with pytest.raises(KafkaError) as caught:
        rules.follow(before, log_end=9, log_start=0, fits_segment=True)
    assert (caught.value.kafka_class, str(caught.value)) == (
        "UnexpectedAppendOffsetException",
        "Unexpected offset in append to w-0. First offset 5 is less than the next offset 9. First "
        "10 offsets in append: 5, 6, 7, last offset in append: 7. Log start offset = 0",
    )


@pytest.mark.parametrize(("base", "records"), [(2**63 - 1, 1), (2**63 - 2, 2)])
def test_offsets_stay_below_two_to_the_63(base: int, records: int) -> None:
    rules = AppendRules("w-0", LogConfig.of({}))
    columns = [b"k"] * records, [b"v"] * records, [1] * records
    batch = BatchParts.of(build_columns(*columns, base_offset=base))
    with pytest.raises(KafkaError, match="the last one that a log can have is"):
        rules.follow(batch, log_end=9, log_start=0, fits_segment=True)
    batch = BatchParts.of(build_columns(*columns))
    with pytest.raises(KafkaError, match="the last one that a log can have is"):
        rules.lead(batch, Origin.CLIENT, offset=base, now_ms=NOW_MS)
    last = BatchParts.of(build_columns([b"k"], [b"v"], [1], base_offset=2**63 - 2))
    assert (
        rules.follow(last, log_end=9, log_start=0, fits_segment=True).header.next_offset
        == 2**63 - 1
    )


@given(
    st.lists(
        st.tuples(
            st.none() | st.binary(max_size=200),
            st.none() | st.binary(max_size=200),
            st.integers(0, 2**50),
            st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=200))),
        ),
        min_size=1,
        max_size=30,
    )
)
def test_keys_are_found_regardless_of_other_fields(rows: list[Row]) -> None:
    keys, values, times, headers = (list(column) for column in zip(*rows, strict=True))
    named = {at: tuple(each) for at, each in enumerate(headers) if each}
    batch = build_columns(keys, values, times, named)
    expected = [at for at, key in enumerate(keys) if key is None]
    assert keyless_rows(batch[61:], read_batch_header(batch).record_count) == expected


def test_records_whose_length_differs_from_the_batch_are_refused() -> None:
    batch = batch_of(b"k", b"l")
    header = read_batch_header(batch)
    for section in (batch[61:] + b"\0", batch[61:-1], batch[61:-9]):
        with pytest.raises(KafkaError, match="Incorrect declared batch size"):
            keyless_rows(section, header.record_count)


def _sealed(batch: bytes, section: bytes, **header: int) -> bytes:
    return sealed(read_batch_header(batch)._replace(**header), section)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_records_that_no_cleaning_could_read_are_refused(codec: str) -> None:
    """They would block the cleaning of all later ones."""
    batch = batch_of(b"k", codec=codec)
    plain = batch_of(b"k")[61:]
    longer_key = plain.replace(b"\x02k", b"\x7ek")
    broken = [
        _sealed(batch, b"nonsense"),
        _sealed(batch, b""),
        _sealed(batch, batch[61:], record_count=2, last_offset_delta=1),
        _sealed(batch, compress(compression(codec), plain + b"\0")),
        _sealed(batch, compress(compression(codec), longer_key)),
    ]
    for each in broken:
        kind = refusal(each, {"cleanup.policy": "compact"}).kind
        assert kind in (KafkaErrorKind.CORRUPT_MESSAGE, KafkaErrorKind.INVALID_RECORD)


@pytest.mark.parametrize(
    ("record", "why"),
    [
        ("0d 00 00 00 02 6b 01 00", "invalid record size -7"),
        ("28 00 80 80 80 80 80 80 80 80 80 80 80 00 00 02 6b 01 00 00 00", "more than ten bytes"),
        ("12 00 00 00 02 6b 01 00 ff ff", "its fields do not end where"),
        ("0e 00 00 00 02 6b 01 01", "invalid number of record headers -1"),
        ("12 00 00 00 02 6b 01 02 01 01", "invalid record header key size -1"),
        ("0e 00 00 0a 02 6b 01 00", "has an offset delta other than"),
        ("0e 00 00 00 02 6b 20 00", "premature EOF"),
    ],
)
def test_a_record_that_no_reader_takes_is_refused(record: str, why: str) -> None:
    batch = _sealed(batch_of(b"k"), bytes.fromhex(record))
    error = refusal(batch, COMPACT)
    assert error.kind is KafkaErrorKind.INVALID_RECORD
    assert why in str(error)
    # Elsewhere no check looks at it, and no reader accepts it.
    with pytest.raises(KafkaError):
        columns_of(whole(lead(batch)))


@pytest.mark.parametrize("count", [20, 100, 9000])
def test_offsets_of_equal_records_are_counted(count: int) -> None:
    batch = batch_of(*[b"k"] * count)
    lead(batch, COMPACT)
    plain = build_columns(
        [b"k"] * count, [b"v"] * count, [NOW_MS] * count, None, range(1, 1 + count)
    )
    error = refusal(_sealed(batch, plain[61:]), COMPACT)
    assert "Record 0 of a batch has an offset delta other than 0" in str(error)


def test_large_batches_are_validated_in_parts() -> None:
    keys = [None if row in (5, 1023, 1024, 2999) else b"k" for row in range(3000)]
    batch = batch_of(*keys)
    assert keyless_rows(batch[61:], read_batch_header(batch).record_count) == [
        5,
        1023,
        1024,
        2999,
    ]
