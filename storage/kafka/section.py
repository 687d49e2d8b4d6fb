"""Builds the uncompressed records of a batch from columns.

A record, after its own length: attributes (unused) | difference to the base timestamp | offset
delta | key | value | headers. Numbers are varints, and a length of -1 is null.

    >>> section = record_section([b"k"], [None], [1001], {}, [0], base_timestamp_ms=1000)
    >>> section.hex(" ")
    '0e 00 02 00 02 6b 01 00'

Source: `org.apache.kafka.common.record.DefaultRecord`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import repeat
from operator import add, sub
from typing import NamedTuple

from ledgerfold.storage.errors import KafkaError, KafkaErrorKind
from ledgerfold.storage.kafka.varints import COUNTED, KEPT_MAX, SIZED, VARINTS

Headers = tuple[tuple[str, bytes | None], ...]
# Its length, its attributes, and five numbers.
RECORD_BYTES_MIN = 7
# The lengths of its name and value.
HEADER_BYTES_MIN = 2
_NO_HEADERS = b"\0"
_ATTRIBUTES = b"\0"


class RecordColumns(NamedTuple):
    """A batch's records, column by column. `headers`: of the rows that have any."""

    offsets: Sequence[int]
    timestamps_ms: list[int]
    keys: list[bytes | None]
    values: list[bytes | None]
    headers: dict[int, Headers]


def record_section(
    keys: Sequence[bytes | None],
    values: Sequence[bytes | None],
    timestamps_ms: Sequence[int],
    headers: Mapping[int, Headers],
    offset_deltas: Sequence[int],
    base_timestamp_ms: int,
) -> bytes:
    """Returns the concatenated records.

    Each column is built by one C loop; the columns are then interleaved and joined at once. A value
    that is equal in all rows is encoded once, and the bytes between two records are one piece.
    """
    rows = len(values)
    if not rows:
        return b""
    key, value = _field(keys), _field(values)
    times = _numbers(timestamps_ms, base_timestamp_ms)
    if offset_deltas == range(rows):
        pieces, offset_rooms = COUNTED.first(rows)
        offsets = _Numbers(pieces, 0, offset_rooms)
    else:
        offsets = _numbers(offset_deltas)
    room = len(_ATTRIBUTES) + times.room + offsets.room + key.room + value.room
    columns = [times.pieces, offsets.pieces, key.lengths, key.data, value.lengths, value.data]
    rooms = [times.rooms, offsets.rooms, key.rooms, value.rooms]
    if headers:
        ends = [_NO_HEADERS] * rows
        for row, pairs in headers.items():
            ends[row] = _header_bytes(pairs)
        columns.append(ends)
        rooms.append(list(map(len, ends)))
        heads = _HEADS
    else:
        room += len(_NO_HEADERS)
        heads = _HEADS_BEHIND
    sizes: Iterable[int] = repeat(room, rows)
    for each in rooms:
        if each is not None:
            sizes = map(add, sizes, each)
    columns.insert(0, list(map(heads.__getitem__, sizes)))
    parts = [b""] * (len(columns) * rows)
    for number, column in enumerate(columns):
        parts[number :: len(columns)] = column
    if not headers:
        parts[0] = parts[0][len(_NO_HEADERS) :]
        parts.append(_NO_HEADERS)
    return b"".join(parts)


class _Heads(dict[int, bytes]):
    """The first bytes of records, by size, after the last byte of the previous record."""

    def __init__(self, end: bytes) -> None:
        self._end = end

    def __missing__(self, size: int) -> bytes:
        head = self._end + VARINTS[size] + _ATTRIBUTES
        if size < KEPT_MAX:
            self[size] = head
        return head


_HEADS, _HEADS_BEHIND = _Heads(b""), _Heads(_NO_HEADERS)


class _Numbers(NamedTuple):
    """Numbers of all rows as varints. `sizes`: the common size, or one for each row."""

    pieces: list[bytes]
    room: int
    rooms: list[int] | None


def _numbers(numbers: Sequence[int], base: int = 0) -> _Numbers:
    rows = len(numbers)
    if numbers.count(numbers[0]) == rows:
        piece = VARINTS[numbers[0] - base]
        return _Numbers([piece] * rows, len(piece), None)
    pieces = list(map(VARINTS.__getitem__, map(sub, numbers, repeat(base))))
    return _Numbers(pieces, 0, list(map(len, pieces)))


class _Field(NamedTuple):
    """Keys or values. The room is the size of length and bytes together."""

    lengths: list[bytes]
    data: Sequence[bytes]
    room: int
    rooms: list[int] | None


def _field(column: Sequence[bytes | None]) -> _Field:
    try:
        sizes = list(map(len, column))  # type: ignore[arg-type]
        data: Sequence[bytes] = column  # type: ignore[assignment]
    except TypeError:  # some are null
        sizes = [-1 if each is None else len(each) for each in column]
        data = [each or b"" for each in column]
    if sizes.count(sizes[0]) == len(sizes):
        return _Field([VARINTS[sizes[0]]] * len(sizes), data, SIZED[sizes[0]], None)
    least, most = min(sizes), max(sizes)
    lengths = list(map(VARINTS.__getitem__, sizes))
    length_bytes = len(VARINTS[most])
    if least >= 0 and len(VARINTS[least]) == length_bytes:
        return _Field(lengths, data, length_bytes, sizes)
    return _Field(lengths, data, 0, list(map(SIZED.__getitem__, sizes)))


def _header_bytes(pairs: Headers) -> bytes:
    parts = [VARINTS[len(pairs)]]
    for name, value in pairs:
        encoded = name.encode()
        parts += (VARINTS[len(encoded)], encoded)
        parts += (VARINTS[-1],) if value is None else (VARINTS[len(value)], value)
    return b"".join(parts)


def check_room(data: bytes, count: int) -> None:
    """Raises KafkaError unless `count` records can fit, before any is read."""
    if count * RECORD_BYTES_MIN > len(data):
        raise invalid_record("Incorrect declared batch size, premature EOF reached")


def invalid_record(message: str) -> KafkaError:
    return KafkaError(KafkaErrorKind.INVALID_RECORD, message)
