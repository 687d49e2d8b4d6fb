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

Hashes = NDArray[np.uint64]
# Longer keys would need many passes over few keys.
LONG_BYTES = 256
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)
_WORD_BYTES = 8


def hashes_of(keys: pa.BinaryArray) -> Hashes:
    """Returns the hash of each key."""
    offsets = offsets_of(keys).astype(np.int64)
    blob = keys.buffers()[2]
    start, end = int(offsets[0]), int(offsets[-1])
    content = blob[start:end].to_pybytes() if blob is not None and end > start else b""
    return _hashes(content, offsets[:-1] - start, np.diff(offsets))


def _hashes(content: bytes, starts: NDArray[np.int64], sizes: NDArray[np.int64]) -> Hashes:
    # A word at any byte, also at the last one.
    words = np.ndarray(len(content) + 1, "<u8", content + bytes(_WORD_BYTES), 0, (1,))
    hashes = _mixed(sizes.astype(np.uint64))
    is_long = sizes > LONG_BYTES
    rows = np.flatnonzero((sizes > 0) & ~is_long)
    for at in range(0, LONG_BYTES, _WORD_BYTES):
        if not len(rows):
            break
        left = sizes[rows] - at
        word = words[starts[rows] + at]
        unused = (_WORD_BYTES - np.minimum(left, _WORD_BYTES)).astype(np.uint64)
        word = word << (unused << np.uint64(3)) >> (unused << np.uint64(3))
        hashes[rows] = _mixed(hashes[rows] ^ word)
        rows = rows[left > _WORD_BYTES]
    for row in np.flatnonzero(is_long).tolist():
        key = content[starts[row] : starts[row] + sizes[row]]
        hashes[row] = int.from_bytes(hashlib.blake2b(key, digest_size=8).digest(), "little")
    return hashes


def _mixed(values: Hashes) -> Hashes:
    values = values + np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> np.uint64(30))) * _FIRST
    values = (values ^ (values >> np.uint64(27))) * _SECOND
    mixed: Hashes = values ^ (values >> np.uint64(31))
    return mixed
