"""Bounded access to the records of an appended batch, on the event loop.

All other work of the broker waits while an append reads its records, and a batch of 1 KB may expand
to millions of them. The work on one batch is therefore bounded to some tenths of a second:

* BYTES_MAX decompressed bytes, or four times `max.message.bytes` of the topic if that is more.
  Decompression stops there.
* RECORDS_MAX records and record headers, plus as many records as fit the batch's own bytes. An
  uncompressed batch is never too large.

A larger batch is refused; its records can be sent in smaller batches. Kafka has no such bounds; its
clients' batches are mostly far below 1 MB. Batches whose records need not be read are not bounded,
nor are batches that a leader accepted.

    >>> from ledgerfold.storage.kafka.batch import read_batch_header
    >>> from ledgerfold.storage.kafka.records import build_columns
    >>> batch = build_columns([b"k", None], [b"1", b"2"], [5, 6])
    >>> opened = OpenedRecords(read_batch_header(batch), batch[61:], "prices-0", 1_048_588)
    >>> opened.keyless_rows, opened.columns.timestamps_ms
    ([1], [5, 6])
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from ledgerfold.broker.kafka.log.key_check import keyless_rows
from ledgerfold.storage.entry import Buffer
from ledgerfold.storage.errors import KafkaError, KafkaErrorKind
from ledgerfold.storage.kafka.batch import BatchHeader
from ledgerfold.storage.kafka.compression import BATCH_BYTES_MAX, KafkaCompression, decompress
from ledgerfold.storage.kafka.records import plain_columns
from ledgerfold.storage.kafka.section import RECORD_BYTES_MIN, RecordColumns, check_room

BYTES_MAX = 16 * 1024 * 1024
RECORDS_MAX = 50_000


class OpenedRecords:
    """The records of one batch, read lazily. Raises KafkaError."""

    def __init__(
        self, header: BatchHeader, section: Buffer, partition: str, max_message_bytes: int
    ) -> None:
        self._header, self._section, self._partition = header, section, partition
        self._max_message_bytes = max_message_bytes
        self._found: tuple[bytes, Sequence[int]] | None = None

    @property
    def keyless_rows(self) -> Sequence[int]:
        return self._looked_through()[1]

    @cached_property
    def columns(self) -> RecordColumns:
        return plain_columns(self._header, self._looked_through()[0])

    def _looked_through(self) -> tuple[bytes, Sequence[int]]:
        """Returns the decompressed records and the rows without a key, with headers counted."""
        if self._found is None:
            self._found = self._look_through()
        return self._found

    def _look_through(self) -> tuple[bytes, Sequence[int]]:
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
                f"The record batch in the append to {self._partition} has {count} records. Its "
                f"topic has to look into them, and takes {most} in a compressed batch of this "
                "size. Send them in smaller batches.",
            )
        bytes_max = min(max(BYTES_MAX, 4 * self._max_message_bytes), BATCH_BYTES_MAX)
        data = decompress(self._header.compression, self._section, bytes_max)
        check_room(data, count)
        return data
