"""Messages as a strategy's class sees them, made of columns (message_columns.py).

The values, keys and ids of a batch become Python objects at once, column by column; properties are
decoded when one asks. A message holds what is its own and nothing of the batch, so that one that
stands for long keeps nothing else alive.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise, repeat
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa

from ledgerfold.compactor.arrow_integers import from_arrow
from ledgerfold.strategies.strategic import READS

_NO_PAIRS: tuple[list[bytes], list[bytes]] = ([], [])


class Message(tuple[Any, ...]):
    """A StrategicMessage. `place`: position << 1 | whether it is a value.

    NOTE: a tuple, because those are made without running any Python code: in half the time.
    """

    __slots__ = ()

    place: int = property(itemgetter(0))  # type: ignore[assignment]
    key: str = property(itemgetter(1))  # type: ignore[assignment]
    message_id: tuple[int, int, int] = property(itemgetter(2))  # type: ignore[assignment]
    value: bytes = property(itemgetter(3))  # type: ignore[assignment]
    event_time_ms: int = property(itemgetter(5))  # type: ignore[assignment]
    publish_time_ms: int = property(itemgetter(6))  # type: ignore[assignment]

    @property
    def properties(self) -> dict[str, str]:
        names, contents = self[4]
        if not names:
            return {}
        return {
            name.decode(): content.decode() for name, content in zip(names, contents, strict=True)
        }

    def __repr__(self) -> str:
        return f"Message({':'.join(map(str, self.message_id))}, key={self.key!r})"


@functools.cache
def _kind(read: frozenset[str]) -> type[Message]:
    """Messages that have these parts only: the others were not moved here."""
    parts = {name: property(functools.partial(_unread, name)) for name in READS if name not in read}
    return type("Message", (Message,), {"__slots__": (), **parts})


def _unread(name: str, message: Message) -> Any:
    raise AttributeError(f"the class does not name {name!r} in what it `reads`")


def messages(rows: pa.RecordBatch) -> Iterator[Message]:
    """In the order of the rows."""
    read = frozenset(rows.schema.names)
    columns = zip(
        _integers(rows, "place"),
        _texts(rows.column("key")),
        zip(*(_integers(rows, name) for name in ("ledger", "entry", "index")), strict=True),
        _strings(rows.column("value")) if "value" in read else repeat(None),
        _pairs(rows) if "properties" in read else repeat(None),
        _integers(rows, "event_time_ms") if "event_time_ms" in read else repeat(None),
        _integers(rows, "publish_time_ms") if "publish_time_ms" in read else repeat(None),
        strict=False,
    )
    return map(_kind(read), columns)


def _integers(rows: pa.RecordBatch, name: str) -> list[int]:
    numbers: list[int] = from_arrow(rows.column(name)).tolist()
    return numbers


def _blob(column: pa.BinaryArray) -> tuple[list[int], bytes]:
    """Where each string ends, and all of them."""
    _, offsets, blob = column.buffers()
    ends = np.frombuffer(offsets, "<i4", len(column) + 1, column.offset * 4)
    return ends.tolist(), b"" if blob is None else blob.to_pybytes()


def _strings(column: pa.BinaryArray) -> list[bytes]:
    ends, blob = _blob(column)
    return [blob[start:end] for start, end in pairwise(ends)]


def _texts(column: pa.BinaryArray) -> list[str]:
    """Keys as the client gives them out: what is no text keeps its bytes."""
    ends, blob = _blob(column)
    if blob.isascii():
        text = blob.decode()
        return [text[start:end] for start, end in pairwise(ends)]
    return [blob[start:end].decode(errors="surrogateescape") for start, end in pairwise(ends)]


def _pairs(rows: pa.RecordBatch) -> Iterable[tuple[Sequence[bytes], Sequence[bytes]]]:
    """Names and contents of each row's properties."""
    column = rows.column("properties")
    ends = from_arrow(column.offsets).tolist()
    if ends[0] == ends[-1]:
        return repeat(_NO_PAIRS)
    names, contents = map(_strings, (column.values.field(0), column.values.field(1)))
    return [(names[start:end], contents[start:end]) for start, end in pairwise(ends)]
