"""Reads eight bytes from each of many positions of a buffer as numbers.

A word holds the start of a record, or eight bytes of a key: work on each byte of each row
becomes arithmetic on a column.

>>> import numpy as np
>>> words = Words(np.frombuffer(b"abcdefghijklmnopq", np.uint8))
>>> [int(word).to_bytes(8, "little") for word in words.at(np.array([1, 9, 15]))]
[b'bcdefghi', b'jklmnopq', b'pq\\x00\\x00\\x00\\x00\\x00\\x00']
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ledgerfold.compactor.kafka.varints import Bytes
from ledgerfold.compactor.positions import Integers

WORD_BYTES = 8
# Rows processed at once: intermediate columns stay in the processor's cache.
BLOCK_ROWS = 8 * 1024
_Words = NDArray[np.uint64]
# Room for the two words that a position spans, from the last position with a word after it.
_TAIL_BYTES = 4 * WORD_BYTES


class Words:
    """The words of a buffer, which for speed begins at a multiple of eight in memory."""

    def __init__(self, buffer: Bytes) -> None:
        whole = len(buffer) // WORD_BYTES
        self._words: _Words = buffer[: whole * WORD_BYTES].view("<u8")
        # Positions from here on are looked up in a copy, padded with zeros.
        self._tail_at = max(whole - 1, 0)
        tail = np.zeros(_TAIL_BYTES, np.uint8)
        rest = buffer[self._tail_at * WORD_BYTES :]
        tail[: len(rest)] = rest
        self._tail: _Words = tail.view("<u8")

    def at(self, places: Integers) -> _Words:
        """Returns the words at these positions, little-endian; bytes past the buffer's end are
        zero.
        """
        index = places >> 3
        words = self._pairs(self._words, index, places) if self._tail_at else None
        if words is None or index.max(initial=0) >= self._tail_at:
            near = np.flatnonzero(index >= self._tail_at)
            found = self._pairs(self._tail, index[near] - self._tail_at, places[near])
            if words is None:
                return found
            words[near] = found
        return words

    @staticmethod
    def _pairs(words: _Words, index: Integers, places: Integers) -> _Words:
        bits = ((places & 7) << 3).view(np.uint64)
        found: _Words = words.take(index, mode="clip") >> bits
        # A shift by 64 bits gives zero in numpy.
        found |= words.take(index + 1, mode="clip") << (np.uint64(64) - bits)
        return found
