"""A segment's indexes: of offsets, of times and of aborted transactions.

The offset index gets an entry with the first batch after every `index.interval.bytes`; the time
index gets one where the largest time has grown, and one more when the segment ends.

    >>> indexes = IndexGrowth(index_interval_bytes=100)
    >>> for offset in range(3):
    ...     indexes.add_batch(offset, size_bytes=80, max_timestamp_ms=1000 + offset)
    >>> indexes.offset_index_bytes, indexes.time_index_bytes
    (8, 12)

The transaction index has the aborted transactions whose marker the segment holds.

    >>> line = AbortedTransaction(7, first_offset=3, last_offset=9, last_stable_offset=10)
    >>> read_aborted(aborted_bytes([line]), 0, 10)
    [AbortedTransaction(producer_id=7, first_offset=3, last_offset=9, last_stable_offset=10)]

Source: LogSegment.append, OffsetIndex, TimeIndex, TransactionIndex, AbortedTxn of Kafka 4.1.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from ledgerfold.storage.kafka.batch import NO_TIMESTAMP
from ledgerfold.v1.records_pb2 import AbortedTransaction as AbortedRecord

if TYPE_CHECKING:
    from ledgerfold.v1.kafka_pb2 import KafkaAbortedInfo

OFFSET_ENTRY_BYTES = 8
TIME_ENTRY_BYTES = 12
_VERSION = 0
# Version, and the fields of AbortedTransaction.
_ENTRY = struct.Struct(">hqqqq")


@dataclass(slots=True, kw_only=True)
class IndexGrowth:
    """The offset and time index of a growing segment: their numbers of entries."""

    index_interval_bytes: int = 4096
    offset_entries: int = 0
    time_entries: int = 0
    last_time_entry_ms: int = NO_TIMESTAMP
    max_timestamp_ms: int = NO_TIMESTAMP
    max_timestamp_offset: int = -1
    unindexed_bytes: int = 0

    @property
    def offset_index_bytes(self) -> int:
        return self.offset_entries * OFFSET_ENTRY_BYTES

    @property
    def time_index_bytes(self) -> int:
        return self.time_entries * TIME_ENTRY_BYTES

    def add_batch(self, last_offset: int, size_bytes: int, max_timestamp_ms: int) -> None:
        if max_timestamp_ms > self.max_timestamp_ms:
            self.max_timestamp_ms, self.max_timestamp_offset = max_timestamp_ms, last_offset
        if self.unindexed_bytes > self.index_interval_bytes:
            self.offset_entries += 1
            self.end()
            self.unindexed_bytes = 0
        self.unindexed_bytes += size_bytes

    def end(self) -> None:
        """Adds a time entry if the largest time has none: another segment follows, or the log is
        closed.
        """
        if self.max_timestamp_ms > self.last_time_entry_ms:
            self.time_entries += 1
            self.last_time_entry_ms = self.max_timestamp_ms


class AbortedTransaction(NamedTuple):
    """An aborted transaction. `last_offset`: its marker's."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int

    @classmethod
    def of(cls, message: AbortedRecord | KafkaAbortedInfo) -> AbortedTransaction:
        return cls(
            message.producer_id,
            message.first_offset,
            message.last_offset,
            message.last_stable_offset,
        )

    def record(self) -> AbortedRecord:
        return AbortedRecord(**self._asdict())


def aborted_bytes(entries: Iterable[AbortedTransaction]) -> bytes:
    return b"".join(_ENTRY.pack(_VERSION, *each) for each in entries)


def read_aborted(data: bytes, first: int, end: int) -> list[AbortedTransaction] | None:
    """Returns the entries whose marker is at or after `first`, and before `end`; None if invalid.

    >>> read_aborted(b"\\0" * 33, 0, 10), read_aborted(b"\\1" * 34, 0, 10)
    (None, None)
    """
    if len(data) % _ENTRY.size:
        return None
    found = list[AbortedTransaction]()
    for version, *fields in _ENTRY.iter_unpack(data):
        each = AbortedTransaction(*fields)
        if version != _VERSION or not 0 <= each.first_offset <= each.last_offset:
            return None
        if first <= each.last_offset < end:
            found.append(each)
    return found
