"""The records of a batch, read: the columns that its bytes stand for.

    >>> section = bytes.fromhex("0e 00 02 00 02 6b 01 00")
    >>> columns, end = read_section(section, 1, base_offset=7, base_timestamp_ms=1000)
    >>> columns.offsets, columns.timestamps_ms, columns.keys, columns.values, end
    ([7], [1001], [b'k'], [None], 8)

Source: `org.apache.kafka.common.record.DefaultRecord`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from functools import lru_cache
from itertools import repeat
from operator import add
from typing import NamedTuple

from ledgerfold.storage.kafka.section import Headers, RecordColumns, invalid_record
from ledgerfold.storage.kafka.varints import read_bits, read_varint

# Rows that are looked at together, and how few are read faster one by one.
_BLOCK_ROWS = 256
_ALIKE_ROWS_MIN = 8
# Bytes that end a varint, and those that do not.
_LAST, _NOT_LAST = bytes(range(128)), bytes(range(128, 256))


class _TwoBytes(dict[int, int]):
    """What a varint of two bytes stands for, by the number that they are, little-endian."""

    def __missing__(self, pair: int) -> int:
        number = self[pair] = read_varint(pair.to_bytes(2, "little"), 0)[0]
        return number


_ONE_BYTE = [(bits >> 1) ^ -(bits & 1) for bits in range(128)]
_TWO_BYTES = _TwoBytes()


def read_section(
    data: bytes, count: int, base_offset: int, base_timestamp_ms: int, at: int = 0
) -> tuple[RecordColumns, int]:
    """The columns of the records from `at` on, and where the last one ends. Raises KafkaError,
    IndexError.

    A stretch of records that are all laid out alike is read by columns, others one by one.
    """
    columns = RecordColumns([], [], [], [], {})
    bases = base_offset, base_timestamp_ms
    row = 0
    while row < count:
        layout = _layout(data, at)
        alike = 0 if layout is None else _alike(data, at, min(count - row, _BLOCK_ROWS), layout)
        if layout is None or alike < _ALIKE_ROWS_MIN:
            rows = range(row, min(row + _BLOCK_ROWS, count))
            at = _read_rows(data, at, rows, bases, columns)
            row = rows.stop
        else:
            _read_alike(data, at, alike, layout, bases, columns)
            at += alike * layout.stride
            row += alike
    return columns, at


class _Layout(NamedTuple):
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


def _layout(data: bytes, at: int) -> _Layout | None:
    """That of the record there; None when it has headers. Raises KafkaError, IndexError."""
    size, time = read_varint(data, at)
    _, offset = read_varint(data, time + 1)
    _, key_length = read_varint(data, offset)
    key_bytes, key = read_varint(data, key_length)
    value_bytes, value = read_varint(data, key + max(key_bytes, 0))
    end = value + max(value_bytes, 0)
    if data[end] or time + size != end + 1:
        return None
    return _Layout(
        time + 1 - at,
        offset - at,
        key_length - at,
        key - at,
        max(key_bytes, -1),
        value - at,
        max(value_bytes, -1),
        end + 1 - at,
    )


def _alike(data: bytes, at: int, rows: int, layout: _Layout) -> int:
    """How many of the next records, of so many, have this layout.

    What must be the same in all of them is compared a byte of every record at a time.
    """
    stride = layout.stride
    rows = min(rows, (len(data) - at) // stride)
    same = (
        *range(layout.time - 1),
        *range(layout.key_length, layout.key),
        *range(layout.value_length, layout.value),
        stride - 1,
    )
    ends = (layout.offset - 1, layout.key_length - 1)
    more = (*range(layout.time, ends[0]), *range(layout.offset, ends[1]))
    for places, wanted in ((same, None), (ends, _LAST), (more, _NOT_LAST)):
        for place in places:
            column = data[at + place : at + rows * stride : stride]
            rows -= len(column.lstrip(wanted or column[:1]))
            if rows < _ALIKE_ROWS_MIN:
                return 0
    return rows


def _read_alike(
    data: bytes, at: int, rows: int, layout: _Layout, bases: tuple[int, int], columns: RecordColumns
) -> None:
    """Adds that many rows to the columns, which all have this layout."""
    stride = layout.stride
    end = at + rows * stride
    times = _numbers(data, range(at + layout.time, end, stride), layout.offset - layout.time)
    offsets = _numbers(
        data, range(at + layout.offset, end, stride), layout.key_length - layout.offset
    )
    base_offset, base_time = bases
    columns.offsets.extend(map(add, offsets, repeat(base_offset)))
    columns.timestamps_ms.extend(map(add, times, repeat(base_time)))
    key_bytes, value_bytes = max(layout.key_bytes, 0), max(layout.value_bytes, 0)
    between = layout.value - layout.value_length
    pair = f"{layout.key}x{key_bytes}s{between}x{value_bytes}sx"
    # One flat tuple: a pair for each row would be work for the garbage collector.
    keys_and_values = _struct(pair, rows).unpack_from(data, at)
    columns.keys.extend(keys_and_values[::2] if layout.key_bytes >= 0 else repeat(None, rows))
    columns.values.extend(keys_and_values[1::2] if layout.value_bytes >= 0 else repeat(None, rows))


@lru_cache(maxsize=64)
def _struct(pair: str, rows: int) -> struct.Struct:
    return struct.Struct(pair * rows)


def _numbers(data: bytes, places: range, size: int) -> Iterable[int]:
    """The varints there, which are all of that size."""
    each_byte = [data[places.start + byte : places.stop : places.step] for byte in range(size)]
    if size == 1:
        return map(_ONE_BYTE.__getitem__, each_byte[0])
    if size > 2:
        return [read_varint(data, place)[0] for place in places]
    pairs = bytearray(2 * len(places))
    pairs[::2], pairs[1::2] = each_byte
    return map(_TWO_BYTES.__getitem__, struct.unpack(f"<{len(places)}H", pairs))


def _read_rows(
    data: bytes, at: int, rows: range, bases: tuple[int, int], columns: RecordColumns
) -> int:
    """Adds those rows, and tells where the last record ends. Raises KafkaError, IndexError.

    Numbers of one byte or two are read in place: a call for each would take most of the time.
    """
    base_offset, base_time = bases
    add_offset, add_timestamp = columns.offsets.append, columns.timestamps_ms.append
    add_key, add_value = columns.keys.append, columns.values.append
    end = at
    for row in rows:
        at = end
        if (n := data[at]) < 128:
            at += 1
        elif (high := data[at + 1]) < 128:
            n, at = n - 128 + (high << 7), at + 2
        else:
            n, at = read_bits(data, at)
        if n & 1:
            raise invalid_record(f"Found invalid record size {~(n >> 1)}")
        # One byte is the attributes'.
        size, end, at = n >> 1, at + (n >> 1), at + 1
        if (n := data[at]) < 128:
            at += 1
        elif (high := data[at + 1]) < 128:
            n, at = n - 128 + (high << 7), at + 2
        else:
            n, at = read_bits(data, at)
        add_timestamp(base_time + ((n >> 1) ^ -(n & 1)))
        if (n := data[at]) < 128:
            at += 1
        elif (high := data[at + 1]) < 128:
            n, at = n - 128 + (high << 7), at + 2
        else:
            n, at = read_bits(data, at)
        add_offset(base_offset + ((n >> 1) ^ -(n & 1)))
        if (n := data[at]) < 128:
            at += 1
        elif (high := data[at + 1]) < 128:
            n, at = n - 128 + (high << 7), at + 2
        else:
            n, at = read_bits(data, at)
        add_key(None if n & 1 else data[at : (at := at + (n >> 1))])
        if (n := data[at]) < 128:
            at += 1
        elif (high := data[at + 1]) < 128:
            n, at = n - 128 + (high << 7), at + 2
        else:
            n, at = read_bits(data, at)
        add_value(None if n & 1 else data[at : (at := at + (n >> 1))])
        if data[at]:
            columns.headers[row], at = _read_headers(data, at)
        else:
            at += 1
        if at != end:
            raise invalid_record(
                f"Invalid record size: expected to read {size} bytes in record payload, but "
                f"instead read {at - end + size}"
            )
    return end


def _read_headers(data: bytes, at: int) -> tuple[Headers, int]:
    count, at = read_varint(data, at)
    if not 0 <= count <= len(data) - at:
        raise invalid_record(f"Found invalid number of record headers {count}")
    found: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        size, at = read_varint(data, at)
        if size < 0:
            raise invalid_record(f"Invalid negative header key size {size}")
        name = _taken(data, at, size).decode(errors="replace")
        size, at = read_varint(data, at + size)
        found.append((name, None if size < 0 else _taken(data, at, size)))
        at += max(size, 0)
    return tuple(found), at


def _taken(data: bytes, at: int, size: int) -> bytes:
    if at + size > len(data):
        raise IndexError
    return data[at : at + size]
