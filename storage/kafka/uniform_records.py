"""Finds runs of records with the same layout, by comparing columns of their bytes.

Producers mostly batch records with keys of one size, values of one size and close times: each part
of a record then has the same distance from the record's start. Reading such a run (reading.py), or
finding its nulls, takes a few operations for all of its records.

    >>> section = bytes.fromhex("0e 00 02 00 02 6b 01 00") * 9
    >>> layout, rows = uniform_run_at(section, 0, 9)
    >>> layout.key, layout.key_bytes, layout.value_bytes, layout.stride, rows
    (5, 1, -1, 8, 9)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ledgerfold.storage.errors import KafkaError
from ledgerfold.storage.kafka.section import invalid_record
from ledgerfold.storage.kafka.varints import COUNTED, read_varint

# Rows compared at once, and the minimum worth it.
_COMPARED_ROWS = 1024
_UNIFORM_ROWS_MIN = 8
# After a failed comparison this number of rows is read one by one; it doubles each time.
_SINGLE_ROWS = 128
_SINGLE_ROWS_MAX = 1024
# Bytes that end a varint, bytes that do not, and a table that swaps them.
_LAST, _NOT_LAST = bytes(range(128)), bytes(range(128, 256))
_OTHER_HALF = _NOT_LAST + _LAST


class Layout(NamedTuple):
    """The layout of a record without headers: where its parts begin, from its start."""

    time: int
    offset: int
    key_length: int
    key: int
    # -1: null.
    key_bytes: int
    value: int
    value_bytes: int
    stride: int

    @property
    def value_length(self) -> int:
        return self.key + max(self.key_bytes, 0)


def uniform_run_at(
    data: bytes, at: int, rows_max: int, counted_from: int | None = None
) -> tuple[Layout, int] | None:
    """Returns the layout of the next records and their number; None if they are not uniform or
    invalid.

    Bytes that must be equal in all of them are compared column by column. With `counted_from`, also
    None if their offset deltas do not rise by one from that.
    """
    layout = layout_at(data, at)
    if layout is None:
        return None
    stride = layout.stride
    rows = min(rows_max, _COMPARED_ROWS, (len(data) - at) // stride)
    # Most records that differ do so in their lengths, which come first.
    nearest = at + (_UNIFORM_ROWS_MIN - 1) * stride
    if rows < _UNIFORM_ROWS_MIN or data[nearest] != data[at]:
        return None
    for index in (
        *range(layout.time - 1),
        *range(layout.key_length, layout.key),
        *range(layout.value_length, layout.value),
        stride - 1,
    ):
        column = data[at + index : at + rows * stride : stride]
        if column != column[:1] * rows:
            rows -= len(column.lstrip(column[:1]))
    rows = _whole_varints(data, at, stride, rows, range(layout.time, layout.offset))
    offset = range(layout.offset, layout.key_length)
    if counted_from is None:
        rows = _whole_varints(data, at, stride, rows, offset)
    else:
        offsets = [data[at + index : at + rows * stride : stride] for index in offset]
        if offsets != COUNTED.columns(counted_from, rows, len(offset)):
            return None
    return (layout, rows) if rows >= _UNIFORM_ROWS_MIN else None


def _whole_varints(data: bytes, at: int, stride: int, rows: int, places: range) -> int:
    """Returns how many rows have a varint that ends exactly with the last of these bytes."""
    for index in places:
        column = data[at + index : at + rows * stride : stride]
        if index < places[-1]:
            column = column.translate(_OTHER_HALF)
        if not column.isascii():
            rows -= len(column.lstrip(_LAST))
    return rows


def are_no_ends(column: bytes) -> bool:
    """Returns whether no byte of the column ends a varint."""
    return column.translate(_OTHER_HALF).isascii()


def layout_at(data: bytes, at: int) -> Layout | None:
    """Returns the layout of one record; None if it has headers or is invalid."""
    try:
        size, time = read_varint(data, at)
        _, offset = read_varint(data, time + 1)
        _, key_length = read_varint(data, offset)
        key_bytes, key = read_varint(data, key_length)
        value_bytes, value = read_varint(data, key + max(key_bytes, 0))
        end = value + max(value_bytes, 0)
        if data[end] or time + size != end + 1:
            return None
    except (KafkaError, IndexError):
        return None
    return Layout(
        time + 1 - at,
        offset - at,
        key_length - at,
        key - at,
        max(key_bytes, -1),
        value - at,
        max(value_bytes, -1),
        end + 1 - at,
    )


def scan(
    data: bytes,
    count: int,
    add_run: Callable[[int, range, Layout], object],
    add_singles: Callable[[int, range], int],
    *,
    is_counted: bool = False,
) -> None:
    """Passes over records, which take up all of `data`. Raises KafkaError if they are invalid.

    `add_run` is called with the place, the rows and the layout of uniform records. `add_singles` is
    called with the place and the rows of others, and returns where the last one ends.
    `is_counted`: the offset deltas of uniform records are their rows.
    """
    at, row, single_rows = 0, 0, _SINGLE_ROWS
    try:
        while row < count:
            run = uniform_run_at(data, at, count - row, row if is_counted else None)
            if run is not None:
                layout, row_count = run
                add_run(at, range(row, row + row_count), layout)
                at += row_count * layout.stride
                row, single_rows = row + row_count, _SINGLE_ROWS
            else:
                rows = range(row, min(row + single_rows, count))
                at = add_singles(at, rows)
                row, single_rows = rows.stop, min(2 * single_rows, _SINGLE_ROWS_MAX)
    except IndexError:
        raise invalid_record("Incorrect declared batch size, premature EOF reached") from None
    if at != len(data):
        raise invalid_record("Incorrect declared batch size, records still remaining in file")
