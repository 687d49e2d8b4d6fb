"""Acknowledgements of single messages of a batch, until all of them are acknowledged.

A subscription acknowledges whole entries. The unacknowledged messages of an entry are recorded
here, in memory: after a restart of the broker, all messages of such a batch are delivered again.
Bound: REMEMBERED_BYTES_MAX for each subscription; beyond it the oldest eighth is forgotten, and
delivered completely.

  >>> acks, before = BatchAcks(), Position(1, 1)
  >>> acks.acknowledge(Position(1, 2), 0b110, before), acks.left(Position(1, 2))
  (False, 6)
  >>> acks.acknowledge(Position(1, 2), 0b001, before), acks.left(Position(1, 2))
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
        self._left: dict[Position, int] = {}
        self._size_bytes = 0

    def left(self, position: Position) -> int | None:
        """Returns the bits of the unacknowledged messages; None: nothing is known."""
        return self._left.get(position)

    def acknowledge(self, position: Position, left: int, mark_delete: Position) -> bool:
        """Acknowledges all messages of an entry except `left`; returns whether none is left."""
        known = self._left.get(position)
        left = left if known is None else left & known
        self.forget(position)
        if not left:
            return True
        if position > mark_delete:
            self._left[position] = left
            self._size_bytes += _size(left)
            self._shrink(mark_delete)
        return False

    def forget(self, position: Position) -> None:
        """Forgets an entry that is acknowledged."""
        unacknowledged = self._left.pop(position, None)
        if unacknowledged is not None:
            self._size_bytes -= _size(unacknowledged)

    def _shrink(self, mark_delete: Position) -> None:
        if self._size_bytes <= REMEMBERED_BYTES_MAX:
            return
        for position in [each for each in self._left if each <= mark_delete]:
            self.forget(position)
        while self._size_bytes > _KEPT_BYTES:
            self.forget(next(iter(self._left)))


def _size(left: int) -> int:
    return _ENTRY_BYTES + left.bit_length() // 8
