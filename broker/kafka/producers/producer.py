"""The state of one idempotent producer, and the checks of its appends.

    >>> entry = ProducerEntry(7)
    >>> entry.add_batch(0, Sent(last_sequence=2, last_offset=2, offset_delta=2, timestamp_ms=9))
    >>> entry.duplicate_of(epoch=0, first_sequence=0, last_sequence=2).first_offset
    0

The last five batches are kept: a duplicate is answered with the original's offsets. Sequence
numbers wrap from 2^31 - 1 to 0. A new epoch drops the batches of the old one.

Source: ProducerStateEntry, BatchMetadata, ProducerAppendInfo of Kafka 4.1.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from ledgerfold.broker.kafka.config.settings import INT_MAX
from ledgerfold.storage.errors import KafkaError, KafkaErrorKind
from ledgerfold.storage.kafka.batch import NO_SEQUENCE, NO_TIMESTAMP, BatchHeader
from ledgerfold.storage.kafka.records import EndMarker

NO_EPOCH = -1
BATCHES_REMEMBERED = 5


class Origin(Enum):
    """The source of an append, which determines its checks."""

    CLIENT = "client"
    # Offset commits and transaction markers, which have no sequence numbers.
    COORDINATOR = "coordinator"
    # Checked by the leader already, and accepted as it is.
    REPLICATION = "replication"


class Sent(NamedTuple):
    """An appended batch."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp_ms: int

    @classmethod
    def of(cls, header: BatchHeader) -> Sent:
        delta = header.last_offset_delta
        last_offset = header.base_offset + delta
        return cls(header.last_sequence, last_offset, delta, header.max_timestamp_ms)

    @property
    def first_sequence(self) -> int:
        return (self.last_sequence - self.offset_delta) & INT_MAX

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta


class EndedTransaction(NamedTuple):
    """A transaction that has ended. `last_offset`: its marker's."""

    producer_id: int
    first_offset: int
    last_offset: int
    is_aborted: bool


@dataclass(slots=True)
class ProducerEntry:
    """The state of a producer. `transaction_first_offset`: of the open transaction, if any.

    `is_forgotten`: Kafka would have expired the entry, and the cleaner ignores it. It still detects
    duplicates.
    """

    producer_id: int
    epoch: int = NO_EPOCH
    coordinator_epoch: int = -1
    last_timestamp_ms: int = NO_TIMESTAMP
    transaction_first_offset: int | None = None
    sent: deque[Sent] = field(default_factory=lambda: deque(maxlen=BATCHES_REMEMBERED))
    # The broker's time of the last append, regardless of its records' times.
    last_append_time_ms: int = 0
    is_forgotten: bool = False

    @property
    def last_sequence(self) -> int:
        return self.sent[-1].last_sequence if self.sent else NO_SEQUENCE

    @property
    def last_data_offset(self) -> int:
        """The last data offset; -1 if only markers are known."""
        return self.sent[-1].last_offset if self.sent else -1

    def add_batch(self, epoch: int, batch: Sent) -> None:
        self._move_to(epoch)
        self.sent.append(batch)
        self.last_timestamp_ms = batch.timestamp_ms

    def end_transaction(self, epoch: int, marker: EndMarker) -> None:
        self._move_to(epoch)
        self.coordinator_epoch = marker.coordinator_epoch
        self.last_timestamp_ms = marker.timestamp_ms
        self.transaction_first_offset = None

    def take_over(self, newer: ProducerEntry) -> None:
        """Merges the producer's later appends."""
        self._move_to(newer.epoch)
        self.sent.extend(newer.sent)
        self.coordinator_epoch = newer.coordinator_epoch
        self.transaction_first_offset = newer.transaction_first_offset
        self.last_timestamp_ms = newer.last_timestamp_ms
        self.last_append_time_ms, self.is_forgotten = newer.last_append_time_ms, False

    def duplicate_of(self, epoch: int, first_sequence: int, last_sequence: int) -> Sent | None:
        """Returns the batch among the last five with exactly these sequence numbers."""
        if epoch != self.epoch:
            return None
        for each in self.sent:
            if each.last_sequence == last_sequence and each.first_sequence == first_sequence:
                return each
        return None

    def comes_next(self, header: BatchHeader) -> bool:
        """Returns whether a batch directly follows the last one, with data outside transactions."""
        return (
            header.producer_epoch == self.epoch
            and bool(self.sent)
            and header.base_sequence == self.sent[-1].last_sequence + 1
            # Around a wrap of the numbers, this batch may be known already.
            and header.base_sequence + header.last_offset_delta <= INT_MAX
            and max(self.sent).last_sequence < header.base_sequence
            and self.transaction_first_offset is None
            and not header.is_transactional
            and not header.is_control
        )

    def _move_to(self, epoch: int) -> None:
        if epoch != self.epoch:
            self.sent.clear()
            self.epoch = epoch


class ProducerAppend:
    """Checks one producer's appends and collects its new state.

    Nothing changes for others until Producers.commit merges `entry`. `partition`: for messages.
    """

    def __init__(self, entry: ProducerEntry, origin: Origin, partition: str) -> None:
        self._entry, self._origin, self._partition = entry, origin, partition
        self.entry = ProducerEntry(
            entry.producer_id,
            entry.epoch,
            entry.coordinator_epoch,
            entry.last_timestamp_ms,
            entry.transaction_first_offset,
        )
        # The first offset of the transaction that this append began.
        self.began: int | None = None

    def append_data(self, header: BatchHeader) -> None:
        """Checks and adds a data batch. Raises KafkaError."""
        offset = header.base_offset
        self._check_epoch(header.producer_epoch, offset)
        if self._origin is Origin.CLIENT:
            self._check_sequence(header)
        entry = self.entry
        entry.add_batch(header.producer_epoch, Sent.of(header))
        if not header.is_transactional and entry.transaction_first_offset is not None:
            raise KafkaError(
                KafkaErrorKind.INVALID_TXN_STATE,
                f"Expected transactional write from producer {entry.producer_id} at offset "
                f"(offset={offset}, segment=[-1:-1]) in partition {self._partition}",
            )
        if header.is_transactional and entry.transaction_first_offset is None:
            entry.transaction_first_offset = offset
            self.began = offset

    def append_marker(
        self, header: BatchHeader, marker: EndMarker | None
    ) -> EndedTransaction | None:
        """Checks and adds a marker. Returns the transaction that it ended, if any. Raises
        KafkaError.

        `marker` is None for a control batch without its record, as a cleaning leaves it.
        """
        if marker is None:
            return None
        self._check_epoch(header.producer_epoch, header.base_offset)
        self._check_coordinator(marker, header.base_offset)
        first = self.entry.transaction_first_offset
        self.entry.end_transaction(header.producer_epoch, marker)
        if first is None:
            return None
        return EndedTransaction(self.entry.producer_id, first, header.base_offset, marker.is_abort)

    def _check_epoch(self, epoch: int, offset: int) -> None:
        if epoch < self.entry.epoch and self._origin is not Origin.REPLICATION:
            raise KafkaError(
                KafkaErrorKind.INVALID_PRODUCER_EPOCH,
                f"Epoch of producer {self.entry.producer_id} at offset {offset} in "
                f"{self._partition} is {epoch}, which is smaller than the last seen epoch "
                f"{self.entry.epoch}",
            )

    def _check_coordinator(self, marker: EndMarker, offset: int) -> None:
        known, epoch = self.entry.coordinator_epoch, marker.coordinator_epoch
        if known > epoch and self._origin is not Origin.REPLICATION:
            raise KafkaError(
                KafkaErrorKind.TRANSACTION_COORDINATOR_FENCED,
                f"Invalid coordinator epoch for producerId {self.entry.producer_id} at offset "
                f"{offset} in partition {self._partition}: {epoch} (zombie), {known} (current)",
            )

    def _check_sequence(self, header: BatchHeader) -> None:
        entry, first, offset = self.entry, header.base_sequence, header.base_offset
        if header.producer_epoch != entry.epoch:
            if first != 0 and entry.epoch != NO_EPOCH:
                # Kafka's text has no blank before "at", either.
                raise KafkaError(
                    KafkaErrorKind.OUT_OF_ORDER_SEQUENCE_NUMBER,
                    f"Invalid sequence number for new epoch of producer {entry.producer_id}at "
                    f"offset {offset} in partition {self._partition}: {header.producer_epoch} "
                    f"(request epoch), {first} (seq. number), {entry.epoch} (current producer "
                    "epoch)",
                )
            return
        # A producer whose records are all deleted may continue with any number.
        if self._entry.epoch == NO_EPOCH:
            return
        last = self._entry.last_sequence
        if first != last + 1 and not (first == 0 and last == INT_MAX):
            raise KafkaError(
                KafkaErrorKind.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"Out of order sequence number for producer {entry.producer_id} at offset "
                f"{offset} in partition {self._partition}: {first} (incoming seq. number), "
                f"{last} (current end sequence number)",
            )
