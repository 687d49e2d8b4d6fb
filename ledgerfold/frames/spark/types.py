"""The columns of a read as Spark's types.

Spark's times have microseconds: one that Spark cannot represent, after the year 294,246, is null.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import BinaryType, StringType, StructType

from ledgerfold.frames import schema as frames
from ledgerfold.storage.errors import InvalidRequest

SCHEMA = from_arrow_schema(frames.SCHEMA)
_TYPES = {field.name: field.dataType for field in SCHEMA.fields}
_TIMES_MAX_MS = (2**63 - 1) // 1000


def columns_of(schema: StructType) -> tuple[str, ...]:
    """Returns the columns of a schema, which may be a part of SCHEMA. Raises InvalidRequest."""
    for field in schema.fields:
        kind = _TYPES.get(field.name)
        if isinstance(kind, BinaryType) and isinstance(field.dataType, StringType):
            raise InvalidRequest(
                f"The column {field.name} is binary, not string. Read it as binary, and cast it: "
                f'col("{field.name}").cast("string").'
            )
        if kind != field.dataType:
            known = ", ".join(f"{name} {kind.simpleString()}" for name, kind in _TYPES.items())
            raise InvalidRequest(
                f"No column {field.name} {field.dataType.simpleString()}: a schema has some of "
                f"{known}."
            )
    return tuple(schema.fieldNames())


class Converter:
    """Converts record batches of frames to those that Spark takes for a schema."""

    def __init__(self, schema: StructType) -> None:
        self._schema: pa.Schema = to_arrow_schema(schema, timezone="UTC")

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        columns = [
            _microseconds(column, field.type)
            if pa.types.is_timestamp(field.type)
            else column.cast(field.type)
            for column, field in zip(batch.columns, self._schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)


def _microseconds(times: pa.Array, to: pa.DataType) -> pa.Array:
    numbers = times.cast(pa.int64())
    is_good = pc.and_(
        pc.less_equal(numbers, _TIMES_MAX_MS), pc.greater_equal(numbers, -_TIMES_MAX_MS)
    )
    valid = pc.if_else(is_good, numbers, pa.scalar(None, pa.int64()))
    return pc.multiply(valid, 1000).cast(to)
