"""The key columns of Pulsar entries, and the entries that a run rebuilds."""

from __future__ import annotations

from contextlib import suppress
from itertools import pairwise
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgerfold.compactor.job import pulsar_scan
from ledgerfold.compactor.job.key_sections import is_opaque, key_columns
from ledgerfold.compactor.job.pulsar_keys import KeySection
from ledgerfold.compactor.job.pulsar_rebuild import keep_pulsar_rows
from ledgerfold.compactor.job.pulsar_scan import Scanned, scan_batch
from ledgerfold.compactor.job.rebuild import RawEntry
from ledgerfold.storage.codec import decode, last_batch_index
from ledgerfold.storage.compression import UNCOMPRESSED_BYTES_MAX, compress
from ledgerfold.storage.entry import HEADER_BYTES, Compression, read_header
from ledgerfold.storage.errors import InvalidRequest
from ledgerfold.storage.native import HAS_KEY
from ledgerfold.storage.pulsar.entries import entry_of
from ledgerfold.v1.pulsar_pb2 import MessageMetadata
from tests.support.pulsar_entries import (
    UNKNOWN_FIELD,
    Sent,
    batch_entry,
    message,
    metadata_of,
    packed,
    sections,
    unpacked,
)
from tests.support.pulsar_singles import singles

LONG = 300


def slowly(payload: bytes, count: int) -> Scanned:
    with mock.patch.object(pulsar_scan, "_ROWS_MIN", 10**9):
        return scan_batch(payload, count)


def quickly(payload: bytes, count: int) -> Scanned | None:
    return pulsar_scan._Places(payload).chained(count)


def assert_same(payload: bytes, fast: Scanned, slow: Scanned) -> None:
    for name in ("starts", "ends", "value_sizes", "has_key", "is_placeholder", "is_null"):
        assert getattr(fast, name).tolist() == getattr(slow, name).tolist(), name
    assert fast.is_base64.tolist() == slow.is_base64.tolist()
    assert keys_of(payload, fast) == keys_of(payload, slow)
    assert (fast.event_times is None) == (slow.event_times is None)
    if fast.event_times is not None and slow.event_times is not None:
        assert fast.event_times.tolist() == slow.event_times.tolist()


def keys_of(payload: bytes, found: Scanned) -> list[bytes]:
    pairs = zip(found.key_starts.tolist(), found.key_sizes.tolist(), strict=True)
    return [payload[at : at + size] for at, size in pairs]


@st.composite
def odd_singles(draw: st.DrawFn) -> Sent:
    """Draws a message that may be long, hold zeros, or look like several."""
    single, value = draw(singles())
    kind = draw(st.integers(0, 7))
    if kind == 0:
        single.partition_key = b"k" * draw(st.sampled_from((127, 128, 200, 260)))
    if kind == 1:
        value = draw(
            st.sampled_from((bytes(50), packed([message(b"v", "k")] * 2), b"\0\0\0\x0a\x12"))
        )
        single.payload_size = len(value)
    if kind == 2:
        single.sequence_id = draw(st.sampled_from((0, 127, 128, 2**40)))
    if kind == 3:
        value, single.payload_size, single.compacted_out = b"", 0, True
    if kind == 4:
        single.ordering_key = b"o" * 130
    return single, value


@given(st.lists(odd_singles(), min_size=1, max_size=12))
def test_both_scans_agree(messages: list[Sent]) -> None:
    payload = packed(messages)
    slow = slowly(payload, len(messages))
    assert keys_of(payload, slow) == [single.partition_key for single, _ in messages]
    fast = quickly(payload, len(messages))
    if fast is not None:
        assert_same(payload, fast, slow)


@given(st.lists(odd_singles(), min_size=1, max_size=6), st.data())
def test_a_scan_of_damaged_bytes_agrees_with_protobuf(
    messages: list[Sent], data: st.DataObject
) -> None:
    damaged = bytearray(packed(messages))
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    payload = bytes(damaged)
    fast = quickly(payload, len(messages))
    with suppress(InvalidRequest):
        slow = slowly(payload, len(messages))
        if fast is not None:
            assert_same(payload, fast, slow)


def test_usual_batches_are_scanned_by_column() -> None:
    """Values may contain zeros, and bytes that look like a message."""
    values = [b"text" * 25, bytes(30), packed([message(b"v", "k")]), b"\0\0\0"]
    messages = [
        message(values[n % 4], f"key-{n}", sequence_id=n, event_time=n % 3) for n in range(LONG)
    ]
    payload = packed(messages)
    fast = quickly(payload, LONG)
    assert fast is not None
    assert_same(payload, fast, slowly(payload, LONG))


@pytest.mark.parametrize("zeros", [0, 100])
def test_values_with_many_zeros_are_parsed_by_protobuf(zeros: int) -> None:
    payload = packed([message(b"\0\0\0\0\x12" * zeros, "k")] * 50)
    assert (quickly(payload, 50) is None) == bool(zeros)
    found = scan_batch(payload, 50)
    assert found.value_sizes.tolist() == [5 * zeros] * 50


def columns(data: bytes) -> KeySection:
    section, values = sections(data)
    found = key_columns(read_header(data), section, lambda: values)
    assert isinstance(found, KeySection)
    return found


@given(st.lists(singles(), min_size=1, max_size=40), st.sampled_from(Compression))
def test_key_columns(messages: list[Sent], compression: int) -> None:
    found = columns(batch_entry(messages, compression=compression))
    offsets = np.frombuffer(found.key_offsets, "<u4")
    keys = [found.keys[start:end] for start, end in pairwise(offsets)]
    assert keys == [single.partition_key for single, _ in messages]
    has_key = [bool(flag & HAS_KEY) for flag in found.flags]
    assert has_key == [single.HasField("partition_key") for single, _ in messages]
    sizes = np.frombuffer(found.value_sizes, "<u4").tolist()
    assert sizes == [single.payload_size for single, _ in messages]
    assert not is_opaque(found)


def raw(data: bytes) -> RawEntry:
    return RawEntry(data[:HEADER_BYTES], *sections(data))


@given(
    st.lists(singles(), min_size=2, max_size=30),
    st.sampled_from(Compression),
    st.data(),
)
def test_a_rebuilt_batch_has_placeholders(
    messages: list[Sent], compression: int, data: st.DataObject
) -> None:
    """Rebuilt twice: a run removes messages from another run's result."""
    stored = raw(batch_entry(messages, compression=compression))
    left = list(range(len(messages)))
    for _ in range(2):
        rows = sorted(data.draw(st.sets(st.sampled_from(range(len(left))), min_size=1)))
        header = read_header(stored.header)
        stored = keep_pulsar_rows(header, stored, np.array(rows))
        left = [left[row] for row in rows]
        whole = b"".join(stored)
        header = read_header(whole)
        assert header.message_count == len(left)
        assert UNKNOWN_FIELD in stored.key_section
        metadata = MessageMetadata.FromString(stored.key_section)
        assert metadata.num_messages_in_batch == len(messages)
        assert list(metadata.compacted_batch_indexes) == left
        found = unpacked(stored.key_section, stored.value_section)
        for index, (single, value) in enumerate(found):
            if index in left:
                assert (single, value) == messages[index]
            else:
                assert (single.compacted_out, single.payload_size, value) == (True, 0, b"")
        decoded = list(decode(whole).messages())
        assert [each.batch_index for each in decoded] == left
        assert [each.value for each in decoded] == [messages[index][1] for index in left]
        assert last_batch_index(whole, header) == left[-1]
        indexes = np.frombuffer(columns(whole).batch_indexes, "<u4").tolist()
        assert indexes == left or len(left) == len(messages)


@pytest.mark.parametrize("rows", [[0, 2], [1]])
def test_a_renumbered_batch(rows: list[int]) -> None:
    messages = [
        message(b"%d" % n, f"k{n}", sequence_id=20 + n, event_time=n, ordering_key=b"o")
        for n in range(3)
    ]
    stored = raw(batch_entry(messages, compression=Compression.ZSTD))
    rebuilt = keep_pulsar_rows(read_header(stored.header), stored, np.array(rows), renumber=True)
    whole = b"".join(rebuilt)
    header = read_header(whole)
    found = list(decode(whole).messages())
    is_alone = len(rows) == 1
    assert header.is_plain == is_alone
    assert [each.batch_index for each in found] == ([-1] if is_alone else [0, 1])
    assert [each.key for each in found] == [b"k%d" % n for n in rows]
    assert [each.value for each in found] == [b"%d" % n for n in rows]
    assert [each.sequence_id for each in found] == [20 + n for n in rows]
    assert [each.event_time_ms for each in found] == rows
    assert UNKNOWN_FIELD in rebuilt.key_section


def sealed(count: int = 3) -> bytes:
    metadata = metadata_of(
        num_messages_in_batch=count, partition_key=b"first", encryption_keys=[b"key"]
    )
    return entry_of(metadata, metadata.SerializeToString(), b"encrypted" * count)


@pytest.mark.parametrize("compression", [each for each in Compression if each])
def test_a_too_large_batch_is_kept_whole(compression: int) -> None:
    """It is not decompressed, whatever size its metadata state."""
    bomb = compress(compression, bytes(UNCOMPRESSED_BYTES_MAX + 1))[4:]
    for size in (UNCOMPRESSED_BYTES_MAX + 1, 100):
        metadata = metadata_of(
            num_messages_in_batch=1, compression=compression, uncompressed_size=size
        )
        data = entry_of(metadata, metadata.SerializeToString(), bomb)
        assert columns(data).passes
        (found,) = decode(data).messages()
        assert found.value == bomb


def test_an_undecodable_batch_is_kept_whole() -> None:
    data = sealed()
    found = columns(data)
    assert (found.keys, found.is_opaque, found.passes, len(found.flags)) == (
        b"first",
        True,
        False,
        1,
    )
    assert keep_pulsar_rows(read_header(data), raw(data), np.array([0])) == raw(data)
    broken = bytearray(batch_entry([message(b"v", "k")] * 2))
    broken[-3] = 0xFF
    section, _ = sections(bytes(broken))
    entry = RawEntry(bytes(broken[:HEADER_BYTES]), section, b"\0\0\0\x05damage")
    header = read_header(entry.header)
    columns_found = key_columns(header, section, lambda: entry.value_section)
    assert isinstance(columns_found, KeySection)
    assert (columns_found.is_opaque, columns_found.passes) == (True, True)
    assert (columns_found.flags, columns_found.value_sizes) == (bytes(1), bytes(4))
    assert keep_pulsar_rows(header, entry, np.array([0])) == entry
