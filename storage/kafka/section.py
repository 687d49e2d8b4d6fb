"""The records of a batch end to end, not compressed: columns, and the bytes that are made of them.

A record, behind its own length: attributes (unused) | difference to the base timestamp | offset
delta | key | value | headers. Numbers are varints, and a length of -1 stands for null.

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
from ledgerfold.storage.kafka.varints import COUNTED, SIZED, VARINTS

Headers = tuple[tuple[str, bytes | None], ...]
# One number for each row, or one for all of them.
_Numbers = int | list[int]
_NO_HEADERS = b"\0"
_ATTRIBUTES = b"\0"


class RecordColumns(NamedTuple):
    """A batch's records, column by column. `headers`: of the rows that have any."""

    offsets: list[int]
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
    """The records end to end.

    Column by column, each one C loop; the columns then interleave, and are joined at once. What is
    the same in all rows is made once.
    """
    rows = len(values)
    if not rows:
        return b""
    key_lengths, key_room, key_bytes = _field(keys)
    value_lengths, value_room, value_bytes = _field(values)
    if timestamps_ms.count(timestamps_ms[0]) == rows:
        times = [VARINTS[timestamps_ms[0] - base_timestamp_ms]] * rows
        time_room: _Numbers = len(times[0])
    else:
        times = _varints(map(sub, timestamps_ms, repeat(base_timestamp_ms)))
        time_room = list(map(len, times))
    offset_room: list[int]
    if offset_deltas == range(rows):
        offsets, offset_room = COUNTED.first(rows)
    else:
        offsets = _varints(offset_deltas)
        offset_room = list(map(len, offsets))
    ends = [_NO_HEADERS] * rows
    for row, pairs in headers.items():
        ends[row] = _header_bytes(pairs)
    end_room: _Numbers = list(map(len, ends)) if headers else 1
    sizes = _sum(offset_room, key_room, value_room, time_room, end_room, len(_ATTRIBUTES))
    columns = (
        map(VARINTS.__getitem__, sizes),
        [_ATTRIBUTES] * rows,
        times,
        offsets,
        key_lengths,
        key_bytes,
        value_lengths,
        value_bytes,
        ends,
    )
    parts = [b""] * (len(columns) * rows)
    for number, column in enumerate(columns):
        parts[number :: len(columns)] = column
    return b"".join(parts)


def _varints(numbers: Iterable[int]) -> list[bytes]:
    return list(map(VARINTS.__getitem__, numbers))


def _sum(column: list[int], *others: _Numbers) -> Iterable[int]:
    """The sums of all, row by row."""
    constant = sum(each for each in others if isinstance(each, int))
    total: Iterable[int] = map(add, column, repeat(constant))
    for each in others:
        if not isinstance(each, int):
            total = map(add, total, each)
    return total


def _field(column: Sequence[bytes | None]) -> tuple[list[bytes], _Numbers, Sequence[bytes]]:
    """Keys or values: their lengths as varints, the room that both take, and their bytes."""
    try:
        sizes = list(map(len, column))  # type: ignore[arg-type]
        filled: Sequence[bytes] = column  # type: ignore[assignment]
    except TypeError:  # some are null
        sizes = [-1 if each is None else len(each) for each in column]
        filled = [each or b"" for each in column]
    if sizes.count(sizes[0]) == len(sizes):
        return [VARINTS[sizes[0]]] * len(sizes), SIZED[sizes[0]], filled
    return _varints(sizes), list(map(SIZED.__getitem__, sizes)), filled


def _header_bytes(pairs: Headers) -> bytes:
    parts = [VARINTS[len(pairs)]]
    for name, value in pairs:
        encoded = name.encode()
        parts += (VARINTS[len(encoded)], encoded)
        parts += (VARINTS[-1],) if value is None else (VARINTS[len(value)], value)
    return b"".join(parts)


def invalid_record(message: str) -> KafkaError:
    return KafkaError(KafkaErrorKind.INVALID_RECORD, message)
