"""What the broker remembers of one idempotent producer, and what of an append that it checks.

    >>> entry = ProducerEntry(7)
    >>> entry.add_batch(0, Sent(last_sequence=2, last_offset=2, offset_delta=2, timestamp_ms=9))
    >>> entry.duplicate_of(epoch=0, first_sequence=0, last_sequence=2).first_offset
    0

The last five batches are kept: one that is sent again is answered with the first's offsets. Behind
sequence number 2^31 - 1 comes 0. A new epoch forgets the batches of the one before.

Source: ProducerStateEntry, BatchMetadata, ProducerAppendInfo of Kafka 4.1.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from ledgerfold.broker.kafka.settings import INT_MAX
from ledgerfold.storage.entry import Buffer
from ledgerfold.storage.errors import KafkaError, KafkaErrorKind
from ledgerfold.storage.kafka.batch import NO_SEQUENCE, NO_TIMESTAMP, BatchHeader
from ledgerfold.storage.kafka.records import ControlType, columns_of, read_end_marker

NO_EPOCH = -1
BATCHES_REMEMBERED = 5


class Origin(Enum):
    """Whose append it is: what is checked depends on it."""

    CLIENT = "client"
    # Offset commits and transaction markers: they have no sequence numbers.
    COORDINATOR = "coordinator"
    # Checked by the leader already; taken as it is.
    REPLICATION = "replication"


class Sent(NamedTuple):
    """A batch that was appended."""

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


class Marker(NamedTuple):
    """What a control batch says: how a transaction of its producer ended."""

    is_abort: bool
    coordinator_epoch: int
    timestamp_ms: int


def read_marker(batch: Buffer) -> Marker | None:
    """Of a control batch. None: it is of another kind, or cleaning left only its header."""
    found = read_end_marker(batch)
    if found is None:
        return None
    return Marker(
        found.control_type == ControlType.ABORT,
        found.coordinator_epoch,
        columns_of(batch).timestamps_ms[0],
    )


class EndedTransaction(NamedTuple):
    """`last_offset`: the marker's."""

    producer_id: int
    first_offset: int
    last_offset: int
    is_aborted: bool


@dataclass(slots=True)
class ProducerEntry:
    """`transaction_first_offset`: of the one that is open, if there is one.

    `is_forgotten`: Kafka would not know it any more, and the cleaner does not ask for it. What it
    sends again is known all the same.
    """

    producer_id: int
    epoch: int = NO_EPOCH
    coordinator_epoch: int = -1
    last_timestamp_ms: int = NO_TIMESTAMP
    transaction_first_offset: int | None = None
    sent: deque[Sent] = field(default_factory=lambda: deque(maxlen=BATCHES_REMEMBERED))
    # When the broker took the last one, whatever the times of its records are.
    last_append_time_ms: int = 0
    is_forgotten: bool = False

    @property
    def last_sequence(self) -> int:
        return self.sent[-1].last_sequence if self.sent else NO_SEQUENCE

    @property
    def last_data_offset(self) -> int:
        """-1: only markers are known of it."""
        return self.sent[-1].last_offset if self.sent else -1

    def add_batch(self, epoch: int, sent: Sent) -> None:
        self._move_to(epoch)
        self.sent.append(sent)
        self.last_timestamp_ms = sent.timestamp_ms

    def end_transaction(self, epoch: int, marker: Marker) -> None:
        self._move_to(epoch)
        self.coordinator_epoch = marker.coordinator_epoch
        self.last_timestamp_ms = marker.timestamp_ms
        self.transaction_first_offset = None

    def take_over(self, newer: ProducerEntry) -> None:
        """What was appended by it since."""
        self._move_to(newer.epoch)
        self.sent.extend(newer.sent)
        self.coordinator_epoch = newer.coordinator_epoch
        self.transaction_first_offset = newer.transaction_first_offset
        self.last_timestamp_ms = newer.last_timestamp_ms
        self.last_append_time_ms, self.is_forgotten = newer.last_append_time_ms, False

    def duplicate_of(self, epoch: int, first_sequence: int, last_sequence: int) -> Sent | None:
        """The batch of the last five that has exactly these sequence numbers."""
        if epoch != self.epoch:
            return None
        for each in self.sent:
            if each.last_sequence == last_sequence and each.first_sequence == first_sequence:
                return each
        return None

    def comes_next(self, header: BatchHeader) -> bool:
        """Whether that is the batch behind its last one, with data of no transaction."""
        return (
            header.producer_epoch == self.epoch
            and bool(self.sent)
            and header.base_sequence == self.sent[-1].last_sequence + 1
            # Where numbers begin anew, or had, this one may be known.
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
    """Checks what one producer appends, and collects what will be known of it.

    Nothing changes for others until Producers.update takes `entry` over. `partition`: for messages.
    """

    def __init__(self, known: ProducerEntry, origin: Origin, partition: str) -> None:
        self._known, self._origin, self._partition = known, origin, partition
        self.entry = ProducerEntry(
            known.producer_id,
            known.epoch,
            known.coordinator_epoch,
            known.last_timestamp_ms,
            known.transaction_first_offset,
        )
        # The first offset of the transaction that began here.
        self.began: int | None = None

    def append_data(self, header: BatchHeader) -> None:
        """Raises KafkaError."""
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

    def append_marker(self, header: BatchHeader, marker: Marker | None) -> EndedTransaction | None:
        """The transaction that it ended, if one was open. Raises KafkaError.

        None instead of a marker: a control batch without its record is what cleaning left of one.
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

    def _check_coordinator(self, marker: Marker, offset: int) -> None:
        known, told = self.entry.coordinator_epoch, marker.coordinator_epoch
        if known > told and self._origin is not Origin.REPLICATION:
            raise KafkaError(
                KafkaErrorKind.TRANSACTION_COORDINATOR_FENCED,
                f"Invalid coordinator epoch for producerId {self.entry.producer_id} at offset "
                f"{offset} in partition {self._partition}: {told} (zombie), {known} (current)",
            )

    def _check_sequence(self, header: BatchHeader) -> None:
        entry, first, offset = self.entry, header.base_sequence, header.base_offset
        if header.producer_epoch != entry.epoch:
            if first != 0 and entry.epoch != NO_EPOCH:
                # Kafka's text has no blank in front of "at", either.
                raise KafkaError(
                    KafkaErrorKind.OUT_OF_ORDER_SEQUENCE_NUMBER,
                    f"Invalid sequence number for new epoch of producer {entry.producer_id}at "
                    f"offset {offset} in partition {self._partition}: {header.producer_epoch} "
                    f"(request epoch), {first} (seq. number), {entry.epoch} (current producer "
                    "epoch)",
                )
            return
        # A producer whose records are all gone may go on with whatever number it has.
        if self._known.epoch == NO_EPOCH:
            return
        last = self._known.last_sequence
        if first != last + 1 and not (first == 0 and last == INT_MAX):
            raise KafkaError(
                KafkaErrorKind.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"Out of order sequence number for producer {entry.producer_id} at offset "
                f"{offset} in partition {self._partition}: {first} (incoming seq. number), "
                f"{last} (current end sequence number)",
            )
