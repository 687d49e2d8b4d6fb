"""Summarizes the batches of a ledger's files.

The summary is enough to rebuild a lost topic record (storage/repair/kafka.py):

    >>> from ledgerfold.storage.kafka.batch import read_batch_header
    >>> from ledgerfold.storage.kafka.records import KafkaRecord, build_batch
    >>> span = Span()
    >>> for offset in (7, 9):
    ...     batch = build_batch([KafkaRecord(offset, 1000, b"k", b"v")], base_offset=offset)
    ...     span.add(read_batch_header(batch))
    >>> span.base_offset, span.next_offset, span.size_bytes
    (7, 10, 140)
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ledgerfold.storage.kafka.batch import (
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    BatchHeader,
)
from ledgerfold.storage.limits import PRODUCER_IDS_MAX


@dataclass(slots=True)
class Span:
    """A summary of consecutive batches. Offsets are -1 if there is none."""

    base_offset: int = -1
    next_offset: int = -1
    batches: int = 0
    size_bytes: int = 0
    first_batch_timestamp_ms: int = NO_TIMESTAMP
    largest_timestamp_ms: int = NO_TIMESTAMP
    largest_timestamp_offset: int = -1
    # Of those that a broker allocates.
    largest_producer_id: int = NO_PRODUCER_ID
    largest_leader_epoch: int = 0

    def add(self, header: BatchHeader) -> None:
        """Adds the next batch."""
        self.join(
            Span(
                header.base_offset,
                header.next_offset,
                1,
                header.size_bytes,
                header.max_timestamp_ms,
                header.max_timestamp_ms,
                header.last_offset,
                header.producer_id if header.producer_id < PRODUCER_IDS_MAX else NO_PRODUCER_ID,
                header.leader_epoch,
            )
        )

    def join(self, behind: Span) -> None:
        """Adds the batches of a following span."""
        if not self.batches:
            self.base_offset = behind.base_offset
            self.first_batch_timestamp_ms = behind.first_batch_timestamp_ms
        self.next_offset = behind.next_offset
        self.batches += behind.batches
        self.size_bytes += behind.size_bytes
        self.largest_producer_id = max(self.largest_producer_id, behind.largest_producer_id)
        self.largest_leader_epoch = max(self.largest_leader_epoch, behind.largest_leader_epoch)
        if behind.largest_timestamp_ms > self.largest_timestamp_ms:
            self.largest_timestamp_ms = behind.largest_timestamp_ms
            self.largest_timestamp_offset = behind.largest_timestamp_offset


def joined(spans: Iterable[Span]) -> Span:
    """Joins consecutive spans."""
    union = Span()
    for each in spans:
        union.join(each)
    return union
