"""A topic as a DataFrame: the plan of its parts, and the filters that narrow it.

Spark sends filters if spark.sql.python.filterPushdown.enabled is true. They narrow what is read: by
key, publish time, message id and offset. Spark applies them again afterwards, so a filter here may
let more through than it says, never less.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import datetime
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceReader,
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.types import StructType

from ledgerfold.frames.parts import Part
from ledgerfold.frames.query import Query
from ledgerfold.frames.reading import batches_in, parts_of
from ledgerfold.frames.spark.types import Converter
from ledgerfold.storage.entry import Position

_EQUAL = (EqualTo, EqualNullSafe)


class PartInput(InputPartition):
    """A part, as Spark sends it to a task."""

    def __init__(self, part: Part) -> None:
        self.part = part


def read_part(
    partition: InputPartition, query: Query, schema: StructType
) -> Iterator[pa.RecordBatch]:
    """Yields the rows of a part in a task. (Without parts, Spark calls it once with another.)"""
    if isinstance(partition, PartInput):
        yield from map(Converter(schema), batches_in(partition.part, query))


class Reader(DataSourceReader):
    """The read of a topic. Spark sends it to its Python processes."""

    def __init__(self, query: Query, schema: StructType) -> None:
        self.query, self._schema = query, schema
        # NOTE: Spark refuses a reader that overrides the method while the setting is off, which is
        # the default.
        self.pushFilters = _Pushing(self)  # type: ignore[method-assign]

    def partitions(self) -> list[InputPartition]:
        return [PartInput(part) for part in parts_of(self.query)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_part(partition, self.query, self._schema)


class _Pushing:
    """`pushFilters` of a reader, which Spark takes for the one that it inherits."""

    __func__ = staticmethod(DataSourceReader.pushFilters)

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def __call__(self, filters: Iterable[Filter]) -> Iterable[Filter]:
        kept = list(filters)
        for each in kept:
            self._reader.query = narrowed_by(self._reader.query, each)
        return kept


def narrowed_by(query: Query, condition: Filter) -> Query:
    """Returns the read with the rows that a filter lets through, and perhaps others."""
    name = getattr(condition, "attribute", ("",))[0]
    value: Any = getattr(condition, "value", None)
    if name == "key" and isinstance(condition, (*_EQUAL, In)):
        keys = value if isinstance(condition, In) else [value]
        if all(isinstance(each, bytes | bytearray) for each in keys):
            found = frozenset(map(bytes, keys))
            return replace(query, keys=found if query.keys is None else query.keys & found)
        return query
    low, high = _bounds(condition, name, value)
    if name == "publish_time":
        return replace(
            query,
            start_ms=query.start_ms if low is None else max(query.start_ms, low),
            end_ms=query.end_ms if high is None else min(query.end_ms, high + 1),
        )
    if name == "ledger_id":
        return replace(
            query,
            start=query.start if low is None else max(query.start, Position(low, -1)),
            end=query.end if high is None else min(query.end, Position(high + 1, -1)),
        )
    if name == "offset":
        return replace(
            query,
            start=query.start if low is None else max(query.start, Position(0, low)),
            # On other topics no row has an offset.
            end=query.end if high is None else min(query.end, Position(0, high + 1)),
        )
    return query


def _bounds(condition: Filter, name: str, value: Any) -> tuple[int | None, int | None]:
    """Returns the lowest and the highest value that a filter lets through, both inclusive."""
    if name == "publish_time":
        if not isinstance(value, datetime) or value.tzinfo is None:
            return None, None
        value = int(value.timestamp() * 1000 // 1)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**62:
        return None, None
    if isinstance(condition, _EQUAL):
        return value, value
    if isinstance(condition, GreaterThan | GreaterThanOrEqual):
        return value, None
    if isinstance(condition, LessThan | LessThanOrEqual):
        return None, value
    return None, None
