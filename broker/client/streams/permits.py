"""Permits: the number of messages that a broker may still send.

Permits that the broker holds, plus messages that wait to be read, make up the receiver queue size.
An entry is never split: the broker sends while it holds any permit, and the number may then be
negative.

    >>> permits = Permits(10)
    >>> permits.to_grant()
    10
    >>> permits.came(12); permits.taken(12); permits.to_grant()
    12
"""

from __future__ import annotations


class Permits:
    """The permits of one stream. Pure."""

    def __init__(self, queue_size: int) -> None:
        self._queue_size = queue_size
        # As the broker counts; negative after a larger entry.
        self._granted = 0
        # Received, and not taken yet.
        self._waiting = 0

    def came(self, messages: int) -> None:
        self._granted -= messages
        self._waiting += messages

    def taken(self, messages: int) -> None:
        self._waiting -= messages

    def disconnected(self) -> None:
        self._granted = 0

    def to_grant(self) -> int:
        """Grants permits up to the queue size. Returns the number granted."""
        more = max(self._queue_size - self._waiting - self._granted, 0)
        self._granted += more
        return more
