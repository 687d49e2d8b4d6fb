"""Compares a few rows of key columns with the columns of all rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgerfold.compactor.job.key_columns import KeyColumns, Place
from ledgerfold.storage.entry import EntryHeader, read_header
from ledgerfold.storage.errors import Corruption
from ledgerfold.storage.native import NativeBatchBuilder
from ledgerfold.storage.native_batch import parse_keys
from ledgerfold.v1.entry_pb2 import NativeKeys

PATH = "1/0.log"
# Key, value and event time of each message.
ROWS = st.tuples(
    st.one_of(st.none(), st.binary(max_size=5)),
    st.sampled_from([b"", b"1"]),
    st.integers(0, 9),
)


def _entry(rows: list[tuple[bytes | None, bytes, int]]) -> tuple[EntryHeader, NativeKeys]:
    builder = NativeBatchBuilder("p")
    for key, value, event_time_ms in rows:
        builder.add(value, key, event_time_ms=event_time_ms)
    entry = builder.build(sequence_id=0, publish_time_ms=len(rows), plain=len(rows) == 1)
    header = read_header(entry)
    keys = entry[header.header_bytes : header.header_bytes + header.key_bytes]
    return header, parse_keys(keys)


def _columns(entries: list[tuple[EntryHeader, NativeKeys]], reads_event_times: bool) -> KeyColumns:
    columns = KeyColumns(reads_event_times)
    for number, (header, keys) in enumerate(entries):
        columns.add_section(Place(PATH, number), header, 100 * number, keys)
    return columns


@given(st.lists(st.lists(ROWS, min_size=1, max_size=5), min_size=1), st.booleans(), st.data())
def test_picked_rows_equal_those_of_the_columns(
    entries: list[list[tuple[bytes | None, bytes, int]]], reads_event_times: bool, data: Any
) -> None:
    """Any rows of any entries."""
    columns = _columns(list(map(_entry, entries)), reads_event_times)
    every = st.sets(st.integers(0, columns.rows - 1), min_size=1)
    rows = np.array(sorted(data.draw(every)), np.int64)
    picked = columns.pick(rows)
    columns.check()
    keys = columns.keys().to_pylist()
    assert picked.keys.to_pylist() == [keys[row] for row in rows.tolist()]
    assert picked.has_key.tolist() == columns.has_key()[rows].tolist()
    whole = columns.facts().where(rows)
    for name in ("positions", "is_value", "event_times", "is_alone", "publish_times"):
        assert np.array_equal(getattr(picked.facts, name), getattr(whole, name))


@pytest.mark.parametrize(
    "change",
    [
        {"key_offsets": [0, 9, 2]},
        {"key_offsets": [0, 1, 3]},
        {"key_offsets": [1, 0, 2]},
        {"key_offsets": [0, 2]},
        {"flags": b"\1"},
        {"value_sizes": bytes(4)},
        {"event_times": bytes(8)},
    ],
    ids=str,
)
@pytest.mark.parametrize("place", [0, 1])
def test_picked_rows_with_invalid_offsets_are_damage(change: dict[str, Any], place: int) -> None:
    """As in the columns of all rows: the error names the entry."""
    entries = [_entry([(b"a", b"1", 3), (b"b", b"", 0)]) for _ in range(2)]
    keys = entries[place][1]
    for name, value in change.items():
        is_offsets = isinstance(value, list)
        setattr(keys, name, np.array(value, "<u4").tobytes() if is_offsets else value)
    columns = _columns(entries, reads_event_times=True)
    with pytest.raises(Corruption) as raised:
        columns.pick(np.arange(4))
    assert (raised.value.path, raised.value.offset) == (PATH, place)


def test_damage_in_rows_that_are_not_picked_is_not_reported() -> None:
    """They are checked where they are read."""
    entries = [_entry([(b"a", b"1", 0), (b"b", b"1", 0)])]
    entries[0][1].key_offsets = np.array([0, 1, 9], "<u4").tobytes()
    columns = _columns(entries, reads_event_times=False)
    picked = columns.pick(np.array([0]))
    assert picked.keys.to_pylist() == [b"a"]
    with pytest.raises(Corruption):
        columns.pick(np.array([1]))
