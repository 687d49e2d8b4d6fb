"""The records of a batch that is appended, opened on the event loop: within bounds.

All that the broker serves waits while an append looks into its records, and a batch of 1 KB may
stand for millions of them. So of what one batch holds no more is looked at than takes some tenths
of a second:

* BYTES_MAX when it is decompressed, or four times what the topic takes of it (`max.message.bytes`)
  where that is more. Nothing is decompressed beyond.
* RECORDS_MAX records and headers of theirs, and as many more as records have room in its own bytes.
  Where nothing is compressed, what came is never too much.

A batch that is beyond them is refused, and its records can be sent in smaller ones. Kafka has no
such bounds; its clients' batches are mostly far below 1 MB. What need not be opened is not bounded
here, nor is what a leader has taken.

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

from ledgerfold.broker.kafka.log.record_access import keyless_rows
from ledgerfold.storage.entry import Buffer
from ledgerfold.storage.errors import KafkaError, KafkaErrorKind
from ledgerfold.storage.kafka.batch import BatchHeader
from ledgerfold.storage.kafka.compression import BATCH_BYTES_MAX, KafkaCompression, decompress
from ledgerfold.storage.kafka.records import plain_columns
from ledgerfold.storage.kafka.section import RECORD_BYTES_MIN, RecordColumns, check_room

BYTES_MAX = 16 * 1024 * 1024
RECORDS_MAX = 50_000


class OpenedRecords:
    """Those of one batch; each part is made when it is first asked for. Raises KafkaError."""

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
        """The records end to end, whose headers were counted; the rows of them without a key."""
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
