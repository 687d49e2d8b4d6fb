"""The distinct keys of several columns of keys.

The columns of a bucket usually have about BUCKET_KEY_BYTES (plan.py): they are joined, and their
keys grouped by hashes (distinct.py). If they have more than COPIED_BYTES_MAX, since large keys
occur in many chunks of the log, they are encoded one after the other, and only distinct keys must
fit into a column of Arrow's, of at most 2 GiB (COLUMN_BYTES_MAX).

    >>> joined = joined_keys([pa.array([b"a", b"b"]), pa.array([b"b", b"c"])])
    >>> joined.keys.to_pylist(), joined.codes.tolist()
    ([b'a', b'b', b'c'], [0, 1, 1, 2])
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ledgerfold.compactor.job.arrow_integers import from_arrow, to_arrow
from ledgerfold.compactor.job.distinct import HashedKeys
from ledgerfold.compactor.positions import Integers
from ledgerfold.compactor.strategies.strategy import Codes
from ledgerfold.storage.errors import LimitExceeded
from ledgerfold.storage.limits import COLUMN_BYTES_MAX

COPIED_BYTES_MAX = 256 * 1024 * 1024


class JoinedKeys:
    """Distinct keys, and the keys of all columns as indexes into them, one after the other.

    The key `rows[i]` of `column` is the key i; without `rows`, the key i of `column`.
    """

    def __init__(self, codes: Codes, column: pa.BinaryArray, rows: Integers | None = None) -> None:
        self.codes, self._column, self._rows = codes, column, rows

    def __len__(self) -> int:
        return len(self._column if self._rows is None else self._rows)

    @cached_property
    def keys(self) -> pa.BinaryArray:
        """The distinct keys: a copy."""
        if self._rows is None:
            return self._column
        return self._column.take(to_arrow(self._rows))

    def keys_of(self, codes: NDArray[np.integer]) -> list[bytes]:
        """Returns these keys, without a copy of the others."""
        rows = codes if self._rows is None else self._rows[codes]
        found: list[bytes] = self._column.take(to_arrow(rows)).to_pylist()
        return found


def joined_keys(
    columns: Iterable[pa.BinaryArray], copied_bytes_max: int | None = None
) -> JoinedKeys:
    """Returns the distinct keys of these columns. Raises LimitExceeded.

    The columns of an iterator are released once they are joined. `copied_bytes_max`: the limit of
    keys that are joined, by default COPIED_BYTES_MAX.
    """
    filled = [column for column in columns if len(column)]
    if not filled:
        return JoinedKeys(np.empty(0, np.int32), pa.array([], pa.binary()))
    limit = COPIED_BYTES_MAX if copied_bytes_max is None else copied_bytes_max
    if key_bytes_of(filled) <= limit:
        column = pa.concat_arrays(filled)
        filled.clear()
        groups = HashedKeys.of(column).grouped()
        return JoinedKeys(groups.codes, column, groups.last)
    try:
        chunks = pa.chunked_array(filled, pa.binary()).dictionary_encode().chunks
    except pa.ArrowCapacityError as error:
        raise LimitExceeded(
            "Bytes of distinct keys in one merge task",
            key_bytes_of(filled),
            COLUMN_BYTES_MAX,
            "Most keys have the same hash: choose other keys, or publish to a partitioned topic.",
        ) from error
    # All chunks have the same dictionary.
    codes = np.concatenate([from_arrow(chunk.indices) for chunk in chunks])
    return JoinedKeys(codes, chunks[0].dictionary)


def key_bytes_of(columns: Sequence[pa.BinaryArray]) -> int:
    """Returns the size of all keys, repeated ones included."""
    return sum(column.nbytes for column in columns)
