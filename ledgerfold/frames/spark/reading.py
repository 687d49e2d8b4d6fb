"""A topic as a DataFrame: the plan of its parts.

Options narrow what is read. Spark applies filters afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from ledgerfold.frames.parts import Part
from ledgerfold.frames.query import Query
from ledgerfold.frames.reading import batches_in, parts_of
from ledgerfold.frames.spark.plain_errors import plain_errors
from ledgerfold.frames.spark.types import Converter


class PartInput(InputPartition):
    """A part, as Spark sends it to a task."""

    def __init__(self, part: Part) -> None:
        self.part = part


def read_part(
    partition: InputPartition, query: Query, schema: StructType
) -> Iterator[pa.RecordBatch]:
    """Yields the rows of a part in a task. (Without parts, Spark calls it once with another.)"""
    with plain_errors:
        if isinstance(partition, PartInput):
            yield from map(Converter(schema), batches_in(partition.part, query))


class Reader(DataSourceReader):
    """The read of a topic. Spark sends it to its Python processes."""

    # NOTE: There is no pushFilters(). Spark keeps what it makes of one scan's filters in an object
    # that all scans of a DataFrame share: a scan without filters would get the other's rows.

    def __init__(self, query: Query, schema: StructType) -> None:
        self.query, self._schema = query, schema

    @plain_errors
    def partitions(self) -> list[InputPartition]:
        return [PartInput(part) for part in parts_of(self.query)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_part(partition, self.query, self._schema)
