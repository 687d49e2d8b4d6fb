"""The clock of a case's clients, and how it advances.

The time of a broker with a test clock does not advance until a case moves it, together with its
clients' time. Other brokers use the machine's clock, which cannot be moved; a mark then advances
their clients by a moment only.
"""

from __future__ import annotations

from typing import Protocol

from ledgerfold.broker.client.administration.admin import Admin
from ledgerfold.broker.client.streams.connection import wall_clock_ms

# Around a mark: even if the clock does not advance, the mark lies between two publishes.
_MARK_MS = 2


class Time(Protocol):
    def now_ms(self) -> int: ...

    def mark_ms(self) -> int:
        """Returns a time after all previous publishes, and before all later ones."""
        ...

    def advance(self, ms: int) -> None:
        """Raises NotAllowed."""
        ...


class PassingTime:
    """The time of a broker that uses the machine's clock."""

    def __init__(self, admin: Admin) -> None:
        self._admin = admin
        self._ahead_ms = 0

    def now_ms(self) -> int:
        return wall_clock_ms() + self._ahead_ms

    def mark_ms(self) -> int:
        self._ahead_ms += _MARK_MS
        return self.now_ms() - 1

    def advance(self, ms: int) -> None:
        self._admin.move_clock(advance_ms=ms)


class StandingTime:
    """The time of a broker with a manual clock."""

    def __init__(self, admin: Admin) -> None:
        self._admin = admin
        self._now_ms = admin.clock().now_ms

    def now_ms(self) -> int:
        return self._now_ms

    def mark_ms(self) -> int:
        self.advance(_MARK_MS)
        return self._now_ms - 1

    def advance(self, ms: int) -> None:
        self._now_ms = self._admin.move_clock(advance_ms=ms)


def time_of(admin: Admin) -> Time:
    """Returns the broker's time."""
    return StandingTime(admin) if admin.clock().is_manual else PassingTime(admin)
