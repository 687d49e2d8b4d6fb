"""Acknowledgements on their way to the broker: kept until it has answered for them. Pure.

1. `add` takes entries one by one, `next_ack` gives them out in frames.
2. A frame that carries a request id asks for an answer; one such question is open at a time. The
   broker answers once its cursor is durable, and that stands for everything sent until then.
3. `lost` is told when the connection broke: what has no answer goes out again, first and in the
   same order. Acknowledging twice is acknowledging once.
4. `is_full` says that so many wait for an answer that no more messages should be asked for.

Bound: UNANSWERED_MAX entries, and those that the application was given before the queue was full
and acknowledges after that. An entry that is acknowledged again meanwhile is held once.

    >>> queue = AckQueue()
    >>> queue.add(Position(1, 0))
    True
    >>> queue.want_answer()
    >>> queue.next_ack().request_id, len(queue)
    (1, 1)
    >>> queue.lost()
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

# A question makes the broker write its cursor: one for many acknowledgements.
ASK_AT = 1_000
UNANSWERED_MAX = 100_000
_ACKS_PER_FRAME_MAX = 5_000


class _Question(NamedTuple):
    """What an answer to it covers: so many of the entries sent, and everything up to `upto`."""

    request_id: int
    entries: int
    upto: Position | None


def record_of(position: Position) -> records_pb2.Position:
    return records_pb2.Position(ledger_id=position.ledger_id, entry_id=position.entry_id)


class AckQueue:
    """For any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # Sets that keep their order, and have no entry in common.
        self._unsent: dict[Position, None] = {}
        self._sent: dict[Position, None] = {}
        # Cumulative: of several the last counts.
        self._upto_unsent: Position | None = None
        self._upto_sent: Position | None = None
        self._question: _Question | None = None
        self._is_answer_wanted = False
        self._last_request_id = 0

    def add(self, position: Position) -> bool:
        """Whether it is the only one to be sent, so that the sender must be woken."""
        with self._lock:
            if position in self._sent:
                return False
            self._unsent[position] = None
            return len(self._unsent) == 1

    def add_upto(self, position: Position) -> bool:
        """A cumulative acknowledgement. The answer is as for `add`."""
        with self._lock:
            is_only_one = self._upto_unsent is None
            self._upto_unsent = position
            return is_only_one

    def want_answer(self) -> None:
        """The next frame asks, even when it has nothing else to say."""
        with self._lock:
            self._is_answer_wanted = True

    def __len__(self) -> int:
        """How many have no answer."""
        uptos = (self._upto_unsent is not None) + (self._upto_sent is not None)
        return len(self._unsent) + len(self._sent) + uptos

    @property
    def is_full(self) -> bool:
        return len(self) > UNANSWERED_MAX

    def next_ack(self) -> data_pb2.Ack | None:
        """What to send next; None while there is nothing."""
        with self._lock:
            upto = self._send_upto()
            positions = [] if upto is not None else self._send_entries()
            request_id = self._ask() if self._is_question_due() else 0
        if upto is not None:
            positions = [upto]
        if not positions and not request_id:
            return None
        return data_pb2.Ack(
            positions=map(record_of, positions), cumulative=upto is not None, request_id=request_id
        )

    def _send_upto(self) -> Position | None:
        upto, self._upto_unsent = self._upto_unsent, None
        self._upto_sent = upto or self._upto_sent
        return upto

    def _send_entries(self) -> list[Position]:
        positions = list(islice(self._unsent, _ACKS_PER_FRAME_MAX))
        for position in positions:
            del self._unsent[position]
        self._sent.update(dict.fromkeys(positions))
        return positions

    def _is_question_due(self) -> bool:
        is_due = self._is_answer_wanted or len(self._sent) >= ASK_AT
        is_about_something = bool(self._sent) or self._upto_sent is not None
        return is_due and is_about_something and self._question is None

    def _ask(self) -> int:
        # What is left goes out in frames behind this one, with a question of its own.
        self._is_answer_wanted = bool(self._unsent)
        self._last_request_id += 1
        self._question = _Question(self._last_request_id, len(self._sent), self._upto_sent)
        return self._last_request_id

    def answered(self, request_id: int) -> None:
        """The broker's word. Of a question that is not open any more it is ignored."""
        with self._lock:
            question = self._question
            if question is None or question.request_id != request_id:
                return
            self._question = None
            for position in list(islice(self._sent, question.entries)):
                del self._sent[position]
            if self._upto_sent == question.upto:
                self._upto_sent = None

    def lost(self) -> None:
        """The connection broke: everything without an answer is to be sent again."""
        with self._lock:
            self._unsent, self._sent = self._sent | self._unsent, {}
            self._upto_unsent = self._upto_unsent or self._upto_sent
            self._upto_sent = self._question = None
            self._is_answer_wanted = len(self) > 0

    def clear(self) -> None:
        """Forgets all of it: the subscription was moved, they speak of what lay behind."""
        with self._lock:
            self._unsent, self._sent = {}, {}
            self._upto_unsent = self._upto_sent = self._question = None
            self._is_answer_wanted = False
