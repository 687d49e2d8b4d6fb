"""Records for each subscription what was acknowledged, durably acknowledged, and is still due.

An acknowledgement with a request id counts as durable once the broker has answered it; a seek
cancels earlier acknowledgements. An acknowledgement without an answer may count or not: the oracle
neither demands nor forbids it.

A cursor's record may cover an entry only for a reason: a consumer acknowledged it, the subscription
began or was moved after it, it expired, an administrator skipped it, or compaction removed it from
the view that the consumer reads. `Orders` are requests of administrators and expirations by message
TTL.
"""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy
from dataclasses import dataclass, field

from ledgerfold.storage.entry import EARLIEST, Position
from ledgerfold.v1.records_pb2 import CursorRecord


@dataclass(eq=False)
class Order:
    """A request to skip entries of one subscription, or of all ("").

    `limit_ms` skips entries older than that when the request runs; `entries`, at most that many;
    `upto`, those up to that position, once the request has ended. `ended_ms` is None while the
    request is in progress or in force.
    """

    subscription: str = ""
    limit_ms: int | None = None
    entries: int | None = None
    upto: Position | None = None
    ended_ms: int | None = None

    def covers(
        self, position: Position, publish_ms: int, closed_ms: int | None, now_ms: int
    ) -> bool:
        """Returns whether the request may have skipped that entry. `closed_ms` is the time at which
        its ledger was closed, if it was.
        """
        if self.limit_ms is not None:
            before_ms = (now_ms if self.ended_ms is None else self.ended_ms) - self.limit_ms
            return publish_ms < before_ms or (closed_ms is not None and closed_ms < before_ms)
        if self.entries is not None:
            if self.entries <= 0:
                return False
            self.entries -= 1
            return True
        return self.ended_ms is None or (self.upto is not None and position <= self.upto)


@dataclass(eq=False)
class Move:
    """A seek in progress and the subscriptions of that name that it may find: another client may
    delete one and create another meanwhile.
    """

    to: Position
    subscriptions: list[Subscription] = field(default_factory=list)

    def may_find(self, subscription: Subscription) -> None:
        self.subscriptions.append(subscription)
        subscription.begin_move(self.to)

    def end(self) -> None:
        for each in self.subscriptions:
            each.end_move()


class Subscription:
    """A subscription in one life of a topic. The loop's steps define the order of events."""

    def __init__(self, name: str, *, from_earliest: bool, step: int) -> None:
        self.name = name
        # Entries first sent after this step are due, and earlier ones from `start`.
        self.made_step = step
        self.start = EARLIEST if from_earliest else None
        self.sent: set[Position] = set()
        self.sent_upto = EARLIEST
        # Position -> the step at which the broker reported its acknowledgement as durable.
        self.durable: dict[Position, int] = {}
        self.durable_upto: tuple[Position, int] = (EARLIEST, 0)
        # Consumers of compacted data acknowledge messages that they never received.
        self.has_compacted = False
        # Seeks begun and ended; while one is in progress, nothing is certain.
        self.moves = 0
        self.is_moving = 0
        # Targets of seeks that no record contains yet, and the incarnation of the last record.
        self.moves_to: list[Position] = []
        self.incarnation: int | None = None
        self.has_moved = False
        # What its record covers and a check has looked up.
        self.examined: set[Position] = set()

    def copied(self) -> Subscription:
        """Returns a copy that lives on by itself; no seek of it is in progress."""
        other = copy(self)
        for name, value in vars(self).items():
            if isinstance(value, dict | set | list):
                setattr(other, name, copy(value))
        other.is_moving = 0
        return other

    def acknowledge(self, positions: Iterable[Position], *, cumulative: bool) -> None:
        """Records a sent acknowledgement."""
        for position in positions:
            if cumulative:
                self.sent_upto = max(self.sent_upto, position)
            else:
                self.sent.add(position)

    def answered(self, positions: Iterable[Position], *, cumulative: bool, step: int) -> None:
        """Records a durable acknowledgement."""
        for position in positions:
            if cumulative and position > self.durable_upto[0]:
                self.durable_upto = (position, step)
            elif not cumulative:
                self.durable.setdefault(position, step)

    def was_durable(self, position: Position, before_step: int) -> bool:
        upto, step = self.durable_upto
        if position <= upto and step < before_step:
            return True
        return self.durable.get(position, before_step) < before_step

    def is_passed(self, position: Position) -> bool:
        return position in self.sent or position <= self.sent_upto

    # Seeks

    def begin_move(self, to: Position) -> None:
        self.moves += 1
        self.is_moving += 1
        self.moves_to.append(to)
        self.durable.clear()
        self.durable_upto = (EARLIEST, 0)

    def end_move(self) -> None:
        """Ends a call; the record shows, now or later, whether it moved the cursor."""
        self.moves += 1
        self.is_moving -= 1
        self.durable.clear()
        self.durable_upto = (EARLIEST, 0)

    def moved(self, start: Position) -> None:
        """Records a durable move, which cancels earlier acknowledgements."""
        self.moves_to.clear()
        self.sent.clear()
        self.sent_upto = EARLIEST
        self.examined.clear()
        self.start, self.has_moved = start, True

    def begins_behind(self, position: Position) -> bool:
        """Returns whether that entry lies before the start or the target of a move."""
        return self.start is not None and position < self.start

    def is_due(self, position: Position, born_step: int) -> bool:
        """Returns whether a consumer must receive it."""
        if self.is_passed(position):
            return False
        if self.start is not None:
            return position >= self.start
        return born_step > self.made_step


def covers(record: CursorRecord, position: Position) -> bool:
    """Returns whether a durable cursor has acknowledged that entry."""
    mark_delete = Position(record.mark_delete.ledger_id, record.mark_delete.entry_id)
    in_range = any(
        each.ledger_id == position.ledger_id
        and each.first_entry_id <= position.entry_id <= each.last_entry_id
        for each in record.acknowledged
    )
    in_span = any(
        (each.after.ledger_id, each.after.entry_id)
        < position
        <= (each.upto.ledger_id, each.upto.entry_id)
        for each in record.spans
    )
    return position <= mark_delete or in_range or in_span
