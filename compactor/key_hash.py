"""A hash of 64 bits of many keys at once.

Key indexes on disk contain it (docs/FORMATS.md, "Key index"): it never changes. Keys are compared
exactly wherever equality matters, so collisions only cost time.

    >>> keys = pa.array([b"a", b"", b"a much longer key than eight bytes", b"a"], pa.binary())
    >>> hashes = hashes_of(keys)
    >>> bool(hashes[0] == hashes[3]), len(set(hashes.tolist()))
    (True, 3)

A key is read as words of 8 bytes, little-endian, the last one padded with zeros. Each word is mixed
into the hash, which begins with the key's length. Source of the mixing: the finalizer of
SplitMix64. Keys of more than LONG_BYTES are hashed one by one, with BLAKE2b.
"""

from __future__ import annotations

import hashlib

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ledgerfold.compactor.job.arrow_integers import offsets_of
from ledgerfold.compactor.job.words import BLOCK_ROWS, WORD_BYTES, Words
from ledgerfold.compactor.positions import Integers

Hashes = NDArray[np.uint64]
# Longer keys would need many passes over few keys.
LONG_BYTES = 256
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)


def hashes_of(keys: pa.BinaryArray) -> Hashes:
    """Returns the hash of each key."""
    offsets, blob = offsets_of(keys), keys.buffers()[2]
    buffer = np.empty(0, np.uint8) if blob is None else np.frombuffer(blob, np.uint8)
    words, hashes = Words(buffer), np.empty(len(keys), np.uint64)
    for first in range(0, len(keys), BLOCK_ROWS):
        block = offsets[first : first + BLOCK_ROWS + 1].astype(np.int64)
        hashes[first : first + BLOCK_ROWS] = _hashes(words, block[:-1], np.diff(block))
    for row in np.flatnonzero(np.diff(offsets) > LONG_BYTES).tolist():
        key = buffer[offsets[row] : offsets[row + 1]]
        digest = hashlib.blake2b(key.tobytes(), digest_size=8).digest()
        hashes[row] = int.from_bytes(digest, "little")
    return hashes


def _hashes(words: Words, starts: Integers, sizes: Integers) -> Hashes:
    """Returns the hashes of a block of keys, those of long ones excepted."""
    hashes = _mixed(sizes.astype(np.uint64))
    rows = np.flatnonzero((sizes > 0) & (sizes <= LONG_BYTES))
    starts, sizes = starts[rows], sizes[rows]
    for at in range(0, LONG_BYTES, WORD_BYTES):
        if not len(rows):
            break
        hashes[rows] = _mixed(hashes[rows] ^ words.start(starts + at, sizes - at))
        is_left = sizes > at + WORD_BYTES
        if not is_left.all():
            rows, starts, sizes = rows[is_left], starts[is_left], sizes[is_left]
    return hashes


def _mixed(values: Hashes) -> Hashes:
    values = values + np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> np.uint64(30))) * _FIRST
    values = (values ^ (values >> np.uint64(27))) * _SECOND
    mixed: Hashes = values ^ (values >> np.uint64(31))
    return mixed
