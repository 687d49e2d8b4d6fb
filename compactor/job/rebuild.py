"""The rebuilding of a native entry from which a run removes messages.

All columns of both sections keep the surviving rows; batch indexes and batch size record the
original indexes, so that ids do not change. The header keeps everything but counts, lengths and
checksums (storage/entry.py, rebuild_header).

The value section is compressed with the same algorithm. It may grow if the producer used a higher
level, and an entry that was published before brokers counted batch indexes may exceed
ENTRY_BYTES_MAX. In both cases the smaller of that and uncompressed bytes is used, or zstd if
neither fits, which the header records. If that is too large as well, the run fails, because no
reader could receive the entry.

    rows 1 and 3 of a batch of four: batch_indexes = [1, 3], batch_size = 4

Strategic compaction can renumber the remaining messages instead, as Pulsar's does.

Neighbouring rows are taken as one slice. (Arrow's take costs 100 us per call, regardless of the
size; here that was half of phase two.)
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ledgerfold.compactor.positions import Integers
from ledgerfold.storage.compression import SIZE_BYTES, compress, compress_tightly
from ledgerfold.storage.entry import (
    ENTRY_BYTES_MAX,
    FLAG_PLAIN,
    Codec,
    Compression,
    EntryHeader,
    rebuild_header,
)
from ledgerfold.storage.errors import EntryTooLarge, InvalidRequest
from ledgerfold.storage.native_batch import parse_keys, parse_values
from ledgerfold.v1.entry_pb2 import NativeKeys, NativeValues

Column = NDArray[np.integer]
_ZERO, _LAST = np.array([0]), np.array([-1])


class RawEntry(NamedTuple):
    """The three parts of a stored entry."""

    header: bytes
    key_section: bytes
    value_section: bytes


def keep_rows(
    header: EntryHeader,
    entry: RawEntry,
    rows: Integers,
    path: str = "a segment",
    renumber: bool = False,
) -> RawEntry:
    """Returns the entry with only these rows, which ascend and are not empty. `path` is for the
    error.

    `renumber`: batch indexes start at 0, and a single message is published alone. Sequence ids that
    no longer follow from the index are stored: 8 bytes per message, where batch indexes take 4. The
    caller verifies checksums. Raises InvalidRequest if the sections are not a valid native entry,
    EntryTooLarge.
    """
    if header.codec != Codec.NATIVE:
        raise InvalidRequest(f"Unknown entry codec {header.codec}.")
    keys = parse_keys(entry.key_section)
    values = parse_values(header, entry.value_section)
    count = len(keys.flags)
    if count != header.message_count or int(rows[-1]) >= count:
        raise InvalidRequest("A native key section does not have its header's row count.")
    remaining = _Rows(rows, count)
    values.values = remaining.blob(
        _offsets(remaining.column(keys.value_sizes, "<u4")), values.values
    )
    sequence_ids = _sequence_ids(header, keys, values)[rows] if renumber else None
    _keep_keys(keys, remaining)
    _keep_values(values, remaining)
    if sequence_ids is not None:
        header = _renumber(header, keys, values, sequence_ids)
    key_section = keys.SerializeToString()
    header_bytes = header.size_bytes - header.key_bytes - header.value_bytes
    room_bytes = ENTRY_BYTES_MAX - header_bytes - len(key_section)
    compression, value_section = fitting(header, values.SerializeToString(), room_bytes, path)
    header = header._replace(compression=compression)
    rebuilt = rebuild_header(header, key_section, value_section, len(rows))
    return RawEntry(rebuilt, key_section, value_section)


def fitting(
    header: EntryHeader, content: bytes, room_bytes: int, path: str, *, is_sized: bool = True
) -> tuple[int, bytes]:
    """Returns the compression and the bytes of a value section: the original compression, or else
    the smallest.

    `is_sized`: compressed bytes begin with the size of `content`; else empty content stays empty.
    Raises EntryTooLarge.
    """
    prefix_bytes = 0 if is_sized else SIZE_BYTES
    first = header.compression if is_sized or content else Compression.NONE
    kinds = [(first, compress(first, content)[prefix_bytes if first else 0 :])]
    if len(kinds[0][1]) > min(header.value_bytes, room_bytes):
        kinds.append((Compression.NONE, content))
        if min(len(section) for _, section in kinds) > room_bytes:
            kinds.append((Compression.ZSTD, compress_tightly(content)[prefix_bytes:]))
    compression, section = min(kinds, key=lambda kind: len(kind[1]))
    if len(section) > room_bytes:
        size_bytes = ENTRY_BYTES_MAX - room_bytes + len(section)
        raise EntryTooLarge(path, str(header.position), size_bytes, ENTRY_BYTES_MAX)
    return compression, section


def _keep_keys(keys: NativeKeys, rows: _Rows) -> None:
    keys.key_offsets, keys.keys = rows.strings(keys.key_offsets, keys.keys)
    if keys.batch_indexes:
        keys.batch_indexes = rows.take(keys.batch_indexes, "<u4")
    else:
        keys.batch_indexes = rows.rows.astype("<u4").tobytes()
    keys.batch_size = keys.batch_size or rows.count
    keys.flags = rows.take(keys.flags, "|u1")
    keys.value_sizes = rows.take(keys.value_sizes, "<u4")
    if keys.event_times:
        keys.event_times = rows.take(keys.event_times, "<i8")


def _sequence_ids(header: EntryHeader, keys: NativeKeys, values: NativeValues) -> Column:
    """Returns the sequence ids of all rows: stored ones, or counted back from the header's."""
    count = len(keys.flags)
    every = _Rows(np.arange(count), count)
    if values.sequence_ids:
        return every.column(values.sequence_ids, "<i8")
    indexes = every.rows
    if keys.batch_indexes:
        indexes = every.column(keys.batch_indexes, "<u4").astype(np.int64)
    return indexes + (header.sequence_id - (keys.batch_size or count) + 1)


def _renumber(
    header: EntryHeader, keys: NativeKeys, values: NativeValues, sequence_ids: Column
) -> EntryHeader:
    """Renumbers the rows as if they had been published alone, with their sequence ids.

    Source: Pulsar's RawBatchMessageContainerImpl.
    """
    keys.batch_indexes, keys.batch_size = b"", 0
    last = int(sequence_ids[-1])
    counted = np.arange(last - len(sequence_ids) + 1, last + 1)
    is_counted = np.array_equal(sequence_ids, counted)
    values.sequence_ids = b"" if is_counted else sequence_ids.astype("<i8").tobytes()
    flags = header.flags | FLAG_PLAIN if len(sequence_ids) == 1 else header.flags
    return header._replace(sequence_id=last, flags=flags)


def _keep_values(values: NativeValues, rows: _Rows) -> None:
    if values.sequence_ids:
        values.sequence_ids = rows.take(values.sequence_ids, "<i8")
    if values.ordering_key_offsets:
        values.ordering_key_offsets, values.ordering_keys = rows.strings(
            values.ordering_key_offsets, values.ordering_keys
        )
    if values.property_offsets:
        _keep_properties(values, rows)


def _keep_properties(values: NativeValues, rows: _Rows) -> None:
    """Keeps the rows' runs of pairs, then the names and contents of those pairs."""
    offsets = rows.column(values.property_offsets, "<u4", extra=1).astype(np.int64)
    _check_rising(offsets, int(offsets[-1]))
    starts = offsets[rows.rows]
    sizes = offsets[rows.rows + 1] - starts
    kept_offsets = _offsets(sizes)
    values.property_offsets = kept_offsets.astype("<u4").tobytes()
    pairs = _Rows(
        np.arange(kept_offsets[-1]) + np.repeat(starts - kept_offsets[:-1], sizes),
        int(offsets[-1]),
    )
    values.property_name_offsets, values.property_names = pairs.strings(
        values.property_name_offsets, values.property_names
    )
    values.property_value_offsets, values.property_values = pairs.strings(
        values.property_value_offsets, values.property_values
    )


class _Rows:
    """The rows to keep, of `count`; applied to each column."""

    def __init__(self, rows: Integers, count: int) -> None:
        self.rows, self.count = rows, count
        # Neighbours are taken together: a run ends where the next row number is not consecutive.
        breaks = (rows[1:] != rows[:-1] + 1).nonzero()[0]
        self._run_starts = rows[np.concatenate((_ZERO, breaks + 1))] if len(rows) else rows
        self._run_ends = rows[np.concatenate((breaks, _LAST))] + 1 if len(rows) else rows

    def column(self, column: bytes, kind: str, extra: int = 0) -> Column:
        """Decodes a whole fixed-width column, with `extra` more numbers than rows."""
        if len(column) != (self.count + extra) * int(kind[2:]):
            raise InvalidRequest(f"A native column has {len(column)} bytes for {self.count} rows.")
        return np.frombuffer(column, kind)

    def take(self, column: bytes, kind: str) -> bytes:
        """Returns the kept rows of a fixed-width column."""
        return self.column(column, kind)[self.rows].tobytes()

    def blob(self, offsets: Column, blob: bytes) -> bytes:
        """Returns the kept rows' part of a blob."""
        _check_rising(offsets, len(blob))
        starts, ends = offsets[self._run_starts].tolist(), offsets[self._run_ends].tolist()
        return b"".join([blob[start:end] for start, end in zip(starts, ends, strict=True)])

    def strings(self, offsets: bytes, blob: bytes) -> tuple[bytes, bytes]:
        """Returns the offsets and blob of the kept rows of a column of byte strings."""
        column = self.column(offsets, "<u4", extra=1)
        remaining = self.blob(column, blob)
        sizes = column[self.rows + 1] - column[self.rows]
        return _offsets(sizes).astype("<u4").tobytes(), remaining


def _offsets(sizes: Column) -> Integers:
    offsets = np.zeros(len(sizes) + 1, np.int64)
    sizes.cumsum(dtype=np.int64, out=offsets[1:])
    return offsets


def _check_rising(offsets: Column, end: int) -> None:
    if offsets[0] != 0 or offsets[-1] != end or (offsets[1:] < offsets[:-1]).any():
        raise InvalidRequest("The offsets of a native column do not rise from 0 to its end.")
