"""The Pulsar codec: entries as Pulsar's clients sent them."""

from __future__ import annotations

import tracemalloc
import zlib
from contextlib import nullcontext, suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgerfold.compactor.job.key_sections import key_columns
from ledgerfold.compactor.job.pulsar_keys import KeySection
from ledgerfold.storage.codec import codec_of, decode, decoding, last_batch_index
from ledgerfold.storage.decoded import decoded_key
from ledgerfold.storage.entry import Compression, read_header, stamp
from ledgerfold.storage.entry_check import check_entry
from ledgerfold.storage.errors import IncompatibleFormat, InvalidRequest
from ledgerfold.storage.pulsar.entries import MESSAGES_MAX, entry_of
from ledgerfold.storage.pulsar.metadata import parse_metadata, replaced
from ledgerfold.storage.pulsar.payload import split
from ledgerfold.storage.segment import SegmentTally
from ledgerfold.storage.served_entry import read_served_header, with_live_rows
from ledgerfold.storage.varints import varint
from ledgerfold.v1.pulsar_pb2 import KeyValue, MessageMetadata
from tests.support.pulsar_entries import (
    UNKNOWN_FIELD,
    Sent,
    batch_entry,
    entry,
    message,
    metadata_of,
    packed,
    sections,
)
from tests.support.pulsar_singles import singles


@given(st.lists(singles(), min_size=1, max_size=6), st.sampled_from(Compression), st.booleans())
def test_a_batch_is_decoded_as_sent(messages: list[Sent], compression: int, has_ids: bool) -> None:
    for number, (single, _) in enumerate(messages):
        if has_ids:
            single.sequence_id = 7 + 3 * number
    last_id = 7 + 3 * (len(messages) - 1) if has_ids else 0
    data = batch_entry(messages, compression=compression, highest_sequence_id=last_id)
    header = check_entry(data)
    assert (header.message_count, header.compression) == (len(messages), compression)
    # Ids with gaps are those of one key, interleaved with those of others: sent by the first one.
    assert header.sequence_id == 7
    batch = decode(data)
    assert [found.value for found in batch.messages()] == [value for _, value in messages]
    assert batch.contents() == [value for _, value in messages]
    for row, (single, _) in enumerate(messages):
        key = single.partition_key if single.HasField("partition_key") else None
        assert (batch.key(row), batch.batch_index(row)) == (key, row)
        assert batch.key_is_base64(row) == single.partition_key_b64_encoded
        assert batch.is_null(row) == single.null_value
        assert batch.value_bytes(row) == single.payload_size
        assert batch.event_time_ms(row) == single.event_time
        assert batch.ordering_key(row) == (single.ordering_key or None)
        assert batch.sequence_id(row) == 7 + (3 if has_ids else 1) * row
        pairs = {each.key.decode(): each.value.decode() for each in single.properties}
        assert batch.properties(row) == pairs
    assert last_batch_index(data, header) == len(messages) - 1


@given(singles(), st.sampled_from(Compression))
def test_an_unbatched_message(sent: Sent, compression: int) -> None:
    single, value = sent
    metadata = metadata_of(compression=compression, schema_version=b"\x01")
    for name in ("partition_key", "event_time", "ordering_key", "null_value"):
        if single.HasField(name):
            setattr(metadata, name, getattr(single, name))
    metadata.properties.extend(single.properties)
    data = entry(metadata, value)
    header = check_entry(data)
    (found,) = decode(data).messages()
    assert header.is_plain
    assert (found.batch_index, found.value, found.sequence_id) == (-1, value, 7)
    assert found.value_is_null == single.null_value
    assert found.event_time_ms == single.event_time
    batch = decode(data)
    assert (batch.producer_name, batch.schema_version) == ("p", b"\x01")
    assert batch.value_bytes(0) == len(value)
    key, _ = sections(data)
    first = single.ordering_key or None
    if first is None and single.HasField("partition_key"):
        is_base64 = single.partition_key_b64_encoded
        first = decoded_key(single.partition_key) if is_base64 else single.partition_key
    assert codec_of(header).routing(header, key).key == first
    assert last_batch_index(data, header) == -1


def test_an_encrypted_batch_is_one_message() -> None:
    """It cannot be decrypted: its header has the counts of its metadata."""
    metadata = metadata_of(
        num_messages_in_batch=3,
        partition_key=b"first",
        encryption_keys=[b"key"],
        compression=Compression.LZ4,
        uncompressed_size=100,
    )
    data = entry_as_sent(metadata, b"noise")
    header = check_entry(data)
    (found,) = decode(data).messages()
    assert header.message_count == 3
    assert (found.key, found.value, found.batch_index) == (b"first", b"noise", -1)
    assert decode(data).value_bytes(0) == 100
    assert last_batch_index(data, header) == 2


def entry_as_sent(metadata: MessageMetadata, payload: bytes) -> bytes:
    return entry_of(metadata, metadata.SerializeToString(), payload)


@pytest.mark.parametrize(("highest", "expected"), [(0, 7), (9, 9), (12, 7)])
def test_the_id_that_identifies_a_batch(highest: int, expected: int) -> None:
    """Its highest one only if all ids between belong to it."""
    messages = [message(b"%d" % n, "k") for n in range(3)]
    data = batch_entry(messages, highest_sequence_id=highest)
    assert read_header(data).sequence_id == expected


def test_chunks_are_identified_by_the_last_one() -> None:
    ids = []
    for number in range(3):
        metadata = metadata_of(uuid=b"u", num_chunks_from_msg=3, chunk_id=number)
        ids.append(read_header(entry_as_sent(metadata, b"part")).sequence_id)
    assert ids == [6, 6, 7]


@given(st.sets(st.integers(0, 8), min_size=1, max_size=8))
def test_a_masked_entry_has_only_live_messages(live: set[int]) -> None:
    """An entry served with a mask has only the live messages, under their indexes."""
    data = batch_entry([message(b"%d" % n, f"k{n}") for n in range(9)])
    mask = sum(1 << n for n in live).to_bytes(2, "little")
    header, served = with_live_rows(read_header(data), data, mask)
    assert read_served_header(served) == header
    found = list(decode(served, header).messages())
    assert [(each.batch_index, each.value) for each in found] == [
        (n, b"%d" % n) for n in sorted(live)
    ]
    assert [each.sequence_id for each in found] == [7 + n for n in sorted(live)]
    assert last_batch_index(served, header) == max(live)


@given(st.binary(min_size=6, max_size=60), st.integers(1, 9), st.integers(0, 4))
def test_random_bytes_are_one_opaque_message(payload: bytes, count: int, compression: int) -> None:
    count = min(count, (40 if compression else len(payload)) // 6)
    metadata = metadata_of(
        num_messages_in_batch=count, compression=compression, uncompressed_size=40
    )
    found = list(decode(entry_as_sent(metadata, payload)).messages())
    is_read = len(found) == count and found[0].batch_index == 0
    assert is_read or [(each.key, each.value) for each in found] == [(None, payload)]


@given(st.sampled_from(Compression), st.binary(max_size=30))
def test_an_unbatched_message_that_does_not_decompress_is_returned_unchanged(
    compression: int, payload: bytes
) -> None:
    """A chunk never does: the message is compressed as a whole, and then cut."""
    metadata = metadata_of(compression=compression, uncompressed_size=9)
    chunk = metadata_of(
        compression=compression, uncompressed_size=9, num_chunks_from_msg=2, chunk_id=0
    )
    (found,) = decode(entry_as_sent(chunk, payload)).messages()
    assert found.value == payload
    batch = decode(entry_as_sent(metadata, payload))
    assert len(batch.contents()) == 1
    assert batch.value(0) == batch.contents()[0]
    if compression:
        assert batch.value(0) == payload or len(batch.value(0)) == 9


def test_a_zlib_stream_of_the_java_client_has_no_end_marker() -> None:
    """It is flushed, and never finished: a batch of it is compacted message by message."""
    payload = packed([message(b"1", "a"), message(b"2", "b")])
    stream = zlib.compressobj()
    flushed = stream.compress(payload) + stream.flush(zlib.Z_SYNC_FLUSH)
    metadata = metadata_of(
        num_messages_in_batch=2, compression=Compression.ZLIB, uncompressed_size=len(payload)
    )
    data = entry_as_sent(metadata, flushed)
    assert [(each.key, each.value) for each in decode(data).messages()] == [
        (b"a", b"1"),
        (b"b", b"2"),
    ]
    key_section, values = sections(data)
    keys = key_columns(read_header(data), key_section, lambda: values)
    assert isinstance(keys, KeySection)
    assert not keys.passes


def test_properties_may_be_any_bytes() -> None:
    """A client in C++ does not check that they are UTF-8."""
    pair = KeyValue(key=b"caf\xe9", value=b"\xff\n")
    alone = metadata_of()
    alone.properties.append(pair)
    in_batch = batch_entry([message(b"v", "k", properties=[pair])])
    for data in (entry_as_sent(alone, b"v"), in_batch):
        assert decode(data).properties(0) == {"caf\\xe9": "\\xff\n"}


def test_a_batch_takes_little_memory_for_each_message() -> None:
    count = 50_000
    data = batch_entry([message(b"", "k")] * count, compression=Compression.ZSTD)
    assert len(data) < 1000
    tracemalloc.start()
    try:
        batch = decode(data)
        assert (batch.rows, batch.key(count - 1)) == (count, b"k")
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # The payload has 9 bytes a message.
    assert kept < 25 * count


@pytest.mark.parametrize(
    ("count", "fields", "fits"),
    [
        (2, {}, True),
        (3, {}, False),
        (3, {"encryption_keys": [b"key"]}, False),
        (100, {"compression": 3, "uncompressed_size": 600}, True),
        (101, {"compression": 3, "uncompressed_size": 600}, False),
        (MESSAGES_MAX, {"compression": 3, "uncompressed_size": 2**31}, True),
        (MESSAGES_MAX + 1, {"compression": 3, "uncompressed_size": 2**31}, False),
    ],
)
def test_a_batch_has_no_more_messages_than_its_payload_can_hold(
    count: int, fields: dict[str, Any], fits: bool
) -> None:
    metadata = metadata_of(num_messages_in_batch=count, **fields)
    with nullcontext() if fits else pytest.raises(InvalidRequest, match=str(count)):
        entry_as_sent(metadata, bytes(12))


def test_an_entry_of_a_later_build_is_not_damage() -> None:
    later = read_header(entry_as_sent(metadata_of(), b""))._replace(codec=9)
    with pytest.raises(IncompatibleFormat, match="Use a newer build"), decoding("s"):
        codec_of(later)
    with pytest.raises(IncompatibleFormat, match="Use a newer build"):
        key_columns(later, b"", lambda: b"")


def test_an_estimate_of_key_sizes_depends_on_the_stored_bytes() -> None:
    """An entry may say that it has any number of messages."""
    metadata = metadata_of(num_messages_in_batch=10**6, compression=3, uncompressed_size=10**7)
    tally = SegmentTally("s")
    tally.add_stored([read_header(stamp(entry_as_sent(metadata, bytes(40)), 1, 0, 1, 1))])
    assert tally.record.key_bytes < 10_000


@pytest.mark.parametrize("cut", [1, 3, 5, 12])
def test_a_truncated_batch(cut: int) -> None:
    payload = packed([message(b"one", "k"), message(b"two", "l")])
    metadata = metadata_of(num_messages_in_batch=2)
    for count, sent in ((2, payload[:-cut]), (2, payload + b"more"), (1, payload), (3, payload)):
        with pytest.raises(InvalidRequest):
            list(split(sent, count))
        metadata.num_messages_in_batch = count
        (found,) = decode(entry_as_sent(metadata, sent)).messages()
        assert (found.key, found.value, found.batch_index) == (None, sent, -1)


@pytest.mark.parametrize(
    "fields",
    [
        {"num_messages_in_batch": 0},
        {"num_messages_in_batch": -1},
        {"compression": 9},
        {"sequence_id": -1},
        {"publish_time": -1},
        {"compacted_batch_indexes": [1]},
    ],
)
def test_metadata_that_do_not_fit_a_header(fields: dict[str, object]) -> None:
    with pytest.raises(InvalidRequest):
        entry_as_sent(metadata_of(**fields), b"")


@given(st.dictionaries(st.sampled_from((9, 11, 31)), st.none() | st.integers(0, 2**31 - 1)))
def test_a_rewrite_changes_only_the_named_fields(fields: dict[int, int | None]) -> None:
    metadata = metadata_of(uncompressed_size=5, num_messages_in_batch=3)
    metadata.encryption_keys.append(b"key")
    section = metadata.SerializeToString() + UNKNOWN_FIELD
    changed = replaced(section, {number: value for number, value in fields.items() if number != 31})
    assert UNKNOWN_FIELD in changed
    found, expected = parse_metadata(changed), parse_metadata(section)
    for number, name in ((9, "uncompressed_size"), (11, "num_messages_in_batch")):
        if number in fields:
            expected.ClearField(name)
            if (value := fields[number]) is not None:
                setattr(expected, name, value)
    assert found == expected


@given(st.binary(max_size=40))
def test_random_bytes_as_metadata(section: bytes) -> None:
    with suppress(InvalidRequest):
        parse_metadata(section)
    with suppress(InvalidRequest):
        replaced(section, {9: 1})


@st.composite
def unknown_fields(draw: st.DrawFn, depth: int = 0) -> bytes:
    """Draws a field that no build knows, of any wire type."""
    number = draw(st.integers(1000, 2000))
    kind = draw(st.integers(0, 5))

    def tag(kind: int) -> bytes:
        return varint(number << 3 | kind)

    match kind:
        case 0:
            return tag(0) + varint(draw(st.integers(0, 2**64 - 1)))
        case 1:
            return tag(1) + draw(st.binary(min_size=8, max_size=8))
        case 2:
            content = draw(st.binary(max_size=9))
            return tag(2) + varint(len(content)) + content
        case 5:
            return tag(5) + draw(st.binary(min_size=4, max_size=4))
    inner = [] if depth > 3 else draw(st.lists(unknown_fields(depth=depth + 1), max_size=3))
    return tag(3) + b"".join(inner) + tag(4)


@given(unknown_fields(), st.data())
def test_a_rewrite_keeps_any_valid_protobuf(unknown: bytes, data: st.DataObject) -> None:
    """Otherwise a message that was stored could not be removed by any run."""
    section = unknown + metadata_of(uncompressed_size=5).SerializeToString()
    assert replaced(section, {9: 300}).startswith(unknown)
    assert parse_metadata(replaced(section, {9: 300})).uncompressed_size == 300
    damaged = bytearray(section)
    damaged[data.draw(st.integers(0, len(section) - 1))] = data.draw(st.integers(0, 255))
    try:
        parse_metadata(damaged)
    except InvalidRequest:
        return
    replaced(bytes(damaged), {9: 300})


@pytest.mark.parametrize("section", ["c33e", "c43e", "c33ecc3e", "c33e0801"])
def test_a_truncated_group(section: str) -> None:
    with pytest.raises(InvalidRequest):
        replaced(bytes.fromhex(section), {})
