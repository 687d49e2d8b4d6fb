"""Locates the keys of many records, and reads offset deltas and key sizes.

A record's length, attributes, two deltas and key size nearly always take eight bytes together at
most. The continuation bits of those bytes locate the fields, by a table lookup; the rest is
arithmetic, some thousand records at a time, so that intermediate columns stay in the processor's
cache. Records with longer fields are read number by number.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ledgerfold.compactor.job.words import BLOCK_ROWS, WORD_BYTES, Hashed, Words
from ledgerfold.compactor.kafka.varints import NOWHERE, Bytes, read_varints, varint_ends
from ledgerfold.compactor.positions import Integers

_Words = NDArray[np.uint64]
_ONE = np.uint64(1)
# The continuation bits, and a factor that gathers them in one byte.
_CONTINUES, _TO_BIT_0 = np.uint64(0x8080_8080_8080_8080), np.uint64(7)
_GATHER, _GATHERED = np.uint64(0x0102_0408_1020_4080), np.uint64(56)
# Longer numbers than two bytes are read separately.
_SHORT_BYTES = 2
_LOW, _HIGH = np.uint64(0x7F), np.uint64(0x3F80)


class Fields(NamedTuple):
    """The position of the key in the buffer, the offset delta and the key size of each record; -1:
    a null key.
    """

    key_at: Integers
    offset_delta: Integers
    key_bytes: Integers


class _Layout(NamedTuple):
    """The positions of fields in a record's first eight bytes; `is_long`: they do not all fit."""

    offset_at: int = 0
    size_at: int = 0
    key_at: int = 0
    is_long: bool = True


def _layout(continues: int) -> _Layout:
    """Computes a layout. `continues`: the continuation bit of each byte."""
    ends, at = list[int](), 0
    for _ in ("length and attributes", "time", "offset", "key size"):
        while continues >> at & 1:
            at += 1
        # Attributes are one byte of any value.
        at += 1 if ends else 2
        ends.append(at)
    is_long = at > WORD_BYTES or max(ends[2] - ends[1], ends[3] - ends[2]) > _SHORT_BYTES
    _, offset_at, size_at, key_at = ends
    return _Layout() if is_long else _Layout(offset_at, size_at, key_at, is_long=False)


_LAYOUTS = [_layout(continues) for continues in range(1 << WORD_BYTES)]
_OFFSET_AT, _SIZE_AT, _KEY_AT, _IS_LONG = map(np.array, zip(*_LAYOUTS, strict=True))
_OFFSET_BIT, _SIZE_BIT = ((8 * each).astype(np.uint64) for each in (_OFFSET_AT, _SIZE_AT))
_OFFSET_MASK, _SIZE_MASK = (
    (_ONE << (8 * widths).astype(np.uint64)) - _ONE
    for widths in (_SIZE_AT - _OFFSET_AT, _KEY_AT - _SIZE_AT)
)


def read_fields(blob: Bytes, starts: Integers, hashed: Hashed | None = None) -> Fields:
    """Reads the records that begin there, without checks; bytes after the end read as zero.

    `hashed` is filled with their keys.
    """
    fields = Fields(*(np.empty(len(starts), np.int64) for _ in Fields._fields))
    words = Words(blob)
    for first in range(0, len(starts), BLOCK_ROWS):
        block = slice(first, first + BLOCK_ROWS)
        into = Fields(*(each[block] for each in fields))
        _read(words.at(starts[block]), starts[block], into, blob)
        if hashed is not None:
            hashed.fill(words, block, into.key_at, into.key_bytes)
    return fields


def _read(words: _Words, starts: Integers, into: Fields, blob: Bytes) -> None:
    bits = (words & _CONTINUES) >> _TO_BIT_0
    bits *= _GATHER
    bits >>= _GATHERED
    layouts = bits.view(np.int64)
    np.add(starts, _KEY_AT.take(layouts), out=into.key_at)
    for column, bit, mask in (
        (into.offset_delta, _OFFSET_BIT, _OFFSET_MASK),
        (into.key_bytes, _SIZE_BIT, _SIZE_MASK),
    ):
        _decode((words >> bit.take(layouts)) & mask.take(layouts), column)
    is_long = _IS_LONG.take(layouts)
    if is_long.any():
        rest = np.flatnonzero(is_long)
        for column, values in zip(into, _read_long(blob, starts[rest]), strict=True):
            column[rest] = values


def _decode(codes: _Words, into: Integers) -> None:
    """Decodes numbers of at most _SHORT_BYTES."""
    bits = (codes >> _ONE) & _HIGH
    codes &= _LOW
    bits |= codes
    signs = (bits & _ONE).view(np.int64)
    np.negative(signs, out=signs)
    bits >>= _ONE
    np.bitwise_xor(bits.view(np.int64), signs, out=into)


def _read_long(blob: Bytes, starts: Integers) -> Fields:
    offset_at = varint_ends(blob, varint_ends(blob, starts) + 1)
    delta, size_at = read_varints(blob, offset_at)
    key_bytes, key_at = read_varints(blob, size_at)
    # Values that are too large stay so after additions.
    return Fields(key_at, delta, np.minimum(key_bytes, NOWHERE))
