"""Acknowledgements of single messages of a batch, until all of them are acknowledged.

A subscription acknowledges whole entries. The unacknowledged messages of an entry are recorded
here, in memory: after a restart of the broker, all messages of such a batch are delivered again.
Bound: REMEMBERED_BYTES_MAX for each subscription; beyond it the oldest eighth is forgotten, and
delivered completely.

  >>> acks, before = BatchAcks(), Position(1, 1)
  >>> acks.acknowledge(Position(1, 2), 0b110, before), acks.remaining(Position(1, 2))
  (False, 6)
  >>> acks.acknowledge(Position(1, 2), 0b001, before), acks.remaining(Position(1, 2))
  (True, None)
"""

from __future__ import annotations

from ledgerfold.storage.entry import Position

REMEMBERED_BYTES_MAX = 4 * 1024 * 1024
# The size after entries are forgotten. Checking all of them at each acknowledgement would be slow.
_KEPT_BYTES = REMEMBERED_BYTES_MAX * 7 // 8
# The size of an entry, besides its bits.
_ENTRY_BYTES = 200


class BatchAcks:
    """The partly acknowledged entries of one subscription.

    `incarnation`: that of its cursor; the state is invalid for another one.
    """

    def __init__(self, incarnation: int = 0) -> None:
        self.incarnation = incarnation
        self._remaining: dict[Position, int] = {}
        self._size_bytes = 0

    def remaining(self, position: Position) -> int | None:
        """Returns the bits of the unacknowledged messages; None: nothing is known."""
        return self._remaining.get(position)

    def acknowledge(self, position: Position, remaining: int, mark_delete: Position) -> bool:
        """Acknowledges all messages of an entry but `remaining`; returns whether none is left."""
        known = self._remaining.get(position)
        remaining = remaining if known is None else remaining & known
        self.forget(position)
        if not remaining:
            return True
        if position > mark_delete:
            self._remaining[position] = remaining
            self._size_bytes += _size(remaining)
            self._shrink(mark_delete)
        return False

    def forget(self, position: Position) -> None:
        """Forgets an entry that is acknowledged."""
        unacknowledged = self._remaining.pop(position, None)
        if unacknowledged is not None:
            self._size_bytes -= _size(unacknowledged)

    def _shrink(self, mark_delete: Position) -> None:
        if self._size_bytes <= REMEMBERED_BYTES_MAX:
            return
        for position in [each for each in self._remaining if each <= mark_delete]:
            self.forget(position)
        while self._size_bytes > _KEPT_BYTES:
            self.forget(next(iter(self._remaining)))


def _size(remaining: int) -> int:
    return _ENTRY_BYTES + remaining.bit_length() // 8
