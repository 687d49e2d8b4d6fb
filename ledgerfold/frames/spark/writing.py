"""A DataFrame's rows as messages of a topic.

At least once: Spark repeats a task that fails, and a batch of a stream after a restart, and then
their messages are published again. A task ends when all its messages are durable.

Columns: `value`, of bytes or text, null for a tombstone; and, if they are wanted, `key` (bytes or
text), `event_time` and `properties`, which are the headers on a Kafka topic. A key of bytes that
are UTF-8 is published as text, others in base64, as clients publish keys of bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import (
    BinaryType,
    DataType,
    MapType,
    StringType,
    StructType,
    TimestampType,
)

from ledgerfold.frames.spark.plain_errors import plain_errors
from ledgerfold.storage.errors import InvalidRequest, NotAllowed

# Messages of a task that wait for their receipts.
_PENDING_MAX = 10_000
_TYPES: dict[str, tuple[type[DataType], ...]] = {
    "value": (BinaryType, StringType),
    "key": (BinaryType, StringType),
    "event_time": (TimestampType,),
    "properties": (MapType,),
}


def check_columns(schema: StructType) -> None:
    """Raises InvalidRequest for a column that cannot be published."""
    for field in schema.fields:
        if not isinstance(field.dataType, _TYPES.get(field.name, ())):
            raise InvalidRequest(
                f"Column {field.name} {field.dataType.simpleString()} cannot be published: select "
                "value and key (binary or string), event_time (timestamp), properties (map of "
                "strings)."
            )
    if "value" not in schema.fieldNames():
        raise InvalidRequest("The column `value` is missing.")


class _Target:
    """Publishes the rows of each task to a topic."""

    def __init__(self, url: str, topic: str, schema: StructType, *, overwrite: bool) -> None:
        if overwrite:
            raise NotAllowed('A topic cannot be overwritten: use mode("append").')
        check_columns(schema)
        self._url, self._topic = url, topic

    @plain_errors
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Publishes the rows of a task; returns when they are durable. Raises the first error."""
        from ledgerfold.broker.client import Client

        with Client(self._url) as client:
            producer = client.create_producer(
                self._topic,
                batching_enabled=True,
                block_if_queue_full=True,
                max_pending_messages=_PENDING_MAX,
            )
            for batch in iterator:
                for arguments in _messages(batch):
                    producer.send_async(callback=None, **arguments)
            producer.flush()
            producer.close()
        return WriterCommitMessage()


def _messages(batch: pa.RecordBatch) -> Iterator[dict[str, Any]]:
    columns = {name: batch.column(name) for name in batch.schema.names}
    if "event_time" in columns:
        times = columns["event_time"].cast(pa.timestamp("ms", "UTC"), safe=False)
        columns["event_time"] = times.cast(pa.int64())
    lists = {name: column.to_pylist() for name, column in columns.items()}
    rows = len(batch)
    none: list[Any] = [None] * rows
    for row, value in enumerate(lists["value"]):
        pairs = lists.get("properties", none)[row]
        yield {
            "content": value.encode() if isinstance(value, str) else value,
            "partition_key": _key(lists.get("key", none)[row]),
            "event_timestamp": lists.get("event_time", none)[row],
            "properties": {name: text or "" for name, text in pairs} if pairs else None,
        }


def _key(key: bytes | str | None) -> bytes | str | None:
    if isinstance(key, bytes):
        try:
            return key.decode()
        except UnicodeDecodeError:
            return key
    return key


class Writer(_Target, DataSourceArrowWriter):
    """`df.write`."""


class StreamWriter(_Target, DataSourceStreamArrowWriter):
    """`df.writeStream`."""
