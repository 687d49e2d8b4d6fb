"""Entries as Pulsar's clients send and read them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgerfold.broker.pulsar.entries import to_served, to_stored
from ledgerfold.broker.pulsar.frames import Message
from ledgerfold.broker.pulsar.from_native import PulsarEntry, bits_of, from_native, words_of
from ledgerfold.storage.entry import Compression, rebuild_header, stamp
from ledgerfold.storage.entry_check import check_entry
from ledgerfold.storage.errors import NotAllowed
from ledgerfold.storage.native import NativeBatchBuilder
from ledgerfold.storage.served_entry import with_live_rows
from ledgerfold.v1.entry_pb2 import NativeKeys
from ledgerfold.v1.pulsar_pb2 import CommandSend, MessageMetadata, SingleMessageMetadata
from tests.support.pulsar_entries import (
    UNKNOWN_FIELD,
    Sent,
    batch_entry,
    message,
    metadata_of,
    packed,
    sections,
)
from tests.support.pulsar_entries import unpacked as unpacked_of
from tests.support.pulsar_singles import singles

SEND = CommandSend(producer_id=1, sequence_id=7)


def unpacked(entry: PulsarEntry) -> list[Sent]:
    return unpacked_of(entry.metadata, entry.payload)


def native_of(messages: list[Sent], *, sequence_id: int, compression: int, plain: bool) -> bytes:
    """Returns the entry of a client of this package."""
    builder = NativeBatchBuilder("p")
    for single, value in messages:
        builder.add(
            None if single.null_value else value,
            single.partition_key if single.HasField("partition_key") else None,
            key_is_base64=single.partition_key_b64_encoded,
            properties={each.key.decode(): each.value.decode() for each in single.properties},
            event_time_ms=single.event_time,
            ordering_key=single.ordering_key or None,
        )
    return builder.build(
        sequence_id=sequence_id, publish_time_ms=5, compression=compression, plain=plain
    )


@given(st.lists(singles(), min_size=1, max_size=6), st.sampled_from(Compression))
def test_a_native_batch(messages: list[Sent], codec: int) -> None:
    last_id = 6 + len(messages)
    native = native_of(messages, sequence_id=last_id, compression=codec, plain=False)
    entry = to_served(stamp(native, 1, 2, 3, 4))
    assert entry == from_native(stamp(native, 1, 2, 3, 4))
    assert (entry.batch_size, entry.live) == (len(messages), None)
    for number, (single, _) in enumerate(messages):
        single.sequence_id = 7 + number
    assert [(_sorted(single), value) for single, value in unpacked(entry)] == [
        (_sorted(single), value) for single, value in messages
    ]
    told = MessageMetadata.FromString(entry.metadata)
    assert (told.sequence_id, told.publish_time, told.producer_name) == (7, 5, b"p")
    assert told.compression == codec


def _sorted(single: SingleMessageMetadata) -> bytes:
    """Ignores flags that have their default."""
    single = SingleMessageMetadata.FromString(single.SerializeToString())
    if not single.HasField("partition_key"):
        single.ClearField("partition_key_b64_encoded")
    return single.SerializeToString(deterministic=True)


@given(singles(), st.sampled_from(Compression))
def test_a_native_message(sent: Sent, codec: int) -> None:
    single, value = sent
    native = native_of([sent], sequence_id=7, compression=codec, plain=True)
    entry = from_native(stamp(native, 1, 2, 3, 4))
    told = MessageMetadata.FromString(entry.metadata)
    assert (entry.batch_size, entry.live) == (0, None)
    metadata = metadata_of(uncompressed_size=len(value))
    for name in ("partition_key", "event_time", "ordering_key", "null_value"):
        if single.HasField(name):
            setattr(metadata, name, getattr(single, name))
    if single.HasField("partition_key") and single.partition_key_b64_encoded:
        metadata.partition_key_b64_encoded = True
    metadata.properties.extend(single.properties)
    if value and codec:
        metadata.compression = codec
    assert told == metadata


@given(st.lists(singles(), min_size=1, max_size=6), st.sampled_from(Compression))
def test_a_clients_entry_is_returned_unchanged(messages: list[Sent], codec: int) -> None:
    section, payload = sections(batch_entry(messages, compression=codec))
    assert UNKNOWN_FIELD in section
    sent = Message(MessageMetadata.FromString(section), section, memoryview(payload))
    stored, is_new = to_stored(sent, SEND)
    assert check_entry(stored).message_count == len(messages)
    assert not is_new
    served = to_served(stamp(stored, 1, 2, 3, 4))
    assert served == PulsarEntry(section, payload, len(messages), None)


def test_only_the_live_messages_of_a_batch_are_shown() -> None:
    data = batch_entry([message(b"%d" % n, f"k{n}") for n in range(70)])
    live = (1 << 3) | (1 << 69)
    header, served = with_live_rows(check_entry(data), data, live.to_bytes(9, "little"))
    assert header.message_count == 2
    assert to_served(served) == PulsarEntry(*sections(data), 70, live)


def test_entries_have_the_time_of_a_manual_clock() -> None:
    metadata = metadata_of()
    section = metadata.SerializeToString() + UNKNOWN_FIELD
    sent = Message(MessageMetadata.FromString(section), section, memoryview(b"v"))
    stored, _ = to_stored(sent, SEND, publish_time_ms=99)
    assert check_entry(stored).publish_time_ms == 99
    told, _ = sections(stored)
    assert MessageMetadata.FromString(told).publish_time == 99
    assert UNKNOWN_FIELD in told


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
    """The entry is served as stored, with its live rows."""
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


@pytest.mark.parametrize("fields", [{"marker_type": 0}, {"txnid_most_bits": 1}])
def test_refusals_name_the_unsupported_feature(fields: dict[str, int]) -> None:
    with pytest.raises(NotAllowed):
        to_stored(Message(metadata_of(**fields), b"", memoryview(b"")), SEND)


def test_incomplete_chunked_messages_are_no_duplicates() -> None:
    found = []
    for number in range(2):
        metadata = metadata_of(uuid=b"u", num_chunks_from_msg=2, chunk_id=number)
        sent = Message(metadata, metadata.SerializeToString(), memoryview(packed([])))
        found.append(to_stored(sent, SEND).is_new)
    assert found == [True, False]


@given(st.integers(0, 2**200))
def test_acknowledgement_sets_as_words_and_bits(bits: int) -> None:
    assert bits_of(words_of(bits, 201)) == bits
    assert bits_of([2**64 - 1, 0, -1]) == (2**64 - 1) | (2**64 - 1) << 128
