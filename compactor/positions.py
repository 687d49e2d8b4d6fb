"""The position of a message within a run: one integer, in order of id.

    ordinal of the segment << ROW_BITS | row in that segment

It takes 60 bits (RUN_SEGMENTS_MAX): a strategy may store two bits of its own in the same number.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

ROW_BITS = 40

Integers = NDArray[np.int64]
Bytes = NDArray[np.uint8]
Booleans = NDArray[np.bool_]


def ranges(starts: Integers, counts: Integers) -> Integers:
    """Returns start, start + 1, ... of each range, `counts` each, one after the other."""
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    found: Integers = np.arange(total, dtype=np.int64) + np.repeat(starts - (ends - counts), counts)
    return found
