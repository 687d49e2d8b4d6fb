"""The sequence numbers of an idempotent producer of a Kafka topic.

The broker takes a producer's batches only in the order of their numbers, without a gap, and answers
one that it has with the offset that it got before. A batch that is refused, or given up, leaves a
gap, and what was sent behind it is refused, too. Then:

1. Nothing new is sent until all that was sent is answered; what is in doubt, because the
   connection broke, is sent again under its own numbers.
2. What was refused only because of the gap is sent again, in order, under the numbers that follow
   the last batch that was taken.
3. If it is not known which that is, because something was given up without an answer, the numbers
   begin at 0 in a new epoch.

The broker remembers the last five batches of each producer, and when it has loaded the topic anew
the last one alone, as Kafka's does. It refuses those before them, when they are sent again, as out
of order: it is unclear then whether they are stored. Once one behind them is answered with an
offset, they are known to be, though not where. So any number may be on their way, where Kafka's
producer has five at most: a broker that syncs before it answers would be waited for.

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
    """What became of a batch; `refusal` None: it is stored."""

    entry: PendingEntry
    refusal: LedgerfoldError | None


class Sequences:
    """Of one producer; on the event loop.

    >>> sequences = Sequences(7)
    >>> sequences.has_gap, sequences.close_gap()
    (False, [])
    """

    def __init__(self, producer_id: int) -> None:
        self.producer_id = producer_id
        self.producer_epoch = 0
        self.has_gap = False
        self._next = 0
        # Behind the last batch that was taken, in this epoch.
        self._taken_end = 0
        # What was taken last is not known.
        self._is_in_doubt = False
        # Refused because of the gap, in order.
        self._again: list[PendingRecords] = []
        # Sent again and refused as out of order, in order: what comes behind them tells why.
        self._unclear: list[Answer] = []

    def may_send(self, entry: PendingEntry) -> bool:
        assert isinstance(entry, PendingRecords)
        return entry.base_sequence is not None or not (self.has_gap or self._unclear)

    def number(self, entry: PendingEntry) -> None:
        """The next numbers are its, unless it has some: then it is sent again."""
        assert isinstance(entry, PendingRecords)
        if entry.base_sequence is None:
            entry.number(self.producer_id, self.producer_epoch, self._next)
            self._next = _behind(entry)

    def answered(self, entry: PendingEntry, refusal: LedgerfoldError | None) -> list[Answer]:
        """The broker answered for the oldest one: whose fate is known then, in order."""
        assert isinstance(entry, PendingRecords)
        answer = Answer(entry, refusal)
        if refusal is None:
            self._taken_end = _behind(entry)
            unclear, self._unclear = self._unclear, []
            return [*(each._replace(refusal=None) for each in unclear), answer]
        is_out_of_order = _is_out_of_order(refusal)
        if is_out_of_order and entry.is_resent and not self._again:
            self._unclear.append(answer)
            return []
        had_gap, refused = self.has_gap, self.refused_ones()
        # NOTE: also what is refused for a reason of its own has to wait its turn, so that all hear
        # in order what became of theirs.
        if had_gap and (self._again or is_out_of_order):
            self._take_back(entry)
            return []
        self.has_gap = True
        return [*refused, answer]

    def refused_ones(self) -> list[Answer]:
        """What was unclear was refused: nothing behind it was taken. Of those that stay so."""
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
        self._again.append(entry)

    def give_up(self, entry: PendingEntry) -> None:
        """It will not be sent again; nobody knows whether it was taken, if it was sent at all."""
        assert isinstance(entry, PendingRecords)
        if entry.base_sequence is not None:
            self.has_gap = self._is_in_doubt = True

    def take_due(self, now_s: float) -> list[PendingEntry]:
        """Gives up what is due of what was refused and may be sent again: the oldest there is."""
        due = list[PendingEntry]()
        while self._unclear and self._unclear[0].entry.deadline_s <= now_s:
            due.append(self._unclear.pop(0).entry)
            self.has_gap = self._is_in_doubt = True
        while self._again and self._again[0].deadline_s <= now_s:
            due.append(self._again.pop(0))
        return due

    def on_disconnect(self, sent: Iterable[PendingEntry]) -> list[PendingEntry]:
        """What is to be sent again, of what had no answer, and of what was taken back."""
        again = list[PendingEntry](self._again)
        unclear = [each.entry for each in self._unclear]
        self._again, self._unclear = [], []
        returned = [*unclear, *again, *sent]
        for entry in returned:
            assert isinstance(entry, PendingRecords)
            if again:
                # Behind one that was refused nothing was taken.
                entry.forget_numbers()
            else:
                entry.is_resent = True
        return returned

    def is_settled(self, unsent: Sequence[PendingEntry]) -> bool:
        """Whether, with nothing in flight, nothing is in doubt."""
        first = unsent[0] if unsent else None
        return not isinstance(first, PendingRecords) or first.base_sequence is None

    def close_gap(self) -> list[PendingEntry]:
        """What is to be sent next. Raises NotAllowed when there are no numbers left."""
        self.has_gap = False
        self._next = self._taken_end
        if self._is_in_doubt:
            self._is_in_doubt = False
            if self.producer_epoch == _EPOCH_MAX:
                raise NotAllowed(
                    f"The producer gave up without an answer {_EPOCH_MAX} times: make a new one."
                )
            self.producer_epoch += 1
            self._next = self._taken_end = 0
        return self.all_taken_back()

    def all_taken_back(self) -> list[PendingEntry]:
        taken_back = [*(each.entry for each in self._unclear), *self._again]
        self._again, self._unclear = [], []
        return taken_back


def _behind(entry: PendingRecords) -> int:
    assert entry.base_sequence is not None
    return (entry.base_sequence + len(entry.listeners)) & _SEQUENCE_MAX


def _is_out_of_order(refusal: LedgerfoldError) -> bool:
    kind = refusal.kind if isinstance(refusal, KafkaError) else None
    return kind is KafkaErrorKind.OUT_OF_ORDER_SEQUENCE_NUMBER
