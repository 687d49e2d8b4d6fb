"""Bounded access to the records of an appended batch, on the event loop.

All other work of the broker waits while an append reads its records, and a batch of 1 KB may
decompress to millions of records. The work on one batch is therefore bounded to some tenths of a
second:

* BYTES_MAX decompressed bytes, or four times `max.message.bytes` of the topic if that is more.
  Decompression stops there.
* RECORDS_MAX records and record headers, plus as many records as fit the batch's own bytes. An
  uncompressed batch is never too large.

A larger batch is refused; its records can be sent in smaller batches. Kafka has no such bounds; its
clients' batches are mostly far below 1 MB. These bounds do not apply to batches whose records are
not read, and to batches that a leader accepted.

    >>> from ledgerfold.storage.kafka.batch import read_batch_header
    >>> from ledgerfold.storage.kafka.records import build_columns
    >>> batch = build_columns([b"k", None], [b"1", b"2"], [5, 6])
    >>> opened = OpenedRecords(read_batch_header(batch), batch[61:], "prices-0", 1_048_588)
    >>> opened.keyless_rows, opened.columns.timestamps_ms
    ([1], [5, 6])

Compacted topics refuse records without a key. The pass that finds those also checks that the
records can be read: a record that no cleaning could read would block all after it. Fields must end
where their record does, offset deltas must rise by one from zero, and headers must match their
count. Only lengths are read, so that an append to a compacted topic costs little more than to
another one.

Source: LogValidator and DefaultRecord.readFrom of Kafka 4.1, which read all of each record.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from ledgerfold.storage.entry import Buffer
from ledgerfold.storage.errors import KafkaError, KafkaErrorKind
from ledgerfold.storage.kafka.batch import BatchHeader
from ledgerfold.storage.kafka.compression import BATCH_BYTES_MAX, KafkaCompression, decompress
from ledgerfold.storage.kafka.frame import Frames, Piece, SingleRecords, UniformRun
from ledgerfold.storage.kafka.records import plain_columns
from ledgerfold.storage.kafka.section import (
    HEADER_BYTES_MIN,
    RECORD_BYTES_MIN,
    RecordColumns,
    check_room,
    invalid_record,
)
from ledgerfold.storage.kafka.uniform_records import Layout, scan
from ledgerfold.storage.kafka.varints import read_bits, read_varint

BYTES_MAX = 16 * 1024 * 1024
RECORDS_MAX = 50_000
_FRAMES = Frames()


class OpenedRecords:
    """The records of one batch, read lazily. Raises KafkaError."""

    def __init__(
        self, header: BatchHeader, section: Buffer, partition: str, max_message_bytes: int
    ) -> None:
        self._header, self._section, self._partition = header, section, partition
        self._max_message_bytes = max_message_bytes

    @property
    def keyless_rows(self) -> Sequence[int]:
        return self._records_and_keyless[1]

    @cached_property
    def columns(self) -> RecordColumns:
        return plain_columns(self._header, self._records_and_keyless[0])

    @cached_property
    def _records_and_keyless(self) -> tuple[bytes, Sequence[int]]:
        """The decompressed records and the rows without a key, with headers counted."""
        header, section = self._header, self._section
        count = header.record_count
        if not count or header.compression == KafkaCompression.NONE:
            data = bytes(section)
            check_room(data, count)
            return data, keyless_rows(data, count)
        most = RECORDS_MAX + len(section) // RECORD_BYTES_MIN
        data = self._decompressed(count, most)
        return data, keyless_rows(data, count, most - count)

    def _decompressed(self, count: int, most: int) -> bytes:
        if count > most:
            raise KafkaError(
                KafkaErrorKind.MESSAGE_TOO_LARGE,
                f"The record batch in the append to {self._partition} has {count} records. The "
                f"broker checks each record, and accepts at most {most} in a compressed batch of "
                "this size. Send them in smaller batches.",
            )
        bytes_max = min(max(BYTES_MAX, 4 * self._max_message_bytes), BATCH_BYTES_MAX)
        data = decompress(self._header.compression, self._section, bytes_max)
        check_room(data, count)
        return data


def keyless_rows(data: bytes, count: int, headers_max: int | None = None) -> Sequence[int]:
    """Returns the rows without a key. `data`: the decompressed records. Raises KafkaError if they
    are invalid.

    A batch with the same frame as an earlier one is not scanned again. A run of uniform records is
    checked at once, others one by one, with at most `headers_max` headers in total.
    """
    frame = _FRAMES.fitting(data, count)
    return _scanned(data, count, headers_max) if frame is None else frame.keyless.tolist()


def _scanned(data: bytes, count: int, headers_max: int | None) -> list[int]:
    walk = _Walk(data, len(data) if headers_max is None else headers_max)
    scan(data, count, walk.add_run, walk.add_rows, is_counted=True)
    if count:
        _FRAMES.learn(data, count, walk.pieces)
    return walk.keyless


class _Walk:
    """A pass over records one by one, which collects rows without a key."""

    def __init__(self, data: bytes, headers_max: int) -> None:
        self._data = data
        self._headers_left = headers_max
        self.keyless: list[int] = []
        self.pieces: list[Piece] = []

    def add_run(self, at: int, rows: range, layout: Layout) -> None:
        if layout.key_bytes < 0:
            self.keyless.extend(rows)
        self.pieces.append(UniformRun(at, layout, len(rows)))

    def add_rows(self, end: int, rows: range) -> int:
        """Checks these rows and returns where the last one ends. Raises KafkaError, IndexError.

        A record: its length | attributes | time | offset | key | value | headers; numbers are
        varints, and a length's first bit is its sign: set for a null key. Numbers of one byte or
        two are decoded inline: a call would take most of the time.
        """
        data = self._data
        self.pieces.append(SingleRecords(end, len(rows)))
        for row in rows:
            if (n := data[end]) < 128:
                at = end + 2
                end += 1 + (n >> 1)
            elif (high := data[end + 1]) < 128:
                at = end + 3
                n += (high << 7) - 128
                end += 2 + (n >> 1)
            else:
                n, at = read_bits(data, end)
                end, at = at + (n >> 1), at + 1
            if n & 1:
                raise invalid_record(f"Found invalid record size {~(n >> 1)}")
            if data[at] < 128:
                at += 1
            elif data[at + 1] < 128:
                at += 2
            else:
                _, at = read_bits(data, at)
            if (n := data[at]) < 128:
                at += 1
            elif (high := data[at + 1]) < 128:
                n, at = n - 128 + (high << 7), at + 2
            else:
                n, at = read_bits(data, at)
            if n != row << 1:
                raise invalid_record(
                    f"Record {row} of a batch has an offset delta other than {row}"
                )
            if (n := data[at]) < 128:
                at += 1
            else:
                n, at = read_bits(data, at)
            if n & 1:
                self.keyless.append(row)
            else:
                at += n >> 1
            if (n := data[at]) < 128:
                at += 1
            elif (high := data[at + 1]) < 128:
                n, at = n - 128 + (high << 7), at + 2
            else:
                n, at = read_bits(data, at)
            if not n & 1:
                at += n >> 1
            at = self._past_headers(at) if data[at] else at + 1
            if at != end:
                raise invalid_record(
                    "Invalid record size: its fields do not end where the record ends"
                )
        return end

    def _past_headers(self, at: int) -> int:
        """Returns where the headers end. Each is the name's length | name | the value's length or
        null | value.
        """
        data = self._data
        count, at = read_varint(data, at)
        if not 0 <= count * HEADER_BYTES_MIN <= len(data) - at:
            raise invalid_record(f"Found invalid number of record headers {count}")
        self._headers_left -= count
        if self._headers_left < 0:
            raise KafkaError(
                KafkaErrorKind.MESSAGE_TOO_LARGE,
                "The batch has more headers than a broker reads at once. Send its records in "
                "smaller batches, or with fewer headers.",
            )
        for _ in range(count):
            if (n := data[at]) < 128:
                at += 1
            else:
                n, at = read_bits(data, at)
            if n & 1:
                raise invalid_record(f"Found invalid record header key size {~(n >> 1)}")
            at += n >> 1
            if (n := data[at]) < 128:
                at += 1
            else:
                n, at = read_bits(data, at)
            if not n & 1:
                at += n >> 1
        return at
