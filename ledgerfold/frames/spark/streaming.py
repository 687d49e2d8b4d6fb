"""A topic as a stream: its offsets are the positions of the last entries that were read.

An offset has a message id for each partition, "LEDGER:ENTRY"; for a Kafka topic the ledger is 0 and
the entry the offset of a record. A batch reads from after its start through its end. Positions
never change, so a batch that Spark repeats after a restart has the same messages, unless retention
has deleted some meanwhile: Spark's checkpoint is not a subscription, and retains no messages.

A limit of bytes per batch counts stored bytes, divided among the partitions; a batch has at least
one entry of each partition that has any.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from ledgerfold.frames.query import Place, Query
from ledgerfold.frames.reading import last_positions, parts_of
from ledgerfold.frames.remote import Remote
from ledgerfold.frames.spark.plain_errors import plain_errors
from ledgerfold.frames.spark.reading import PartInput, read_part
from ledgerfold.storage.entry import EARLIEST, Position
from ledgerfold.storage.errors import InvalidRequest, NotAllowed
from ledgerfold.storage.message_ids import FORM, parsed_id

_EVERY = "*"


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The stream of a topic."""

    def __init__(
        self, query: Query, schema: StructType, start: str, bytes_max: int | None = None
    ) -> None:
        self._query, self._schema, self._start = query, schema, start
        self._bytes_max = bytes_max
        # With the trigger availableNow: the offset at the start of the query, where it ends.
        self._target: dict[str, str] | None = None
        if start not in ("earliest", "latest"):
            parsed_place(start, "start")

    @plain_errors
    def initialOffset(self) -> dict[str, str]:  # noqa: N802 - Spark's name
        if self._start == "latest":
            return self._last()
        if self._start == "earliest":
            return {_EVERY: _text(EARLIEST)}
        position = parsed_place(self._start, "start")
        ledger_id, entry_id = (0, position) if isinstance(position, int) else position
        return {_EVERY: _text(Position(ledger_id, entry_id - 1))}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        return ReadAllAvailable() if self._bytes_max is None else ReadMaxBytes(self._bytes_max)

    @plain_errors
    def latestOffset(  # noqa: N802 - Spark's name
        self, start: dict[str, str], limit: ReadLimit
    ) -> dict[str, str]:
        last = self._target or self._last()
        bytes_max = limit.max_bytes // (len(last) - 1) if isinstance(limit, ReadMaxBytes) else None
        low = {topic: _position(start.get(topic, start[_EVERY])) for topic in last}
        return start | {
            topic: _text(self._end(topic, low[topic], _position(text), bytes_max))
            for topic, text in last.items()
            if topic != _EVERY
        }

    def _end(self, topic: str, low: Position, last: Position, bytes_max: int | None) -> Position:
        """Returns where the next batch ends. Raises NotAllowed for another log."""
        _check_reaches(topic, last, low)
        # Never back, as after a switch to an older copy.
        if last <= low or bytes_max is None:
            return max(last, low)
        assert self._query.url is not None
        query = replace(self._query, topic=topic, start=low.next, end=last.next)
        with Remote(self._query.url, self._query.credentials) as remote:
            parts = remote.parts(query, max(bytes_max, 1))
        # None: the messages were deleted meanwhile.
        return parts[0].last if parts else last

    @plain_errors
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        self._target = self._last()

    def _last(self) -> dict[str, str]:
        positions = last_positions(self._query)
        return {_EVERY: _text(EARLIEST)} | {topic: _text(last) for topic, last in positions.items()}

    @plain_errors
    def partitions(self, start: dict[str, str], end: dict[str, str]) -> list[InputPartition]:
        partitions = list[InputPartition]()
        for topic, text in end.items():
            low = _position(start.get(topic, start.get(_EVERY, _text(EARLIEST))))
            high = _position(text)
            if topic != _EVERY and low < high:
                if high.ledger_id == 0:
                    # Spark repeats a planned batch, and the log may have been truncated meanwhile.
                    last = last_positions(replace(self._query, topic=topic))
                    _check_reaches(topic, last[topic], high)
                query = replace(self._query, topic=topic, start=low.next, end=high.next)
                partitions += map(PartInput, parts_of(query))
        return partitions

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_part(partition, self._query, self._schema)


def _check_reaches(topic: str, last: Position, position: Position) -> None:
    """Raises NotAllowed if a Kafka log, whose last record is `last`, does not reach `position`.

    A native topic continues behind each of its positions, also if it is created again.
    """
    if last.ledger_id != 0 or (position.ledger_id == 0 and last >= position):
        return
    if position.ledger_id < 0:
        return
    place = f"offset {position.entry_id}" if position.ledger_id == 0 else _text(position)
    raise NotAllowed(
        f"The stream is at {place} of {topic}, whose last offset is {last.entry_id}: the topic was "
        "truncated, or deleted and created again, or the option isolation was changed, or the "
        "option start is not in the log. Use a new checkpoint, or another start."
    )


def _text(position: Position) -> str:
    return f"{position.ledger_id}:{position.entry_id}"


def _position(text: str) -> Position:
    ledger_id, _, entry_id = text.partition(":")
    return Position(int(ledger_id), int(entry_id))


def parsed_place(text: str, name: str) -> Place:
    """Parses a message id, or an offset. Raises InvalidRequest.

    >>> parsed_place("12:3", "start"), parsed_place("7", "start")
    ((12, 3), 7)
    """
    if text.isdecimal():
        return int(text)
    message_id: Any = parsed_id(text)
    if message_id is None or message_id[2:] != (-1, -1):
        raise InvalidRequest(
            f"The option {name} is a message id without partition and index, LEDGER:ENTRY (of "
            f"{FORM}), or an offset, not {text!r}."
        )
    return message_id[0], message_id[1]
