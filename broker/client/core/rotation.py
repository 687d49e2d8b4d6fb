"""Round-robin reading from several sources. No I/O.

A reader of several partitions takes up to MESSAGES_PER_TURN messages from one while it has any,
then from the next: each partition keeps its order, and a busy one does not starve the others.

    >>> rotation = Rotation([iter([1, 2]), iter([7])])
    >>> [rotation.take(lambda numbers: next(numbers, None)) for _ in range(4)]
    [1, 2, 7, None]
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

# Large enough that polling the others costs little, small enough to serve all promptly.
MESSAGES_PER_TURN = 100
Member = TypeVar("Member")
Found = TypeVar("Found")


class Rotation(Generic[Member]):
    """A rotation over `members`, which may be none. Not thread-safe, but another thread may replace
    `members` by a longer tuple.
    """

    def __init__(self, members: Iterable[Member] = ()) -> None:
        self.members: tuple[Member, ...] = tuple(members)
        self._turn = 0
        self._left = MESSAGES_PER_TURN

    @property
    def current(self) -> Member:
        """The member whose turn it is; after `find` and `take`, the one that had something."""
        return self.members[self._turn % len(self.members)]

    def next_turn(self) -> None:
        self._turn = (self._turn + 1) % max(len(self.members), 1)
        self._left = MESSAGES_PER_TURN

    def find(self, has_any: Callable[[Member], bool]) -> bool:
        """Advances to the first member that `has_any`. After an error of a member, the turn is
        still that member's.
        """
        for _ in self.members:
            if has_any(self.current):
                return True
            self.next_turn()
        return False

    def take(self, poll: Callable[[Member], Found | None]) -> Found | None:
        """Returns the next item, or None if no member has one. After an error of a member, the turn
        is still that member's.
        """
        if not self._left:
            self.next_turn()
        for _ in self.members:
            found = poll(self.current)
            if found is not None:
                self._left -= 1
                return found
            self.next_turn()
        return None
