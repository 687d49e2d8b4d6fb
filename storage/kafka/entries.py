"""Record batches as entries: codec 2.

The key section is the batch's 61-byte header, and the value section its records as stored:
concatenated, they are the batch, byte for byte. The entry header's compression is NONE, because
only the batch compresses; its message count is that of the records, and zero if a cleaning left
only the header.

As messages: the batch index is the offset delta, the event time the record's timestamp, and the
properties are the headers, as text. Of several headers with one name, the last counts; a null value
becomes empty.

    >>> from ledgerfold.storage.codec import decode
    >>> from ledgerfold.storage.kafka.records import build_columns
    >>> entry = entry_of(build_columns([b"k"], [None], [5]), sequence_id=3, publish_time_ms=9)
    >>> [(m.key, m.value_is_null, m.event_time_ms) for m in decode(entry).messages()]
    [(b'k', True, 5)]
"""

from __future__ import annotations

from bisect import bisect_left
from typing import cast

from ledgerfold.storage.decoded import DecodedBatch, Routing
from ledgerfold.storage.entry import (
    Buffer,
    Codec,
    Compression,
    EntryFields,
    EntryHeader,
    build_entry,
)
from ledgerfold.storage.errors import InvalidRequest
from ledgerfold.storage.kafka.batch import (
    BATCH_HEADER_BYTES,
    BatchHeader,
    BatchParts,
    packed_header,
    read_batch_header,
    with_checksum,
)
from ledgerfold.storage.kafka.records import section_columns
from ledgerfold.storage.kafka.section import RecordColumns
from ledgerfold.storage.text import counted


def entry_of(batch: bytes, *, sequence_id: int, publish_time_ms: int) -> bytes:
    """Builds the entry of a whole batch, sent by a producer or written by a cleaning."""
    messages = read_batch_header(batch).record_count
    fields = _fields(messages, sequence_id, publish_time_ms)
    return build_entry(batch[:BATCH_HEADER_BYTES], batch[BATCH_HEADER_BYTES:], fields)


def entry_of_parts(
    header: BatchHeader, section: bytes, *, sequence_id: int, publish_time_ms: int
) -> bytes:
    """Builds the entry of a batch that is not sealed yet (storage/kafka/records.py)."""
    fields = _fields(header.record_count, sequence_id, publish_time_ms)
    return build_entry(packed_header(with_checksum(header, section)), section, fields)


def batch_in(entry: EntryHeader, key_section: bytes, value_section: bytes) -> BatchParts:
    """Returns the batch of an untrusted entry. Raises InvalidRequest if entry_of() did not build
    it.
    """
    if len(key_section) != BATCH_HEADER_BYTES:
        raise InvalidRequest("The key section of a Kafka entry is not the header of a batch.")
    header = read_batch_header(key_section)
    records = header.record_count
    if (entry.message_count, entry.compression) != (records, Compression.NONE):
        raise InvalidRequest(
            f"The header of a Kafka entry gives {counted(entry.message_count, 'message')} and "
            f"compression {entry.compression}; its batch has {records}, and is itself compressed."
        )
    return BatchParts(header, key_section, value_section, entry.value_crc)


def _fields(messages: int, sequence_id: int, publish_time_ms: int) -> EntryFields:
    return EntryFields(
        message_count=messages,
        sequence_id=sequence_id,
        publish_time_ms=publish_time_ms,
        codec=Codec.KAFKA,
        compression=Compression.NONE,
    )


class KafkaBatch(DecodedBatch):
    """A decoded entry; its records are parsed on first use."""

    __slots__ = ("_columns", "_section", "batch", "batch_size", "header", "rows")

    def __init__(self, header: EntryHeader, key_section: Buffer, value_section: Buffer) -> None:
        self.header = header
        self.batch = header_of(header, key_section)
        if self.batch.size_bytes != BATCH_HEADER_BYTES + len(value_section):
            raise InvalidRequest("The value section of a Kafka entry is not its batch's records.")
        self.rows = self.batch.record_count
        self.batch_size = self.batch.last_offset_delta + 1
        self._section = value_section
        self._columns: RecordColumns | None = None

    @staticmethod
    def routing(header: EntryHeader, key_section: Buffer) -> Routing:
        """Returns no key: a batch's header has none."""
        return Routing(None)

    @staticmethod
    def last_batch_index(header: EntryHeader, key_section: Buffer) -> int:
        return header_of(header, key_section).last_offset_delta

    @property
    def columns(self) -> RecordColumns:
        """The offsets, timestamps, keys, values and headers of all records. Raises KafkaError."""
        if self._columns is None:
            self._columns = section_columns(self.batch, self._section)
        return self._columns

    @property
    def producer_name(self) -> str:
        """The producer's id, if it has one."""
        return str(self.batch.producer_id) if self.batch.has_producer else ""

    @property
    def schema_version(self) -> bytes:
        return b""

    def batch_index(self, row: int) -> int:
        return self.columns.offsets[row] - self.batch.base_offset

    def offset(self, row: int) -> int:
        return self.columns.offsets[row]

    def first_row_at(self, offset: int) -> int:
        """Returns the first row with that offset or a later one; the row count if there is none."""
        if offset <= self.batch.base_offset:
            return 0
        return bisect_left(self.columns.offsets, offset)

    def key(self, row: int) -> bytes | None:
        return self.columns.keys[row]

    def key_is_base64(self, row: int) -> bool:
        return False

    def value(self, row: int) -> bytes:
        return self.columns.values[row] or b""

    def value_bytes(self, row: int) -> int:
        """Returns a value's size. Unlike the native codec, this needs the value section."""
        return len(self.value(row))

    def contents(self) -> list[bytes]:
        values = self.columns.values
        # Most have neither null nor empty values, and need no copy.
        return cast(list[bytes], values) if all(values) else [value or b"" for value in values]

    def is_null(self, row: int) -> bool:
        return self.columns.values[row] is None

    def event_time_ms(self, row: int) -> int:
        return self.columns.timestamps_ms[row]

    def sequence_id(self, row: int) -> int:
        return self.header.sequence_id - self.batch_size + 1 + self.batch_index(row)

    def properties(self, row: int) -> dict[str, str]:
        return {
            name: (value or b"").decode(errors="backslashreplace")
            for name, value in self.columns.headers.get(row, ())
        }

    def ordering_key(self, row: int) -> bytes | None:
        return None


def header_of(header: EntryHeader, key_section: Buffer) -> BatchHeader:
    """Returns the batch header in an entry's key section. Raises InvalidRequest."""
    if len(key_section) != BATCH_HEADER_BYTES:
        raise InvalidRequest("The key section of a Kafka entry is not the header of a batch.")
    batch = read_batch_header(key_section)
    if batch.record_count != header.message_count or batch.last_offset_delta < 0:
        raise InvalidRequest("The header of a Kafka entry does not match that of its batch.")
    return batch
