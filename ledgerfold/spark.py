"""The data source `ledgerfold` for Spark: topics as DataFrames, in batches and as streams.

`spark.dataSource.register(LedgerfoldDataSource)` makes it known; docs/FRAMES.md is its manual.
Options, as text:

    topic            or the argument of load() and save()
    url, data        as of `ledgerfold.frames.read`: one of them
    compacted        true: the compacted view, and what follows it; not of a stream
    isolation        of a Kafka topic: read_uncommitted (the default) or read_committed
    start, end       a message id "LEDGER:ENTRY", or an offset; a stream starts there, or at
                     earliest or latest (the default)
    startTime, endTime    by publish time, in ms since the epoch
    keys             only messages of these keys: a JSON array of texts; not of a stream
    maxBytesPerTrigger    of a stream: about as much for each batch

This module is imported by users and by Spark's Python processes only.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
)
from pyspark.sql.types import StructType

from ledgerfold.frames.query import Query
from ledgerfold.frames.spark.plain_errors import plain_errors
from ledgerfold.frames.spark.reading import Reader
from ledgerfold.frames.spark.streaming import StreamReader, parsed_place
from ledgerfold.frames.spark.types import SCHEMA, columns_of
from ledgerfold.frames.spark.writing import StreamWriter, Writer
from ledgerfold.storage.errors import InvalidRequest

__all__ = ["LedgerfoldDataSource"]

_OPTIONS = ("topic", "path", "url", "data", "compacted", "isolation")
_ROWS = ("start", "end", "startTime", "endTime", "keys")
_A_TIME = "a time in ms since the epoch"
_LIMIT = "maxBytesPerTrigger"
_BOOLEANS = {"true": True, "false": False}


class LedgerfoldDataSource(DataSource):
    """The data source. Spark creates it."""

    @classmethod
    def name(cls) -> str:
        return "ledgerfold"

    def schema(self) -> StructType:
        return SCHEMA

    @plain_errors
    def reader(self, schema: StructType) -> DataSourceReader:
        options = self._options(_OPTIONS + _ROWS)
        rows = {
            "start": _place(options, "start"),
            "end": _place(options, "end"),
            "start_time": _number(options, "startTime", _A_TIME),
            "end_time": _number(options, "endTime", _A_TIME),
            "keys": _keys(options),
        }
        return Reader(self._query(options, schema, **rows), schema)

    @plain_errors
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        options = self._options((*_OPTIONS, "start", _LIMIT))
        query = self._query(options, schema)
        bytes_max = _number(options, _LIMIT, "a number of bytes")
        if bytes_max is not None and (query.url is None or not bytes_max):
            raise InvalidRequest(
                f"The option {_LIMIT} must be 1 or more, and needs the option url: only a broker "
                "divides what a stream reads."
            )
        if query.compacted:
            raise InvalidRequest(
                "A stream contains every message: read the compacted view as a batch, without "
                "readStream."
            )
        return StreamReader(query, schema, options.get("start", "latest"), bytes_max)

    @plain_errors
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        return Writer(*self._target(), schema, overwrite=overwrite)

    @plain_errors
    def streamWriter(  # noqa: N802 - Spark's name
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamArrowWriter:
        return StreamWriter(*self._target(), schema, overwrite=overwrite)

    def _target(self) -> tuple[str, str]:
        # A stream's sink gets the location of its checkpoint, too.
        options = self._options(("topic", "path", "url", "checkpointLocation"))
        if "url" not in options:
            raise InvalidRequest("The option url, the address of a running broker, is missing.")
        return options["url"], _topic(options)

    def _query(self, options: Mapping[str, str], schema: StructType, **rows: Any) -> Query:
        compacted = options.get("compacted", "false").lower()
        if compacted not in _BOOLEANS:
            raise InvalidRequest(f"The option compacted must be true or false, not {compacted!r}.")
        return Query.of(
            _topic(options),
            url=options.get("url"),
            data=options.get("data"),
            compacted=_BOOLEANS[compacted],
            isolation=options.get("isolation", "read_uncommitted"),
            columns=columns_of(schema),
            **rows,
        )

    def _options(self, known: tuple[str, ...]) -> dict[str, str]:
        """Returns the options by their names in lower case. Raises InvalidRequest."""
        options = {name.lower(): value for name, value in self.options.items()}
        unknown = sorted(options.keys() - {name.lower() for name in known})
        if unknown:
            raise InvalidRequest(f"Unknown options {unknown}; known options: {', '.join(known)}.")
        return options


def _topic(options: Mapping[str, str]) -> str:
    topic = options.get("topic") or options.get("path")
    if not topic:
        raise InvalidRequest("The option topic is missing. It may be the argument of load or save.")
    return topic


def _place(options: Mapping[str, str], name: str) -> Any:
    return parsed_place(options[name], name) if name in options else None


def _number(options: Mapping[str, str], name: str, what: str) -> int | None:
    text = options.get(name.lower())
    if text is None:
        return None
    if not text.isdecimal():
        raise InvalidRequest(f"The option {name} must be {what}, not {text!r}.")
    return int(text)


def _keys(options: Mapping[str, str]) -> list[bytes] | None:
    text = options.get("keys")
    if text is None:
        return None
    try:
        keys = json.loads(text)
        if isinstance(keys, list):
            return [str.encode(each) for each in keys]
    except (ValueError, TypeError):
        pass
    raise InvalidRequest(
        f"""The option keys must be a JSON array of strings, ["a", "b"], not {text!r}."""
    )
