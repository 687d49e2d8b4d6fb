"""What is known of a subscription: what was acknowledged, what durably, and what it must still get.

An acknowledgement with a request id counts as durable when the broker has answered it; a seek makes
void what was acknowledged before. What was sent and never answered may count or not: it is neither
demanded nor forbidden.
"""

from __future__ import annotations

from collections.abc import Iterable

from ledgerfold.storage.entry import EARLIEST, Position
from ledgerfold.v1.records_pb2 import CursorRecord


class Subscription:
    """Of one life of a topic. Steps are the loop's, and order what happens."""

    def __init__(self, name: str, *, from_earliest: bool, step: int) -> None:
        self.name = name
        # Entries first sent after this step are due, and earlier ones from `start` on.
        self.made_step = step
        self.start = EARLIEST if from_earliest else None
        self.sent: set[Position] = set()
        self.sent_upto = EARLIEST
        # Position -> the step at which the broker said that its acknowledgement is durable.
        self.durable: dict[Position, int] = {}
        self.durable_upto: tuple[Position, int] = (EARLIEST, 0)
        # Consumers of compacted data acknowledge what they never got.
        self.has_compacted = False
        # Seeks begun and ended; nothing is known for certain while one is on its way.
        self.moves = 0
        self.is_moving = 0
        # An administrator passed something over, or a seek ended nobody knows where.
        self.is_vague = False

    def acknowledge(self, positions: Iterable[Position], *, cumulative: bool) -> None:
        """Sent."""
        for position in positions:
            if cumulative:
                self.sent_upto = max(self.sent_upto, position)
            else:
                self.sent.add(position)

    def answered(self, positions: Iterable[Position], *, cumulative: bool, step: int) -> None:
        """Durable."""
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

    def begin_move(self) -> None:
        self.moves += 1
        self.is_moving += 1
        self.durable.clear()
        self.durable_upto = (EARLIEST, 0)

    def end_move(self, start: Position | None) -> None:
        """`start`: where it goes on; None: nobody knows, or it did not happen."""
        self.moves += 1
        self.is_moving -= 1
        self.durable.clear()
        self.durable_upto = (EARLIEST, 0)
        if start is None:
            self.is_vague = True
            return
        self.sent.clear()
        self.sent_upto = EARLIEST
        self.start = start

    def is_due(self, position: Position, born_step: int) -> bool:
        """Whether a consumer must get it."""
        if self.is_vague or self.is_passed(position):
            return False
        if self.start is not None:
            return position >= self.start
        return born_step > self.made_step


def covers(record: CursorRecord, position: Position) -> bool:
    """Whether a durable cursor has that entry as acknowledged."""
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
