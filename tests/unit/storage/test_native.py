"""Tests the facts that the native codec reads from the key section alone."""

from __future__ import annotations

import pytest

from ledgerfold.storage.codec import decode, last_batch_index
from ledgerfold.storage.columns import to_column
from ledgerfold.storage.entry import HEADER_BYTES, EntryFields, build_entry, read_header
from ledgerfold.storage.errors import InvalidRequest
from ledgerfold.storage.native import NativeBatchBuilder
from ledgerfold.v1.entry_pb2 import NativeKeys

NO_VALUES = b"not what a value section is"


def entry(rows: int, *, plain: bool = False) -> bytes:
    """Builds an entry of `rows` messages whose values cannot be read."""
    builder = NativeBatchBuilder("p")
    for row in range(rows):
        builder.add(b"v", key=b"%d" % row)
    whole = builder.build(sequence_id=rows, publish_time_ms=1, plain=plain)
    header = read_header(whole)
    keys = whole[HEADER_BYTES : HEADER_BYTES + header.key_bytes]
    return build_entry(keys, NO_VALUES, EntryFields(rows, flags=header.flags))


def left_over(indexes: list[int], rows: int | None = None) -> bytes:
    """Returns the rest of a batch after compaction: these rows."""
    keys = NativeKeys(
        key_offsets=to_column("I", range(len(indexes) + 1)),
        keys=b"k" * len(indexes),
        flags=bytes([1]) * (len(indexes) if rows is None else rows),
        value_sizes=to_column("I", [1] * len(indexes)),
        batch_indexes=to_column("I", indexes),
        batch_size=1_000,
    )
    return build_entry(keys.SerializeToString(), NO_VALUES, EntryFields(max(1, len(indexes))))


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (entry(1, plain=True), -1),
        (entry(1), 0),
        (entry(1_000), 999),
        (left_over([3, 70_000]), 70_000),
    ],
)
def test_the_last_batch_index_is_found_without_reading_values(data: bytes, expected: int) -> None:
    """And is the one that decoding the batch gives."""
    header = read_header(data)
    assert last_batch_index(data, header) == expected
    batch = decode(data, header)
    assert batch.batch_index(batch.rows - 1) == expected
    with pytest.raises(InvalidRequest):
        batch.value(0)


def test_the_size_of_a_batch_counts_keys_and_values() -> None:
    """Producers end a batch by it; only they had been tested with sizes."""
    builder = NativeBatchBuilder("p")
    empty = builder.size_bytes
    builder.add(b"v" * 100, key=b"k" * 1_000)
    assert builder.size_bytes >= empty + 1_100
    builder.add(None, key=b"k" * 1_000)
    assert builder.size_bytes >= empty + 2_100


def test_inconsistent_columns_have_no_last_index() -> None:
    data = left_over([1, 2], rows=3)
    with pytest.raises(InvalidRequest, match="do not match"):
        last_batch_index(data, read_header(data))
