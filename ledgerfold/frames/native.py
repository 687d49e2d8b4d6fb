"""The rows of native entries as Arrow columns.

A native entry's columns are in Arrow's layout already (docs/FORMATS.md, "Native codec"). So the
columns of many entries are collected as bytes, joined, and wrapped: nothing is done for each
message. A checksum only proves that these are the producer's bytes: sizes and offsets are checked
before Arrow follows them.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ledgerfold.frames.query import Query
from ledgerfold.frames.rows import Rows
from ledgerfold.frames.schema import IN_VALUES, PROPERTIES, TIME
from ledgerfold.storage.decoded import decoded_key
from ledgerfold.storage.entry import Buffer, EntryHeader
from ledgerfold.storage.errors import InvalidRequest
from ledgerfold.storage.native import HAS_KEY, KEY_IS_BASE64, NULL_VALUE
from ledgerfold.storage.native_batch import parse_keys, parse_values
from ledgerfold.storage.served_entry import row_numbers
from ledgerfold.v1.entry_pb2 import NativeValues

Integers = NDArray[np.int64]
_MISMATCH = "The columns of a native entry do not match."


class NativeRows(Rows):
    """The rows of the native entries added so far."""

    def __init__(self, query: Query, partition: int) -> None:
        super().__init__(query, partition)
        self._needs_values = query.wants(*IN_VALUES)
        self._counts: list[int] = []
        self._headers: list[EntryHeader] = []
        self._batch_sizes: list[int] = []
        self._flags: list[bytes] = []
        self._indexes: list[bytes] = []
        self._event_times: list[bytes] = []
        self._value_sizes: list[bytes] = []
        self._values: list[bytes] = []
        self._keys = _Strings()
        self._producers: list[str] = []
        # The keys are the numbers of the entries.
        self._sequence_ids: dict[int, bytes] = {}
        self._properties: dict[int, NativeValues] = {}
        self._dead: list[Integers] = []

    def add(self, header: EntryHeader, key_section: Buffer, value_section: Buffer) -> None:
        rows = header.rows
        keys = parse_keys(key_section)
        sizes = keys.value_sizes
        if not (
            len(keys.flags) == rows
            and len(sizes) == 4 * rows
            and len(keys.event_times) in (0, 8 * rows)
            and len(keys.batch_indexes) in (0, 4 * rows)
        ):
            raise InvalidRequest(_MISMATCH)
        number = len(self._counts)
        if self._needs_values:
            values = parse_values(header, value_section)
            if len(values.sequence_ids) not in (0, 8 * rows):
                raise InvalidRequest(_MISMATCH)
            if sum(np.frombuffer(sizes, "<u4").tolist()) != len(values.values):
                raise InvalidRequest("The value sizes of a native entry do not match its values.")
            self._producers.append(values.producer_name)
            self._values.append(values.values)
            if values.sequence_ids:
                self._sequence_ids[number] = values.sequence_ids
            if values.property_offsets:
                self._properties[number] = values
            self.size_bytes += len(values.values) + len(values.property_values)
        self._keys.add(keys.key_offsets, rows, keys.keys)
        self._value_sizes.append(sizes)
        self._flags.append(keys.flags)
        self._event_times.append(keys.event_times or bytes(8 * rows))
        self._indexes.append(keys.batch_indexes or _counted(rows))
        self._batch_sizes.append(keys.batch_size or rows)
        self._headers.append(header)
        self._counts.append(rows)
        if header.live_rows:
            live = np.array(row_numbers(header.live_rows, rows), np.int64)
            self._dead.append(np.setdiff1d(np.arange(rows), live) + self.rows)
        self.rows += rows
        self.size_bytes += len(keys.keys) + 32 * rows

    def columns(self) -> dict[str, pa.Array]:
        counts = np.array(self._counts)
        headers = self._headers

        def repeated(values: list[int]) -> Integers:
            return np.repeat(np.array(values, np.int64), counts)

        flags = np.frombuffer(b"".join(self._flags), np.uint8)
        indexes = np.frombuffer(b"".join(self._indexes), "<u4").astype(np.int64)
        times = np.frombuffer(b"".join(self._event_times), "<i8")
        is_alone = repeated([header.is_plain for header in headers]).astype(np.bool_)
        keys = self._keys.array((flags & HAS_KEY) == 0)
        is_base64 = (flags & KEY_IS_BASE64) != 0
        columns = {
            "ledger_id": pa.array(repeated([header.ledger_id for header in headers])),
            "entry_id": pa.array(repeated([header.entry_id for header in headers])),
            "batch_index": pa.array(np.where(is_alone, -1, indexes).astype(np.int32)),
            "key": _with_decoded(keys, is_base64) if is_base64.any() else keys,
            "publish_time": pa.array(repeated([header.publish_time_ms for header in headers])).cast(
                TIME
            ),
            "event_time": pa.array(times, mask=times == 0).cast(TIME),
        }
        if self._needs_values:
            columns |= self._in_values(flags, indexes, counts)
        return columns

    def _in_values(
        self, flags: NDArray[np.uint8], indexes: Integers, counts: Integers
    ) -> dict[str, pa.Array]:
        firsts = [
            header.sequence_id - size + 1
            for header, size in zip(self._headers, self._batch_sizes, strict=True)
        ]
        sequence_ids = np.repeat(np.array(firsts, np.int64), counts) + indexes
        starts = np.cumsum(counts) - counts
        for number, column in self._sequence_ids.items():
            start = starts[number]
            sequence_ids[start : start + counts[number]] = np.frombuffer(column, "<i8")
        sizes = np.frombuffer(b"".join(self._value_sizes), "<u4").astype(np.int64)
        is_null = (flags & NULL_VALUE) != 0
        columns = {
            "value": strings_of(sizes, b"".join(self._values), is_null),
            "producer_name": _names(self._producers, counts),
            "sequence_id": pa.array(sequence_ids),
        }
        if self.query.wants("properties"):
            columns["properties"] = self._property_column(counts)
        return columns

    def _property_column(self, counts: Integers) -> pa.Array:
        names, contents = _Strings(), _Strings()
        sizes = [np.zeros(count, np.int64) for count in counts]
        for number, values in self._properties.items():
            sizes[number] = _sizes_in(values.property_offsets, int(counts[number]))
            pairs = int(sizes[number].sum())
            names.add(values.property_name_offsets, pairs, values.property_names)
            contents.add(values.property_value_offsets, pairs, values.property_values)
        column = pa.MapArray.from_arrays(
            _offsets(np.concatenate(sizes)),
            names.array().view(pa.string()),
            contents.array().view(pa.string()),
        ).cast(PROPERTIES)
        try:
            column.validate(full=True)
        except pa.ArrowInvalid as error:
            raise InvalidRequest(f"A property of a message is not UTF-8: {error}") from error
        return column

    def dead_rows(self) -> Integers:
        return np.concatenate(self._dead) if self._dead else np.empty(0, np.int64)


class _Strings:
    """Strings of many entries, by their offsets and blobs."""

    def __init__(self) -> None:
        self._sizes: list[Integers] = []
        self._blobs: list[bytes] = []

    def add(self, offsets: bytes, rows: int, blob: bytes) -> None:
        """Adds the strings of an entry. Raises InvalidRequest if offsets and blob do not match."""
        if rows == 1:
            # Entries of one message are the many ones.
            if offsets != b"\0\0\0\0" + len(blob).to_bytes(4, "little"):
                raise InvalidRequest(_MISMATCH)
            self._sizes.append(np.array([len(blob)]))
        else:
            sizes = _sizes_in(offsets, rows)
            if int(sizes.sum()) != len(blob):
                raise InvalidRequest(_MISMATCH)
            self._sizes.append(sizes)
        self._blobs.append(blob)

    def array(self, is_null: NDArray[np.bool_] | None = None) -> pa.Array:
        sizes = np.concatenate(self._sizes) if self._sizes else np.empty(0, np.int64)
        return strings_of(sizes, b"".join(self._blobs), is_null)


def _counted(rows: int) -> bytes:
    return bytes(4) if rows == 1 else np.arange(rows, dtype="<u4").tobytes()


def _sizes_in(offsets: bytes, rows: int) -> Integers:
    """Returns the sizes that offsets imply. Raises InvalidRequest unless they rise from 0."""
    column = np.frombuffer(offsets, "<u4").astype(np.int64) if len(offsets) % 4 == 0 else None
    if column is None or len(column) != rows + 1 or column[0]:
        raise InvalidRequest(_MISMATCH)
    sizes = np.diff(column)
    if (sizes < 0).any():
        raise InvalidRequest(_MISMATCH)
    return sizes


def _offsets(sizes: Integers) -> pa.Array:
    offsets = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    return pa.array(offsets.astype(np.int32))


def strings_of(sizes: Integers, blob: bytes, is_null: NDArray[np.bool_] | None) -> pa.Array:
    """Returns byte strings by their sizes and their concatenation."""
    buffers = [None, _offsets(sizes).buffers()[1], pa.py_buffer(blob)]
    column = pa.Array.from_buffers(pa.binary(), len(sizes), buffers)
    if is_null is None or not is_null.any():
        return column
    return pc.if_else(pa.array(is_null), pa.scalar(None, pa.binary()), column)


def _names(names: list[str], counts: Integers) -> pa.Array:
    known = {name: number for number, name in enumerate(dict.fromkeys(names))}
    numbers = np.repeat(np.array([known[name] for name in names], np.int32), counts)
    return pa.array(list(known), pa.string()).take(pa.array(numbers))


def _with_decoded(keys: pa.Array, is_base64: NDArray[np.bool_]) -> pa.Array:
    """Returns the column with these rows decoded: keys that clients have sent in base64."""
    listed = keys.to_pylist()
    for row in np.flatnonzero(is_base64):
        if listed[row] is not None:
            listed[row] = decoded_key(listed[row])
    return pa.array(listed, pa.binary())
