"""The rows of entries of Pulsar's clients, and of Kafka's record batches, as Arrow columns.

A Kafka batch is decoded by column (storage/kafka/section.py). The messages of a Pulsar batch can
only be found one after the other: each has metadata of its own, which protobuf parses. What nobody
can open alone is one row, as a reader gets it (storage/pulsar/batch.py): an encrypted batch, or a
batch that does not parse; so is each chunk of a larger message, and an encrypted message.
"""

from __future__ import annotations

from itertools import chain, repeat
from typing import Any

import numpy as np
import pyarrow as pa

from ledgerfold.frames.keys import decoded
from ledgerfold.frames.query import Query
from ledgerfold.frames.rows import Rows
from ledgerfold.frames.schema import HEADERS, PROPERTIES, SCHEMA, TIME
from ledgerfold.storage.entry import Buffer, EntryHeader
from ledgerfold.storage.kafka.entries import KafkaBatch
from ledgerfold.storage.pulsar.batch import PulsarBatch

# What a Python object takes beside its bytes.
_OBJECT_BYTES = 50


class PulsarRows(Rows):
    """The rows of the entries of Pulsar's clients added so far."""

    def __init__(self, query: Query, partition: int) -> None:
        super().__init__(query, partition)
        self._columns: dict[str, list[Any]] = {
            name: [] for name in SCHEMA.names if name not in ("partition", "offset", "headers")
        }

    def add(self, header: EntryHeader, key_section: Buffer, value_section: Buffer) -> None:
        batch, into = PulsarBatch(header, key_section, value_section), self._columns
        rows = range(batch.rows)
        values = batch.contents()
        keys = [batch.key(row) for row in rows]
        added: dict[str, Any] = {
            "ledger_id": repeat(header.ledger_id, batch.rows),
            "entry_id": repeat(header.entry_id, batch.rows),
            "batch_index": map(batch.batch_index, rows),
            "key": [
                decoded(key) if key is not None and batch.key_is_base64(row) else key
                for row, key in enumerate(keys)
            ],
            "value": [None if batch.is_null(row) else values[row] for row in rows],
            "publish_time": repeat(header.publish_time_ms, batch.rows),
            "event_time": [batch.event_time_ms(row) or None for row in rows],
            "producer_name": repeat(batch.producer_name, batch.rows),
            "sequence_id": map(batch.sequence_id, rows),
            "properties": [list(batch.properties(row).items()) for row in rows],
        }
        for name, column in added.items():
            into[name].extend(column)
        self.rows += batch.rows
        self.size_bytes += sum(map(len, values)) + len(added) * _OBJECT_BYTES * batch.rows

    def columns(self) -> dict[str, pa.Array]:
        return {
            name: pa.array(column, SCHEMA.field(name).type)
            for name, column in self._columns.items()
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
        headers = [
            None if pairs is None else [{"key": key, "value": value} for key, value in pairs]
            for pairs in map(self._headers.get, range(self.rows))
        ]
        return {
            "ledger_id": pa.array(np.zeros(self.rows, np.int64)),
            "entry_id": pa.array(offsets),
            "batch_index": pa.array(np.full(self.rows, -1, np.int32)),
            "offset": pa.array(offsets),
            "key": pa.array(self._keys, pa.binary()),
            "value": pa.array(self._values, pa.binary()),
            "publish_time": pa.array(publish_times).cast(TIME),
            "event_time": pa.array(times, mask=times < 0).cast(TIME),
            "producer_name": pa.array(names, pa.string()),
            "sequence_id": pa.array(firsts + offsets),
            "properties": pa.nulls(self.rows, PROPERTIES),
            "headers": pa.array([each or [] for each in headers], HEADERS),
        }

    def dead_rows(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Returns the rows whose offsets are not in the range of the part."""
        offsets = np.array(self._offsets, np.int64)
        return np.flatnonzero((offsets < self._first) | (offsets >= self._end))
