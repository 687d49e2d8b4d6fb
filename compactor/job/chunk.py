"""A chunk of messages of one bucket, as columns, for the shuffle from scan to merge.

A chunk is written, copied and read several times in the shuffle. So shared values are stored once,
and numbers are short. A column is bytes, little-endian; strings take two columns: their sizes, and
the concatenated strings.

    of each key      key_sizes u4, keys
    of each entry    entry_rows u4: its number of these messages; ledgers, entries i8
    of each message  places i8: position << 1 | 1 for a value; in order
                     key_numbers u4, indexes i4 (-1: published alone)

If the strategy reads them:

    of each entry    publish_times i8
    of each message  event_times i8, empty if no message has one; value_sizes u4, values
                     property_counts u4, empty if no message has any; then, of each property,
                     name_sizes u4, names, content_sizes u4, contents
"""

from __future__ import annotations

from collections.abc import Mapping
from io import BytesIO

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ledgerfold.compactor.job.arrow_integers import from_arrow
from ledgerfold.compactor.job.rows import Messages
from ledgerfold.compactor.positions import Integers


def packed(
    keys: pa.BinaryArray,
    key_numbers: NDArray[np.integer],
    entries: Mapping[str, Integers],
    rows: pa.RecordBatch,
) -> Messages:
    """Packs a chunk. `entries`, `rows`: as returned by MessageColumns; `rows` are not empty."""
    numbers = from_arrow(rows.column("entry"))
    firsts = np.flatnonzero(np.diff(numbers, prepend=-1))
    columns = {
        **_strings("key_sizes", "keys", keys),
        "key_numbers": key_numbers.astype("<u4").tobytes(),
        "entry_rows": np.diff(firsts, append=len(numbers)).astype("<u4").tobytes(),
        **{name: values[numbers[firsts]].tobytes() for name, values in entries.items()},
    }
    for name, column in zip(rows.schema.names, rows.columns, strict=True):
        match name:
            case "entry":
                pass
            case "values":
                columns |= _strings("value_sizes", name, column)
            case "properties":
                columns |= _properties(column)
            case "event_times":
                times = from_arrow(column)
                columns[name] = times.tobytes() if times.any() else b""
            case _:
                columns[name] = from_arrow(column).tobytes()
    first_place = int(from_arrow(rows.column("places"))[0])
    return Messages(first_place, columns)


def strings(sizes: bytes, blob: bytes) -> list[bytes]:
    """Returns the strings that two columns hold.

    >>> strings(b"\\x02\\0\\0\\0\\x01\\0\\0\\0", b"abc")
    [b'ab', b'c']
    """
    # Three times as fast as slices of the blob.
    return list(map(BytesIO(blob).read, np.frombuffer(sizes, "<u4").tolist()))


def strings_of(column: pa.BinaryArray) -> list[bytes]:
    """Returns column.to_pylist(), without creating an Arrow object for each string."""
    return strings(*_strings("", "blob", column).values())


def _strings(sizes_name: str, name: str, column: pa.BinaryArray) -> dict[str, bytes]:
    _, offsets, blob = column.buffers()
    ends = np.frombuffer(offsets, "<i4", len(column) + 1, column.offset * 4)
    first, last = int(ends[0]), int(ends[-1])
    content = blob.slice(first, last - first).to_pybytes() if blob is not None else b""
    return {sizes_name: np.diff(ends).tobytes(), name: content}


def _properties(column: pa.ListArray) -> dict[str, bytes]:
    ends = from_arrow(column.offsets)
    first, last = int(ends[0]), int(ends[-1])
    if first == last:
        return {"property_counts": b""}
    pairs = column.values.slice(first, last - first)
    return {
        "property_counts": np.diff(ends).tobytes(),
        **_strings("name_sizes", "names", pairs.field(0)),
        **_strings("content_sizes", "contents", pairs.field(1)),
    }
