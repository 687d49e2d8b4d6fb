"""Permits: how many messages a broker may still send.

What the broker holds, plus what waits to be read, makes up the receiver queue size. An entry is
never split: the broker sends while it holds any permit, and may owe some afterwards.

    >>> permits = Permits(10)
    >>> permits.to_grant()
    10
    >>> permits.came(12); permits.taken(12); permits.to_grant()
    12
"""

from __future__ import annotations


class Permits:
    """How many messages the broker may still send. Pure."""

    def __init__(self, queue_size: int) -> None:
        self._queue_size = queue_size
        # As the broker counts; an entry may take it below zero.
        self._granted = 0
        # Came, and were not taken yet.
        self._waiting = 0

    def came(self, messages: int) -> None:
        self._granted -= messages
        self._waiting += messages

    def taken(self, messages: int) -> None:
        self._waiting -= messages

    def disconnected(self) -> None:
        self._granted = 0

    def to_grant(self) -> int:
        """How many to grant now; they count as granted then."""
        more = max(self._queue_size - self._waiting - self._granted, 0)
        self._granted += more
        return more
