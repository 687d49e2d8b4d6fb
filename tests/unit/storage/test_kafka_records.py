"""Record batches pass through the codec unchanged."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgerfold.storage.codec import decode, decoding, last_batch_index
from ledgerfold.storage.entry import (
    Codec,
    crc32c,
    read_header,
    stamp,
)
from ledgerfold.storage.entry_check import check_entry
from ledgerfold.storage.errors import Corruption, InvalidRequest, KafkaError
from ledgerfold.storage.kafka import reading, uniform_records
from ledgerfold.storage.kafka.batch import (
    BATCH_HEADER_BYTES,
    check_batch,
    packed_header,
    placed,
    read_batch_header,
    sealed,
)
from ledgerfold.storage.kafka.compression import KafkaCompression
from ledgerfold.storage.kafka.entries import entry_of
from ledgerfold.storage.kafka.records import (
    ControlType,
    KafkaRecord,
    build_batch,
    build_columns,
    marker_type,
    read_end_marker,
    records_of,
)
from ledgerfold.storage.kafka.varints import COUNTED, VARINTS
from tests.support.property_tests import stride

INT64 = st.integers(-(2**63), 2**63 - 1)
BYTES = st.none() | st.binary(max_size=300)
HEADERS = st.lists(st.tuples(st.text(max_size=5), BYTES), max_size=3).map(tuple)


@st.composite
def batches(draw: st.DrawFn) -> tuple[int, list[KafkaRecord]]:
    """A base offset, and records at offsets that rise from there on."""
    base = draw(st.integers(0, 2**60))
    deltas = draw(st.sets(st.integers(0, 2**31 - 1), min_size=1, max_size=8))
    return base, [
        KafkaRecord(base + delta, draw(INT64), draw(BYTES), draw(BYTES), draw(HEADERS))
        for delta in sorted(deltas)
    ]


@given(batches(), st.sampled_from(KafkaCompression))
def test_built_batches_are_decoded(
    made: tuple[int, list[KafkaRecord]], compression: KafkaCompression
) -> None:
    """Under every codec, with any 64-bit offsets and times."""
    base, records = made
    batch = build_batch(records, base_offset=base, compression=compression, leader_epoch=7)
    header = check_batch(batch)
    assert list(records_of(batch)) == records
    assert (header.base_offset, header.last_offset) == (base, records[-1].offset)
    assert (header.leader_epoch, header.compression) == (7, compression)
    assert header.max_timestamp_ms == max(-1, *(record.timestamp_ms for record in records))


@given(batches(), st.data())
def test_damage_is_found_by_the_checksum(
    made: tuple[int, list[KafkaRecord]], data: st.DataObject
) -> None:
    """Tests every changed bit after the checksum, or in it."""
    batch = bytearray(build_batch(made[1], base_offset=made[0]))
    at = data.draw(st.integers(17, len(batch) - 1))
    batch[at] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(KafkaError, match="stored crc") as refused:
        check_batch(batch)
    assert (refused.value.kafka_code, refused.value.kafka_class) == (2, "CorruptRecordException")


@st.composite
def stretches(draw: st.DrawFn) -> list[KafkaRecord]:
    """Records as producers write them: long stretches of one layout, with something between."""
    records: list[KafkaRecord] = []
    offset = time = 0
    for _ in range(draw(st.integers(1, 4))):
        key, value = draw(BYTES), draw(BYTES)
        step, late = draw(st.sampled_from([1, 1, 2, 300])), draw(st.integers(-200, 3000))
        for _ in range(draw(st.integers(1, 300))):
            records.append(KafkaRecord(offset, time, key, value))
            offset, time = offset + step, time + late
        if draw(st.booleans()):
            records[-1] = records[-1]._replace(value=draw(BYTES), headers=draw(HEADERS))
    return records


@given(stretches())
def test_records_of_one_layout_are_decoded_correctly(records: list[KafkaRecord]) -> None:
    """Tests anything between them, and numbers that grow by a byte anywhere."""
    assert list(records_of(build_batch(records))) == records


@given(stretches(), st.integers(0, 2**31), st.binary(min_size=1, max_size=3))
def test_decoding_by_columns_equals_decoding_one_by_one(
    records: list[KafkaRecord], place: int, other: bytes
) -> None:
    """Also for damaged records: the same columns, or none."""
    section = bytearray(build_batch(records)[BATCH_HEADER_BYTES:])
    place %= len(section)
    section[place : place + len(other)] = other
    found = []
    for uniform_rows_min in (1, 2**31):
        with pytest.MonkeyPatch.context() as patched, suppress(KafkaError):
            patched.setattr(uniform_records, "_UNIFORM_ROWS_MIN", uniform_rows_min)
            columns = reading.read_section(bytes(section), len(records), 0, 0)
            found.append(columns._replace(offsets=[*columns.offsets]))
    assert found in ([], found[:1] * 2)


@given(batches(), st.binary(max_size=40), st.integers(0, 200))
def test_incomplete_records_are_refused(
    made: tuple[int, list[KafkaRecord]], other: bytes, at: int
) -> None:
    """Tests any contents under a correct checksum."""
    batch = bytearray(build_batch(made[1], base_offset=made[0]))
    at += BATCH_HEADER_BYTES
    batch[at : at + len(other)] = other
    with suppress(KafkaError):
        list(records_of(batch))


def test_stamping_changes_nothing_that_the_checksum_covers() -> None:
    """Base offset and leader epoch lie before the checksummed bytes."""
    batch = build_columns([b"a", b"b"], [b"1", b"2"], [10, 20], compression=KafkaCompression.LZ4)
    stamped = packed_header(placed(read_batch_header(batch), 500, 3))
    header = check_batch(stamped + batch[BATCH_HEADER_BYTES:])
    assert (header.base_offset, header.next_offset, header.leader_epoch) == (500, 502, 3)
    assert header.crc == read_batch_header(batch).crc


def test_sequence_numbers_wrap_around() -> None:
    """As Kafka counts them: 31 bits."""
    batch = build_columns([b"k"] * 3, [b""] * 3, [1] * 3, producer_id=4, base_sequence=2**31 - 2)
    assert check_batch(batch).last_sequence == 0
    assert check_batch(build_columns([b"k"], [b""], [1])).last_sequence == -1


@pytest.mark.parametrize(
    ("field", "at", "code"),
    [("magic", 16, 43), ("record count", 57, 87), ("compression", 22, 76)],
)
def test_an_invalid_header_is_refused_with_kafkas_error(field: str, at: int, code: int) -> None:
    """Though its checksum is right."""
    batch = bytearray(build_columns([b"k"], [b"v"], [1]))
    batch[at] = {"magic": 1, "record count": 0x80, "compression": 5}[field]
    batch[17:21] = crc32c(batch[21:]).to_bytes(4, "big")
    with pytest.raises(KafkaError) as refused:
        check_batch(batch)
    assert refused.value.kafka_code == code


@pytest.mark.parametrize("size", [0, 60, 61, 69])
def test_a_part_of_a_batch_is_refused(size: int) -> None:
    """From nothing to one byte too few."""
    batch = build_columns([b"k"], [b"v"], [1])
    with pytest.raises(KafkaError, match=r"smaller than|header gives") as refused:
        check_batch(batch[:size])
    assert refused.value.kafka_code == 2


@pytest.mark.parametrize("deltas", [[0, 0], [1, 0], [-1, 0]])
def test_offsets_rise_within_a_batch(deltas: list[int]) -> None:
    """A builder with other offsets gets an error."""
    with pytest.raises(KafkaError, match="monotonically"):
        build_columns([b"a", b"b"], [b"1", b"2"], [1, 1], offset_deltas=deltas)


def test_an_offset_beyond_the_batch_is_refused_at_any_place() -> None:
    """Between two good ones, too: tests had only had them first and last."""
    batch = build_columns([b"a", b"b", b"c"], [b"1", b"2", b"3"], [1, 1, 1])
    section = bytearray(batch[BATCH_HEADER_BYTES:])
    size = len(section) // 3
    # Length, attributes, time; then the second record's offset: 1, in zigzag.
    assert section[size + 3] == 2
    section[size + 3] = 18
    moved = sealed(read_batch_header(batch), bytes(section))
    with pytest.raises(KafkaError, match="is outside its batch"):
        list(records_of(moved))


def test_an_entry_is_a_batch() -> None:
    """Its sections end to end, before and after the broker has stamped it."""
    headers = {1: (("h", b"x"), ("n", None), ("h", b"\xff"))}
    batch = build_columns([b"a", None], [None, b""], [10, 0], headers)
    entry = entry_of(batch, sequence_id=8, publish_time_ms=5)
    header = check_entry(entry)
    assert (header.codec, header.message_count, header.key_bytes) == (Codec.KAFKA, 2, 61)
    for each in (entry, stamp(entry, 4, 2, 6, 0)):
        assert each[header.header_bytes :] == batch
    first, second = decode(entry).messages()
    assert (first.key, first.value, first.value_is_null, first.event_time_ms) == (
        b"a",
        b"",
        True,
        10,
    )
    assert (second.key, second.value, second.value_is_null) == (None, b"", False)
    assert (first.batch_index, second.batch_index, first.batch_size) == (0, 1, 2)
    assert (first.sequence_id, second.sequence_id) == (7, 8)
    assert second.properties == {"h": "\\xff", "n": ""}
    assert last_batch_index(entry, header) == 1


def test_messages_keep_their_index_when_others_are_removed() -> None:
    """Batch indexes are the offset deltas."""
    records = [KafkaRecord(12, 0, b"k", b"v"), KafkaRecord(15, 0, b"l", b"w")]
    entry = entry_of(build_batch(records, base_offset=10), sequence_id=5, publish_time_ms=0)
    assert [(m.batch_index, m.batch_size, m.sequence_id) for m in decode(entry).messages()] == [
        (2, 6, 2),
        (5, 6, 5),
    ]


def test_a_stored_entry_that_is_not_a_batch_is_damage() -> None:
    """And the producer's mistake before."""
    entry = bytearray(
        entry_of(build_columns([b"k"], [b"v"], [1]), sequence_id=0, publish_time_ms=0)
    )
    header = read_header(entry)
    with pytest.raises(InvalidRequest, match="not its batch's records"):
        decode(entry, header._replace(value_bytes=3))
    with pytest.raises(Corruption), decoding("1/0.log"):
        decode(entry, header._replace(message_count=2))
    entry[-1] = 9
    with pytest.raises(Corruption, match="expected an entry that decodes"), decoding("1/0.log"):
        list(decode(entry).messages())


def test_a_batch_without_records_may_be_stored_and_not_published() -> None:
    """A cleaning leaves it: a span of offsets, and no messages."""
    batch = read_batch_header(build_columns([b"k"] * 3, [b"v"] * 3, [1] * 3))
    alone = sealed(batch._replace(record_count=0), b"")
    entry = entry_of(alone, sequence_id=5, publish_time_ms=0)
    header = read_header(entry)
    assert (header.message_count, header.value_bytes, last_batch_index(entry, header)) == (0, 0, 2)
    assert list(decode(entry).messages()) == []
    with pytest.raises(InvalidRequest, match="no messages"):
        check_entry(entry)


@pytest.mark.parametrize(
    ("key", "value", "match"),
    [
        (b"\0\0\0", b"", "at least 4 bytes, but found only 3"),
        (None, b"", "found only 0"),
        (b"\xff\xff\0\1", b"", "version found for control record: -1"),
        (b"\0\0\0\1", b"\0\0\0\0\0", "at least 6 bytes, but found only 5"),
    ],
)
def test_a_truncated_marker_is_refused(key: bytes, value: bytes, match: str) -> None:
    """As Kafka words it."""
    with pytest.raises(KafkaError, match=match):
        read_end_marker(build_columns([key], [value], [1], is_control=True))


def test_other_control_records_do_not_end_a_transaction() -> None:
    """Nor are unknown kinds, nor data."""
    for number, kind in ((2, ControlType.LEADER_CHANGE), (40, ControlType.UNKNOWN)):
        batch = build_columns([bytes((0, 0, 0, number))], [b""], [1], is_control=True)
        assert (marker_type(batch), read_end_marker(batch)) == (kind, None)
    assert marker_type(build_columns([b"\0\0\0\1"], [b""], [1])) is None


def test_columns_of_different_lengths_are_refused() -> None:
    """Empty ones do not either."""
    for keys, values in (([], []), ([b"k"], []), ([b"k"], [b"v", b"w"])):
        with pytest.raises(KafkaError, match="columns of one length"):
            build_columns(keys, values, [1])


@pytest.mark.parametrize("size", [1, 2, 3])
def test_columns_of_dense_offset_deltas_are_those_of_single_varints(size: int) -> None:
    """Compares all numbers of a size with the encoder of single numbers. A test of the last ones
    had been missing.
    """
    first, end = [(0, 64), (64, 8192), (8192, 127 * 8192)][size - 1]
    step = 8192
    starts = range(first, end - step if size == 3 else first + 1, step)
    for start in {*starts[:: stride(8)], starts[-1]}:
        count = min(end - start, step)
        singles = [VARINTS[number] for number in range(start, start + count)]
        assert COUNTED.columns(start, count, size) == [
            bytes(column) for column in zip(*singles, strict=True)
        ]
