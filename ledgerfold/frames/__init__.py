"""Topics as Arrow tables: for pandas, polars, DuckDB, and other libraries that accept them.

    >>> import ledgerfold
    >>> with ledgerfold.Client("127.0.0.1:7650") as client:
    ...     producer = client.create_producer("readings")
    ...     sent = [producer.send(b"%d" % value, partition_key="p3") for value in (10, 12)]
    >>> table = read("readings", url="127.0.0.1:7650", columns=["key", "value"])
    >>> table.to_pylist()
    [{'key': b'p3', 'value': b'10'}, {'key': b'p3', 'value': b'12'}]

docs/FRAMES.md is its manual, ledgerfold/frames/schema.py has the columns. `ledgerfold.spark` is the
same for Spark. No module of the broker imports this package, except the command line's exports when
they run: pyarrow takes a fifth of a second.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterable, Sequence
from typing import Any

import pyarrow as pa

from ledgerfold.frames.query import Place, Query, Time
from ledgerfold.frames.reading import ROWS_MAX, batches_of
from ledgerfold.frames.schema import SCHEMA, schema_of
from ledgerfold.storage.errors import InvalidRequest

__all__ = ["SCHEMA", "batches", "read"]


def read(
    topic: str,
    *,
    url: str | None = None,
    data: str | os.PathLike[str] | None = None,
    compacted: bool = False,
    isolation: str = "read_uncommitted",
    columns: Sequence[str] | None = None,
    keys: Iterable[str | bytes] | None = None,
    start_time: Time | None = None,
    end_time: Time | None = None,
    start: Place | None = None,
    end: Place | None = None,
    **credentials: Any,
) -> pa.Table:
    """Reads a topic into a table in memory: a row for each message, in the order of the topic.

    The partitions of a partitioned topic follow one another. The columns are those of SCHEMA, or
    the ones that `columns` names, in that order; fewer columns take less time.

    Pass either `url`, the address of a running broker, or `data`, the path of a snapshot or of a
    data directory that no broker serves. `compacted`: reads the compacted view, and the messages
    after it. `isolation`, of a Kafka topic: "read_committed" leaves out the records of aborted
    transactions and everything from the first open one on.

    `keys`: reads only messages with these keys. `start_time`, `end_time`: limits of the publish
    time, as datetimes with a time zone or in ms since the epoch. `start`, `end`: limits of the
    position, as message ids (ledger id, entry id), or as offsets of a Kafka topic. Starts are
    included, ends are not. `credentials`: the arguments of `Client` about TLS and authentication.

    Raises InvalidRequest, NotAllowed, TopicNotFound, DirectoryLocked (a broker serves the
    directory), Corruption, FileNotFoundError, Unavailable.
    """
    query = Query.of(
        topic,
        url=url,
        data=data,
        compacted=compacted,
        isolation=isolation,
        columns=columns,
        keys=keys,
        start_time=start_time,
        end_time=end_time,
        start=start,
        end=end,
        **credentials,
    )
    return pa.Table.from_batches(batches_of(query), schema_of(query.columns))


def batches(
    topic: str,
    *,
    url: str | None = None,
    data: str | os.PathLike[str] | None = None,
    compacted: bool = False,
    isolation: str = "read_uncommitted",
    columns: Sequence[str] | None = None,
    keys: Iterable[str | bytes] | None = None,
    start_time: Time | None = None,
    end_time: Time | None = None,
    start: Place | None = None,
    end: Place | None = None,
    rows_max: int = ROWS_MAX,
    **credentials: Any,
) -> Generator[pa.RecordBatch, None, None]:
    """Reads as `read`, but yields record batches of at most `rows_max` rows, in bounded memory.

    A data directory stays locked, so that no broker can start on it, until the iterator ends or is
    closed. Raises as `read`: the errors of arguments at once, all others at the first batch.
    """
    if not 0 < rows_max <= 2**31 - 1:
        raise InvalidRequest(f"rows_max must be 1 or more, not {rows_max}.")
    query = Query.of(
        topic,
        url=url,
        data=data,
        compacted=compacted,
        isolation=isolation,
        columns=columns,
        keys=keys,
        start_time=start_time,
        end_time=end_time,
        start=start,
        end=end,
        **credentials,
    )
    return batches_of(query, rows_max)
