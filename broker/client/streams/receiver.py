"""Turns delivered entries into messages.

An entry is verified and decoded once, when it is taken from the inbox; its rows are then returned
one by one. Its permits are returned to the broker at that moment, in bulk, so that the next entries
are in flight while this one is read, and at most the queue and one entry are in memory.

A damaged entry is not skipped: every further call raises the same error, until a seek. The same
applies to a batch if the queue has size 0: like Pulsar's clients, the receiver accepts only single
messages.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from itertools import repeat
from operator import length_hint

from ledgerfold.broker.client.messages.message import (
    Decoder,
    Message,
    ReceivedEntry,
    ReceivedRecords,
    ReceivedRun,
)
from ledgerfold.broker.client.messages.message_id import MessageId
from ledgerfold.broker.client.streams.inbox import AnyDelivery, DeliveredRun, Delivery
from ledgerfold.broker.client.streams.receiving_stream import ReceivingStream
from ledgerfold.storage.codec import decode, decoding
from ledgerfold.storage.decoded import DecodedBatch
from ledgerfold.storage.entry import verify_sections
from ledgerfold.storage.errors import LedgerfoldError, NotAllowed
from ledgerfold.storage.kafka.entries import KafkaBatch
from ledgerfold.storage.partition_names import partition_index


class FirstMessage:
    """The message at which a read begins: earlier rows of its entry are skipped.

    The broker starts at whole entries (data.proto, StartPosition). An inclusive start includes the
    message itself, an exclusive one begins after it. An id without a batch index does not identify
    a message of a batch: the whole batch is returned, as in Pulsar.
    """

    def __init__(self, message_id: MessageId, *, inclusive: bool) -> None:
        self.position = message_id.position
        self._batch_index = message_id.batch_index() + (0 if inclusive else 1)
        self._is_inclusive = inclusive
        self._is_whole = message_id.batch_index() < 0

    def first_row(self, batch: DecodedBatch) -> int:
        """Returns the first row to return of the entry at `position`; its row count if there is
        none.
        """
        is_plain = batch.batch_index(0) < 0
        if self._is_whole or (is_plain and self._is_inclusive):
            return 0
        # Rows are in order of batch index, with gaps after a compaction.
        return bisect_left(range(batch.rows), self._batch_index, key=batch.batch_index)


class Receiver:
    """Returns received messages one by one. Not thread-safe.

    `select_rows` selects the rows of an entry to return, from those that are at or after the start.
    """

    def __init__(
        self,
        stream: ReceivingStream,
        topic: str,
        queue_size: int,
        select_rows: Callable[[ReceivedEntry, Sequence[int]], Sequence[int]] = lambda _, rows: rows,
        schema: Decoder | None = None,
    ) -> None:
        self._schema = schema
        self.first: FirstMessage | None = None
        self._inbox = inbox = stream.inbox
        self._topic, self._partition = topic, partition_index(topic)
        self._return_permits = stream.return_permits
        self._select_rows = select_rows
        self._takes_batches = queue_size > 0
        self._return_at = max(1, queue_size // 2)
        self._unreturned = 0
        self._generation = inbox.generation
        self._damage: LedgerfoldError | None = None
        # The remaining rows of the current entry, and their messages.
        self._rows_left: Iterator[int] = iter(())
        self._messages: Iterator[Message] = iter(())
        inbox.rest = lambda: length_hint(self._rows_left)

    def poll(self) -> Message | None:
        """Returns the next message, or None if none has been received.

        Raises Corruption, and the error that ended the stream.
        """
        if self._generation == self._inbox.generation:
            message = next(self._messages, None)
            if message is not None:
                return message
        return next(self._messages, None) if self.has_row() else None

    def entry_messages(self) -> Iterator[Message]:
        """The remaining messages of the current entry, after `has_row`.

        May be abandoned, and mixed with `poll`; `forget` ends it.
        """
        return self._messages

    def has_row(self) -> bool:
        """Returns whether `poll` has a message to return. Raises as `poll`."""
        if self._generation != self._inbox.generation:
            self.forget()
        if self._damage is not None:
            raise self._damage
        while not length_hint(self._rows_left):
            taken = self._inbox.take()
            if taken is None:
                return False
            self._generation, delivery = taken
            try:
                self._open(delivery)
            except LedgerfoldError as error:
                self._damage = error
                raise
        return True

    def forget(self) -> None:
        """Drops the remaining messages of the current entry."""
        # Consumed rather than replaced: a caller may be iterating over it.
        for _ in self._rows_left:
            pass
        self._damage = None

    def flush_permits(self) -> None:
        """Returns all owed permits to the broker."""
        owed, self._unreturned = self._unreturned, 0
        if owed:
            self._return_permits(owed)

    def _open(self, delivery: AnyDelivery) -> None:
        self._unreturned += delivery.messages
        if self._unreturned >= self._return_at:
            self.flush_permits()
        if isinstance(delivery, DeliveredRun):
            self._open_run(ReceivedRun(delivery.rows, self._topic, self._partition, self._schema))
        else:
            self._open_entry(delivery)

    def _open_run(self, run: ReceivedRun) -> None:
        rows: Sequence[int] = range(len(run.contents))
        # A run is in order of id, so that few have an entry at the start.
        if self.first is not None and run.position(0) <= self.first.position:
            rows = [row for row in rows if self._is_wanted(run, row)]
        self._rows_left = iter(rows)
        self._messages = map(Message, zip(repeat(run), self._rows_left))

    def _is_wanted(self, run: ReceivedRun, row: int) -> bool:
        """Returns whether the entry at `row` is not before the start."""
        assert self.first is not None
        batch, _ = run.decoded(row) if run.position(row) == self.first.position else (None, 0)
        return batch is None or self.first.first_row(batch) == 0

    def _open_entry(self, delivery: Delivery) -> None:
        header = delivery.header
        if not self._takes_batches and not header.is_plain:
            raise NotAllowed(
                f"Entry {header.position} of {self._topic} is a batch, which a "
                "receiver_queue_size of 0 does not allow: use 1 or more, or send without batching."
            )
        entry = opened_entry(delivery, self._topic, self._schema)
        with decoding(f"entry {header.position} of {self._topic}"):
            if isinstance(entry, ReceivedRecords):
                batch = entry.batch
                rows: Sequence[int] = range(batch.first_row_at(delivery.first_offset), batch.rows)
            else:
                rows = self._select_rows(entry, self._rows_from_start(entry))
        self._rows_left = iter(rows)
        self._messages = map(Message, zip(repeat(entry), self._rows_left))

    def _rows_from_start(self, entry: ReceivedEntry) -> Sequence[int]:
        first_row = 0
        if self.first is not None and entry.header.position == self.first.position:
            first_row = self.first.first_row(entry.batch)
        return range(first_row, entry.batch.rows)


def opened_entry(delivery: Delivery, topic: str, schema: Decoder | None = None) -> ReceivedEntry:
    """Verifies and decodes a delivered entry. Raises Corruption."""
    header, data, redelivery_count, _ = delivery
    path = f"entry {header.position} of {topic}"
    verify_sections(data, header, path=path)
    with decoding(path):
        batch = decode(data, header)
        kind = ReceivedRecords if isinstance(batch, KafkaBatch) else ReceivedEntry
        return kind(header, batch, topic, redelivery_count, partition_index(topic), schema)
