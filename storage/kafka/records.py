"""Reads and builds the records of a batch, as columns or one by one.

Under log append time every record's timestamp is the batch's largest. A control batch holds one
record, whose key has the type of control record; consumers get none.

    >>> headers = (("h", b"x"), ("i", None))
    >>> records = [KafkaRecord(7, 1000, b"k", None), KafkaRecord(9, 1001, b"l", b"v", headers)]
    >>> batch = build_batch(records, base_offset=7, compression=KafkaCompression.ZSTD)
    >>> list(records_of(batch)) == records
    True
    >>> columns_of(build_columns([b"k", b"l"], [b"1", b"2"], [1000, 1000])).offsets
    [0, 1]

Source: `org.apache.kafka.common.record.DefaultRecord`, `MemoryRecordsBuilder`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple, TypedDict, Unpack

from ledgerfold.storage.entry import Buffer
from ledgerfold.storage.kafka.batch import (
    BATCH_HEADER_BYTES,
    MAGIC,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    BatchHeader,
    TimestampType,
    attributes_of,
    read_batch_header,
    sealed,
)
from ledgerfold.storage.kafka.compression import KafkaCompression, compress, decompress
from ledgerfold.storage.kafka.reading import read_section
from ledgerfold.storage.kafka.section import (
    Headers,
    RecordColumns,
    check_room,
    invalid_record,
    record_section,
)
from ledgerfold.storage.kafka.varints import INT64_MAX, int64


class KafkaRecord(NamedTuple):
    """A record with its offset. A null value is a tombstone, an empty one is not."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


class ControlType(IntEnum):
    """The type of a control record. Types after COMMIT do not occur in a topic's log."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6
    UNKNOWN = -1


class EndMarker(NamedTuple):
    """The end of a transaction, from a control batch."""

    is_abort: bool
    coordinator_epoch: int
    timestamp_ms: int


class BatchFields(TypedDict, total=False):
    """Header fields that the records do not determine; each has a default."""

    base_offset: int
    compression: int
    timestamp_type: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    is_transactional: bool
    is_control: bool
    leader_epoch: int


def records_of(batch: Buffer) -> Iterator[KafkaRecord]:
    """Yields the records of a whole batch. Raises KafkaError."""
    offsets, timestamps, keys, values, headers = columns_of(batch)
    for row, (offset, timestamp, key, value) in enumerate(
        zip(offsets, timestamps, keys, values, strict=True)
    ):
        yield KafkaRecord(offset, timestamp, key, value, headers.get(row, ()))


def columns_of(batch: Buffer) -> RecordColumns:
    """Returns the records as columns. Raises KafkaError: INVALID_RECORD, and as decompress()."""
    header = read_batch_header(batch)
    return section_columns(header, memoryview(batch)[BATCH_HEADER_BYTES:])


def section_columns(header: BatchHeader, section: Buffer) -> RecordColumns:
    """Returns the columns of a batch from its header and its records as stored."""
    # Without records there is nothing to decompress either.
    data = decompress(header.compression, section) if header.record_count else bytes(section)
    return plain_columns(header, data)


def plain_columns(header: BatchHeader, data: bytes) -> RecordColumns:
    """Returns the columns of decompressed records."""
    check_room(data, header.record_count)
    columns = read_section(data, header.record_count, header.base_offset, header.base_timestamp_ms)
    offsets, times = columns.offsets, columns.timestamps_ms
    if not offsets:
        return columns
    first, last = (offsets[0], offsets[-1]) if isinstance(offsets, range) else _bounds(offsets)
    if first < header.base_offset or last > header.last_offset:
        raise invalid_record("A record's offset is outside its batch.")
    if header.timestamp_type == TimestampType.LOG_APPEND_TIME:
        times[:] = [header.max_timestamp_ms] * header.record_count
        return columns
    first, last = _bounds(times)
    if last > INT64_MAX or first < -INT64_MAX:
        times[:] = map(int64, times)
    return columns


def _bounds(numbers: Sequence[int]) -> tuple[int, int]:
    """Returns the minimum and maximum; most columns of times hold one time."""
    if numbers.count(numbers[0]) == len(numbers):
        return numbers[0], numbers[0]
    return min(numbers), max(numbers)


def build_batch(records: Iterable[KafkaRecord], **fields: Unpack[BatchFields]) -> bytes:
    """Builds a batch of records in offset order. Raises KafkaError."""
    listed = list(records)
    base_offset = fields.get("base_offset", 0)
    return build_columns(
        [record.key for record in listed],
        [record.value for record in listed],
        [record.timestamp_ms for record in listed],
        {row: record.headers for row, record in enumerate(listed) if record.headers},
        [record.offset - base_offset for record in listed],
        **fields,
    )


def build_columns(
    keys: Sequence[bytes | None],
    values: Sequence[bytes | None],
    timestamps_ms: Sequence[int],
    headers: Mapping[int, Headers] | None = None,
    offset_deltas: Sequence[int] | None = None,
    **fields: Unpack[BatchFields],
) -> bytes:
    """Builds a batch of columns. Without deltas, offsets rise by one from the base.

    Raises KafkaError (INVALID_RECORD) if there are no records or their offsets do not rise.
    """
    return sealed(*batch_parts(keys, values, timestamps_ms, headers, offset_deltas, **fields))


def batch_parts(
    keys: Sequence[bytes | None],
    values: Sequence[bytes | None],
    timestamps_ms: Sequence[int],
    headers: Mapping[int, Headers] | None = None,
    offset_deltas: Sequence[int] | None = None,
    **fields: Unpack[BatchFields],
) -> tuple[BatchHeader, bytes]:
    """Returns the header and records before sealing, for a producer that numbers batches when it
    sends.
    """
    count = len(values)
    deltas = range(count) if offset_deltas is None else offset_deltas
    if not count or not len(keys) == len(timestamps_ms) == len(deltas) == count:
        raise invalid_record("A batch has at least one record, and columns of one length.")
    if offset_deltas is not None and any(map(int.__ge__, [-1, *deltas], deltas)):
        raise invalid_record(
            "Offsets must increase monotonically, from the batch's base offset on."
        )
    base_timestamp = timestamps_ms[0]
    section = record_section(keys, values, timestamps_ms, headers or {}, deltas, base_timestamp)
    compression = fields.get("compression", KafkaCompression.NONE)
    header = BatchHeader(
        base_offset=fields.get("base_offset", 0),
        length=0,
        leader_epoch=fields.get("leader_epoch", 0),
        magic=MAGIC,
        crc=0,
        attributes=attributes_of(
            compression,
            fields.get("timestamp_type", TimestampType.CREATE_TIME),
            is_transactional=fields.get("is_transactional", False),
            is_control=fields.get("is_control", False),
        ),
        last_offset_delta=deltas[-1],
        base_timestamp_ms=base_timestamp,
        max_timestamp_ms=max(NO_TIMESTAMP, _bounds(timestamps_ms)[1]),
        producer_id=fields.get("producer_id", NO_PRODUCER_ID),
        producer_epoch=fields.get("producer_epoch", -1),
        base_sequence=fields.get("base_sequence", NO_SEQUENCE),
        record_count=count,
    )
    return header, compress(compression, section)


# Version and type; version and the coordinator's epoch.
_CONTROL_KEY = struct.Struct(">hh")
_CONTROL_VALUE = struct.Struct(">hi")


def end_marker(
    control_type: ControlType,
    *,
    base_offset: int,
    timestamp_ms: int,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int = 0,
    leader_epoch: int = 0,
) -> bytes:
    """Builds the batch that commits or aborts a transaction.

    >>> marker = end_marker(
    ...     ControlType.ABORT, base_offset=5, timestamp_ms=9, producer_id=1, producer_epoch=0
    ... )
    >>> marker_type(marker), read_end_marker(marker).coordinator_epoch
    (<ControlType.ABORT: 0>, 0)
    """
    key = _CONTROL_KEY.pack(0, control_type)
    value = _CONTROL_VALUE.pack(0, coordinator_epoch)
    return build_columns(
        [key],
        [value],
        [timestamp_ms],
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=True,
        is_control=True,
        leader_epoch=leader_epoch,
    )


def marker_type(batch: Buffer) -> ControlType | None:
    """Returns the type of a control batch; None for others, and if only the header is left."""
    if not read_batch_header(batch).is_control:
        return None
    keys = columns_of(batch).keys
    return _control_type(keys[0]) if keys else None


def _control_type(key: bytes | None) -> ControlType:
    if key is None or len(key) < _CONTROL_KEY.size:
        raise invalid_record(
            f"Invalid value size found for end control record key. Must have at least "
            f"{_CONTROL_KEY.size} bytes, but found only {len(key or b'')}"
        )
    version, number = _CONTROL_KEY.unpack_from(key)
    if version < 0:
        raise invalid_record(
            f"Invalid version found for control record: {version}. May indicate data corruption"
        )
    known = number in ControlType._value2member_map_
    return ControlType(number) if known else ControlType.UNKNOWN


def read_end_marker(batch: Buffer) -> EndMarker | None:
    """Reads a transaction marker. None if it is of another type, or only the header is left.

    Raises KafkaError.
    """
    columns = columns_of(batch) if read_batch_header(batch).is_control else None
    if columns is None or not columns.keys:
        return None
    type_ = _control_type(columns.keys[0])
    if type_ not in (ControlType.COMMIT, ControlType.ABORT):
        return None
    value = columns.values[0] or b""
    if len(value) < _CONTROL_VALUE.size:
        raise invalid_record(
            f"Invalid value size found for end transaction marker. Must have at least "
            f"{_CONTROL_VALUE.size} bytes, but found only {len(value)}"
        )
    epoch = _CONTROL_VALUE.unpack_from(value)[1]
    return EndMarker(type_ is ControlType.ABORT, epoch, columns.timestamps_ms[0])
