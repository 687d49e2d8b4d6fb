"""Reads the records of a batch as columns.

    >>> section = bytes.fromhex("0e 00 02 00 02 6b 01 00")
    >>> columns = read_section(section, 1, base_offset=7, base_timestamp_ms=1000)
    >>> columns.offsets, columns.timestamps_ms, columns.keys, columns.values
    ([7], [1001], [b'k'], [None])

Source: `org.apache.kafka.common.record.DefaultRecord`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from functools import lru_cache
from itertools import repeat
from operator import add

from ledgerfold.storage.kafka.section import Headers, RecordColumns, invalid_record
from ledgerfold.storage.kafka.uniform_records import Layout, scan
from ledgerfold.storage.kafka.varints import COUNTED, read_bits, read_varint

# Rows whose keys and values are unpacked at once.
_TAKEN_ROWS = 256


class _TwoBytes(dict[int, int]):
    """The numbers that two-byte varints encode, by their bytes as a little-endian integer."""

    def __missing__(self, pair: int) -> int:
        number = self[pair] = read_varint(pair.to_bytes(2, "little"), 0)[0]
        return number


_ONE_BYTE = [(bits >> 1) ^ -(bits & 1) for bits in range(128)]
_TWO_BYTES = _TwoBytes()


def read_section(
    data: bytes, count: int, base_offset: int, base_timestamp_ms: int
) -> RecordColumns:
    """Returns the columns of the records, which take up all of `data`. Raises KafkaError.

    A run of uniform records is read by columns, others one by one.
    """
    columns = _Columns(data, base_offset, base_timestamp_ms)
    scan(data, count, columns.add_run, columns.add_rows)
    return columns.columns


class _Columns:
    """The columns read so far."""

    def __init__(self, data: bytes, base_offset: int, base_time: int) -> None:
        self._data, self._base_offset, self._base_time = data, base_offset, base_time
        # The offsets; None while they rise by one from the base and need not be stored.
        self._offsets: list[int] | None = None
        self._times: list[int] = []
        self._keys: list[bytes | None] = []
        self._values: list[bytes | None] = []
        self._headers: dict[int, Headers] = {}

    @property
    def columns(self) -> RecordColumns:
        offsets = self._dense_offsets if self._offsets is None else self._offsets
        return RecordColumns(offsets, self._times, self._keys, self._values, self._headers)

    @property
    def _dense_offsets(self) -> range:
        return range(self._base_offset, self._base_offset + len(self._times))

    def _each_offset(self) -> list[int]:
        if self._offsets is None:
            self._offsets = list(self._dense_offsets)
        return self._offsets

    def add_run(self, at: int, run: range, layout: Layout) -> None:
        """Adds records of this layout."""
        data, row, rows, stride = self._data, run.start, len(run), layout.stride
        end = at + rows * stride
        offsets = [data[at + n : end : stride] for n in range(layout.offset, layout.key_length)]
        if self._offsets is not None or offsets != COUNTED.columns(row, rows, len(offsets)):
            self._each_offset().extend(map(add, _numbers(offsets), repeat(self._base_offset)))
        times = [data[at + n : end : stride] for n in range(layout.time, layout.offset)]
        if all(column == column[:1] * rows for column in times):
            time, _ = read_varint(data, at + layout.time)
            self._times.extend(repeat(self._base_time + time, rows))
        else:
            self._times.extend(map(add, _numbers(times), repeat(self._base_time)))
        key_bytes, value_bytes = max(layout.key_bytes, 0), max(layout.value_bytes, 0)
        between = layout.value - layout.value_length
        pair = f"{layout.key}x{key_bytes}s{between}x{value_bytes}sx"
        for first in range(0, rows, _TAKEN_ROWS):
            taken = min(rows - first, _TAKEN_ROWS)
            # One flat tuple: a pair for each row would be work for the garbage collector.
            both = _struct(pair, taken).unpack_from(data, at + first * stride)
            self._keys.extend(both[::2] if layout.key_bytes >= 0 else repeat(None, taken))
            self._values.extend(both[1::2] if layout.value_bytes >= 0 else repeat(None, taken))

    def add_rows(self, at: int, rows: range) -> int:
        """Adds records one by one; returns where the last one ends. Raises KafkaError, IndexError.

        Numbers of one byte or two are decoded inline: a call for each would take most of the time.
        """
        data, base_offset, base_time = self._data, self._base_offset, self._base_time
        add_offset, add_timestamp = self._each_offset().append, self._times.append
        add_key, add_value = self._keys.append, self._values.append
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
            # One byte is the attributes.
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
                self._headers[row], at = _read_headers(data, at)
            else:
                at += 1
            if at != end:
                raise invalid_record(
                    f"Invalid record size: expected to read {size} bytes in record payload, but "
                    f"instead read {at - end + size}"
                )
        return end


@lru_cache(maxsize=64)
def _struct(pair: str, rows: int) -> struct.Struct:
    return struct.Struct(pair * rows)


def _numbers(varints: list[bytes]) -> Iterable[int]:
    """Decodes varints of one size, given as columns of their first bytes, second bytes, ..."""
    if len(varints) == 1:
        return map(_ONE_BYTE.__getitem__, varints[0])
    if len(varints) > 2:
        return (read_varint(bytes(each), 0)[0] for each in zip(*varints, strict=True))
    pairs = bytearray(2 * len(varints[0]))
    pairs[::2], pairs[1::2] = varints
    return map(_TWO_BYTES.__getitem__, struct.unpack(f"<{len(varints[0])}H", pairs))


def _read_headers(data: bytes, at: int) -> tuple[Headers, int]:
    count, at = read_varint(data, at)
    if not 0 <= count <= len(data) - at:
        raise invalid_record(f"Found invalid number of record headers {count}")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        size, at = read_varint(data, at)
        if size < 0:
            raise invalid_record(f"Invalid negative header key size {size}")
        name = _slice(data, at, size).decode(errors="replace")
        size, at = read_varint(data, at + size)
        headers.append((name, None if size < 0 else _slice(data, at, size)))
        at += max(size, 0)
    return tuple(headers), at


def _slice(data: bytes, at: int, size: int) -> bytes:
    if at + size > len(data):
        raise IndexError
    return data[at : at + size]
