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

A merge task builds the messages that a strategy's class gets. The values, keys and ids of a chunk
become Python objects at once, column by column; properties are decoded on access. A message holds
its own data, its key and its entry's id and time, but no reference to the chunk, so that a
long-lived message keeps nothing else in memory.
"""

from __future__ import annotations

import functools
from collections import namedtuple
from collections.abc import Iterable, Iterator, Mapping, Sequence
from io import BytesIO
from itertools import accumulate, chain, pairwise, repeat
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ledgerfold.compactor.job.arrow_integers import from_arrow, offsets_of
from ledgerfold.compactor.job.rows import Messages
from ledgerfold.compactor.positions import Integers
from ledgerfold.storage.decoded import property_texts
from ledgerfold.strategies.strategic import READS

_PAIRS = "pairs"
_T = TypeVar("_T")


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
    ends, blob = offsets_of(column), column.buffers()[2]
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


class Message(tuple[Any, ...]):
    """A StrategicMessage. `place`: position << 1 | 1 for a value. `entry`: ledger, entry.

    NOTE: a tuple, because tuples are created without running Python code: in half the time.
    """

    __slots__ = ()

    place: int
    key: str
    entry: tuple[int, int]
    batch_index: int
    value: bytes
    # Names and contents of properties.
    pairs: tuple[Sequence[bytes], Sequence[bytes]]
    event_time_ms: int
    publish_time_ms: int

    @property
    def message_id(self) -> tuple[int, int, int]:
        return (*self.entry, self.batch_index)

    @property
    def properties(self) -> dict[str, str]:
        return property_texts(zip(*self.pairs, strict=True))

    def __repr__(self) -> str:
        return f"Message({':'.join(map(str, self.message_id))}, key={self.key!r})"


@functools.cache
def _kind(parts: tuple[str, ...]) -> type[Message]:
    """Returns the type of messages with only these parts: the others were not shuffled."""
    # The getters of a named tuple take half the time of a property.
    getters: dict[str, Any] = {name: vars(namedtuple("_", parts))[name] for name in parts}
    for name in READS:
        if name not in parts and (name != "properties" or _PAIRS not in parts):
            getters[name] = property(functools.partial(_unread, name))
    return type("Message", (Message,), {"__slots__": (), **getters})


def _unread(name: str, message: Message) -> Any:
    raise AttributeError(f"the class does not list {name!r} in `reads`")


def messages(columns: Mapping[str, bytes], keys: Iterable[str]) -> Iterator[Message]:
    """Yields the messages in the order of the columns. `keys`: each message's key, as text."""
    rows = _integers(columns["entry_rows"], "<u4")
    parts: dict[str, Iterable[Any]] = {
        "place": _integers(columns["places"], "<i8"),
        "key": keys,
        "entry": _repeated(_entries(columns), rows),
        "batch_index": _integers(columns["indexes"], "<i4"),
    }
    if "values" in columns:
        parts["value"] = strings(columns["value_sizes"], columns["values"])
    if "event_times" in columns:
        times = columns["event_times"]
        parts["event_time_ms"] = _integers(times, "<i8") if times else repeat(0, sum(rows))
    if "publish_times" in columns:
        parts["publish_time_ms"] = _repeated(_integers(columns["publish_times"], "<i8"), rows)
    if "names" in columns:
        parts[_PAIRS] = _pairs(columns)
    elif "property_counts" in columns:
        parts["properties"] = [{} for _ in range(sum(rows))]
    return map(_kind(tuple(parts)), zip(*parts.values(), strict=True))


def key_texts(columns: Mapping[str, bytes]) -> list[str]:
    """Returns the keys as text; undecodable bytes are preserved."""
    keys = strings(columns["key_sizes"], columns["keys"])
    return [key.decode(errors="surrogateescape") for key in keys]


def key_numbers(columns: Mapping[str, bytes]) -> list[int]:
    """Returns each message's index in the list of keys."""
    return _integers(columns["key_numbers"], "<u4")


def _integers(column: bytes, kind: str) -> list[int]:
    numbers: list[int] = np.frombuffer(column, kind).tolist()
    return numbers


def _entries(columns: Mapping[str, bytes]) -> Iterator[tuple[int, int]]:
    """Yields each entry's ledger and entry id."""
    ledgers, entries = (_integers(columns[name], "<i8") for name in ("ledgers", "entries"))
    return zip(ledgers, entries, strict=True)


def _repeated(of_entries: Iterable[_T], rows: Iterable[int]) -> Iterator[_T]:
    """Yields each entry's value once for each of its messages."""
    return chain.from_iterable(map(repeat, of_entries, rows))


def _pairs(columns: Mapping[str, bytes]) -> Iterator[tuple[Sequence[bytes], Sequence[bytes]]]:
    """Yields the names and contents of each message's properties."""
    names = strings(columns["name_sizes"], columns["names"])
    contents = strings(columns["content_sizes"], columns["contents"])
    ends = accumulate(_integers(columns["property_counts"], "<u4"), initial=0)
    return ((names[start:end], contents[start:end]) for start, end in pairwise(ends))
