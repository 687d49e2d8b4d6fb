"""Records that are laid out alike, one behind the other: found by columns of their bytes.

What producers send at once mostly has keys of one size, values of one size and close times: then
each part of a record begins as far behind the record's own beginning as in the one before. Reading
such a stretch (reading.py), or looking for nulls in it, is a few operations for all of its records.

    >>> section = bytes.fromhex("0e 00 02 00 02 6b 01 00") * 9
    >>> layout, rows = stretch_at(section, 0, 9)
    >>> layout.key, layout.key_bytes, layout.value_bytes, layout.stride, rows
    (5, 1, -1, 8, 9)
"""

from __future__ import annotations

from typing import NamedTuple

from ledgerfold.storage.errors import KafkaError
from ledgerfold.storage.kafka.varints import COUNTED, read_varint

# Rows that are looked at together, and how few of them are read faster one by one.
_LOOKED_AT_ROWS = 1024
_ALIKE_ROWS_MIN = 8
# Where records are not alike, so many are read before the next look; twice as many each time.
ALONE_ROWS = 128
_ALONE_ROWS_MAX = 1024
# Bytes that end a varint, and those that do not; and these made those.
_LAST, _NOT_LAST = bytes(range(128)), bytes(range(128, 256))
_OTHER_HALF = _NOT_LAST + _LAST


class Layout(NamedTuple):
    """Of a record without headers: where its parts begin, from its own beginning."""

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


def stretch_at(
    data: bytes, at: int, rows_max: int, counted_from: int | None = None
) -> tuple[Layout, int] | None:
    """How the next records are laid out, and how many; None: not alike, or no records.

    What must be the same in all of them is compared a byte of every record at a time. With
    `counted_from`, None also when their offsets do not rise by one from that.
    """
    layout = layout_at(data, at)
    if layout is None:
        return None
    stride = layout.stride
    rows = min(rows_max, _LOOKED_AT_ROWS, (len(data) - at) // stride)
    # Most that are not alike differ in what they begin with: their lengths.
    nearest = at + (_ALIKE_ROWS_MIN - 1) * stride
    if rows < _ALIKE_ROWS_MIN or data[nearest] != data[at]:
        return None
    for place in (
        *range(layout.time - 1),
        *range(layout.key_length, layout.key),
        *range(layout.value_length, layout.value),
        stride - 1,
    ):
        column = data[at + place : at + rows * stride : stride]
        if column != column[:1] * rows:
            rows -= len(column.lstrip(column[:1]))
    rows = _whole_varints(data, at, stride, rows, range(layout.time, layout.offset))
    offset = range(layout.offset, layout.key_length)
    if counted_from is None:
        rows = _whole_varints(data, at, stride, rows, offset)
    else:
        offsets = [data[at + place : at + rows * stride : stride] for place in offset]
        if offsets != COUNTED.columns(counted_from, rows, len(offset)):
            return None
    return (layout, rows) if rows >= _ALIKE_ROWS_MIN else None


def _whole_varints(data: bytes, at: int, stride: int, rows: int, places: range) -> int:
    """How many of the rows have a varint there that ends with its last byte, and not before."""
    for place in places:
        column = data[at + place : at + rows * stride : stride]
        if place < places[-1]:
            column = column.translate(_OTHER_HALF)
        if not column.isascii():
            rows -= len(column.lstrip(_LAST))
    return rows


def are_no_ends(column: bytes) -> bool:
    """Whether a varint that has one of these bytes goes on behind it."""
    return column.translate(_OTHER_HALF).isascii()


def layout_at(data: bytes, at: int) -> Layout | None:
    """That of the record there; None when it has headers, or is none."""
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


def more_alone(rows: int) -> int:
    """How many are read one by one when those before, so many, were not followed by a stretch."""
    return min(2 * rows, _ALONE_ROWS_MAX)
