"""Reads and writes many varints at once: storage/kafka/varints.py for columns.

Numbers of one or two bytes, by far the most common, are looked up in tables.

>>> import numpy as np
>>> buffer = np.frombuffer(b"\\x02\\x01\\xc8\\x01", np.uint8)
>>> [column.tolist() for column in read_varints(buffer, np.array([0, 1, 2]))]
[[1, -1, 100], [1, 2, 4]]
>>> sizes, columns = varint_bytes(np.array([1, -1, 100]))
>>> sizes.tolist(), [column.tolist() for column in columns]
([1, 1, 2], [[2, 1, 200], [0, 0, 1]])
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ledgerfold.compactor.positions import Integers

Bytes = NDArray[np.uint8]
_BYTES_MAX = 10
# Beyond every position in a file: the length of a varint that is larger, or negative.
NOWHERE = 1 << 40


def _decoded(bits: NDArray[np.uint64]) -> Integers:
    signs = -(bits & np.uint64(1)).astype(np.int64)
    decoded: Integers = (bits >> np.uint64(1)).astype(np.int64) ^ signs
    return decoded


# Tables by the first two bytes, little-endian: the number; its size, 0 if more than two; and its
# size plus its value, for a length and its bytes.
_CODES = np.arange(1 << 16, dtype=np.uint64)
_IS_SHORT = (_CODES & np.uint64(0x80)) == 0
_NUMBERS = _decoded(
    np.where(
        _IS_SHORT,
        _CODES & np.uint64(0x7F),
        (_CODES & np.uint64(0x7F)) | ((_CODES >> np.uint64(1)) & np.uint64(0x3F80)),
    )
)
_WIDTHS = np.where(_IS_SHORT, 1, np.where(_CODES < 1 << 15, 2, 0))
_SPANS = np.where(_WIDTHS == 0, 0, np.where(_NUMBERS < 0, NOWHERE, _WIDTHS + _NUMBERS))


def read_varints(buffer: Bytes, at: Integers) -> tuple[Integers, Integers]:
    """Returns the numbers at these positions, and where each ends.

    A varint of more than ten bytes is cut there; past the buffer's end its last byte is read again.
    """
    codes = _codes(buffer, at)
    numbers, widths = _NUMBERS.take(codes), _WIDTHS.take(codes)
    ends = at + widths
    if not widths.all():
        rest = np.flatnonzero(widths == 0)
        numbers[rest], ends[rest] = _long_varints(buffer, at[rest])
    return numbers, ends


def varint_ends(buffer: Bytes, at: Integers) -> Integers:
    """Returns where the numbers at these positions end, without decoding them."""
    widths = _WIDTHS.take(_codes(buffer, at))
    ends = at + widths
    if not widths.all():
        rest = np.flatnonzero(widths == 0)
        ends[rest] = _long_varints(buffer, at[rest])[1]
    return ends


def spans(buffer: Bytes, at: Integers) -> Integers:
    """Returns the size of a length and its bytes; NOWHERE if the length is negative."""
    lengths = _SPANS.take(_codes(buffer, at))
    if not lengths.min(initial=1):
        rest = np.flatnonzero(lengths == 0)
        numbers, ends = _long_varints(buffer, at[rest])
        is_sound = (numbers >= 0) & (numbers < NOWHERE)
        lengths[rest] = np.where(is_sound, ends - at[rest] + numbers, NOWHERE)
    return lengths


def _codes(buffer: Bytes, at: Integers) -> NDArray[np.uint16]:
    first = buffer.take(at, mode="clip")
    if first.max(initial=0) < 128:
        return first.astype(np.uint16)
    second = buffer.take(at + 1, mode="clip").astype(np.uint16)
    second <<= 8
    second |= first
    return second


def _long_varints(buffer: Bytes, at: Integers) -> tuple[Integers, Integers]:
    bits = np.zeros(len(at), np.uint64)
    ends = at.copy()
    rest = np.arange(len(at))
    for shift in range(0, 7 * _BYTES_MAX, 7):
        if not len(rest):
            break
        byte = buffer.take(ends[rest], mode="clip")
        ends[rest] += 1
        bits[rest] |= (byte & 127).astype(np.uint64) << np.uint64(shift)
        rest = rest[byte > 127]
    return _decoded(bits), ends


def varint_bytes(numbers: Integers) -> tuple[Integers, list[Bytes]]:
    """Encodes numbers. Returns their sizes, and columns of their first bytes, second bytes and so
    on.
    """
    remaining = ((numbers << 1) ^ (numbers >> 63)).astype(np.uint64)
    sizes = np.ones(len(numbers), np.int64)
    columns: list[Bytes] = []
    while True:
        continues = remaining > 127
        column = (remaining & np.uint64(127)).astype(np.uint8)
        columns.append(column | np.where(continues, np.uint8(128), np.uint8(0)))
        if not continues.any():
            return sizes, columns
        sizes += continues
        remaining >>= np.uint64(7)
