"""What a consumer remembers of what it was given. Pure.

* `BatchAcknowledgements`: the broker acknowledges whole entries, so the messages of a batch are
  counted here, and the entry is acknowledged with its last one (Pulsar's BatchMessageAcker). What
  was acknowledged is not handed out again when the entry comes again.
* `DelayedPositions`: entries that are due for redelivery after a while (Pulsar's
  NegativeAcksTracker and UnAckedMessageTracker).

    >>> acknowledgements = BatchAcknowledgements()
    >>> acknowledgements.opened(Position(1, 0), [0, 1, 2])
    [0, 1, 2]
    >>> acknowledgements.acknowledge(Position(1, 0), 1)
    False
    >>> acknowledgements.opened(Position(1, 0), [0, 1, 2])
    [0, 2]
    >>> acknowledgements.acknowledge_cumulative(Position(1, 0), 2)
    Position(ledger_id=1, entry_id=0)
"""

from __future__ import annotations

from collections.abc import Sequence

from storage.entry import EARLIEST, Position


class BatchAcknowledgements:
    """Which messages of which entries are not acknowledged yet.

    Batch index -1 is a message that is an entry by itself. What was never opened here (an id from
    another session, say) leaves its entry alone unless it is such a message.
    """

    def __init__(self) -> None:
        # Bit i stands for batch index i.
        self._waiting: dict[Position, int] = {}
        self._cumulative = EARLIEST

    def __len__(self) -> int:
        return len(self._waiting)

    def opened(self, position: Position, batch_indexes: Sequence[int]) -> Sequence[int]:
        """A batch came: which of these of its messages are to be handed out."""
        waiting = self._waiting.get(position)
        if waiting is None:
            self._waiting[position] = sum(1 << index for index in batch_indexes)
            return batch_indexes
        return [index for index in batch_indexes if waiting >> index & 1]

    def acknowledge(self, position: Position, batch_index: int) -> bool:
        """Whether the entry is to be acknowledged now."""
        if batch_index < 0:
            return True
        waiting = self._waiting.get(position)
        if waiting is None:
            return False
        waiting &= ~(1 << batch_index)
        return self._keep(position, waiting)

    def acknowledge_cumulative(self, position: Position, batch_index: int) -> Position | None:
        """The entry up to which is to be acknowledged now; None when that is nothing new.

        In the middle of a batch it is the entry before it, as in Pulsar.
        """
        whole = batch_index < 0
        if not whole and position in self._waiting:
            left = self._waiting[position] >> (batch_index + 1) << (batch_index + 1)
            whole = self._keep(position, left)
        for earlier in [known for known in self._waiting if known < position]:
            del self._waiting[earlier]
        upto = position if whole else Position(position.ledger_id, position.entry_id - 1)
        if upto <= self._cumulative:
            return None
        self._cumulative = upto
        return upto

    def _keep(self, position: Position, waiting: int) -> bool:
        if waiting:
            self._waiting[position] = waiting
            return False
        del self._waiting[position]
        return True

    def clear(self) -> None:
        """Forgets everything: after a seek, or when others may have got what was ours."""
        self._waiting.clear()
        self._cumulative = EARLIEST


class DelayedPositions:
    """Entries, each due once its delay is over. Times in ms, on one clock of the caller's."""

    def __init__(self, delay_ms: int) -> None:
        self._delay_ms = delay_ms
        # In order of time, since the delay is the same for all.
        self._due_ms: dict[Position, int] = {}

    def __len__(self) -> int:
        return len(self._due_ms)

    def add(self, position: Position, now_ms: int) -> None:
        """The delay begins now; again, if the entry is here already."""
        self._due_ms.pop(position, None)
        self._due_ms[position] = now_ms + self._delay_ms

    def discard(self, position: Position) -> None:
        self._due_ms.pop(position, None)

    def discard_upto(self, position: Position) -> None:
        """The entry and all before it."""
        for known in [known for known in self._due_ms if known <= position]:
            del self._due_ms[known]

    def take_due(self, now_ms: int) -> list[Position]:
        due = []
        for position, due_ms in self._due_ms.items():
            if due_ms > now_ms:
                break
            due.append(position)
        for position in due:
            del self._due_ms[position]
        return due

    @property
    def next_due_ms(self) -> int | None:
        return next(iter(self._due_ms.values()), None)

    def clear(self) -> None:
        self._due_ms.clear()
