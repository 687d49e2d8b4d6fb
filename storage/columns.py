"""Stored integer columns: little-endian, fixed width, in Arrow's layout.

Codes are those of the module `array`: "I" is an unsigned 4-byte integer, "q" a signed 8-byte
integer. Source: docs/FORMATS.md, "Native codec".

>>> to_column("I", [1, 2]).hex(), list(from_column("I", bytes.fromhex("01000000")))
('0100000002000000', [1])
>>> offsets_of([3, 0, 2])
[0, 3, 3, 5]
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Sequence
from itertools import accumulate

from ledgerfold.storage.errors import InvalidRequest

if array("I").itemsize != 4:
    raise ImportError("The native codec needs a C unsigned int of 4 bytes.")


def to_column(code: str, values: Sequence[int]) -> bytes:
    column = array(code, values)
    if sys.byteorder == "big":
        column.byteswap()
    return column.tobytes()


def from_column(code: str, column: bytes) -> array[int]:
    """Decodes a column. Raises InvalidRequest if `column` is not a whole number of integers."""
    values: array[int] = array(code)
    try:
        values.frombytes(column)
    except ValueError as error:
        raise InvalidRequest(
            f"A native column of {len(column)} bytes is not a multiple of {values.itemsize}."
        ) from error
    if sys.byteorder == "big":
        values.byteswap()
    return values


def offsets_of(lengths: Sequence[int]) -> list[int]:
    """Returns the start offset of each value in their concatenation, then the end of the last
    value.
    """
    return list(accumulate(lengths, initial=0))
