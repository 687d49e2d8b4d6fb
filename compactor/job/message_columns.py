"""The columns of many entries that message strategies read.

In addition to the key columns (key_columns.py): ids, publish times, and the parts of the value
section that the strategy reads. The value section is decompressed once per entry, and only if the
strategy reads any of it. One row is one message:

    places      position << 1 | 1 for a value
    entry       the number of its entry, from 0
    indexes     in the entry; -1: published alone
    values, event_times                            } if the strategy reads them
    properties  a list of names and contents       }
"""

from __future__ import annotations

from collections.abc import Sequence, Sized
from itertools import chain
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ledgerfold.compactor.job.arrow_integers import as_offsets, to_arrow, to_arrow_short
from ledgerfold.compactor.job.key_columns import KeyColumns
from ledgerfold.compactor.job.key_sections import Keys, is_opaque
from ledgerfold.compactor.job.pulsar_keys import KeySection
from ledgerfold.compactor.job.segment_map import PlacedEntry, SegmentMap
from ledgerfold.compactor.positions import Booleans, Integers, sums_of
from ledgerfold.storage.entry import EntryHeader
from ledgerfold.storage.errors import Corruption, InvalidRequest
from ledgerfold.storage.native_batch import parse_values
from ledgerfold.storage.pulsar.batch import PulsarBatch
from ledgerfold.v1.entry_pb2 import NativeKeys, NativeValues


class MessageColumns:
    """The columns of the entries added so far. Rows are messages, in order of id.

    Call `check` before any column.
    """

    def __init__(self, reads: frozenset[str]) -> None:
        self._reads = reads
        self._reads_values = not reads.isdisjoint(("value", "properties"))
        self.keys = KeyColumns(reads_event_times="event_time_ms" in reads)
        self.value_bytes = 0
        self._ids: list[tuple[int, int]] = []
        self._publish_times: list[int] = []
        self._indexes: list[bytes] = []
        self._values = _Strings()
        self._properties = _Properties()

    def add(self, segment: SegmentMap, entry: PlacedEntry) -> None:
        """Adds an entry. Raises Corruption if a section does not match its checksum or parse."""
        header = entry.header
        section = self.keys.add(segment, entry)
        self._ids.append(header.position)
        self._publish_times.append(header.publish_time_ms)
        try:
            is_alone = header.is_plain or is_opaque(section)
            self._indexes.append(_indexes(section, self.keys.counts[-1], is_alone))
            if not self._reads_values:
                return
            values = segment.value_section(entry)
            if isinstance(section, KeySection):
                values_read = pulsar_values(header, section, segment.key_section(entry), values)
                self._add_pulsar_values(values_read)
            else:
                self._add_values(section, parse_values(header, values), header.message_count)
        except InvalidRequest as error:
            expected = "an entry that decodes"
            raise Corruption(segment.path, entry.offset, expected, str(error)) from error

    def _add_pulsar_values(self, values: MessageValues) -> None:
        pairs = list(chain.from_iterable(values.properties))
        self.value_bytes += sum(map(len, values.contents)) + sum(map(len, chain(*pairs)))
        if "value" in self._reads:
            self._values.add(_lengths(values.contents), b"".join(values.contents))
        if "properties" in self._reads:
            self._properties.add_pairs(_lengths(values.properties), pairs)

    def _add_values(self, keys: NativeKeys, values: NativeValues, count: int) -> None:
        self.value_bytes += len(values.values)
        self.value_bytes += len(values.property_names) + len(values.property_values)
        if "value" in self._reads:
            self._values.add(_column(keys.value_sizes, count), values.values)
        if "properties" in self._reads:
            self._properties.add(values, count)

    def check(self) -> None:
        """Raises Corruption, naming the first entry whose key columns do not match each other."""
        self.keys.check()

    def has_key(self) -> Booleans:
        return self.keys.has_key()

    def entries(self) -> dict[str, Integers]:
        """Returns columns by entry: `ledgers`, `entries`; `publish_times`, if the strategy reads
        them.
        """
        ledgers, entries = np.array(self._ids, np.int64).T
        columns = {"ledgers": ledgers, "entries": entries}
        if "publish_time_ms" in self._reads:
            columns["publish_times"] = np.array(self._publish_times, np.int64)
        return columns

    def rows(self) -> pa.RecordBatch:
        facts = self.keys.facts()
        numbers = np.arange(self.keys.entries, dtype=np.int32)
        columns = {
            "places": to_arrow((facts.positions << 1) | facts.is_value),
            "entry": to_arrow_short(np.repeat(numbers, self.keys.counts)),
            "indexes": to_arrow_short(np.frombuffer(b"".join(self._indexes), "<i4")),
        }
        if "value" in self._reads:
            columns["values"] = self._values.column()
        if "properties" in self._reads:
            columns["properties"] = self._properties.column()
        if facts.event_times is not None:
            columns["event_times"] = to_arrow(facts.event_times)
        return pa.record_batch(list(columns.values()), names=list(columns))


class _Strings:
    """A column of byte strings: their sizes, and the concatenated strings."""

    def __init__(self) -> None:
        self._sizes: list[Integers] = []
        self._blobs: list[bytes] = []

    def add(self, sizes: Integers, blob: bytes) -> None:
        """Adds many strings. Raises InvalidRequest if sizes and blob do not match."""
        if int(sizes.sum()) != len(blob):
            raise InvalidRequest("The sizes in a native entry do not match its strings.")
        self._sizes.append(sizes)
        self._blobs.append(blob)

    def column(self) -> pa.BinaryArray:
        offsets = _offsets(np.concatenate(self._sizes) if self._sizes else np.empty(0, np.int64))
        blob = b"".join(self._blobs)
        return pa.Array.from_buffers(
            pa.binary(), len(offsets) - 1, [None, pa.py_buffer(offsets), pa.py_buffer(blob)]
        )


class _Properties:
    """The properties of each message, as a list of pairs."""

    def __init__(self) -> None:
        self._counts: list[Integers] = []
        self._names, self._contents = _Strings(), _Strings()

    def add(self, values: NativeValues, rows: int) -> None:
        """Adds an entry's properties. Raises InvalidRequest if the columns do not match."""
        if not values.property_offsets:
            self._counts.append(np.zeros(rows, np.int64))
            return
        counts = _sizes(values.property_offsets, rows)
        pairs = int(counts.sum())
        self._names.add(_sizes(values.property_name_offsets, pairs), values.property_names)
        self._contents.add(_sizes(values.property_value_offsets, pairs), values.property_values)
        self._counts.append(counts)

    def add_pairs(self, counts: Integers, pairs: list[tuple[bytes, bytes]]) -> None:
        """Adds an entry's properties. `counts`: of each message."""
        names, contents = ([pair[at] for pair in pairs] for at in (0, 1))
        self._names.add(_lengths(names), b"".join(names))
        self._contents.add(_lengths(contents), b"".join(contents))
        self._counts.append(counts)

    def column(self) -> pa.ListArray:
        offsets = _offsets(np.concatenate(self._counts))
        pairs = pa.StructArray.from_arrays(
            [self._names.column(), self._contents.column()], names=["name", "content"]
        )
        return pa.Array.from_buffers(
            pa.list_(pairs.type),
            len(offsets) - 1,
            [None, pa.py_buffer(offsets)],
            children=[pairs],
        )


def _indexes(keys: Keys, count: int, is_alone: bool) -> bytes:
    if is_alone:
        return np.full(count, -1, "<i4").tobytes()
    if not keys.batch_indexes:
        return np.arange(count, dtype="<i4").tobytes()
    _column(keys.batch_indexes, count)
    return keys.batch_indexes


def _lengths(of: Sequence[Sized]) -> Integers:
    return np.fromiter(map(len, of), np.int64, len(of))


def _column(column: bytes, count: int) -> Integers:
    """Decodes a column of `count` numbers."""
    if len(column) != 4 * count:
        raise InvalidRequest(f"A native column has {len(column)} bytes for {count} rows.")
    return np.frombuffer(column, "<u4").astype(np.int64)


def _sizes(offsets: bytes, count: int) -> Integers:
    """Returns the sizes that the offsets imply."""
    column = _column(offsets, count + 1)
    sizes: Integers = np.diff(column)
    if column[0] != 0 or (sizes < 0).any():
        raise InvalidRequest("The offsets of a native column do not rise from 0.")
    return sizes


def _offsets(sizes: Integers) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    """Returns offsets in Arrow's form. Raises LimitExceeded."""
    return as_offsets(sums_of(sizes))


Pairs = list[tuple[bytes, bytes]]


class MessageValues(NamedTuple):
    """The value of each row, and its properties; nothing for a row that is not a message."""

    contents: list[bytes]
    properties: list[Pairs]


def pulsar_values(
    header: EntryHeader, keys: KeySection, key_section: bytes, value_section: bytes
) -> MessageValues:
    """Returns the parts that a strategy reads; of an entry that cannot be opened, the bytes as
    sent.

    Raises InvalidRequest.
    """
    if keys.passes:
        return MessageValues([b""], [[]])
    batch = PulsarBatch(header, key_section, value_section)
    return MessageValues(batch.contents(), [batch.pairs(row) for row in range(batch.rows)])
