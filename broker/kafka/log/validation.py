"""Validates appended batches, and assigns their offsets and times.

A batch is accepted or refused as a whole. Its header is checked and no record is decoded, except in
three cases: the topic is compacted (each record needs a key; only lengths are read), a time bound
may be broken, or the topic's codec differs from the batch's, which is then rebuilt. That work is
bounded (record_access.py).

    >>> from ledgerfold.storage.kafka.records import build_columns
    >>> rules = AppendRules("prices-0", LogConfig.of({"cleanup.policy": "compact"}))
    >>> batch = build_columns([b"k", b"l"], [b"1", b"2"], [5, 6])
    >>> taken = rules.lead(BatchParts.of(batch), Origin.CLIENT, offset=40, now_ms=9)
    >>> taken.header.base_offset, taken.header.last_offset, taken.append_time_ms
    (40, 41, None)
    >>> keyless = BatchParts.of(build_columns([None], [b"1"], [5]))
    >>> rules.lead(keyless, Origin.CLIENT, offset=42, now_ms=9)
    Traceback (most recent call last):
        ...
    ledgerfold.errors.RecordsRefused: One or more records have been rejected due to 1 \
record errors in total, and only showing the first three errors at most: \
[RecordError(batchIndex=0, message='Compacted topic cannot accept message without key in topic \
partition prices-0')]

A header's largest timestamp is trusted where Kafka computes it: the checksum covers it, and the
clients that write batches here set it.

Source: LogValidator, UnifiedLog.append and analyzeAndValidateRecords of Kafka 4.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, NoReturn

from ledgerfold.broker.kafka.config.config import LogConfig
from ledgerfold.broker.kafka.config.settings import LONG_MAX
from ledgerfold.broker.kafka.log.record_access import OpenedRecords
from ledgerfold.broker.kafka.producers.producer import Origin
from ledgerfold.kafka.segment import NO_TIMESTAMP
from ledgerfold.storage.entry import Position
from ledgerfold.storage.errors import KafkaError, KafkaErrorKind, RecordsRefused
from ledgerfold.storage.kafka.batch import (
    BATCH_HEADER_BYTES,
    BatchHeader,
    BatchParts,
    TimestampType,
    check_parts,
    packed_header,
    placed,
    with_checksum,
)
from ledgerfold.storage.kafka.compression import KafkaCompression
from ledgerfold.storage.kafka.records import batch_parts, section_columns
from ledgerfold.storage.kafka.section import RecordColumns, invalid_record
from ledgerfold.storage.kafka.varints import int64

_LOG_APPEND_TIME_BIT = 1 << 3
# Refused records that an error lists.
_SHOWN = 3
_CODECS = {
    "uncompressed": KafkaCompression.NONE,
    "gzip": KafkaCompression.GZIP,
    "snappy": KafkaCompression.SNAPPY,
    "lz4": KafkaCompression.LZ4,
    "zstd": KafkaCompression.ZSTD,
}


class ValidatedBatch(NamedTuple):
    """A batch as it is appended. `append_time_ms`: reported to the producer under LogAppendTime.

    `is_rebuilt`: the records differ from those received.
    """

    header: BatchHeader
    header_bytes: bytes
    section: bytes
    append_time_ms: int | None = None
    is_rebuilt: bool = False


class Appended(NamedTuple):
    """The result of an append. `durable_at`: the position that releases the receipt; None is at
    once.

    `append_time_ms`: the time of all its records, under LogAppendTime.
    """

    first_offset: int
    last_offset: int
    durable_at: Position | None
    append_time_ms: int | None = None
    is_duplicate: bool = False


class CopiedBatches(NamedTuple):
    """Batches of another log, appended to its copy, whose segments end only where its own do.

    `append_time_ms`: their time in that log.
    """

    append_time_ms: int | None = None


@dataclass(frozen=True, slots=True)
class AppendRules:
    """The append rules of one partition, named as in Kafka: topic-number."""

    partition: str
    config: LogConfig

    def lead(
        self, batch: BatchParts, origin: Origin, *, offset: int, now_ms: int, leader_epoch: int = 0
    ) -> ValidatedBatch:
        """Validates an append of a client or coordinator and assigns its offsets. Raises
        KafkaError.
        """
        header, section, config = self._checked(batch, origin), batch.section, self.config
        if origin is Origin.CLIENT:
            self._check_client(header)
        self._check_offsets(offset + header.last_offset_delta)
        opened = OpenedRecords(header, section, self.partition, config.max_message_bytes)
        # Most records are valid, and this runs for each batch.
        keyless = opened.keyless_rows if config.is_compacted and not header.is_control else ()
        late = self._late_rows(header, opened, now_ms)
        if keyless or late:
            self._refuse(opened, keyless, late, now_ms)
        changed = header
        codec = _CODECS.get(config.compression_type, header.compression)
        if codec != header.compression and not header.is_control:
            changed, section = _rebuilt(header, opened.columns, codec)
            self._check_rebuilt(BATCH_HEADER_BYTES + len(section))
        if config.is_dated_at_append:
            attributes = changed.attributes | _LOG_APPEND_TIME_BIT
            changed = changed._replace(attributes=attributes, max_timestamp_ms=now_ms)
        elif header.timestamp_type == TimestampType.LOG_APPEND_TIME:
            # Kafka clears the flag of another clock, and keeps the largest timestamp.
            changed = changed._replace(attributes=changed.attributes & ~_LOG_APPEND_TIME_BIT)
        if changed is not header:
            changed = with_checksum(changed, section)
        taken = placed(changed, offset, leader_epoch)
        self._check_fits_segment(taken.size_bytes)
        time_ms = now_ms if config.is_dated_at_append else None
        is_rebuilt = section is not batch.section
        return ValidatedBatch(taken, packed_header(taken), section, time_ms, is_rebuilt)

    def follow(
        self, batch: BatchParts, *, log_end: int, log_start: int, fits_segment: bool
    ) -> ValidatedBatch:
        """Validates a leader's append, whose offsets are assigned already. Raises KafkaError.

        `fits_segment` False: skips the check of the segment size, which is the leader's.
        """
        header = check_parts(batch)
        if header.base_offset < log_end:
            first = ", ".join(map(str, section_columns(header, batch.section).offsets[:10]))
            error = KafkaError(
                KafkaErrorKind.INVALID_REQUEST,
                f"Unexpected offset in append to {self.partition}. First offset "
                f"{header.base_offset} is less than the next offset {log_end}. First 10 offsets "
                f"in append: {first}, last offset in append: {header.last_offset}. Log start "
                f"offset = {log_start}",
            )
            error.kafka_class = "UnexpectedAppendOffsetException"
            raise error
        self._check_offsets(header.last_offset)
        if fits_segment:
            self._check_fits_segment(header.size_bytes)
        return ValidatedBatch(header, bytes(batch.header_bytes), batch.section)

    def _checked(self, batch: BatchParts, origin: Origin) -> BatchHeader:
        base_offset = batch.header.base_offset
        if origin is Origin.CLIENT and base_offset != 0:
            raise invalid_record(
                f"The baseOffset of the record batch in the append to {self.partition} should be "
                f"0, but it is {base_offset}"
            )
        size_bytes, most = batch.size_bytes, self.config.max_message_bytes
        if size_bytes > most:
            raise KafkaError(
                KafkaErrorKind.MESSAGE_TOO_LARGE,
                f"The record batch size in the append to {self.partition} is {size_bytes} bytes "
                f"which exceeds the maximum configured value of {most}).",
            )
        return check_parts(batch)

    def _check_client(self, header: BatchHeader) -> None:
        count, offsets = header.record_count, header.last_offset_delta + 1
        if count <= 0:
            raise invalid_record(
                f"Invalid reported count for record batch: {count} in topic partition "
                f"{self.partition}"
            )
        if count != offsets:
            raise invalid_record(
                f"Inconsistent batch offset range [{header.base_offset}, {header.last_offset}] "
                f"and count of records {count} in topic partition {self.partition}"
            )
        if header.is_control:
            raise invalid_record(
                f"Clients are not allowed to write control records in topic partition "
                f"{self.partition}"
            )
        if header.has_producer and header.base_sequence < 0:
            raise invalid_record(
                f"Invalid sequence number {header.base_sequence} in record batch with producerId "
                f"{header.producer_id} in topic partition {self.partition}"
            )

    def _check_offsets(self, last_offset: int) -> None:
        # The log's end follows it, and is a 64-bit number, too.
        if last_offset >= LONG_MAX:
            raise KafkaError(
                KafkaErrorKind.INVALID_REQUEST,
                f"The record batch in the append to {self.partition} would end at offset "
                f"{last_offset}: the last one that a log can have is {LONG_MAX - 1}.",
            )

    def _check_fits_segment(self, size_bytes: int) -> None:
        most = self.config.segment_bytes
        if size_bytes > most:
            raise KafkaError(
                KafkaErrorKind.RECORD_LIST_TOO_LARGE,
                f"Message batch size is {size_bytes} bytes in append to partition "
                f"{self.partition}, which exceeds the maximum configured segment size of {most}.",
            )

    def _refuse(
        self, opened: OpenedRecords, keyless: Sequence[int], late_rows: Sequence[int], now_ms: int
    ) -> NoReturn:
        """Raises RecordsRefused with the first reason for each of the first refused records."""
        known = set(keyless)
        late = [row for row in late_rows if row not in known]
        records = [
            (row, self._no_key if row in known else self._why_late(row, opened, now_ms))
            for row in sorted((*keyless[:_SHOWN], *late[:_SHOWN]))[:_SHOWN]
        ]
        if late:
            kind = KafkaErrorKind.INVALID_TIMESTAMP
            why = "One or more records have been rejected due to invalid timestamp"
            raise RecordsRefused(kind, why, records, len(keyless))
        shown = ", ".join(f"RecordError(batchIndex={row}, message='{why}')" for row, why in records)
        raise RecordsRefused(
            KafkaErrorKind.INVALID_RECORD,
            f"One or more records have been rejected due to {len(keyless)} record errors in total, "
            f"and only showing the first three errors at most: [{shown}]",
            records,
            len(keyless),
        )

    @property
    def _no_key(self) -> str:
        return (
            f"Compacted topic cannot accept message without key in topic partition {self.partition}"
        )

    def _late_rows(self, header: BatchHeader, opened: OpenedRecords, now_ms: int) -> Sequence[int]:
        """Returns the rows whose times are out of bounds, or must not be set by the producer."""
        if self.config.is_dated_at_append:
            is_wrong_type = header.timestamp_type == TimestampType.LOG_APPEND_TIME
            return range(len(opened.columns.values)) if is_wrong_type else ()
        before_ms, after_ms = self._time_bounds_ms
        is_early_enough = header.max_timestamp_ms - now_ms <= after_ms
        if is_early_enough and before_ms == LONG_MAX:
            return ()
        times = opened.columns.timestamps_ms
        # Most batches have few distinct times.
        late = {
            time_ms
            for time_ms in set(times)
            if time_ms != NO_TIMESTAMP and not -after_ms <= int64(now_ms - time_ms) <= before_ms
        }
        return [row for row, time_ms in enumerate(times) if time_ms in late] if late else ()

    def _why_late(self, row: int, opened: OpenedRecords, now_ms: int) -> str:
        columns = opened.columns
        offset, time_ms = columns.offsets[row], columns.timestamps_ms[row]
        if self.config.is_dated_at_append:
            key, value = columns.keys[row] or b"", columns.values[row] or b""
            return (
                f"Invalid timestamp type in message DefaultRecord(offset={offset}, "
                f"timestamp={time_ms}, key={len(key)} bytes, value={len(value)} bytes). Producer "
                "should not set timestamp type to LogAppendTime."
            )
        before_ms, after_ms = self._time_bounds_ms
        return (
            f"Timestamp {time_ms} of message with offset {offset} is out of range. The timestamp "
            f"should be within [{int64(now_ms - before_ms)}, {int64(now_ms + after_ms)}]"
        )

    @property
    def _time_bounds_ms(self) -> tuple[int, int]:
        return self.config.timestamp_before_max_ms, self.config.timestamp_after_max_ms

    def _check_rebuilt(self, size_bytes: int) -> None:
        most = self.config.max_message_bytes
        if size_bytes > most:
            # Kafka's text has no blank before "partition", either.
            raise KafkaError(
                KafkaErrorKind.MESSAGE_TOO_LARGE,
                f"Message batch size is {size_bytes} bytes in append "
                f"topartition {self.partition} which exceeds the maximum configured size of "
                f"{most}.",
            )


def _rebuilt(header: BatchHeader, columns: RecordColumns, codec: int) -> tuple[BatchHeader, bytes]:
    """The same records under another codec; without a checksum yet."""
    return batch_parts(
        columns.keys,
        columns.values,
        columns.timestamps_ms,
        columns.headers,
        compression=codec,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        is_transactional=header.is_transactional,
    )
