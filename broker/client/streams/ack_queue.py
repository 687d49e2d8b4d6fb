"""Acknowledgements in flight: stored until the broker has confirmed them. Pure.

1. `add` takes single entries, `next_ack` returns them in frames.
2. A frame that carries a request id requests a confirmation; at most one request is open at a
  time. The broker replies once its cursor is durable, which confirms everything sent before.
3. `on_loss` is called when the connection broke: unconfirmed acknowledgements are sent again, first
   and in the same order. Acknowledging an entry twice has no further effect.
4. `is_full`: so many acknowledgements are unconfirmed that no more messages should be requested.

Bound: UNANSWERED_MAX entries, and the entries that were delivered to the application before the
queue was full, and acknowledged later. An entry that is acknowledged twice is stored once.

    >>> queue = AckQueue()
    >>> queue.add(Position(1, 0))
    True
    >>> queue.request_confirmation()
    >>> queue.next_ack().request_id, len(queue)
    (1, 1)
    >>> queue.on_loss()
    >>> queue.next_ack().positions[0].entry_id
    0
    >>> queue.answered(2)
    >>> len(queue)
    0
"""

from __future__ import annotations

import threading
from itertools import islice
from typing import NamedTuple

from ledgerfold.storage.entry import Position
from ledgerfold.v1 import data_pb2, records_pb2

# A confirmation makes the broker write its cursor: one covers many acknowledgements.
CONFIRM_AT = 1_000
UNANSWERED_MAX = 100_000
_ACKS_PER_FRAME_MAX = 5_000


class _Confirmation(NamedTuple):
    """A requested confirmation: it covers the first `entries` sent, and everything through
    `through`.
    """

    request_id: int
    entries: int
    through: Position | None


def record_of(position: Position) -> records_pb2.Position:
    return records_pb2.Position(ledger_id=position.ledger_id, entry_id=position.entry_id)


class AckQueue:
    """A thread-safe queue of acknowledgements."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # Ordered sets without common members.
        self._unsent: dict[Position, None] = {}
        self._sent: dict[Position, None] = {}
        # Cumulative: the last one replaces those before it.
        self._unsent_cumulative: Position | None = None
        self._sent_cumulative: Position | None = None
        self._confirmation: _Confirmation | None = None
        self._is_confirmation_requested = False
        self._last_request_id = 0

    def add(self, position: Position) -> bool:
        """Queues an acknowledgement. Returns whether it is the only unsent one: the sender must be
        woken.
        """
        with self._lock:
            if position in self._sent:
                return False
            self._unsent[position] = None
            return len(self._unsent) == 1

    def add_cumulative(self, position: Position) -> bool:
        """Queues a cumulative acknowledgement. Returns as `add`."""
        with self._lock:
            is_only_one = self._unsent_cumulative is None
            self._unsent_cumulative = position
            return is_only_one

    def request_confirmation(self) -> None:
        """Makes the next frame request a confirmation, even if it is otherwise empty."""
        with self._lock:
            self._is_confirmation_requested = True

    def __len__(self) -> int:
        """The number of unconfirmed acknowledgements."""
        cumulative = (self._unsent_cumulative is not None) + (self._sent_cumulative is not None)
        return len(self._unsent) + len(self._sent) + cumulative

    @property
    def is_full(self) -> bool:
        return len(self) > UNANSWERED_MAX

    def next_ack(self) -> data_pb2.Ack | None:
        """Returns the next frame to send; None if no frame is due."""
        with self._lock:
            through = self._send_cumulative()
            positions = [] if through is not None else self._send_entries()
            request_id = self._ask() if self._is_confirmation_due() else 0
        if through is not None:
            positions = [through]
        if not positions and not request_id:
            return None
        return data_pb2.Ack(
            positions=map(record_of, positions),
            cumulative=through is not None,
            request_id=request_id,
        )

    def _send_cumulative(self) -> Position | None:
        through, self._unsent_cumulative = self._unsent_cumulative, None
        self._sent_cumulative = through or self._sent_cumulative
        return through

    def _send_entries(self) -> list[Position]:
        positions = list(islice(self._unsent, _ACKS_PER_FRAME_MAX))
        for position in positions:
            del self._unsent[position]
        self._sent.update(dict.fromkeys(positions))
        return positions

    def _is_confirmation_due(self) -> bool:
        is_due = self._is_confirmation_requested or len(self._sent) >= CONFIRM_AT
        is_about_something = bool(self._sent) or self._sent_cumulative is not None
        return is_due and is_about_something and self._confirmation is None

    def _ask(self) -> int:
        # Later frames send the rest, with their own request.
        self._is_confirmation_requested = bool(self._unsent)
        self._last_request_id += 1
        self._confirmation = _Confirmation(
            self._last_request_id, len(self._sent), self._sent_cumulative
        )
        return self._last_request_id

    def answered(self, request_id: int) -> None:
        """Handles a confirmation by the broker. Ignores one that is no longer open."""
        with self._lock:
            confirmation = self._confirmation
            if confirmation is None or confirmation.request_id != request_id:
                return
            self._confirmation = None
            for position in list(islice(self._sent, confirmation.entries)):
                del self._sent[position]
            if self._sent_cumulative == confirmation.through:
                self._sent_cumulative = None

    def on_loss(self) -> None:
        """Marks everything unconfirmed as unsent, after the connection broke."""
        with self._lock:
            self._unsent, self._sent = self._sent | self._unsent, {}
            self._unsent_cumulative = self._unsent_cumulative or self._sent_cumulative
            self._sent_cumulative = self._confirmation = None
            self._is_confirmation_requested = len(self) > 0

    def clear(self) -> None:
        """Drops all acknowledgements: after a seek they apply to an earlier position."""
        with self._lock:
            self._unsent, self._sent = {}, {}
            self._unsent_cumulative = self._sent_cumulative = self._confirmation = None
            self._is_confirmation_requested = False
