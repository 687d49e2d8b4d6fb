"""A consumer's state of delivered messages. Pure.

* `BatchAcknowledgements`: the broker acknowledges whole entries, so the messages of a batch are
  counted here, and the entry is acknowledged with its last one (Pulsar's BatchMessageAcker). An
  acknowledged message is not returned again when the entry is redelivered.
* `DelayedPositions`: entries that are due for redelivery after a delay (Pulsar's
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

from array import array
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Sequence

from ledgerfold.storage.entry import EARLIEST, Position


class _Batch:
    """The unacknowledged messages of one entry, as bits.

    Memory: a bit per message; with gaps left by a compaction, 4 bytes more per message.
    """

    __slots__ = ("_bits", "_first", "_indexes", "remaining")

    def __init__(self, batch_indexes: Sequence[int]) -> None:
        first, last, self.remaining = batch_indexes[0], batch_indexes[-1], len(batch_indexes)
        indexes_all = range(first, last + 1)
        # Ascending; usually without gaps.
        self._indexes = (
            indexes_all if len(indexes_all) == self.remaining else array("I", batch_indexes)
        )
        self._bits = bytearray(b"\xff") * (self.remaining // 8 + 1)
        # All rows before this one are acknowledged.
        self._first = 0

    def is_waiting(self, batch_index: int) -> bool:
        row = self._row(batch_index)
        return row >= 0 and self._bits[row >> 3] & 1 << (row & 7) != 0

    def acknowledge(self, batch_index: int) -> None:
        row = self._row(batch_index)
        if row >= 0:
            self._clear(row)

    def acknowledge_through(self, batch_index: int) -> None:
        end = bisect_right(self._indexes, batch_index)
        for row in range(self._first, end):
            self._clear(row)
        self._first = max(self._first, end)

    def _row(self, batch_index: int) -> int:
        """Returns the row of `batch_index`; -1 if it has none."""
        indexes = self._indexes
        if type(indexes) is range:
            return batch_index - indexes.start if batch_index in indexes else -1
        row = bisect_left(indexes, batch_index)
        return row if row < len(indexes) and indexes[row] == batch_index else -1

    def _clear(self, row: int) -> None:
        at, bit = row >> 3, 1 << (row & 7)
        if self._bits[at] & bit:
            self._bits[at] ^= bit
            self.remaining -= 1


class BatchAcknowledgements:
    """The unacknowledged messages of batches.

    Batch index -1 is a whole entry: a message that is not in a batch, or a batch. An
    acknowledgement for a message of an unknown batch (for example an id from another session) does
    not acknowledge the entry.
    """

    def __init__(self) -> None:
        # In order of opening: the order of positions, except after a redelivery.
        self._waiting: OrderedDict[Position, _Batch] = OrderedDict()
        self._cumulative = EARLIEST

    def __len__(self) -> int:
        return len(self._waiting)

    def opened(self, position: Position, batch_indexes: Sequence[int]) -> Sequence[int]:
        """Registers a received batch. Returns the unacknowledged ones of its (ascending)
        indexes.
        """
        waiting = self._waiting.get(position)
        if waiting is None:
            self._waiting[position] = _Batch(batch_indexes)
            return batch_indexes
        return list(filter(waiting.is_waiting, batch_indexes))

    def acknowledge(self, position: Position, batch_index: int) -> bool:
        """Acknowledges a message. Returns whether the entry is fully acknowledged now."""
        if batch_index < 0:
            # Registered anyway: a batch that cannot be opened, or whose index is not given.
            self._waiting.pop(position, None)
            return True
        waiting = self._waiting.get(position)
        if waiting is None:
            return False
        waiting.acknowledge(batch_index)
        return self._is_done(position, waiting)

    def acknowledge_cumulative(self, position: Position, batch_index: int) -> Position | None:
        """Returns the last entry to acknowledge now; None if nothing new is covered.

        In the middle of a batch it is the entry before the batch, as in Pulsar.
        """
        is_entry, waiting = batch_index < 0, self._waiting.get(position)
        if not is_entry and waiting is not None:
            waiting.acknowledge_through(batch_index)
            is_entry = self._is_done(position, waiting)
        while self._waiting and next(iter(self._waiting)) < position:
            self._waiting.popitem(last=False)
        if batch_index < 0:
            self._waiting.pop(position, None)
        through = position if is_entry else Position(position.ledger_id, position.entry_id - 1)
        if through <= self._cumulative:
            return None
        self._cumulative = through
        return through

    def _is_done(self, position: Position, waiting: _Batch) -> bool:
        if waiting.remaining:
            return False
        del self._waiting[position]
        return True

    def discard(self, position: Position) -> None:
        """Drops an entry that is acknowledged as a whole."""
        self._waiting.pop(position, None)

    def clear(self) -> None:
        """Drops all state: after a seek, or when other consumers may have received the messages."""
        self._waiting.clear()
        self._cumulative = EARLIEST


class DelayedPositions:
    """Entries that become due after a fixed delay. Times in ms, on any one clock."""

    def __init__(self, delay_ms: int) -> None:
        self._delay_ms = delay_ms
        # In order of time, because the delay is the same for all.
        self._due_ms: dict[Position, int] = {}

    def __len__(self) -> int:
        return len(self._due_ms)

    def add(self, position: Position, now_ms: int) -> None:
        """Starts the delay of an entry, again if it is present."""
        self._due_ms.pop(position, None)
        self._due_ms[position] = now_ms + self._delay_ms

    def discard(self, position: Position) -> None:
        self._due_ms.pop(position, None)

    def discard_through(self, position: Position) -> None:
        """Removes the entry and all before it."""
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
