"""A message's position within a run: one integer, which orders as the ids do.

    ordinal of the segment << ROW_BITS | row in that segment

It takes 61 bits: beside it a strategy may keep two of its own in one number of a column.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

ROW_BITS = 40
SEGMENTS_MAX = 1 << 21

Integers = NDArray[np.int64]
Bytes = NDArray[np.uint8]
Booleans = NDArray[np.bool_]
