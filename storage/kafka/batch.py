"""The header of a record batch of magic 2: 61 bytes, big-endian.

A batch is the unit that a producer sends and the log stores: the header, then the records,
compressed together (storage/kafka/records.py). The checksum covers only what follows it, so the
broker sets base offset and leader epoch without recomputing it.

* With the horizon flag (attribute bit 6) the base timestamp is the delete horizon. Records store
  their times as differences to that field, so they are unchanged when read.
* A batch may have lost records: base offset, last offset and sequence numbers stay those of the
  original. A batch without records is a header only.

    >>> from ledgerfold.storage.kafka.records import KafkaRecord, build_batch
    >>> batch = build_batch([KafkaRecord(7, 1000, b"k", b"v")], base_offset=7)
    >>> header = check_batch(batch)
    >>> header.base_offset, header.next_offset, header.record_count, header.size_bytes
    (7, 8, 1, 70)
    >>> check_batch(packed_header(placed(header, base_offset=40)) + batch[61:]).last_offset
    40

Source: KIP-98 and KIP-534; `org.apache.kafka.common.record.DefaultRecordBatch`.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import NamedTuple

import google_crc32c

from ledgerfold.storage.entry import Buffer, crc32c
from ledgerfold.storage.errors import KafkaError, KafkaErrorKind
from ledgerfold.storage.joined_crc import JoinedCrcs
from ledgerfold.storage.kafka.compression import KafkaCompression

# base offset, length, leader epoch, magic, crc32c | attributes, last offset delta, base timestamp,
# max timestamp, producer id, producer epoch, base sequence, record count.
BATCH_HEADER = struct.Struct(">qiibIhiqqqhii")
_CHECKED = struct.Struct(">hiqqqhii")
_CHECKED_AT = 21
# Base offset and length, which the length does not count.
_LOG_OVERHEAD_BYTES = 12
BATCH_HEADER_BYTES = BATCH_HEADER.size
assert BATCH_HEADER_BYTES == 61
MAGIC = 2
NO_TIMESTAMP = -1
NO_PRODUCER_ID = -1
NO_SEQUENCE = -1
_INT32_MAX = 2**31 - 1

_COMPRESSION_MASK = 0b111
_LOG_APPEND_TIME = 1 << 3
_TRANSACTIONAL = 1 << 4
_CONTROL = 1 << 5
_DELETE_HORIZON = 1 << 6

_COMPRESSIONS = frozenset(KafkaCompression)
_CRCS = JoinedCrcs()


class TimestampType(IntEnum):
    """The source of the records' times: the producer's clock, or the broker's."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


def attributes_of(
    compression: int,
    timestamp_type: int,
    *,
    is_transactional: bool,
    is_control: bool,
    has_delete_horizon: bool = False,
) -> int:
    return (
        compression
        | (_LOG_APPEND_TIME if timestamp_type else 0)
        | (_TRANSACTIONAL if is_transactional else 0)
        | (_CONTROL if is_control else 0)
        | (_DELETE_HORIZON if has_delete_horizon else 0)
    )


class BatchHeader(NamedTuple):
    """A decoded header, field by field."""

    base_offset: int
    # The number of bytes after this field.
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    # The delete horizon if there is one, else the time of the first record as originally built.
    base_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size_bytes(self) -> int:
        """The size of the whole batch."""
        return self.length + _LOG_OVERHEAD_BYTES

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """The last sequence number, which wraps to zero; NO_SEQUENCE if there is none."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & _INT32_MAX

    @property
    def compression(self) -> int:
        """The KafkaCompression, or another number in a damaged header."""
        return self.attributes & _COMPRESSION_MASK

    @property
    def timestamp_type(self) -> TimestampType:
        if self.attributes & _LOG_APPEND_TIME:
            return TimestampType.LOG_APPEND_TIME
        return TimestampType.CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & _TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & _CONTROL)

    @property
    def delete_horizon_ms(self) -> int | None:
        return self.base_timestamp_ms if self.attributes & _DELETE_HORIZON else None

    @property
    def has_producer(self) -> bool:
        return self.producer_id > NO_PRODUCER_ID


def read_batch_header(buffer: Buffer, at: int = 0) -> BatchHeader:
    """Reads the header at `at` without verifying it. Raises KafkaError if it is cut short."""
    if len(buffer) - at < BATCH_HEADER_BYTES:
        raise _corrupt(
            f"Record batch is corrupted (the size {len(buffer) - at} is smaller than the minimum "
            f"allowed overhead {BATCH_HEADER_BYTES})"
        )
    return BatchHeader._make(BATCH_HEADER.unpack_from(buffer, at))


class BatchParts(NamedTuple):
    """A batch as its header and its records as stored.

    `header`: not verified. `section_crc`: of the records, where it is known.
    """

    header: BatchHeader
    header_bytes: Buffer
    section: bytes
    section_crc: int | None = None

    @classmethod
    def of(cls, batch: Buffer) -> BatchParts:
        """Splits a batch. Raises KafkaError if it is shorter than a header."""
        view = memoryview(batch)
        header_bytes = view[:BATCH_HEADER_BYTES]
        return cls(read_batch_header(header_bytes), header_bytes, bytes(view[BATCH_HEADER_BYTES:]))

    @property
    def size_bytes(self) -> int:
        return len(self.header_bytes) + len(self.section)


def check_batch(batch: Buffer) -> BatchHeader:
    """Verifies that `batch` is one whole, undamaged batch of magic 2. Raises KafkaError.

    The records are not read; columns_of validates them.
    """
    return check_parts(BatchParts.of(batch))


def check_parts(batch: BatchParts) -> BatchHeader:
    """Verifies a batch in two parts, as check_batch() does."""
    header, section = batch.header, batch.section
    if header.magic != MAGIC:
        raise _wrong_magic(header.magic)
    if header.size_bytes != batch.size_bytes:
        raise _corrupt(
            f"The record batch's header gives {header.size_bytes} bytes; it has {batch.size_bytes}."
        )
    found = crc32c(batch.header_bytes[_CHECKED_AT:])
    if batch.section_crc is None:
        found = google_crc32c.extend(found, section)
    else:
        found = _CRCS.joined(found, section, batch.section_crc)
    if found != header.crc:
        raise _corrupt(f"Record is corrupt (stored crc = {header.crc}, computed crc = {found})")
    if header.record_count < 0 or header.last_offset_delta < 0:
        check_counts(header)
    if header.compression not in _COMPRESSIONS:
        raise KafkaError(
            KafkaErrorKind.UNSUPPORTED_COMPRESSION_TYPE,
            f"Unknown compression type id: {header.compression}",
        )
    return header


def check_counts(header: BatchHeader) -> None:
    """Raises KafkaError if a record count or a last offset delta is negative."""
    if header.record_count < 0 or header.last_offset_delta < 0:
        raise KafkaError(
            KafkaErrorKind.INVALID_RECORD,
            f"Found invalid record count {header.record_count} in magic v{MAGIC} batch, whose last "
            f"offset delta is {header.last_offset_delta}",
        )


def _corrupt(message: str) -> KafkaError:
    return KafkaError(KafkaErrorKind.CORRUPT_MESSAGE, message)


def _wrong_magic(magic: int) -> KafkaError:
    if magic in (0, 1):
        return KafkaError(
            KafkaErrorKind.UNSUPPORTED_FOR_MESSAGE_FORMAT,
            f"Messages of magic {magic}: only record batches of magic {MAGIC} are accepted, which "
            "every client since Kafka 0.11 writes.",
        )
    return _corrupt(f"Invalid magic found in record: {magic}")


def sealed(header: BatchHeader, section: Buffer) -> bytes:
    """Returns a batch, with length and checksum computed for its records."""
    section = bytes(section)
    return b"".join((packed_header(with_checksum(header, section)), section))


def with_checksum(header: BatchHeader, section: bytes) -> BatchHeader:
    """Returns the header with the length and checksum of a batch with these records."""
    crc = google_crc32c.extend(google_crc32c.value(_CHECKED.pack(*header[5:])), section)
    length = BATCH_HEADER_BYTES - _LOG_OVERHEAD_BYTES + len(section)
    return BatchHeader(
        header.base_offset, length, header.leader_epoch, header.magic, crc, *header[5:]
    )


def placed(header: BatchHeader, base_offset: int, leader_epoch: int = 0) -> BatchHeader:
    """Returns the header with another base offset and leader epoch, which its checksum does not
    cover.
    """
    return BatchHeader._make((base_offset, header.length, leader_epoch, *header[3:]))


def packed_header(header: BatchHeader) -> bytes:
    """Returns the 61 bytes, with length and checksum as given."""
    return BATCH_HEADER.pack(*header)
