"""Hashes many keys, and keeps their bytes as numbers, to compare keys with equal hashes.

The hash covers a key's first and last bytes, eight at a time, for all rows at once.

>>> import numpy as np
>>> words, hashed = Words(np.frombuffer(b"abcab", np.uint8)), Hashed(3)
>>> hashed.fill(words, slice(0, 3), np.array([0, 2, 3]), np.array([2, 1, 2]))
>>> bool(hashed.hashes[0] == hashed.hashes[2]), len(set(hashed.hashes.tolist()))
(True, 2)
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ledgerfold.compactor.kafka.words import WORD_BYTES, Words
from ledgerfold.compactor.positions import Integers

# The number of bytes hashed, in addition to the last eight.
HASHED_BYTES = 64
_Words = NDArray[np.uint64]
_ZERO, _HALF = np.uint64(0), np.uint64(32)
# Odd factors: for each part of a key, for its last bytes and for its size.
_FACTORS = tuple(
    np.uint64(pow(0x9E37_79B9_7F4A_7C15, power, 1 << 64))
    for power in range(1, 2 * (HASHED_BYTES // WORD_BYTES + 2), 2)
)
# Masks by the number of a key's bytes left in a word, clipped to 0..8.
_MASKS = np.array([(1 << (8 * size)) - 1 for size in range(WORD_BYTES + 1)], np.uint64)


class Hashed:
    """The hashes of keys; filled block by block, so that a block stays in the processor's cache."""

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
        shortest = int(sizes.min(initial=0 if not len(sizes) else longest))
        for number, (part, factor) in enumerate(zip(self.parts, _FACTORS, strict=False)):
            at = number * WORD_BYTES
            if at >= longest:
                break
            part[block] = words.at(starts + at)
            if shortest < at + WORD_BYTES:
                part[block] &= _MASKS.take(sizes - at, mode="clip")
            # A part that a key does not have is zero and adds nothing.
            _add(part[block], factor, hashes)
        if longest > HASHED_BYTES:
            ends = words.at(starts + np.maximum(sizes - WORD_BYTES, 0))
            _add(np.where(sizes > HASHED_BYTES, ends, _ZERO), _FACTORS[-2], hashes)
        hashes ^= hashes >> _HALF
        hashes *= _FACTORS[0]
        hashes ^= hashes >> _HALF

    def where(self, rows: Integers) -> Hashed:
        found = Hashed(0)
        found.hashes, found.parts = self.hashes[rows], [part[rows] for part in self.parts]
        return found


def _add(part: _Words, factor: np.uint64, hashes: _Words) -> None:
    mixed = part >> _HALF
    mixed ^= part
    mixed *= factor
    hashes += mixed
