"""Entries of Pulsar's format, there and back."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgerfold.broker.pulsar.frames import Message
from ledgerfold.broker.pulsar.from_native import PulsarEntry, bits_of, from_native, words_of
from ledgerfold.broker.pulsar.to_native import to_native
from ledgerfold.storage.compression import compress, decompress
from ledgerfold.storage.entry import Compression, rebuild_header, stamp
from ledgerfold.storage.entry_check import check_entry
from ledgerfold.storage.errors import InvalidRequest, NotAllowed
from ledgerfold.storage.native import NativeBatchBuilder
from ledgerfold.storage.served_entry import with_live_rows
from ledgerfold.v1.entry_pb2 import NativeKeys
from ledgerfold.v1.pulsar_pb2 import (
    CommandSend,
    KeyValue,
    MessageMetadata,
    SingleMessageMetadata,
)

SEND = CommandSend(producer_id=1, sequence_id=7)
TEXTS = st.text(max_size=4)


@st.composite
def singles(draw: st.DrawFn) -> tuple[SingleMessageMetadata, bytes]:
    value = draw(st.none() | st.binary(max_size=20))
    single = SingleMessageMetadata(payload_size=len(value or b""))
    if value is None:
        single.null_value = True
    if (key := draw(st.none() | st.binary(max_size=4))) is not None:
        single.partition_key = key
        if draw(st.booleans()):
            single.partition_key_b64_encoded = True
    if event_time := draw(st.sampled_from((0, 1, 2**40))):
        single.event_time = event_time
    if ordering_key := draw(st.binary(max_size=2)):
        single.ordering_key = ordering_key
    for name, content in draw(st.dictionaries(TEXTS, TEXTS, max_size=2)).items():
        single.properties.append(KeyValue(key=name.encode(), value=content.encode()))
    return single, value or b""


def packed(messages: list[tuple[SingleMessageMetadata, bytes]]) -> bytes:
    parts = []
    for single, value in messages:
        encoded = single.SerializeToString()
        parts += [len(encoded).to_bytes(4, "big"), encoded, value]
    return b"".join(parts)


def unpacked(entry: PulsarEntry) -> list[tuple[SingleMessageMetadata, bytes]]:
    metadata = MessageMetadata.FromString(entry.metadata)
    size = metadata.uncompressed_size.to_bytes(4, "little")
    payload = entry.payload
    if metadata.compression:
        payload = decompress(metadata.compression, size + payload)
    at, found = 0, []
    while at < len(payload):
        end = at + 4 + int.from_bytes(payload[at : at + 4], "big")
        single = SingleMessageMetadata.FromString(payload[at + 4 : end])
        at = end + single.payload_size
        found.append((single, payload[end:at]))
    return found


def metadata_of(**fields: Any) -> MessageMetadata:
    return MessageMetadata(producer_name=b"p", sequence_id=7, publish_time=5, **fields)


def sent(metadata: MessageMetadata, payload: bytes) -> Message:
    """Returns the message as its client compresses it."""
    if metadata.compression:
        metadata.uncompressed_size = len(payload)
        payload = compress(metadata.compression, payload)[4:]
    return Message(metadata, memoryview(payload))


@given(st.lists(singles(), min_size=1, max_size=6), st.sampled_from(Compression), st.booleans())
def test_a_batch_comes_back(
    messages: list[tuple[SingleMessageMetadata, bytes]], codec: int, has_ids: bool
) -> None:
    for number, (single, _) in enumerate(messages):
        if has_ids:
            single.sequence_id = 7 + 3 * number
    metadata = metadata_of(num_messages_in_batch=len(messages), compression=codec)
    native = to_native(sent(metadata, packed(messages)), SEND)
    header = check_entry(native)
    assert header.message_count == len(messages)
    # Ids with gaps are those of one key, interleaved with those of others: sent by the first one.
    assert header.sequence_id == 7 + (0 if has_ids else len(messages) - 1)
    entry = from_native(stamp(native, 1, 2, 3, 4))
    assert (entry.batch_size, entry.live) == (len(messages), None)
    found = unpacked(entry)
    for number, (single, _) in enumerate(messages):
        single.sequence_id = 7 + (3 if has_ids else 1) * number
    assert [(_sorted(single), value) for single, value in found] == [
        (_sorted(single), value) for single, value in messages
    ]
    told = MessageMetadata.FromString(entry.metadata)
    assert (told.sequence_id, told.publish_time, told.producer_name) == (7, 5, b"p")
    assert told.compression == codec


def _sorted(single: SingleMessageMetadata) -> bytes:
    """Ignores flags that are set to what they are without."""
    single = SingleMessageMetadata.FromString(single.SerializeToString())
    if not single.HasField("partition_key"):
        single.ClearField("partition_key_b64_encoded")
    return single.SerializeToString(deterministic=True)


@given(singles(), st.sampled_from(Compression))
def test_a_single_message_comes_back(
    message: tuple[SingleMessageMetadata, bytes], codec: int
) -> None:
    single, value = message
    metadata = metadata_of(compression=codec)
    for name in ("partition_key", "event_time", "ordering_key", "null_value"):
        if single.HasField(name):
            setattr(metadata, name, getattr(single, name))
    metadata.properties.extend(single.properties)
    native = to_native(sent(metadata, value), SEND)
    assert check_entry(native).is_plain
    entry = from_native(stamp(native, 1, 2, 3, 4))
    told = MessageMetadata.FromString(entry.metadata)
    assert (entry.batch_size, entry.live) == (0, None)
    assert not told.HasField("num_messages_in_batch")
    if not value:
        metadata.ClearField("compression")
    if not metadata.compression:
        metadata.ClearField("compression")
    metadata.uncompressed_size = len(value)
    assert told == metadata


@given(st.binary(max_size=60), st.integers(-1, 9), st.integers(0, 4))
def test_noise_is_refused(payload: bytes, count: int, codec: int) -> None:
    metadata = metadata_of(num_messages_in_batch=count, compression=codec, uncompressed_size=40)
    with suppress(InvalidRequest):
        to_native(Message(metadata, memoryview(payload)), SEND)


def test_a_compacted_batch_keeps_its_indexes() -> None:
    builder = NativeBatchBuilder("p")
    builder.add(b"two", b"k")
    builder.add(b"five", b"l")
    native = builder.build(sequence_id=16, publish_time_ms=1)
    header = check_entry(native)
    keys = NativeKeys.FromString(native[header.header_bytes :][: header.key_bytes])
    keys.batch_indexes = b"".join(each.to_bytes(4, "little") for each in (2, 5))
    keys.batch_size = 7
    values = native[header.header_bytes + header.key_bytes :]
    section = keys.SerializeToString()
    entry = from_native(rebuild_header(header, section, values, 2) + section + values)
    assert (entry.batch_size, entry.live) == (7, 0b100100)
    found = unpacked(entry)
    assert [single.compacted_out for single, _ in found] == [
        index not in (2, 5) for index in range(7)
    ]
    assert found[2][1] == b"two"
    assert (found[5][1], found[5][0].sequence_id) == (b"five", 15)


def test_dead_messages_of_a_batch_are_placeholders() -> None:
    """The entry is served as it is stored, with the rows that live."""
    builder = NativeBatchBuilder("p")
    for value in (b"one", b"two", b"three"):
        builder.add(value, b"k")
    native = builder.build(sequence_id=9, publish_time_ms=1)
    _, served = with_live_rows(check_entry(native), native, bytes((0b101,)))
    entry = from_native(served)
    assert (entry.batch_size, entry.live) == (3, 0b101)
    found = unpacked(entry)
    assert [value for _, value in found] == [b"one", b"", b"three"]
    assert [single.compacted_out for single, _ in found] == [False, True, False]
    assert (found[0][0].sequence_id, found[2][0].sequence_id) == (7, 9)


def test_refusals_name_what_cannot_be_stored() -> None:
    for fields in (
        {"encryption_keys": [b"k"]},
        {"uuid": b"u"},
        {"marker_type": 0},
        {"txnid_most_bits": 1},
    ):
        with pytest.raises(NotAllowed):
            to_native(Message(metadata_of(**fields), memoryview(b"")), SEND)
    with pytest.raises(NotAllowed):
        to_native(
            Message(metadata_of(), memoryview(b"")),
            CommandSend(producer_id=1, sequence_id=1, is_chunk=True),
        )


@given(st.integers(0, 2**200))
def test_words_and_bits(bits: int) -> None:
    assert bits_of(words_of(bits, 201)) == bits
