"""Reads eight bytes from each of many positions of a buffer as numbers.

A word holds the start of a record, or eight bytes of a key: work on each byte of each row
becomes arithmetic on a column.

>>> import numpy as np
>>> words = Words(np.frombuffer(b"abcdefghijklmnopq", np.uint8))
>>> [int(word).to_bytes(8, "little") for word in words.at(np.array([1, 9, 15]))]
[b'bcdefghi', b'jklmnopq', b'pq\\x00\\x00\\x00\\x00\\x00\\x00']
"""

from __future__ import annotations

from collections.abc import Sequence
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from ledgerfold.compactor.positions import Bytes, Integers

WORD_BYTES = 8
# Rows processed at once: intermediate columns stay in the processor's cache.
BLOCK_ROWS = 8 * 1024
_Words = NDArray[np.uint64]
# The number of bytes of a key that are kept as words, for comparisons; that are hashed as words,
# for all rows at once; and that are hashed at all, besides the last eight. The last one also
# bounds the time for damaged sizes, of keys that would overlap.
HASHED_BYTES = 64
_WORDS_BYTES = 256
_CHECKED_BYTES = 4096
_HALF = np.uint64(32)
# Odd factors: for each word of a key, for its last bytes, for its checksum and for its size.
_FACTORS = tuple(
    np.uint64(pow(0x9E37_79B9_7F4A_7C15, power, 1 << 64))
    for power in range(1, 2 * (_WORDS_BYTES // WORD_BYTES + 3), 2)
)
# Masks by the number of a key's bytes left in a word, clipped to 0..8.
_MASKS = np.array([(1 << (8 * size)) - 1 for size in range(WORD_BYTES + 1)], np.uint64)


class Words:
    """The words of a buffer."""

    def __init__(self, buffer: Bytes) -> None:
        self._buffer = buffer.data
        # Overlapping words: one begins at each byte that has seven others after it.
        self._count = max(len(buffer) - (WORD_BYTES - 1), 0)
        self._words: _Words = np.ndarray((self._count,), "<u8", buffer, strides=(1,))
        # Those that begin later, and one beyond the end.
        rest = np.zeros(2 * WORD_BYTES, np.uint8)
        rest[: len(buffer) - self._count] = buffer[self._count :]
        self._tail: _Words = np.ndarray((WORD_BYTES + 1,), "<u8", rest, strides=(1,))

    def at(self, places: Integers) -> _Words:
        """Returns the words at these positions, little-endian; bytes past the buffer's end are
        zero.
        """
        try:
            return self._words[places]
        except IndexError:
            # Some end beyond the buffer.
            found: _Words = self._tail.take(places - self._count, mode="clip")
            rows = np.flatnonzero(places < self._count)
            found[rows] = self._words[np.maximum(places[rows], 0)]
            return found

    def start(self, places: Integers, sizes: Integers) -> _Words:
        """Returns the words at these positions; only their first bytes, of these sizes if they have
        less than eight. The others are zero.
        """
        words = self.at(places)
        if sizes.min(initial=WORD_BYTES) < WORD_BYTES:
            words &= _MASKS.take(sizes, mode="clip")
        return words

    def checksums(self, starts: Integers, sizes: Integers) -> _Words:
        """Returns the CRC32 of each of these parts of the buffer."""
        parts = (slice(start, end) for start, end in zip(starts, starts + sizes, strict=True))
        return np.fromiter((crc32(self._buffer[part]) for part in parts), np.uint64, len(starts))


class Hashed:
    """The hashes of keys, and their bytes as numbers, to compare keys with equal hashes.

    The hash covers the bytes of a key, eight at a time, for all rows at once; those of a very long
    key by a checksum of its first 4 KiB, and its last eight. Filled block by block, so that a block
    stays in the processor's cache.

    >>> words, hashed = Words(np.frombuffer(b"abcab", np.uint8)), Hashed(3)
    >>> hashed.fill(words, slice(0, 3), np.array([0, 2, 3]), np.array([2, 1, 2]))
    >>> bool(hashed.hashes[0] == hashed.hashes[2]), len(set(hashed.hashes.tolist()))
    (True, 2)
    """

    def __init__(self, count: int) -> None:
        # One hash for each key, which does not depend on other keys.
        self.hashes: _Words = np.empty(count, np.uint64)
        # The first HASHED_BYTES of each key as words, padded with zeros.
        self.parts: list[_Words] = []

    def fill(self, words: Words, block: slice, starts: Integers, sizes: Integers) -> None:
        """Hashes a block of keys. A key of negative size gets a hash that no present key has."""
        hashes = self.hashes[block]
        np.multiply(sizes.view(np.uint64), _FACTORS[-1], out=hashes)
        longest = int(sizes.max(initial=0))
        while len(self.parts) * WORD_BYTES < min(longest, HASHED_BYTES):
            self.parts.append(np.zeros(len(self.hashes), np.uint64))
        for number, (part, factor) in enumerate(zip(self.parts, _FACTORS, strict=False)):
            at = number * WORD_BYTES
            if at >= longest:
                break
            part[block] = words.start(starts + at, sizes - at)
            # A part that a key does not have is zero and adds nothing.
            _add(part[block], factor, hashes)
        if longest > HASHED_BYTES:
            _add_rest(words, starts, sizes, hashes)
        hashes ^= hashes >> _HALF
        hashes *= _FACTORS[0]
        hashes ^= hashes >> _HALF

    def where(self, rows: Integers) -> Hashed:
        """Returns those of these rows."""
        found = Hashed(0)
        found.hashes = self.hashes.take(rows)
        found.parts = [part.take(rows) for part in self.parts]
        return found

    @classmethod
    def joined(cls, several: Sequence[Hashed]) -> Hashed:
        """Returns those of all, one after the other."""
        found = cls(0)
        found.hashes = np.concatenate([each.hashes for each in several])
        for number in range(max(len(each.parts) for each in several)):
            found.parts.append(np.concatenate([each._part(number) for each in several]))
        return found

    def _part(self, number: int) -> _Words:
        return self.parts[number] if number < len(self.parts) else np.zeros_like(self.hashes)


def _add_rest(words: Words, starts: Integers, sizes: Integers, hashes: _Words) -> None:
    """Adds the bytes of long keys after the first HASHED_BYTES."""
    rows = np.flatnonzero(sizes > HASHED_BYTES)
    for at in range(HASHED_BYTES, _WORDS_BYTES, WORD_BYTES):
        added = np.zeros(len(rows), np.uint64)
        _add(words.start(starts[rows] + at, sizes[rows] - at), _FACTORS[at // WORD_BYTES], added)
        hashes[rows] += added
        rows = rows[sizes[rows] > at + WORD_BYTES]
        if not len(rows):
            return
    starts, sizes = starts[rows], sizes[rows]
    added = words.checksums(starts, np.minimum(sizes, _CHECKED_BYTES)) * _FACTORS[-2]
    _add(words.at(starts + sizes - WORD_BYTES), _FACTORS[-3], added)
    hashes[rows] += added


def _add(part: _Words, factor: np.uint64, hashes: _Words) -> None:
    mixed = part >> _HALF
    mixed ^= part
    mixed *= factor
    hashes += mixed
