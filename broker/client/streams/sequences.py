"""The sequence numbers of an idempotent producer of a Kafka topic.

The broker accepts a producer's batches only in the order of their numbers, without a gap, and
answers a batch that it has stored with the original offset. A batch that is refused or expires
leaves a gap, and the batches sent after it are refused, too. Then:

1. No new batch is sent until all batches sent are answered; batches in doubt, because the
  connection broke, are resent under their own numbers.
2. Batches refused only because of the gap are resent, in order, under the numbers that follow the
  last accepted batch.
3. If the last accepted batch is not known, because a batch expired without an answer, the numbers
  begin at 0 in a new epoch.

The broker remembers the last five batches of each producer, and after it has loaded the topic again
only the last one, as Kafka's does. It refuses earlier batches, when they are resent, as out of
order: it is then unclear whether they are stored. Once a later batch is answered with an offset,
they are known to be stored, but their offsets are unknown. So any number of batches may be in
flight; Kafka's producer has at most five. With five, the producer would wait for a broker that
syncs before it answers.

Source: TransactionManager of Kafka's producer (adjustSequencesDueToFailedBatch,
bumpIdempotentProducerEpoch).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ledgerfold.broker.client.streams.pending import PendingEntry, PendingRecords
from ledgerfold.storage.errors import KafkaError, KafkaErrorKind, LedgerfoldError, NotAllowed

_EPOCH_MAX = 2**15 - 1
_SEQUENCE_MAX = 2**31 - 1


class Answer(NamedTuple):
    """The result for a batch; `refusal` None: it is stored."""

    entry: PendingEntry
    refusal: LedgerfoldError | None


class Sequences:
    """The sequence state of one producer. Event loop only.

    >>> sequences = Sequences(7)
    >>> sequences.has_gap, sequences.close_gap()
    (False, [])
    """

    def __init__(self, producer_id: int) -> None:
        self.producer_id = producer_id
        self.producer_epoch = 0
        self.has_gap = False
        self._next = 0
        # The number after the last accepted batch, in this epoch.
        self._taken_end = 0
        # The last accepted batch is not known.
        self._is_in_doubt = False
        # Refused because of the gap, in order.
        self._refused: list[PendingRecords] = []
        # Resent and refused as out of order, in order: later answers decide whether they are
        # stored.
        self._unclear: list[Answer] = []

    def may_send(self, entry: PendingEntry) -> bool:
        assert isinstance(entry, PendingRecords)
        return entry.base_sequence is not None or not (self.has_gap or self._unclear)

    def number(self, entry: PendingEntry) -> None:
        """Assigns the next numbers to a batch, unless it has numbers: then it is a resend."""
        assert isinstance(entry, PendingRecords)
        if entry.base_sequence is None:
            entry.number(self.producer_id, self.producer_epoch, self._next)
            self._next = _end_sequence(entry)

    def answered(self, entry: PendingEntry, refusal: LedgerfoldError | None) -> list[Answer]:
        """Handles the answer for the oldest batch. Returns the batches whose result is known now,
        in order.
        """
        assert isinstance(entry, PendingRecords)
        answer = Answer(entry, refusal)
        if refusal is None:
            self._taken_end = _end_sequence(entry)
            unclear, self._unclear = self._unclear, []
            return [*(each._replace(refusal=None) for each in unclear), answer]
        is_out_of_order = _is_out_of_order(refusal)
        if is_out_of_order and entry.is_resent and not self._refused:
            self._unclear.append(answer)
            return []
        had_gap, refused = self.has_gap, self.refused_ones()
        # NOTE: a batch that is refused for another reason has to wait, too, so that results are
        # reported in order.
        if had_gap and (self._refused or is_out_of_order):
            self._take_back(entry)
            return []
        self.has_gap = True
        return [*refused, answer]

    def refused_ones(self) -> list[Answer]:
        """Resolves unclear batches as refused: no later one was accepted. Returns those that
        failed.
        """
        unclear, self._unclear = self._unclear, []
        if self.has_gap:
            for each in unclear:
                self._take_back(each.entry)
            return []
        if unclear:
            self.has_gap = self._is_in_doubt = True
        return unclear

    def _take_back(self, entry: PendingEntry) -> None:
        assert isinstance(entry, PendingRecords)
        entry.forget_numbers()
        self._refused.append(entry)

    def give_up(self, entry: PendingEntry) -> None:
        """Abandons an expired batch. If it was sent, it may have been accepted."""
        assert isinstance(entry, PendingRecords)
        if entry.base_sequence is not None:
            self.has_gap = self._is_in_doubt = True

    def take_due(self, now_s: float) -> list[PendingEntry]:
        """Removes and returns the expired ones of the unclear and refused batches, oldest first."""
        due = list[PendingEntry]()
        while self._unclear and self._unclear[0].entry.deadline_s <= now_s:
            due.append(self._unclear.pop(0).entry)
            self.has_gap = self._is_in_doubt = True
        while self._refused and self._refused[0].deadline_s <= now_s:
            due.append(self._refused.pop(0))
        return due

    def on_disconnect(self, entries: Iterable[PendingEntry]) -> list[PendingEntry]:
        """Returns the batches to resend: those without an answer and those taken back."""
        again = list[PendingEntry](self._refused)
        unclear = [each.entry for each in self._unclear]
        self._refused, self._unclear = [], []
        returned = [*unclear, *again, *entries]
        for entry in returned:
            assert isinstance(entry, PendingRecords)
            if again:
                # No batch after a refused one was accepted.
                entry.forget_numbers()
            else:
                entry.is_resent = True
        return returned

    def is_settled(self, unsent: Sequence[PendingEntry]) -> bool:
        """Returns whether, with nothing in flight, no batch is in doubt."""
        first = unsent[0] if unsent else None
        return not isinstance(first, PendingRecords) or first.base_sequence is None

    def close_gap(self) -> list[PendingEntry]:
        """Returns the batches to send next. Raises NotAllowed when the epochs are exhausted."""
        self.has_gap = False
        self._next = self._taken_end
        if self._is_in_doubt:
            self._is_in_doubt = False
            if self.producer_epoch == _EPOCH_MAX:
                raise NotAllowed(
                    f"The producer has used all {_EPOCH_MAX} epochs: create a new producer."
                )
            self.producer_epoch += 1
            self._next = self._taken_end = 0
        return self.all_taken_back()

    def all_taken_back(self) -> list[PendingEntry]:
        taken_back = [*(each.entry for each in self._unclear), *self._refused]
        self._refused, self._unclear = [], []
        return taken_back


def _end_sequence(entry: PendingRecords) -> int:
    assert entry.base_sequence is not None
    return (entry.base_sequence + len(entry.listeners)) & _SEQUENCE_MAX


def _is_out_of_order(refusal: LedgerfoldError) -> bool:
    kind = refusal.kind if isinstance(refusal, KafkaError) else None
    return kind is KafkaErrorKind.OUT_OF_ORDER_SEQUENCE_NUMBER
