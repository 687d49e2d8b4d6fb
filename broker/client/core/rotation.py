"""Taking turns: who of several is asked next. No I/O.

A reader of several partitions takes messages from one while it has any, up to MESSAGES_PER_TURN,
then from the next: each partition's order is kept, and none waits for ever behind a busy one.

    >>> rotation = Rotation([iter([1, 2]), iter([7])])
    >>> [rotation.take(lambda numbers: next(numbers, None)) for _ in range(4)]
    [1, 2, 7, None]
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

# Enough that asking the others costs little, few enough that all are served within moments.
MESSAGES_PER_TURN = 100
Member = TypeVar("Member")
Found = TypeVar("Found")


class Rotation(Generic[Member]):
    """For one thread at a time; `members` may grow, as a new tuple, in another."""

    def __init__(self, members: Iterable[Member] = ()) -> None:
        self.members: tuple[Member, ...] = tuple(members)
        self._turn = 0
        self._left = MESSAGES_PER_TURN

    @property
    def current(self) -> Member:
        """Whose turn it is: after `find` and `take`, the one that had something."""
        return self.members[self._turn % len(self.members)]

    def next_turn(self) -> None:
        self._turn = (self._turn + 1) % len(self.members)
        self._left = MESSAGES_PER_TURN

    def find(self, has_any: Callable[[Member], bool]) -> bool:
        """Passes the turn on to the first that has any. What a member raises leaves it there."""
        for _ in self.members:
            if has_any(self.current):
                return True
            self.next_turn()
        return False

    def take(self, poll: Callable[[Member], Found | None]) -> Found | None:
        """The next thing, or None when nobody has any. What a member raises leaves the turn."""
        if not self._left:
            self.next_turn()
        for _ in self.members:
            found = poll(self.current)
            if found is not None:
                self._left -= 1
                return found
            self.next_turn()
        return None
