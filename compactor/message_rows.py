"""Messages as a strategy's class sees them, made of columns (message_columns.py).

The values, keys and ids of a batch become Python objects at once, column by column; properties are
decoded when one asks. A message holds what is its own and nothing of the batch, so that one that
stands for long keeps nothing else alive.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise, repeat
from typing import Any

import numpy as np
import pyarrow as pa

from ledgerfold.compactor.arrow_integers import from_arrow

_UNREAD: Any = object()
_NO_PAIRS: tuple[list[bytes], list[bytes]] = ([], [])


class Message:
    """A StrategicMessage. `place`: position << 1 | whether it is a value."""

    __slots__ = (
        "_pairs",
        "event_time_ms",
        "key",
        "message_id",
        "place",
        "publish_time_ms",
        "value",
    )

    def __init__(
        self,
        place: int,
        key: str,
        message_id: tuple[int, int, int],
        value: bytes,
        pairs: tuple[list[bytes], list[bytes]],
        event_time_ms: int,
        publish_time_ms: int,
    ) -> None:
        self.place = place
        self.key = key
        self.message_id = message_id
        if value is not _UNREAD:
            self.value = value
        if pairs is not _UNREAD:
            self._pairs = pairs
        if event_time_ms is not _UNREAD:
            self.event_time_ms = event_time_ms
        if publish_time_ms is not _UNREAD:
            self.publish_time_ms = publish_time_ms

    @property
    def properties(self) -> dict[str, str]:
        return {name.decode(): content.decode() for name, content in zip(*self._pairs, strict=True)}

    def __getattr__(self, name: str) -> Any:
        """Of what was not moved here, for nobody was going to read it."""
        name = "properties" if name == "_pairs" else name
        raise AttributeError(f"the class does not name {name!r} in what it `reads`")

    def __repr__(self) -> str:
        return f"Message({':'.join(map(str, self.message_id))}, key={self.key!r})"


def messages(rows: pa.RecordBatch) -> Iterator[Message]:
    """In the order of the rows."""
    return map(
        Message,
        _integers(rows, "place"),
        _texts(rows.column("key")),
        zip(*(_integers(rows, name) for name in ("ledger", "entry", "index")), strict=True),
        _strings(rows.column("value")) if "value" in rows.schema.names else repeat(_UNREAD),
        _pairs(rows) if "properties" in rows.schema.names else repeat(_UNREAD),
        _integers(rows, "event_time_ms"),
        _integers(rows, "publish_time_ms"),
    )


def _integers(rows: pa.RecordBatch, name: str) -> Iterable[int]:
    if name not in rows.schema.names:
        return repeat(_UNREAD)
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
