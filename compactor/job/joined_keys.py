"""The distinct keys of several columns of keys.

A column of Arrow's holds at most 2 GiB of keys (COLUMN_BYTES_MAX). The columns of a bucket may have
more: a key occurs in each chunk of the log that has a message with it. So columns are encoded one
after the other. (Concatenating them first takes as long.) Only distinct keys must fit, of which a
bucket has about BUCKET_KEY_BYTES (plan.py).

    >>> joined = joined_keys([pa.array([b"a", b"b"]), pa.array([b"b", b"c"])])
    >>> joined.keys.to_pylist(), [codes.tolist() for codes in joined.codes]
    ([b'a', b'b', b'c'], [[0, 1], [1, 2]])
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ledgerfold.compactor.job.arrow_integers import from_arrow
from ledgerfold.compactor.strategies.strategy import Codes
from ledgerfold.storage.errors import LimitExceeded
from ledgerfold.storage.limits import COLUMN_BYTES_MAX


class JoinedKeys(NamedTuple):
    """Distinct keys, and for each column its keys as indexes into them."""

    keys: pa.BinaryArray
    codes: list[Codes]


def joined_keys(columns: Sequence[pa.BinaryArray]) -> JoinedKeys:
    """Returns the distinct keys of these columns. Raises LimitExceeded."""
    nothing = np.empty(0, np.int32)
    filled = [column for column in columns if len(column)]
    if not filled:
        return JoinedKeys(pa.array([], pa.binary()), [nothing for _ in columns])
    try:
        chunks = pa.chunked_array(filled, pa.binary()).dictionary_encode().chunks
    except pa.ArrowCapacityError as error:
        raise LimitExceeded(
            "Bytes of distinct keys in one merge task",
            key_bytes_of(columns),
            COLUMN_BYTES_MAX,
            "Most keys have the same hash: choose other keys, or publish to a partitioned topic.",
        ) from error
    # All chunks have the same dictionary.
    codes = iter([from_arrow(chunk.indices) for chunk in chunks])
    return JoinedKeys(
        chunks[0].dictionary, [next(codes) if len(column) else nothing for column in columns]
    )


def key_bytes_of(columns: Sequence[pa.BinaryArray]) -> int:
    """Returns the size of all keys, repeated ones included."""
    return sum(column.nbytes for column in columns)
