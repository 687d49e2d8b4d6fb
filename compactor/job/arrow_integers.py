"""Zero-copy conversions of integer columns between numpy and Arrow.

pyarrow's own conversions (pa.array, to_numpy) import pandas if it is installed: half a second and
40 MB in each of Spark's Python workers, without a benefit.

    >>> import numpy as np
    >>> from_arrow(to_arrow(np.array([1, 2, 3]))).tolist()
    [1, 2, 3]
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ledgerfold.storage.errors import LimitExceeded
from ledgerfold.storage.limits import COLUMN_BYTES_MAX

# Bits of a column's numbers -> numpy's name of the type, and its size in bytes.
_KINDS = {32: ("<i4", 4), 64: ("<i8", 8)}


def to_arrow(values: NDArray[np.integer]) -> pa.Int64Array:
    """Converts to 64-bit integers."""
    contiguous = np.ascontiguousarray(values, np.int64)
    return pa.Array.from_buffers(pa.int64(), len(values), [None, pa.py_buffer(contiguous)])


def to_arrow_short(values: NDArray[np.integer]) -> pa.Int32Array:
    """Converts to 32-bit integers."""
    contiguous = np.ascontiguousarray(values, np.int32)
    return pa.Array.from_buffers(pa.int32(), len(values), [None, pa.py_buffer(contiguous)])


def from_arrow(column: pa.Array) -> NDArray[np.integer]:
    """Converts a column of 32-bit or 64-bit integers without nulls."""
    kind, size_bytes = _KINDS[column.type.bit_width]
    if not len(column):
        return np.empty(0, kind)
    return np.frombuffer(column.buffers()[1], kind, len(column), column.offset * size_bytes)


def as_offsets(offsets: NDArray[np.int64]) -> NDArray[np.int32]:
    """Returns the offsets of a column of strings, which ascend, in 32 bits. Raises LimitExceeded.

    NOTE: without the check, numpy would drop the high bits silently, and Arrow would read other
    bytes.
    """
    if len(offsets) and offsets[-1] > COLUMN_BYTES_MAX:
        raise LimitExceeded(
            "Bytes of strings in one column",
            int(offsets[-1]),
            COLUMN_BYTES_MAX,
            "Restart the broker with a smaller --segment-size.",
        )
    return offsets.astype("<i4")


def offsets_of(column: pa.BinaryArray) -> NDArray[np.int32]:
    """Returns the start offset of each string in the column's blob, and the end of the last."""
    return np.frombuffer(column.buffers()[1], "<i4", len(column) + 1, column.offset * 4)
