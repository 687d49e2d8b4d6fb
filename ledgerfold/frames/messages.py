"""The rows of entries of Pulsar's clients, and of Kafka's record batches, as Arrow columns.

A Kafka batch is decoded by column (storage/kafka/section.py). The messages of a Pulsar batch can
only be found one after the other: each has metadata of its own, which protobuf parses. An entry
that cannot be decoded is one row, as a reader gets it (storage/pulsar/batch.py): an encrypted
batch, or a batch that does not parse; so is each chunk of a larger message, and an encrypted
message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain, repeat
from typing import Any

import numpy as np
import pyarrow as pa

from ledgerfold.frames.query import Query
from ledgerfold.frames.rows import Rows
from ledgerfold.frames.schema import HEADERS, SCHEMA, TIME
from ledgerfold.storage.decoded import decoded_key
from ledgerfold.storage.entry import Buffer, EntryHeader
from ledgerfold.storage.kafka.batch import NO_TIMESTAMP
from ledgerfold.storage.kafka.entries import KafkaBatch
from ledgerfold.storage.pulsar.batch import PulsarBatch

# The overhead of a Python object in bytes.
_OBJECT_BYTES = 50


class PulsarRows(Rows):
    """The rows of the entries of Pulsar's clients added so far. Only needed columns are made."""

    def __init__(self, query: Query, partition: int) -> None:
        super().__init__(query, partition)
        # The key is needed for the filter.
        self._columns: dict[str, list[Any]] = {
            name: [] for name in _PULSAR_COLUMNS if name == "key" or query.wants(name)
        }

    def add(self, header: EntryHeader, key_section: Buffer, value_section: Buffer) -> None:
        batch = PulsarBatch(header, key_section, value_section)
        for name, column in self._columns.items():
            column.extend(_PULSAR_COLUMNS[name](header, batch))
        self.rows += batch.rows
        self.size_bytes += len(self._columns) * _OBJECT_BYTES * batch.rows
        if self.query.wants("value", "properties"):
            # The size without compression.
            self.size_bytes += len(batch.payload)

    def columns(self) -> dict[str, pa.Array]:
        return {
            name: pa.array(column, SCHEMA.field(name).type)
            for name, column in self._columns.items()
        }


def _keys(batch: PulsarBatch) -> Iterator[bytes | None]:
    for row in range(batch.rows):
        key = batch.key(row)
        yield decoded_key(key) if key is not None and batch.key_is_base64(row) else key


def _values(batch: PulsarBatch) -> Iterator[bytes | None]:
    for row, value in enumerate(batch.contents()):
        yield None if batch.is_null(row) else value


_PULSAR_COLUMNS: dict[str, Callable[[EntryHeader, PulsarBatch], Iterable[Any]]] = {
    "ledger_id": lambda header, batch: repeat(header.ledger_id, batch.rows),
    "entry_id": lambda header, batch: repeat(header.entry_id, batch.rows),
    "batch_index": lambda _, batch: map(batch.batch_index, range(batch.rows)),
    "key": lambda _, batch: _keys(batch),
    "value": lambda _, batch: _values(batch),
    "publish_time": lambda header, batch: repeat(header.publish_time_ms, batch.rows),
    "event_time": lambda _, batch: (batch.event_time_ms(row) or None for row in range(batch.rows)),
    "producer_name": lambda _, batch: repeat(batch.producer_name, batch.rows),
    "sequence_id": lambda _, batch: map(batch.sequence_id, range(batch.rows)),
    "properties": lambda _, batch: (
        list(batch.properties(row).items()) for row in range(batch.rows)
    ),
}


class KafkaRows(Rows):
    """The records of the batches added so far. Markers are left out, as for a consumer."""

    def __init__(self, query: Query, partition: int, offsets: tuple[int, int]) -> None:
        super().__init__(query, partition)
        self._first, self._end = offsets
        self._counts: list[int] = []
        self._publish_times: list[int] = []
        self._producers: list[str] = []
        self._sequence_ids: list[int] = []
        self._offsets: list[int] = []
        self._times: list[int] = []
        self._keys: list[bytes | None] = []
        self._values: list[bytes | None] = []
        self._headers: dict[int, Any] = {}

    def add(self, header: EntryHeader, key_section: Buffer, value_section: Buffer) -> None:
        batch = KafkaBatch(header, key_section, value_section)
        if not batch.rows or batch.batch.is_control:
            return
        columns = batch.columns
        for row, pairs in columns.headers.items():
            self._headers[self.rows + row] = pairs
        self._offsets.extend(columns.offsets)
        self._times.extend(columns.timestamps_ms)
        self._keys.extend(columns.keys)
        self._values.extend(columns.values)
        self._counts.append(batch.rows)
        self._publish_times.append(header.publish_time_ms)
        self._producers.append(batch.producer_name)
        self._sequence_ids.append(
            header.sequence_id - batch.batch_size + 1 - batch.batch.base_offset
        )
        self.rows += batch.rows
        self.size_bytes += sum(map(len, filter(None, chain(columns.keys, columns.values))))
        self.size_bytes += 4 * _OBJECT_BYTES * batch.rows

    def columns(self) -> dict[str, pa.Array]:
        counts = np.array(self._counts, np.int64)
        offsets, times = (np.array(each, np.int64) for each in (self._offsets, self._times))
        publish_times, firsts = (
            np.repeat(np.array(each, np.int64), counts)
            for each in (self._publish_times, self._sequence_ids)
        )
        names = list(chain.from_iterable(map(repeat, self._producers, self._counts)))
        is_unnumbered = np.array([not name for name in self._producers], np.bool_)
        columns = {
            "ledger_id": pa.array(np.zeros(self.rows, np.int64)),
            "entry_id": pa.array(offsets),
            "batch_index": pa.array(np.full(self.rows, -1, np.int32)),
            "offset": pa.array(offsets),
            "key": pa.array(self._keys, pa.binary()),
            "value": pa.array(self._values, pa.binary()),
            "publish_time": pa.array(publish_times).cast(TIME),
            "event_time": pa.array(times, mask=times == NO_TIMESTAMP).cast(TIME),
            "producer_name": pa.array(names, pa.string()),
            "sequence_id": pa.array(firsts + offsets, mask=np.repeat(is_unnumbered, counts)),
        }
        if self.query.wants("headers"):
            columns["headers"] = self._header_column()
        return columns

    def _header_column(self) -> pa.Array:
        return pa.array(
            [
                [{"key": key, "value": value} for key, value in self._headers.get(row, ())]
                for row in range(self.rows)
            ],
            HEADERS,
        )

    def dead_rows(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Returns the rows whose offsets are not in the range of the part."""
        offsets = np.array(self._offsets, np.int64)
        return np.flatnonzero((offsets < self._first) | (offsets >= self._end))
